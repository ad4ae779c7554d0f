//! The end of streams and connections: clients that give up or leave, floods, shutdown.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ringmain_web::{App, Event};
use ringmain_wire::h2::ErrorCode;

use crate::http2::client::Http2;
use crate::support::{PATIENCE, Server, Setting, serve};

in_every_way!(
    a_handler_is_dropped_when_its_stream_is_given_up,
    handlers_are_dropped_when_their_client_leaves,
    a_rapid_reset_ends_the_connection_and_its_handlers,
    a_truncated_response_is_reset,
    a_client_that_ends_its_side_is_answered,
    shutdown_closes_idle_connections_at_once,
    shutdown_lets_streams_finish,
    shutdown_ends_event_streams_in_order,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Tells when it is dropped.
struct Guard(Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        // The test may have seen enough.
        let _ = self.0.send("dropped");
    }
}

fn waiting(setting: &Setting) -> (Server, Receiver<&'static str>) {
    let (tell, told) = channel();
    let app = App::new()
        .get("/", |_, reply| reply.text("root"))
        .get_async("/forever", async move |req, _| {
            tell.send("begun").expect("the test listens");
            let _guard = Guard(tell.clone());
            req.cx().sleep(HOUR).await;
            Ok(())
        })
        .get_async("/cut", async |_, reply| {
            reply.write("piece").await?;
            panic!("in the middle")
        })
        .get_async("/events", async |req, reply| {
            let mut events = reply.events().await?;
            events.send(&Event::new().data("first")).await?;
            req.cx().sleep(HOUR).await;
            Ok(())
        })
        .get_async("/until-the-end", async |req, reply| {
            req.cx().draining().await;
            reply.text("at last")
        });
    (serve(setting.clone(), app), told)
}

fn expect_told(told: &Receiver<&'static str>, what: &str) {
    assert_eq!(told.recv_timeout(PATIENCE), Ok(what));
}

fn a_handler_is_dropped_when_its_stream_is_given_up(setting: Setting) {
    let (server, told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    let stream = client.get("/forever");
    client.flush();
    expect_told(&told, "begun");
    client.wire.reset(stream, ErrorCode::CANCEL, &mut client.out);
    client.flush();
    expect_told(&told, "dropped");
    client.ask("/").expect(200, "root");
}

fn handlers_are_dropped_when_their_client_leaves(setting: Setting) {
    let (server, told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    client.get("/forever");
    client.flush();
    expect_told(&told, "begun");
    client.client.reset();
    expect_told(&told, "dropped");
}

/// Requests that are reset at once: three times the budget of early resets.
const FLOOD: u32 = 300;

fn a_rapid_reset_ends_the_connection_and_its_handlers(setting: Setting) {
    let (server, told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    client.ask("/");
    let kept = client.get("/forever");
    client.flush();
    expect_told(&told, "begun");
    for _ in 0..FLOOD {
        let stream = client.get("/forever");
        client.wire.reset(stream, ErrorCode::CANCEL, &mut client.out);
    }
    while client.turn() {}
    assert_eq!(client.away.map(|away| away.1), Some(ErrorCode::ENHANCE_YOUR_CALM));
    assert_eq!(client.so_far(kept).status, 0);
    // A request of the flood begins only where the server has received it before its reset.
    let (mut begun, mut dropped) = (1, 0);
    while dropped < begun {
        match told.recv_timeout(PATIENCE).expect("every handler is dropped") {
            "begun" => begun += 1,
            _ => dropped += 1,
        }
    }
    // However the kernel cuts the flood: a request for each reset that the budget allows, and a few that time gives back to it.
    assert!(begun <= FLOOD / 2, "{begun} handlers ran");
    server.get("/").expect(200, "root");
}

fn a_truncated_response_is_reset(setting: Setting) {
    let (server, _told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    let stream = client.get("/cut");
    let got = client.wait(stream);
    assert_eq!(
        (got.status, got.end, got.reset),
        (200, false, Some(ErrorCode::INTERNAL_ERROR))
    );
    client.ask("/").expect(200, "root");
}

fn a_client_that_ends_its_side_is_answered(setting: Setting) {
    if setting.tls {
        // Over TLS close_notify ends both directions.
        return;
    }
    let (server, _told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    let stream = client.get("/");
    client.flush();
    client.client.finish();
    while client.client.receive().expect("bytes or the end") > 0 {}
    let _ = stream;
    let all = client.client.kept();
    assert!(all.windows(4).any(|bytes| bytes == b"root"));
}

fn shutdown_closes_idle_connections_at_once(setting: Setting) {
    let (server, _told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    client.ask("/").expect(200, "root");
    server.running.shut_down();
    while client.turn() {}
    assert_eq!(client.away, Some((1, ErrorCode::NO_ERROR)));
    drop(client);
    server.shut_down();
}

fn shutdown_lets_streams_finish(setting: Setting) {
    let (server, _told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    client.ask("/");
    let stream = client.get("/until-the-end");
    client.flush();
    // Another behind it: then the first has begun.
    client.ask("/").expect(200, "root");
    server.running.shut_down();
    client.wait(stream).expect(200, "at last");
    while client.turn() {}
    assert_eq!(client.away.map(|away| away.1), Some(ErrorCode::NO_ERROR));
    drop(client);
    server.shut_down();
}

fn shutdown_ends_event_streams_in_order(setting: Setting) {
    let (server, _told) = waiting(&setting);
    let mut client = Http2::new(&setting, &server);
    let stream = client.get("/events");
    client.wait_for(stream, |got| !got.body.is_empty());
    server.running.shut_down();
    let got = client.wait(stream);
    got.expect(200, "data: first\n\n");
    while client.turn() {}
    drop(client);
    server.shut_down();
}
