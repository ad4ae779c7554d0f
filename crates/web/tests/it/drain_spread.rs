//! WebSockets and event streams of applications in a shutdown: they end at an even rate, and handlers detect it before.

use std::time::Duration;

use ringmain_engine::limits::DRAIN_SPREAD_START;
use ringmain_web::testing::{ConnectionEnd, Setup, StreamedReply, TestClient, TestEvent, TestSocket};
use ringmain_web::ws::Message;
use ringmain_web::{App, Event, Request, Result, Socket, Ws};

const SPREAD: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// Sends back whatever it receives, and a text when the process begins to shut down.
struct Echo;

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }

    fn shuts_down(&mut self, ws: &Ws) -> bool {
        ws.send_text("shutting down");
        false
    }
}

/// Sends an event each second, with another text once the process shuts down.
async fn send_events(request: &Request<'_>, reply: &mut ringmain_web::Reply<'_>) -> Result {
    let mut events = reply.events().await?;
    loop {
        let text = if request.cx().is_draining() {
            "last"
        } else {
            "next"
        };
        events.send(&Event::new().data(text)).await?;
        request.cx().sleep(SECOND).await;
    }
}

fn application() -> App {
    App::new()
        .ws("/echo", |_| Ok(Echo))
        .ws_async("/task", |_, mut stream| {
            Ok(async move {
                while stream.next().await?.is_some() {}
                Ok(())
            })
        })
        .get_async("/events", send_events)
        .get_async("/later", async |request, reply| {
            request.cx().draining().await;
            request.cx().sleep(SECOND).await;
            send_events(request, reply).await
        })
}

fn serve(seed: u64, workers: usize) -> TestClient {
    let setup = Setup {
        seed,
        workers,
        grace: 2 * SPREAD,
        drain_spread: SPREAD,
        ..Setup::default()
    };
    TestClient::with(application(), setup).expect("an application")
}

enum Client {
    Socket(Box<TestSocket>),
    Events(Box<StreamedReply>, Vec<u8>),
}

impl Client {
    /// Returns whether the application has ended the socket or the stream, properly.
    fn has_ended(&mut self) -> bool {
        match self {
            Client::Socket(socket) => loop {
                match socket.event_now().expect("no fault") {
                    Some(TestEvent::Close(code, reason)) => {
                        assert_eq!((code, &*reason), (1012, ""));
                        return true;
                    }
                    Some(_) => {}
                    None => return false,
                }
            },
            Client::Events(stream, bytes) => {
                bytes.extend(stream.connection().received());
                let end = stream.connection().ending();
                let is_complete = bytes.ends_with(b"0\r\n\r\n");
                assert_eq!(end.is_some(), is_complete, "{end:?}: {}", bytes.escape_ascii());
                is_complete
            }
        }
    }
}

#[test]
fn sockets_and_event_streams_end_at_an_even_rate() {
    for (seed, workers) in [(1, 1), (2, 3)] {
        let count = 400;
        let mut client = serve(seed, workers);
        let mut clients: Vec<Client> = (0..count)
            .map(|number| match number % 4 {
                0 => Client::Socket(Box::new(client.ws("/echo").open())),
                1 => Client::Socket(Box::new(client.ws("/task").open())),
                _ => {
                    let stream = client.get("/events").open().expect("a stream");
                    Client::Events(Box::new(stream), Vec::new())
                }
            })
            .collect();
        client.shut_down();
        client.advance(DRAIN_SPREAD_START);
        let even = count / SPREAD.as_secs() as usize;
        for second in 1..=SPREAD.as_secs() {
            client.advance(SECOND);
            let before = clients.len();
            clients.retain_mut(|client| !client.has_ended());
            let ended = before - clients.len();
            assert!(
                (even * 7 / 10..=even * 13 / 10).contains(&ended),
                "seed {seed}: {ended} ended in second {second}, expected about {even}"
            );
        }
        client.advance(SECOND);
        clients.retain_mut(|client| !client.has_ended());
        assert_eq!(clients.len(), 0, "seed {seed}");
        client.finish().expect("an orderly end");
    }
}

#[test]
fn handlers_detect_the_shutdown_before_their_turn() {
    let mut client = serve(3, 1);
    let mut sockets: Vec<TestSocket> = (0..2).map(|_| client.ws("/echo").open()).collect();
    let mut streams: Vec<StreamedReply> = (0..2)
        .map(|_| client.get("/events").open().expect("a stream"))
        .collect();
    for stream in &mut streams {
        assert_eq!(stream.event().unwrap().as_deref(), Some("data: next"));
    }
    client.shut_down();
    for socket in &mut sockets {
        assert_eq!(socket.text(), "shutting down");
    }
    // The turn of three of the four is seconds away.
    client.advance(2 * SECOND);
    let mut open = 0;
    for socket in &mut sockets {
        if socket.event_now().expect("no fault").is_none() {
            socket.send_text("still open");
            assert_eq!(socket.text(), "still open");
            open += 1;
        }
    }
    for stream in &mut streams {
        let mut texts = Vec::new();
        while let Some(text) = stream.event().expect("no fault") {
            texts.push(text);
        }
        open += usize::from(texts.iter().any(|text| text == "data: last"));
    }
    assert!(open >= 3, "{open} of 4 were open");
    client.finish().expect("an orderly end");
}

#[test]
fn an_event_stream_that_starts_during_the_shutdown_is_ended() {
    let mut client = serve(4, 1);
    let mut raw = client.raw();
    raw.send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
    client.advance(SECOND);
    client.shut_down();
    client.advance(2 * SECOND);
    let (bytes, end) = raw.read_to_end().expect("an end");
    assert!(bytes.ends_with(b"0\r\n\r\n"), "{}", bytes.escape_ascii());
    assert_eq!(end, ConnectionEnd::Closed);
    assert!(client.is_shut_down());
    client.finish().expect("an orderly end");
}

#[test]
fn without_a_spread_all_end_at_once() {
    let setup = Setup {
        drain_spread: Duration::ZERO,
        ..Setup::default()
    };
    let mut client = TestClient::with(application(), setup).expect("an application");
    let mut sockets: Vec<TestSocket> = (0..10).map(|_| client.ws("/task").open()).collect();
    client.shut_down();
    client.advance(2 * DRAIN_SPREAD_START);
    for socket in &mut sockets {
        assert_eq!(
            socket.event_now().expect("no fault"),
            Some(TestEvent::Close(1012, String::new()))
        );
    }
    drop(sockets);
    client.finish().expect("an orderly end");
}
