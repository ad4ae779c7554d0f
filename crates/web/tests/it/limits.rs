//! Every limit of [`Limits`] in virtual time: what happens just below it, and beyond.

use std::net::SocketAddr;
use std::time::Duration;

use ringmain_web::stats::Rejection;
use ringmain_web::testing::{ConnectionEnd, Plan, RawConnection, Setup, TestClient};
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
    let rejected = client.app().stats().totals().rejected;
    assert!(
        rejected.contains(&(Rejection::RunningRequests, 3)),
        "{rejected:?}"
    );
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
    assert_eq!(third.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
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

const HOST: &str = "Host: a\r\n";

/// Sends a byte each second until the connection ends; returns how many seconds that took.
fn trickle(raw: &mut RawConnection, bytes: &str) -> u64 {
    for (second, byte) in bytes.bytes().cycle().take(600).enumerate() {
        if raw.ending().is_some() || raw.readable() > 0 {
            return second as u64;
        }
        raw.send([byte]);
        raw.advance(seconds(1));
    }
    panic!("ten minutes were not enough");
}

#[test]
fn a_head_that_trickles_in_is_given_its_time_and_no_more() {
    let app = App::new().get("/", |_, reply| reply.text("root"));
    let mut client = client(Limits::default(), app);
    // The first: from the opening of the connection.
    let mut raw = client.raw();
    raw.advance(seconds(4));
    let took = trickle(&mut raw, "GET / HTTP/1.1 and so on");
    assert!((6..=7).contains(&took), "{took} s");
    let refused = raw.reply();
    assert_eq!((refused.status(), refused.closes()), (408, true));
    // A later one: from its first byte.
    let mut raw = client.raw();
    raw.send(format!("GET / HTTP/1.1\r\n{HOST}\r\n"));
    assert_eq!(raw.reply().status(), 200);
    raw.advance(seconds(60));
    let took = trickle(&mut raw, "GET / HTTP/1.1 and so on");
    assert!((10..=11).contains(&took), "{took} s");
    assert_eq!(raw.reply().status(), 408);
    // Not even one byte: nothing is said.
    let mut raw = client.raw();
    raw.advance(seconds(9));
    assert_eq!(raw.ending(), None);
    raw.advance(seconds(2));
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
}

#[test]
fn a_later_head_that_begins_with_an_earlier_request_has_its_time_too() {
    let app = App::new()
        .get("/", |_, reply| reply.text("root"))
        .get_async("/async", async |req, reply| {
            req.cx().sleep(seconds(30)).await;
            reply.text("async")
        });
    let mut client = client(Limits::default(), app);
    for (path, status) in [("/", 200), ("/async", 200), ("/nowhere", 404)] {
        let mut raw = client.raw();
        raw.send(format!("GET {path} HTTP/1.1\r\n{HOST}\r\nGET / HT"));
        assert_eq!(raw.reply().status(), status, "{path}");
        raw.advance(seconds(9));
        assert_eq!((raw.readable(), raw.ending()), (0, None), "{path}");
        raw.advance(seconds(2));
        assert_eq!(raw.reply().status(), 408, "{path}");
    }
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let app = App::new()
        .get("/", |_, reply| reply.text("root"))
        .get_async("/async", async |_, reply| reply.text("async"));
    let mut client = client(Limits::default(), app);
    for path in ["/", "/async"] {
        let mut raw = client.raw();
        for _ in 0..2 {
            raw.send(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n"));
            assert_eq!(raw.reply().status(), 200);
            raw.advance(seconds(74));
            assert_eq!(raw.ending(), None, "{path}");
        }
        raw.advance(seconds(2));
        assert_eq!(raw.ending(), Some(ConnectionEnd::Closed), "{path}");
    }
}

fn uploads() -> App {
    App::new()
        .post("/collect", |req, reply| reply.text(req.body().len().to_string()))
        .post_streamed("/stream", async |req, reply| {
            let mut bytes = 0;
            while let Some(chunk) = req.chunk().await? {
                bytes += chunk.len();
            }
            reply.text(bytes.to_string())
        })
        .post_streamed("/busy", async |req, reply| {
            let mut bytes = 0;
            while let Some(chunk) = req.chunk().await? {
                bytes += chunk.len();
                req.cx().sleep(seconds(60)).await;
            }
            reply.text(bytes.to_string())
        })
}

#[test]
fn a_body_that_trickles_in_is_refused_wherever_it_goes() {
    let mut client = client(Limits::default(), uploads());
    for path in ["/collect", "/stream"] {
        let mut raw = client.raw();
        raw.send(format!(
            "POST {path} HTTP/1.1\r\n{HOST}Content-Length: 10000\r\n\r\n"
        ));
        let took = trickle(&mut raw, "body");
        assert!((5..=8).contains(&took), "{path}: {took} s");
        let refused = raw.reply();
        assert_eq!((refused.status(), refused.closes()), (408, true), "{path}");
    }
    // It has its answer, and no second one.
    let mut raw = client.raw();
    raw.send(format!(
        "POST /nowhere HTTP/1.1\r\n{HOST}Content-Length: 10000\r\n\r\n"
    ));
    assert_eq!(raw.reply().status(), 404);
    let took = trickle(&mut raw, "body");
    assert!((5..=8).contains(&took), "{took} s");
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Reset));
    // Just fast enough.
    for path in ["/collect", "/stream"] {
        let mut raw = client.raw();
        raw.send(format!(
            "POST {path} HTTP/1.1\r\n{HOST}Content-Length: 10000\r\n\r\n"
        ));
        for _ in 0..40 {
            raw.send([b'x'; 250]);
            raw.advance(seconds(1));
        }
        assert_eq!(raw.reply().text(), "10000", "{path}");
    }
}

