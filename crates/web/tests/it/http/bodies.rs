//! Bodies both ways: in one piece, in chunks, cut anywhere, large, and held back by whoever does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::limits::{READ_MARK, READ_PER_TURN, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS};
use ringmain_web::{App, Limits, limits};

use crate::support::{Client, End, Setting, chunked, get, pattern, post, serve};

in_every_way!(
    every_cut_of_a_chunked_upload,
    a_large_upload_is_collected,
    a_large_upload_is_streamed,
    an_upload_beyond_its_limit_is_413,
    a_handler_that_does_not_read_holds_the_client,
    a_large_answer_arrives_whole,
    a_client_that_does_not_read_holds_the_handler,
    a_streamed_answer_of_declared_length,
    an_answer_that_fails_in_its_middle_is_cut,
    an_early_answer_to_a_large_upload_is_read,
    an_unwanted_body_is_dropped,
    a_large_answer_instead_of_a_route_keeps_the_order,
    the_handler_sees_a_broken_chunk,
    a_body_that_drips_is_too_slow,
);

const LARGE: usize = 10 * 1024 * 1024;

/// More than all buffers of both ends hold.
const HUGE: usize = 32 * 1024 * 1024;

fn length_and_sum(bytes: &[u8]) -> String {
    let sum = bytes
        .iter()
        .fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("{} {sum}", bytes.len())
}

fn app() -> App {
    App::new()
        .get("/", |_, reply| reply.text("ok"))
        .post("/whole", |req, reply| reply.text(length_and_sum(req.body())))
        .post_async("/later", async |req, reply| {
            reply.text(length_and_sum(req.body()))
        })
        .post_streamed("/streamed", async |req, reply| {
            let mut all = Vec::new();
            while let Some(chunk) = req.chunk().await? {
                all.extend_from_slice(&chunk);
            }
            reply.text(length_and_sum(&all))
        })
        .post_streamed("/echo", async |req, reply| {
            while let Some(chunk) = req.chunk().await? {
                reply.write_bytes(chunk).await?;
            }
            Ok(())
        })
}

const UPLOADS: [&str; 3] = ["/whole", "/later", "/streamed"];

fn chunked_post(target: &str, body: &[u8], size: usize) -> Vec<u8> {
    let mut request =
        format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    request.extend(chunked(body, size));
    request
}

/// The second part is sent when the server has had the first: another connection was answered meanwhile.
fn every_cut_of_a_chunked_upload(config: Setting) {
    let server = serve(config, app());
    let mut other = server.client();
    let body = b"in three chunks";
    for target in UPLOADS {
        let mut upload = chunked_post(target, body, 6);
        // A trailer, and the next request behind it.
        upload.truncate(upload.len() - 2);
        upload.extend_from_slice(b"Sum: 1\r\n\r\n");
        upload.extend_from_slice(get("/").as_bytes());
        for cut in 1..upload.len() {
            let mut client = server.client();
            client.send(&upload[..cut]);
            other.expect_alive("/");
            client.send(&upload[cut..]);
            let answer = client.answer();
            assert_eq!(
                (answer.status, answer.text()),
                (200, &*length_and_sum(body)),
                "{target} cut at {cut}"
            );
            client.answer().expect(200, "ok");
        }
    }
}

fn a_large_upload_is_collected(config: Setting) {
    let server = serve(config, app().body_limit(LARGE as u64));
    let body = pattern(LARGE);
    for target in ["/whole", "/later"] {
        for size in [None, Some(100_000)] {
            let mut client = server.client();
            match size {
                Some(size) => client.send(chunked_post(target, &body, size)),
                None => {
                    client.send(format!(
                        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"
                    ));
                    client.send(&body);
                }
            }
            client.answer().expect(200, &length_and_sum(&body));
            client.expect_alive("/");
        }
    }
}

fn a_large_upload_is_streamed(config: Setting) {
    let server = serve(config, app());
    let body = pattern(LARGE);
    let mut client = server.client();
    client.send(chunked_post("/streamed", &body, 70_000));
    client.answer().expect(200, &length_and_sum(&body));
    client.send(format!(
        "POST /streamed HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n\r\n"
    ));
    client.send(&body);
    client.answer().expect(200, &length_and_sum(&body));
    client.expect_alive("/");
    // Both ways at once: the client has to send and read in turn.
    let mut client = server.client();
    let sending = client.send_behind(chunked_post("/echo", &body, 30_000));
    assert!(client.answer().body == body);
    sending.join().expect("no panic").expect("all was taken");
}

