//! The health service: known services, watchers, the shutdown.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_web::App;
use ringmain_web::grpc::prost::Message;
use ringmain_web::grpc::{Code, HealthService};
use ringmain_web::testing::TestClient;
use ringmain_wire::grpc::Slot;

use crate::grpc::support::{Answer, DIALECTS, WEB, as_text};

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(btree_map = "string, message", tag = "1")]
    statuses: BTreeMap<String, Status>,
}

fn body(service: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let slot = Slot::open(&mut body);
    let question = Question {
        service: service.into(),
    };
    question.encode(&mut body).unwrap();
    slot.close(&mut body, false).unwrap();
    body
}

fn ask(client: &mut TestClient, dialect: &str, method: &str, service: &str) -> Answer {
    let mut request = client
        .post(&format!("/grpc.health.v1.Health/{method}"))
        .header("Content-Type", dialect);
    if dialect == DIALECTS[0] {
        request = request.header("TE", "trailers");
    }
    Answer::read(dialect, &request.body(as_text(dialect, body(service))).send())
}

fn status(answer: &Answer) -> i32 {
    assert_eq!(answer.code, Code::Ok, "{answer:?}");
    let [(payload, false)] = &answer.payloads[..] else {
        panic!("one message, not {answer:?}");
    };
    Status::decode(payload.as_slice()).unwrap().status
}

#[test]
fn known_services_have_a_status() {
    for dialect in DIALECTS {
        let health = HealthService::new();
        health.set("one", true);
        let mut client = TestClient::new(App::new().grpc(health.service())).unwrap();
        assert_eq!(status(&ask(&mut client, dialect, "Check", "")), 1);
        assert_eq!(status(&ask(&mut client, dialect, "Check", "one")), 1);
        ask(&mut client, dialect, "Check", "two").fails(Code::NotFound, "");
        health.set("two", false);
        assert_eq!(status(&ask(&mut client, dialect, "Check", "two")), 2);
        let list = ask(&mut client, dialect, "List", "");
        let list = List::decode(list.payloads[0].0.as_slice()).unwrap();
        let found: Vec<_> = list
            .statuses
            .iter()
            .map(|(name, one)| (name.as_str(), one.status))
            .collect();
        assert_eq!(found, [("", 1), ("one", 1), ("two", 2)]);
        health.set("two", true);
        assert_eq!(status(&ask(&mut client, dialect, "Check", "two")), 1);
        client.finish().unwrap();
    }
}

#[test]
fn watchers_receive_changes_and_the_shutdown() {
    let health = HealthService::new();
    let mut client = TestClient::new(App::new().grpc(health.service())).unwrap();
    let mut raw = client.raw();
    let body = body("one");
    raw.send(format!(
        "POST /grpc.health.v1.Health/Watch HTTP/1.1\r\nHost: a\r\nContent-Type: {WEB}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    raw.send(&body);
    let mut told = |what: &[u8]| {
        raw.advance(Duration::from_secs(1));
        let received = raw.received();
        assert!(received.ends_with(what), "{}", received.escape_ascii());
    };
    // SERVICE_UNKNOWN, then each new status, once.
    told(b"\r\n\r\n7\r\n\0\0\0\0\x02\x08\x03\r\n");
    health.set("one", true);
    told(b"7\r\n\0\0\0\0\x02\x08\x01\r\n");
    health.set("two", true);
    health.set("one", true);
    told(b"");
    health.set("one", false);
    health.set("one", true);
    told(b"");
    health.set("one", false);
    told(b"7\r\n\0\0\0\0\x02\x08\x02\r\n");
    health.set("one", true);
    told(b"7\r\n\0\0\0\0\x02\x08\x01\r\n");
    client.shut_down();
    let (rest, _) = raw.read_to_end().unwrap();
    assert!(
        rest.starts_with(b"7\r\n\0\0\0\0\x02\x08\x02\r\n"),
        "{}",
        rest.escape_ascii()
    );
    let end = rest.windows(15).any(|window| window == b"grpc-status: 14");
    assert!(end, "UNAVAILABLE: {}", rest.escape_ascii());
    drop(raw);
    client.finish().unwrap();
}

#[test]
fn a_finished_watcher_is_removed() {
    let health = HealthService::new();
    let mut client = TestClient::new(App::new().grpc(health.service())).unwrap();
    let mut raw = client.raw();
    raw.send(format!(
        "POST /grpc.health.v1.Health/Watch HTTP/1.1\r\nHost: a\r\nContent-Type: {WEB}\r\nContent-Length: 5\r\n\r\n\0\0\0\0\0"
    ));
    raw.advance(Duration::from_secs(1));
    assert_eq!(client.running(), 1);
    raw.reset();
    client.advance(Duration::from_secs(1));
    assert_eq!(client.running(), 0);
    health.set("", false);
    client.finish().unwrap();
}
