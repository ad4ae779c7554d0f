//! Calls that do not succeed: statuses, broken bodies, limits, deadlines.

use std::time::Duration;

use ringmain_web::grpc::Code;
use ringmain_wire::grpc::{Deflater, Encoding, Slot};

use crate::grpc::support::{Answer, DIALECTS, GRPC, TEXT, WEB, as_text, body, call, client, request, text};

#[test]
fn a_status_has_a_message_details_and_metadata() {
    let mut client = client();
    for dialect in DIALECTS {
        let answer = call(&mut client, dialect, "Echo", &[text("fail", 0)]);
        answer.fails(Code::NotFound, "nothing 100% there: \u{e4}");
        assert!(answer.payloads.is_empty());
        // Trailers-Only in gRPC: every field is in the head.
        let place = if dialect == GRPC {
            &answer.head
        } else {
            &answer.trailers
        };
        for line in [
            "grpc-message: nothing 100%25 there: %C3%A4",
            "x-why: asked to",
            "x-bytes-bin: AP8Q",
            // google.rpc.Status with a code, this message and one Any of a Text.
            "grpc-status-details-bin: \
             CAUSFm5vdGhpbmcgMTAwJSB0aGVyZTogw6QaKAoddHlwZS5nb29nbGVhcGlzLmNvbS90ZXN0LlRleHQSBwoDd2h5EAc",
        ] {
            assert!(place.contains(&line.to_owned()), "{line} in {place:#?}");
        }
    }
    client.finish().unwrap();
}

#[test]
fn errors_of_the_program_are_not_shown() {
    let mut client = client();
    for dialect in DIALECTS {
        for (how, code, words) in [
            ("error", Code::Aborted, "another has it"),
            ("panic", Code::Internal, ""),
            ("secret", Code::Internal, ""),
            ("reserved", Code::Internal, ""),
            ("capital", Code::Internal, ""),
            ("bytes", Code::Internal, ""),
        ] {
            let answer = call(&mut client, dialect, "Echo", &[text(how, 0)]);
            assert_eq!((answer.code, answer.message.as_str()), (code, words), "{how}");
        }
    }
    client.finish().unwrap();
}

#[test]
fn a_failing_stream_retains_the_sent_replies() {
    let mut client = client();
    for dialect in DIALECTS {
        let answer = call(&mut client, dialect, "Count", &[text("fail", 3)]);
        answer.fails(Code::DataLoss, "half of it");
        assert_eq!(answer.payloads.len(), 3);
        call(&mut client, dialect, "Count", &[text("fail", 0)]).fails(Code::DataLoss, "half of it");
    }
    client.finish().unwrap();
}

#[test]
fn methods_and_messages_that_are_not_there() {
    let mut client = client();
    for dialect in DIALECTS {
        call(&mut client, dialect, "Other", &[text("", 0)]).fails(Code::Unimplemented, "/test.Service/Other");
        call(&mut client, dialect, "Echo", &[]).fails(Code::Unimplemented, "found none");
        let two = [text("a", 0), text("b", 0)];
        call(&mut client, dialect, "Echo", &two).fails(Code::Unimplemented, "found more");
        call(&mut client, dialect, "Count", &two).fails(Code::Unimplemented, "found more");
    }
    client.finish().unwrap();
}