fn an_upload_beyond_its_limit_is_413(config: Setting) {
    let app = app().group("/small", |small| {
        small
            .body_limit(10)
            .post("/whole", |req, reply| reply.text(length_and_sum(req.body())))
            .post_streamed("/streamed", async |req, reply| {
                while req.chunk().await?.is_some() {}
                reply.text("read")
            })
    });
    let server = serve(config, app);
    for target in ["/small/whole", "/small/streamed"] {
        assert_eq!(server.ask(post(target, "text/plain", "ten bytes!")).status, 200);
        let mut client = server.client();
        client.send(post(target, "text/plain", "ten bytes! and more"));
        let answer = client.answer();
        assert_eq!(answer.status, 413, "{target}");
        assert!(
            answer.closes() && answer.detail().contains("more than 10"),
            "{answer:?}"
        );
        client.expect_end();
        let mut client = server.client();
        client.send(chunked_post(target, b"ten bytes! and more", 4));
        let answer = client.answer();
        assert_eq!(answer.status, 413, "{target}");
        assert!(answer.closes());
        client.expect_end();
    }
    let default = Limits::default().body_bytes;
    let answer = server.ask(format!(
        "POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        default + 1
    ));
    assert_eq!(answer.status, 413);
}

/// The handler reads when the test says so: until then the server takes what its queues hold and no more.
fn a_handler_that_does_not_read_holds_the_client(config: Setting) {
    let (told, news) = std::sync::mpsc::channel();
    let app = App::new()
        .state(Gate::default())
        .get("/", |_, reply| reply.text("ok"))
        .get("/open", |req, reply| {
            req.state::<Gate>()?.0.store(1, Ordering::SeqCst);
            reply.text("open")
        })
        .post_streamed("/gated", async move |req, reply| {
            told.send("begun").expect("the test listens");
            let gate = &req.state::<Gate>()?.0;
            while gate.load(Ordering::SeqCst) == 0 {
                req.cx().sleep(Duration::from_millis(1)).await;
            }
            let mut bytes = 0;
            while let Some(chunk) = req.chunk().await? {
                bytes += chunk.len();
            }
            reply.text(bytes.to_string())
        });
    let server = serve(config, app);
    let mut client = server.client();
    client.send(format!(
        "POST /gated HTTP/1.1\r\nHost: a\r\nContent-Length: {HUGE}\r\n\r\n"
    ));
    assert_eq!(news.recv_timeout(crate::support::PATIENCE), Ok("begun"));
    let sending = client.send_behind(pattern(HUGE));
    // The server has had many turns to take more.
    let mut other = server.client();
    for _ in 0..200 {
        other.expect_alive("/");
    }
    assert!(!sending.is_finished(), "all was taken though nobody reads it");
    let received = server.running.report().workers[0].bytes_received;
    // On io_uring one entry of the kernel may fill all buffers of the worker before the pause is known there.
    let buffers = usize::from(RECEIVE_BUFFERS) * RECEIVE_BUFFER_BYTES as usize;
    let most = limits::BODY_QUEUE_BYTES + READ_MARK + READ_PER_TURN + buffers;
    assert!(received < most as u64, "{received} bytes were received");
    other.expect_alive("/open");
    client.answer().expect(200, &HUGE.to_string());
    sending.join().expect("no panic").expect("all was taken");
}

#[derive(Default)]
struct Gate(AtomicU64);

fn a_large_answer_arrives_whole(config: Setting) {
    let body = Bytes::from(pattern(LARGE));
    let (shared, copied) = (body.clone(), body.clone());
    let app = App::new()
        .get("/shared", move |_, reply| {
            reply.bytes("application/octet-stream", shared.clone())
        })
        .get_async("/streamed", {
            let body = body.clone();
            async move |_, reply| {
                for piece in body.chunks(100_000) {
                    reply.write(piece).await?;
                }
                Ok(())
            }
        })
        .get_async("/waiting", async move |_, reply| {
            reply.bytes("application/octet-stream", copied.clone())
        });
    let server = serve(config, app);
    for target in ["/shared", "/streamed", "/waiting"] {
        let mut client = server.slow_client();
        client.send(get(target).repeat(2));
        for _ in 0..2 {
            assert!(client.answer().body == body, "{target}");
        }
        client.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
        assert!(client.answer().body == body, "{target}");
        client.expect_end();
    }
}

