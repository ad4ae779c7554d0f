//! The rate at which a process that drains disconnects its clients, whatever their transports.

use std::time::Duration;

use ringmain_engine::limits::DRAIN_SPREAD_START;
use ringmain_hub::protocol::Format;
use ringmain_web::App;
use ringmain_web::testing::{Setup, TestClient, TestEvent};

use crate::support::{Stream, options};
use crate::token_signing::WsClient;

const SPREAD: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// A client, and the bytes of its stream.
enum Connected {
    Socket(Box<WsClient>),
    Stream(Box<Stream>, Vec<u8>),
}

impl Connected {
    /// Returns whether the client was disconnected, with 3001.
    fn was_disconnected(&mut self) -> bool {
        match self {
            Connected::Socket(ws) => match ws.socket.event_now().expect("no fault") {
                Some(TestEvent::Close(code, reason)) => {
                    assert_eq!((code, &*reason), (3001, "shutdown"));
                    true
                }
                _ => false,
            },
            Connected::Stream(stream, bytes) => {
                let connection = stream.reply.connection();
                bytes.extend(connection.received());
                let has_ended = connection.ending().is_some();
                let text = String::from_utf8_lossy(bytes);
                assert_eq!(text.contains(r#""disconnect":{"code":3001"#), has_ended, "{text}");
                has_ended
            }
        }
    }
}

/// Serves on several workers, with so many clients: three in five over WebSocket, the others over streams.
fn serve_clients(seed: u64, count: usize) -> (TestClient, Vec<Connected>) {
    let setup = Setup {
        seed,
        workers: 2 + (seed % 2) as usize,
        grace: 2 * SPREAD,
        drain_spread: SPREAD,
        ..Setup::default()
    };
    let app = ringmain_push::serve(App::new(), options());
    let mut client = TestClient::with(app, setup).expect("an application");
    let clients = (0..count)
        .map(|number| match number % 5 {
            0 => Connected::Stream(Box::new(Stream::lines(&mut client)), Vec::new()),
            1 => Connected::Stream(Box::new(Stream::events(&mut client)), Vec::new()),
            _ => {
                let (ws, _) = WsClient::connected(&mut client, Format::Json, "");
                Connected::Socket(Box::new(ws))
            }
        })
        .collect();
    (client, clients)
}

#[test]
fn clients_of_all_transports_are_disconnected_at_an_even_rate() {
    for seed in [1, 2] {
        let count = 1000;
        let (mut client, mut clients) = serve_clients(seed, count);
        client.shut_down();
        client.advance(DRAIN_SPREAD_START);
        let even = count / SPREAD.as_secs() as usize;
        let mut left = count;
        for second in 1..=SPREAD.as_secs() {
            client.advance(SECOND);
            clients.retain_mut(|client| !client.was_disconnected());
            let disconnected = left - clients.len();
            left = clients.len();
            assert!(
                (even * 8 / 10..=even * 12 / 10).contains(&disconnected),
                "seed {seed}: {disconnected} clients in second {second}, expected about {even}"
            );
        }
        client.advance(SECOND);
        clients.retain_mut(|client| !client.was_disconnected());
        assert_eq!(clients.len(), 0, "seed {seed}");
    }
}

#[test]
fn clients_connect_and_stay_during_the_delay() {
    let (mut client, mut clients) = serve_clients(3, 10);
    client.begin_drain_delay();
    client.advance(10 * SECOND);
    clients.push(Connected::Stream(
        Box::new(Stream::lines(&mut client)),
        Vec::new(),
    ));
    let (ws, _) = WsClient::connected(&mut client, Format::Json, "");
    clients.push(Connected::Socket(Box::new(ws)));
    client.advance(SECOND);
    clients.retain_mut(|client| !client.was_disconnected());
    assert_eq!(clients.len(), 12);
    client.shut_down();
    client.advance(DRAIN_SPREAD_START + SPREAD + SECOND);
    clients.retain_mut(|client| !client.was_disconnected());
    assert_eq!(clients.len(), 0);
    client.finish().expect("an orderly end");
}