#[test]
fn the_time_of_a_handler_that_does_not_read_is_not_its_clients() {
    let mut client = client(Limits::default(), uploads());
    let mut raw = client.raw();
    raw.send(format!(
        "POST /busy HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\nfirst"
    ));
    raw.advance(seconds(62));
    assert_eq!(
        (raw.readable(), raw.ending()),
        (0, None),
        "the handler waits for two seconds"
    );
    raw.send("later");
    raw.advance(seconds(58));
    assert_eq!(raw.reply().text(), "10");
    // And its time still passes where the handler does wait.
    let mut raw = client.raw();
    raw.send(format!(
        "POST /busy HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\nfirst"
    ));
    raw.advance(seconds(70));
    assert_eq!(raw.reply().status(), 408);
}

/// Returns a client on a network that buffers few bytes of a stream, so that the client's reads control the server's writes.
fn narrow(app: App) -> TestClient {
    let mut plan = Plan::calm();
    (plan.send_bytes, plan.receive_bytes) = (1024, 1024);
    let setup = Setup {
        plan,
        ..Setup::default()
    };
    TestClient::with(app, setup).unwrap()
}

#[test]
fn an_answer_that_is_hardly_taken_is_cut() {
    const BYTES: usize = 400_000;
    let app = App::new()
        .get("/plain", |_, reply| {
            reply.body().resize(BYTES, b'x');
            Ok(())
        })
        .get_async("/async", async |_, reply| {
            reply.body().resize(BYTES, b'x');
            Ok(())
        })
        .get_async("/stream", async |_, reply| {
            for _ in 0..BYTES / 1000 {
                reply.write([b'x'; 1000]).await?;
            }
            Ok(())
        });
    let mut client = narrow(app);
    for path in ["/plain", "/async", "/stream"] {
        let mut raw = client.raw();
        raw.send(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n"));
        let mut taken = 0;
        let mut cut_after = None;
        for second in 0..200 {
            raw.advance(seconds(1));
            taken += raw.take(20).len();
            if raw.ending().is_some() || client.connections() == 0 {
                cut_after = Some(second);
                break;
            }
        }
        // The permitted pause, a tick or two, and the time regained by the bytes taken and the two kilobytes that the network
        // holds, at 240 bytes a second.
        let cut_after = cut_after.unwrap_or_else(|| panic!("{path}: {taken} bytes in 200 s"));
        assert!((20..=33).contains(&cut_after), "{path}: {cut_after} s");
        // Five times as fast as it must be.
        let mut raw = client.raw();
        raw.send(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n"));
        let mut taken = 0;
        for _ in 0..60 {
            raw.advance(seconds(1));
            taken += raw.take(1200).len();
        }
        assert!(
            taken > 55 * 1000 && raw.ending().is_none(),
            "{path}: {taken} bytes"
        );
        raw.reset();
        client.advance(seconds(1));
    }
}

/// The client's earlier rate and the position of the pause make no difference: one limit applies.
#[test]
fn a_reader_may_pause_up_to_the_limit() {
    let app = App::new()
        .get("/plain", |_, reply| {
            reply.body().resize(1_000_000, b'x');
            Ok(())
        })
        .get_async("/stream", async |_, reply| {
            for _ in 0..1000 {
                reply.write([b'x'; 1000]).await?;
            }
            Ok(())
        });
    let mut client = narrow(app);
    let pause = Limits::default().send_pause;
    for path in ["/plain", "/stream"] {
        for fast in [0, 1, 7] {
            let mut raw = client.raw();
            raw.send(format!("GET {path} HTTP/1.1\r\n{HOST}\r\n"));
            for _ in 0..fast * 10 {
                raw.advance(Duration::from_millis(100));
                raw.take(1000);
            }
            // Twice it pauses for nearly as long as it may, and earns that back.
            for _ in 0..2 {
                raw.advance(pause - seconds(2));
                assert_eq!(raw.ending(), None, "{path}, {fast} s fast: in the pause");
                for _ in 0..50 {
                    raw.advance(Duration::from_millis(100));
                    raw.take(1000);
                }
            }
            raw.advance(pause - seconds(1));
            assert_eq!(
                raw.ending(),
                None,
                "{path}, {fast} s fast: before the end of the pause"
            );
            raw.advance(seconds(5));
            let cut = raw.ending().is_some() || client.connections() == 0;
            assert!(cut, "{path}, {fast} s fast: behind it");
        }
    }
}