/// A handler that would write 1 GB stops when the queues are full.
fn a_client_that_does_not_read_holds_the_handler(config: Setting) {
    const PIECE: usize = 64 * 1024;
    let written = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&written);
    let app =
        App::new()
            .get("/", |_, reply| reply.text("ok"))
            .get_async("/endless", async move |_, reply| {
                let piece = Bytes::from(pattern(PIECE));
                for _ in 0..16 * 1024 {
                    reply.write_bytes(piece.clone()).await?;
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            });
    let server = serve(config, app);
    let mut client = server.slow_client();
    client.send(get("/endless"));
    assert_eq!(client.head().status, 200);
    let mut other = server.client();
    let mut before = u64::MAX;
    // Until many turns in a row have brought nothing.
    while written.load(Ordering::SeqCst) != before {
        before = written.load(Ordering::SeqCst);
        for _ in 0..200 {
            other.expect_alive("/");
        }
    }
    assert!(
        before * (PIECE as u64) < 4 * 1024 * 1024,
        "{before} pieces were written"
    );
    // The client reads on: so does the handler write.
    for _ in 0..100 {
        assert!(client.chunk().is_some_and(|chunk| chunk == pattern(chunk.len())));
    }
    client.reset();
    while server.connections() > 1 {
        other.expect_alive("/");
    }
}

fn a_streamed_answer_of_declared_length(config: Setting) {
    let app = App::new()
        .get("/", |_, reply| reply.text("ok"))
        .get_async("/right", async |_, reply| {
            reply.length(6);
            reply.write("abc").await?;
            reply.write("def").await
        })
        .get_async("/less", async |_, reply| {
            reply.length(6);
            reply.write("abc").await
        })
        .get_async("/more", async |_, reply| {
            reply.length(4);
            reply.write("abc").await?;
            reply.write("def").await
        });
    let server = serve(config, app);
    let mut client = server.client();
    client.send(get("/right"));
    let answer = client.answer();
    answer.expect(200, "abcdef");
    assert_eq!(answer.field("content-length"), Some("6"));
    client.expect_alive("/");
    for wrong in ["/less", "/more"] {
        let mut client = server.client();
        client.send(get(wrong));
        let (received, end) = client.rest();
        // Its length tells the client that it was cut; a reset could take earlier answers along.
        assert_eq!(end, End::Orderly, "{wrong}: {}", received.escape_ascii());
        assert!(!received.ends_with(b"abcdef"));
    }
    server.get("/").expect(200, "ok");
}

fn an_answer_that_fails_in_its_middle_is_cut(config: Setting) {
    let app = App::new()
        .get("/", |_, reply| reply.text("ok"))
        .get_async("/fails", async |_, reply| {
            reply.write("begun").await?;
            Err(ringmain_web::Error::internal("out of what it needs"))
        })
        .get_async("/panics", async |_, reply| {
            reply.write("begun").await?;
            panic!("in the middle")
        });
    let server = serve(config, app);
    for target in ["/fails", "/panics"] {
        let mut client = server.client();
        client.send(get(target));
        let (received, end) = client.rest();
        // The missing last chunk tells the client that it was cut.
        assert_eq!(end, End::Orderly, "{target}: {}", received.escape_ascii());
        assert!(!received.ends_with(b"0\r\n\r\n"), "{target}");
    }
    server.get("/").expect(200, "ok");
}

