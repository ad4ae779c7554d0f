//! Bodies both ways, under flow control.

use ringmain_web::{App, Bytes};
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Limits};

use crate::http2::client::{Http2, fields};
use crate::support::{Setting, pattern, serve};

in_every_way!(
    a_body_is_collected_for_a_plain_handler,
    a_body_that_is_too_long_is_refused,
    a_client_that_expects_100_continue_receives_it,
    a_body_is_streamed_through_a_handler,
    trailers_of_a_request_reach_its_handler,
    a_large_answer_keeps_to_its_windows,
    large_answers_share_a_connection,
    an_answer_before_the_end_of_the_body_ends_it,
    a_streamed_answer_waits_for_its_client,
);

const LARGE: usize = 1_500_000;

fn app() -> App {
    let limits = ringmain_web::Limits {
        body_bytes: 100_000,
        ..ringmain_web::Limits::default()
    };
    App::new()
        .limits(limits)
        .get("/", |_, reply| reply.text("root"))
        .post("/length", |req, reply| reply.text(req.body().len().to_string()))
        .post_async("/later", async |req, reply| {
            reply.text(req.body().len().to_string())
        })
        .post_streamed("/through", async |req, reply| {
            while let Some(chunk) = req.chunk().await? {
                reply.write_bytes(chunk).await?;
            }
            Ok(())
        })
        .post_streamed("/trailers", async |req, reply| {
            while req.chunk().await?.is_some() {}
            let trailers = req.trailers();
            let all: Vec<String> = trailers
                .iter()
                .map(|(name, value)| format!("{name}={}", value.escape_ascii()))
                .collect();
            reply.text(all.join(" "))
        })
        .post_streamed("/hasty", async |_, reply| reply.text("enough"))
        .get("/large", |_, reply| {
            reply.bytes("application/octet-stream", Bytes::from(pattern(LARGE)))
        })
        .get_async("/pieces", async |_, reply| {
            reply.length(LARGE as u64);
            for piece in pattern(LARGE).chunks(10_000) {
                reply.write(piece).await?;
            }
            Ok(())
        })
}

fn a_body_is_collected_for_a_plain_handler(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    for length in [0, 1, 1000, 70_000, 100_000] {
        for path in ["/length", "/later"] {
            let stream = client.post(path, &pattern(length));
            client.wait(stream).expect(200, &length.to_string());
        }
    }
    let stream = client.head("POST", "/length", &FieldBlock::new(), true);
    client.wait(stream).expect(200, "0");
}

fn a_body_that_is_too_long_is_refused(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let stream = client.post("/length", &pattern(100_001));
    let got = client.wait(stream);
    assert_eq!(got.status, 413);
    let stream = client.post("/nowhere", &pattern(300_000));
    assert_eq!(client.wait(stream).status, 404);
    client.ask("/").expect(200, "root");
}

fn a_client_that_expects_100_continue_receives_it(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    for path in ["/length", "/through"] {
        let stream = client.head("POST", path, &fields(&[("Expect", "100-continue")]), false);
        let got = client.wait_for(stream, |got| !got.interim.is_empty());
        assert_eq!((got.interim, got.status), (vec![100], 0));
        assert_eq!(client.wire.data(stream, b"12345", true, &mut client.out), Ok(5));
        let expected = if path == "/length" { "5" } else { "12345" };
        client.wait(stream).expect(200, expected);
    }
}

fn a_body_is_streamed_through_a_handler(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let first = client.post("/through", &pattern(LARGE));
    let second = client.post("/through", &pattern(1000));
    let got = client.wait(second);
    assert!(got.end && got.body == pattern(1000));
    let got = client.wait(first);
    assert!(
        got.end && got.body == pattern(LARGE),
        "{} {:?}",
        got.body.len(),
        got.reset
    );
}

fn trailers_of_a_request_reach_its_handler(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let stream = client.head("POST", "/trailers", &FieldBlock::new(), false);
    client
        .wire
        .data(stream, b"body", false, &mut client.out)
        .expect("a stream");
    let trailers = fields(&[("X-Sum", "4"), ("X-More", "5")]);
    client
        .wire
        .trailers(stream, &trailers, &mut client.out)
        .expect("a stream");
    client.wait(stream).expect(200, "x-sum=4 x-more=5");
}

/// Windows that are reached soon.
fn small() -> Limits {
    Limits {
        stream_window: 5000,
        connection_window: 65_535,
        ..Limits::INTERNET
    }
}

fn a_large_answer_keeps_to_its_windows(setting: Setting) {
    let server = serve(setting.clone(), app());
    for path in ["/large", "/pieces"] {
        let mut client = Http2::with(&setting, &server, &small());
        // The codec checks that no byte too many arrives.
        let got = client.ask(path);
        assert!(
            got.end && got.body == pattern(LARGE),
            "{} {:?}",
            got.body.len(),
            got.reset
        );
        assert_eq!(got.field("content-length"), Some(&*LARGE.to_string()));
        client.ask("/").expect(200, "root");
    }
}

fn large_answers_share_a_connection(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let streams: Vec<_> = (0..6)
        .map(|number| client.get(if number % 2 == 0 { "/large" } else { "/pieces" }))
        .collect();
    client.ask("/").expect(200, "root");
    for stream in streams {
        let got = client.wait(stream);
        assert!(got.end && got.body == pattern(LARGE), "{}", got.body.len());
    }
}

fn an_answer_before_the_end_of_the_body_ends_it(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::new(&setting, &server);
    let stream = client.head("POST", "/hasty", &FieldBlock::new(), false);
    let got = client.wait_for(stream, |got| got.reset.is_some());
    got.expect(200, "enough");
    assert_eq!(got.reset, Some(ErrorCode::NO_ERROR));
    client.ask("/").expect(200, "root");
}

fn a_streamed_answer_waits_for_its_client(setting: Setting) {
    let server = serve(setting.clone(), app());
    let mut client = Http2::with(&setting, &server, &small());
    client.hungry = false;
    let stream = client.get("/pieces");
    let got = client.wait_for(stream, |got| got.body.len() == 5000);
    assert!(!got.end);
    // Other streams continue meanwhile.
    client.ask("/").expect(200, "root");
    assert_eq!(client.so_far(stream).body.len(), 5000);
    client.hungry = true;
    client.wire.consume(stream, 5004, &mut client.out);
    let got = client.wait(stream);
    assert!(got.end && got.body == pattern(LARGE), "{}", got.body.len());
}
