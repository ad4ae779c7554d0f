//! Every limit of [`Limits`] in virtual time: what happens just below it, and beyond.

use std::net::SocketAddr;
use std::time::Duration;

use ringmain_web::testing::{Ending, RawConnection, TestClient};
use ringmain_web::{App, Limits};

fn client(limits: Limits, app: App) -> TestClient {
    TestClient::new(app.limits(limits)).unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn running_requests_beyond_their_limit_are_told_to_come_again() {
    let limits = Limits {
        running_requests: 1,
        ..Limits::default()
    };
    let app = App::new()
        .get_async("/slow", async |req, reply| {
            req.cx().sleep(seconds(10)).await;
            reply.text("slow")
        })
        .post_streamed("/upload", async |_, reply| reply.text("not reached"));
    let mut client = client(limits, app);
    let mut first = client.raw();
    first.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    first.advance(seconds(1));
    let busy = client.get("/slow").send();
    assert_eq!((busy.status(), busy.header("retry-after")), (503, Some("1")));
    assert!(!busy.closes(), "the connection can be used to try again");
    assert_eq!(client.head("/slow").send().status(), 503);
    let busy = client.post("/upload").body("body").send();
    assert_eq!(
        (busy.status(), busy.closes()),
        (503, true),
        "its body is not read"
    );
    assert_eq!(first.reply().text(), "slow");
    assert_eq!(client.get("/slow").send().text(), "slow");
}

#[test]
fn connections_of_one_address_beyond_their_limit_are_told_so() {
    let limits = Limits {
        connections_per_address: Some(2),
        ..Limits::default()
    };
    let mut client = client(limits, App::new().get("/", |_, reply| reply.text("root")));
    let from = |port| SocketAddr::from(([192, 0, 2, 7], port));
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut open: Vec<RawConnection> = (0..2).map(|port| client.raw_from(from(1000 + port))).collect();
    for raw in &mut open {
        raw.send(request);
        assert_eq!(raw.reply().text(), "root");
    }
    let mut third = client.raw_from(from(2000));
    third.send(request);
    let refused = third.reply();
    assert_eq!(
        (refused.status(), refused.header("retry-after")),
        (503, Some("1"))
    );
    assert!(refused.closes());
    third.end();
    assert_eq!(third.read_to_end().unwrap(), (Vec::new(), Ending::Closed));
    assert_eq!(client.get("/").send().status(), 200, "from another address");
    // Local proxies and load tests.
    for port in 0..5 {
        let mut local = client.raw_from(SocketAddr::from(([127, 0, 0, 1], 3000 + port)));
        local.send(request);
        assert_eq!(local.reply().status(), 200);
    }
    drop(open.pop());
    client.advance(seconds(1));
    let mut third = client.raw_from(from(2001));
    third.send(request);
    assert_eq!(third.reply().text(), "root");
    drop((third, open));
    client.finish().unwrap();
}
