//! Replies for intermediaries: another server's head, bodies in chunks of its choice, interim responses, tunnels.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_web::{App, Framing, Reply, Request, Result};
use ringmain_wire::h1::FieldBlock;

use crate::support::{End, PATIENCE, get, pattern, serve};

on_every_backend! {
    another_servers_head,
    heads_of_all_framings,
    chunks_after_a_head,
    interim_answers,
    a_tunnel,
    a_tunnel_that_is_not_read,
    a_tunnel_that_its_handler_ends_first,
    what_comes_too_late,
}

async fn forwarded(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.header("X-Before", "dropped")?;
    let fields = reply.forward(299)?;
    fields.push("Server", b"other")?;
    fields.push("Content-Type", b"x/y")?;
    match req.target() {
        "/length" => reply.send_head(Framing::Length(5)).await?,
        "/chunked" => reply.send_head(Framing::Chunked).await?,
        "/close" => reply.send_head(Framing::UntilClose).await?,
        _ => return reply.send_head(Framing::None).await,
    }
    reply.write("hello").await
}

fn another_servers_head(engine: Config) {
    let app = App::new().fallback_streamed(forwarded);
    let server = serve(engine, app);
    let answer = server.get("/length");
    answer.expect(299, "hello");
    let fields: Vec<_> = answer
        .fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    assert_eq!(
        fields,
        ["server: other", "content-type: x/y", "content-length: 5"],
        "nothing of our own"
    );
    server.shut_down();
}

fn heads_of_all_framings(engine: Config) {
    let server = serve(engine, App::new().fallback_streamed(forwarded));
    let mut client = server.client();
    for (target, body, chunked) in [
        ("/length", "hello", false),
        ("/chunked", "hello", true),
        ("/close", "hello", true),
        ("/none", "", false),
    ] {
        client.send(get(target));
        let answer = client.answer();
        answer.expect(299, body);
        assert_eq!(answer.field("transfer-encoding").is_some(), chunked, "{target}");
        // For an old client a body without a length lasts until the end.
        let old = server.ask(format!("GET {target} HTTP/1.0\r\n\r\n"));
        old.expect(299, body);
        assert_eq!(old.field("transfer-encoding"), None);
        let head = server.ask(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((head.status, head.body.len()), (299, 0));
    }
    server.shut_down();
}

fn chunks_after_a_head(engine: Config) {
    let app = App::new().fallback_streamed(async |req: &Request<'_>, reply: &mut Reply<'_>| {
        reply.forward(200)?;
        reply.write_head_buffered(if req.target() == "/chunked" {
            Framing::Chunked
        } else {
            Framing::Length(1_000_000)
        })?;
        let body = pattern(1_000_000);
        let mut size = 1;
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(size.min(rest.len()));
            reply.write_buffered(piece)?;
            if size % 3 == 0 {
                reply.flush().await?;
            }
            size = size * 2 % 70_001 + 1;
            rest = behind;
        }
        Ok(())
    });
    let server = serve(engine, app);
    for target in ["/chunked", "/length"] {
        assert!(server.get(target).body == pattern(1_000_000), "{target}");
        let head = server.ask(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((head.status, head.body.len()), (200, 0));
    }
    server.shut_down();
}

fn interim_answers(engine: Config) {
    let app = App::new().fallback_streamed(async |_: &Request<'_>, reply: &mut Reply<'_>| {
        let mut hints = FieldBlock::new();
        hints.push("Link", b"</a.css>")?;
        reply.send_interim(103, &hints)?;
        reply.send_interim(102, &FieldBlock::new())?;
        reply.text("ok")
    });
    let server = serve(engine, app);
    let mut client = server.client();
    for _ in 0..2 {
        client.send(get("/"));
        let hints = client.head();
        assert_eq!(
            (hints.status, hints.fields.len(), hints.field("link")),
            (103, 1, Some("</a.css>"))
        );
        assert_eq!(client.head().status, 102);
        client.answer().expect(200, "ok");
    }
    server.ask("GET / HTTP/1.0\r\n\r\n").expect(200, "ok");
    server.shut_down();
}

async fn echo(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.switch_protocols(b"echo").await?;
    while let Some(bytes) = req.chunk().await? {
        reply.write(&bytes).await?;
    }
    reply.write("end").await
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";

fn a_tunnel(engine: Config) {
    let server = serve(engine, App::new().fallback_streamed(echo));
    let mut client = server.client();
    client.send([UPGRADE.as_bytes(), b"early"].concat());
    let head = client.head();
    assert_eq!(
        (head.status, head.field("upgrade"), head.field("connection")),
        (101, Some("echo"), Some("upgrade"))
    );
    assert_eq!(client.take(5), b"early");
    client.send("again");
    assert_eq!(client.take(5), b"again");
    client.finish();
    assert_eq!(client.rest(), (b"end".to_vec(), End::Orderly));
    server.shut_down();
}

fn a_tunnel_that_is_not_read(engine: Config) {
    let server = serve(engine, App::new().fallback_streamed(echo));
    let mut client = server.client();
    client.send(UPGRADE);
    assert_eq!(client.head().status, 101);
    // More than all buffers between hold: both sides wait for each other, and lose nothing.
    let long = pattern(2_000_000);
    let sent = client.send_behind(long.clone());
    assert!(client.take(long.len()) == long);
    sent.join().expect("no panic").expect("all was taken");
    drop(client);
    server.shut_down();
}

fn a_tunnel_that_its_handler_ends_first(engine: Config) {
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    let app = App::new().fallback_streamed(async move |req: &Request<'_>, reply: &mut Reply<'_>| {
        reply.switch_protocols(b"count").await?;
        reply.write("said").await?;
        reply.shut_down_tunnel()?;
        assert!(reply.write("more").await.is_err());
        let mut all = Vec::new();
        while let Some(bytes) = req.chunk().await? {
            all.extend_from_slice(&bytes);
        }
        // Both sides have ended, and the handler is not.
        req.cx().sleep(Duration::from_millis(20)).await;
        let sender = sender.lock().expect("one").clone();
        sender.send(all).expect("the test waits");
        Ok(())
    });
    let server = serve(engine, app);
    let mut client = server.client();
    client.send(UPGRADE);
    assert_eq!(client.head().status, 101);
    assert_eq!(client.rest(), (b"said".to_vec(), End::Orderly));
    let long = pattern(500_000);
    client.send(&long);
    client.finish();
    let all = heard
        .recv_timeout(PATIENCE)
        .expect("the handler comes to its end");
    assert!(all == long, "{} of {} bytes", all.len(), long.len());
    server.shut_down();
}

fn what_comes_too_late(engine: Config) {
    let app = App::new().fallback_streamed(async |req: &Request<'_>, reply: &mut Reply<'_>| {
        assert!(reply.forward(101).is_err() && reply.forward(99).is_err());
        assert!(reply.send_interim(200, &FieldBlock::new()).is_err());
        reply.forward(200)?;
        reply.write_head_buffered(Framing::Length(2))?;
        assert!(reply.send_interim(103, &FieldBlock::new()).is_err());
        assert!(reply.switch_protocols(b"echo").await.is_err());
        assert!(reply.write_buffered(b"too long").is_err());
        if req.target() == "/cut" {
            return Err(ringmain_web::Error::internal("broken off"));
        }
        reply.write_buffered(b"ok")
    });
    let server = serve(engine, app);
    server.get("/").expect(200, "ok");
    // The head that was put is sent, and its client can tell that nothing follows.
    let mut client = server.client();
    client.send(get("/cut"));
    assert_eq!((client.head().field("content-length")), Some("2"));
    client.expect_end();
    server.shut_down();
}