/// The client continues to send without reading: it must still receive the whole response, and the server must not read without a
/// limit.
fn an_early_answer_to_a_large_upload_is_read(config: Setting) {
    let refuse = |_: &ringmain_web::Request<'_>| ringmain_web::Error::forbidden("not yours");
    let app = App::new()
        .get("/", |_, reply| reply.text("ok"))
        .post_streamed("/refuse", async move |req, _| Err(refuse(req)))
        .post_streamed("/one", async move |req, _| {
            req.chunk().await?;
            Err(refuse(req))
        });
    let server = serve(config, app);
    let linger = Limits::default().linger_bytes as usize;
    for (target, status) in [("/refuse", 403), ("/one", 403), ("/nothing", 404)] {
        // The longer one is more than all sockets' buffers and the server's patience hold.
        for length in [linger / 2, 24 * linger] {
            let mut client = server.client();
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
            ));
            let sending = client.send_behind(pattern(length));
            let answer = client.answer();
            assert_eq!(answer.status, status, "{target} with {length} bytes");
            assert!(answer.closes());
            let sent = sending.join().expect("no panic");
            assert_eq!(
                sent.is_ok(),
                length < linger,
                "{target} with {length} bytes: {sent:?}"
            );
        }
    }
    let most = 6 * (2 * linger + 1024 * 1024) as u64;
    let received = server.running.report().workers[0].bytes_received;
    assert!(received < most, "{received} bytes were read for nothing");
}

fn an_unwanted_body_is_dropped(config: Setting) {
    let server = serve(config, app());
    let mut client = server.client();
    let small = "x".repeat(Limits::default().discard_bytes as usize);
    for _ in 0..3 {
        client.send(post("/nothing", "text/plain", &small));
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (404, false));
    }
    client.expect_alive("/");
    client.send(post("/nothing", "text/plain", &(small + "x")));
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (404, true));
    client.expect_end();
    let mut client = server.client();
    client.send(chunked_post("/nothing", b"of unknown length", 5));
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (404, true));
    client.expect_end();
}

/// A hook makes the 404 of an unwanted body a large one. The body must not be taken for a request.
fn a_large_answer_instead_of_a_route_keeps_the_order(config: Setting) {
    let app = app().after(|_, reply| {
        if reply.current_status() == 404 {
            *reply.body() = pattern(1024 * 1024);
        }
        Ok(())
    });
    let server = serve(config, app);
    let mut client = server.client();
    let smuggled = get("/");
    client.send(post("/nothing", "text/plain", &smuggled) + &get("/nothing"));
    for _ in 0..2 {
        let answer = client.answer();
        assert_eq!(answer.status, 404);
        assert!(answer.body == pattern(1024 * 1024));
    }
    client.finish();
    client.expect_end();
    assert_eq!(server.app.stats().totals().requests(), 2);
    let mut client = server.client();
    let request = post("/nothing", "text/plain", &smuggled);
    // The body arrives only when the response is in flight.
    client.send(&request[..request.len() - smuggled.len()]);
    assert_eq!(client.answer().body.len(), 1024 * 1024);
    client.send(&smuggled);
    client.send(get("/"));
    client.answer().expect(200, "ok");
    client.finish();
    client.expect_end();
}

fn the_handler_sees_a_broken_chunk(config: Setting) {
    let server = serve(config, app());
    for target in UPLOADS {
        let mut client = server.client();
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("{head}3\r\nabc\r\nx\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{target}");
        assert!(
            answer.closes() && answer.detail().contains("hexadecimal"),
            "{}",
            answer.detail()
        );
        client.finish();
        client.expect_end();
    }
}

/// A byte every now and then does not put the deadline off.
fn a_body_that_drips_is_too_slow(config: Setting) {
    let limits = Limits {
        rate_grace: Duration::ZERO,
        ..Limits::default()
    };
    let server = serve(config, app().limits(limits));
    let mut clients: Vec<Client> = UPLOADS
        .iter()
        .map(|target| {
            let mut client = server.client();
            client.send(format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
            ));
            client
        })
        .collect();
    for client in &mut clients {
        // The drops fall while the test waits for the answer.
        client
            .stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a socket");
        let mut drops = 0;
        while client.stream.peek(&mut [0]).is_err() {
            client.send("x");
            drops += 1;
            assert!(drops < 500, "a slow body is taken for ever");
        }
        client
            .stream
            .set_read_timeout(Some(crate::support::PATIENCE))
            .expect("a socket");
        let answer = client.answer();
        assert_eq!((answer.status, answer.closes()), (408, true));
        client.finish();
        client.expect_end();
    }
}