#[test]
fn requests_that_are_not_grpc_are_refused() {
    let mut client = client();
    for content_type in [
        "",
        "application/json",
        "application/grpc+json",
        "application/grpcs",
        "application/grpc-web+",
        "application/grpc-web-texts",
    ] {
        let reply = request(&mut client, content_type, "Echo").body("{}").send();
        assert_eq!(reply.status(), 415, "{content_type}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
    let reply = client.get("/test.Service/Echo").send();
    assert_eq!(
        (reply.status(), reply.header("allow")),
        (405, Some("POST, OPTIONS"))
    );
    assert_eq!(
        client
            .post("/test.Other/Echo")
            .header("Content-Type", GRPC)
            .send()
            .status(),
        404
    );
    // The client could not read the status.
    let request = client.post("/test.Service/Echo").header("Content-Type", GRPC);
    Answer::read(GRPC, &request.body(body(GRPC, &[text("", 0)])).send())
        .fails(Code::Internal, "TE: trailers");
    client.finish().unwrap();
}

#[test]
fn broken_bodies_are_reported_with_their_position() {
    let mut client = client();
    let whole = body(GRPC, &[text("a", 1)]);
    let cases: [(&[u8], &str); 5] = [
        (&whole[..4], "at byte 4: expected the rest of the message"),
        (&whole[..7], "at byte 7: expected the rest of the message"),
        (&[2, 0, 0, 0, 0], "at byte 0: expected a flag"),
        (&[0x80, 0, 0, 0, 0], "at byte 0: expected a flag"),
        (&[0, 0, 0, 0, 1, 0xFF], "expected a message of this method's type"),
    ];
    for dialect in DIALECTS {
        for (broken, words) in cases {
            let request = request(&mut client, dialect, "Echo").body(as_text(dialect, broken.to_vec()));
            Answer::read(dialect, &request.send()).fails(Code::Internal, words);
        }
    }
    for (text, words) in [
        ("AAA", "at byte 0: expected the rest of a group"),
        ("AAAAAA!=", "at byte 4: expected base64"),
        ("A===", "at byte 0: expected base64"),
    ] {
        let reply = request(&mut client, TEXT, "Sum").body(text).send();
        Answer::read(TEXT, &reply).fails(Code::Internal, words);
    }
    client.finish().unwrap();
}

#[test]
fn encodings_that_cannot_be_read() {
    let mut client = client();
    for dialect in DIALECTS {
        let reply = request(&mut client, dialect, "Echo")
            .header("grpc-encoding", "br")
            .body(body(dialect, &[text("", 0)]))
            .send();
        let answer = Answer::read(dialect, &reply);
        answer.fails(Code::Unimplemented, "found `br`");
        assert!(
            answer
                .head
                .contains(&"grpc-accept-encoding: identity,deflate,gzip".to_owned())
        );
        let flagged = as_text(dialect, vec![1, 0, 0, 0, 1, 0]);
        for (encoding, words) in [
            (None, "names no encoding"),
            (Some("identity"), "names no encoding"),
            (Some("gzip"), "expected a message in its encoding"),
        ] {
            let mut request = request(&mut client, dialect, "Echo");
            if let Some(encoding) = encoding {
                request = request.header("grpc-encoding", encoding);
            }
            let reply = request.body(flagged.clone()).send();
            Answer::read(dialect, &reply).fails(Code::Internal, words);
        }
    }
    client.finish().unwrap();
}

#[test]
fn messages_beyond_their_limit() {
    let mut client = client();
    let long = text("x".repeat(64 * 1024), 0);
    // The prefix alone says it.
    let announced = vec![0, 0, 1, 0, 1];
    let mut bomb = Vec::new();
    let slot = Slot::open(&mut bomb);
    Deflater::new(9).deflate(Encoding::Gzip, &[0; 10_000_000], &mut bomb);
    slot.close(&mut bomb, true).unwrap();
    assert!(bomb.len() < 64 * 1024);
    for dialect in DIALECTS {
        let more = "more than 65536";
        for (body, words) in [
            (body(dialect, std::slice::from_ref(&long)), "found 65540"),
            (as_text(dialect, announced.clone()), "found 65537"),
            (as_text(dialect, bomb.clone()), more),
        ] {
            let request = request(&mut client, dialect, "Sum").header("grpc-encoding", "gzip");
            Answer::read(dialect, &request.body(body).send()).fails(Code::ResourceExhausted, words);
        }
    }
    client.finish().unwrap();
}

#[test]
fn deadlines_end_calls() {
    let mut client = client();
    for dialect in DIALECTS {
        let mut ask = |timeout: &str, message| {
            let request = request(&mut client, dialect, "Echo").header("grpc-timeout", timeout);
            let answer = Answer::read(dialect, &request.body(body(dialect, &[message])).send());
            (answer, client.elapsed(), client.running())
        };
        let began = ask("1H", text("", 0)).1;
        let (answer, ended, running) = ask("2S", text("wait", 3600));
        answer.fails(Code::DeadlineExceeded, "deadline");
        assert!(ended - began < Duration::from_secs(4), "{:?}", ended - began);
        assert_eq!(running, 0, "the handler is gone");
        ask("5000m", text("wait", 1)).0.gives(&[text("wait", 1)]);
        ask("0n", text("wait", 1)).0.fails(Code::DeadlineExceeded, "");
        ask("99999999H", text("", 1)).0.gives(&[text("", 1)]);
        let left = ask("3M", text("left", 0)).0.messages()[0].text.clone();
        assert!(left.starts_with("Some(179") || left == "Some(180s)", "{left}");
        ask("3", text("", 0)).0.fails(Code::Internal, "found `3`");
    }
    client.finish().unwrap();
}

#[test]
fn a_deadline_ends_a_stream_that_has_begun() {
    let mut client = client();
    let head = format!(
        "POST /test.Service/Talk HTTP/1.1\r\nHost: a\r\nContent-Type: {WEB}\r\ngrpc-timeout: 5S\r\nContent-Length: 100\r\n\r\n"
    );
    let mut raw = client.raw();
    raw.send(head);
    raw.send(body(WEB, &[text("a", 1)]));
    let reply = raw.try_reply("POST").unwrap();
    let answer = Answer::read(WEB, &reply);
    answer.fails(Code::DeadlineExceeded, "deadline");
    assert_eq!(answer.messages(), [text("A", 1)]);
    assert!(reply.closes(), "the rest of the body is not there");
    drop(raw);
    client.finish().unwrap();
}
