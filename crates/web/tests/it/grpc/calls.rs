//! Calls of each kind in each dialect.

use ringmain_web::App;
use ringmain_web::grpc::Code;
use ringmain_web::testing::TestClient;
use ringmain_wire::grpc::{Deflater, Encoding, Inflater, Slot};

use crate::grpc::support::{
    Answer, DIALECTS, GRPC, TEXT, Text, WEB, as_text, body, call, client, request, service, text,
};
use ringmain_web::grpc::prost::Message;

#[test]
fn one_message_each_way() {
    let mut client = client();
    for dialect in DIALECTS {
        let message = text("hello", 5);
        call(&mut client, dialect, "Echo", std::slice::from_ref(&message)).gives(&[message]);
        call(&mut client, dialect, "Echo", &[text("", 0)]).gives(&[text("", 0)]);
    }
    // Every call used one connection.
    assert_eq!(client.connections(), 1);
    client.finish().unwrap();
}

#[test]
fn long_messages_leave_in_shares() {
    let app = App::new().grpc(service().message_limit(8 * 1024 * 1024));
    let mut client = TestClient::new(app).unwrap();
    for dialect in DIALECTS {
        let message = text("long ".repeat(600_000), 5);
        call(&mut client, dialect, "Echo", std::slice::from_ref(&message)).gives(&[message]);
    }
    client.finish().unwrap();
}

#[test]
fn streams_one_way_and_both() {
    for seed in 0..4 {
        let mut client = TestClient::with_seed(App::new().grpc(service()), seed).unwrap();
        for dialect in DIALECTS {
            let replies: Vec<_> = (0..4).map(|number| text("ab".repeat(100), number)).collect();
            call(&mut client, dialect, "Count", &[text("ab", 4)]).gives(&replies);
            call(&mut client, dialect, "Count", &[text("ab", 0)]).gives(&[]);
            let messages = [text("a", 1), text("b", 2), text("", 3)];
            call(&mut client, dialect, "Sum", &messages).gives(&[text("ab", 6)]);
            call(&mut client, dialect, "Sum", &[]).gives(&[text("", 0)]);
            let upper = [text("A", 1), text("B", 2), text("", 3)];
            let answer = call(&mut client, dialect, "Talk", &messages);
            answer.gives(&upper);
            assert!(answer.head.contains(&"x-talk: begins".to_owned()), "{answer:?}");
        }
        client.finish().unwrap();
    }
}

#[test]
fn a_body_may_arrive_in_any_chunks() {
    let messages = [text("abc".repeat(50), 1), text("", 0), text("d", 2)];
    let sum = text("abc".repeat(50) + "d", 3);
    let mut client = client();
    for dialect in DIALECTS {
        for bytes in [1, 2, 3, 5, 7, 100] {
            let request = request(&mut client, dialect, "Sum")
                .body(body(dialect, &messages))
                .chunked(bytes);
            Answer::read(dialect, &request.send()).gives(std::slice::from_ref(&sum));
        }
    }
    // Text that was padded in the middle.
    let padded: Vec<u8> = messages
        .iter()
        .flat_map(|message| body(TEXT, std::slice::from_ref(message)))
        .collect();
    assert!(padded[..padded.len() - 4].contains(&b'='));
    let reply = request(&mut client, TEXT, "Sum").body(padded).send();
    Answer::read(TEXT, &reply).gives(&[sum]);
    client.finish().unwrap();
}

#[test]
fn metadata_goes_both_ways() {
    let mut client = client();
    for dialect in DIALECTS {
        let reply = request(&mut client, dialect, "Echo")
            .header("X-Say", "a word")
            .header("x-say-bin", "AP8Q, AAAA")
            .body(body(dialect, &[text("metadata", 0)]))
            .send();
        let answer = Answer::read(dialect, &reply);
        let name = match dialect {
            GRPC => "Grpc",
            WEB => "Web",
            _ => "WebText",
        };
        answer.gives(&[text(format!("{name} [0, 255, 16]"), 0)]);
        for line in ["x-said: a word", "x-said-bin: AP8Q"] {
            assert!(answer.head.contains(&line.to_owned()), "{answer:?}");
        }
        assert!(
            answer.trailers.contains(&"x-end: after all".to_owned()),
            "{answer:?}"
        );
    }
    client.finish().unwrap();
}

/// One compressed message.
fn compressed(encoding: Encoding, message: &Text) -> Vec<u8> {
    let mut out = Vec::new();
    let slot = Slot::open(&mut out);
    Deflater::new(6).deflate(encoding, &message.encode_to_vec(), &mut out);
    slot.close(&mut out, true).unwrap();
    out
}

#[test]
fn messages_are_compressed_where_both_want_it() {
    let app = App::new().grpc(service().compress());
    let mut client = TestClient::new(app).unwrap();
    let message = text("long ".repeat(100), 5);
    for dialect in DIALECTS {
        for (encoding, accepted, expected) in [
            (Encoding::Gzip, "identity, gzip", Encoding::Gzip),
            (Encoding::Deflate, "deflate", Encoding::Deflate),
            (Encoding::Gzip, "deflate,gzip", Encoding::Gzip),
            (Encoding::Gzip, "br", Encoding::Identity),
            (Encoding::Deflate, "", Encoding::Identity),
        ] {
            let reply = request(&mut client, dialect, "Echo")
                .header("grpc-encoding", encoding.name())
                .header("grpc-accept-encoding", accepted)
                .body(as_text(dialect, compressed(encoding, &message)))
                .send();
            let found = reply.header("grpc-encoding").map(str::to_owned);
            let answer = Answer::read(dialect, &reply);
            assert_eq!(answer.code, Code::Ok, "{answer:?}");
            let [(payload, flag)] = &answer.payloads[..] else {
                panic!("one message, not {answer:?}");
            };
            assert_eq!(*flag, expected != Encoding::Identity);
            let mut plain = Vec::new();
            if *flag {
                assert_eq!(found.as_deref(), Some(expected.name()));
                assert!(payload.len() < 100);
                Inflater::new()
                    .inflate(expected, payload, 4096, &mut plain)
                    .unwrap();
            } else {
                plain.clone_from(payload);
            }
            assert_eq!(Text::decode(plain.as_slice()).unwrap(), message);
        }
        // Short ones hardly become smaller.
        let reply = request(&mut client, dialect, "Echo")
            .header("grpc-accept-encoding", "gzip")
            .body(body(dialect, &[text("short", 1)]))
            .send();
        Answer::read(dialect, &reply).gives(&[text("short", 1)]);
    }
    client.finish().unwrap();
}
