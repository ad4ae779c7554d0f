//! The basics hold under every switch of the configuration, and a skewed worker gives new connections away.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::io::{Read, Write};
use std::time::Duration;

use crate::scripted::{self, App, Server, Setting, direct, echo, pattern, serve};
use ringmain_engine::features::{FEATURES, Feature, Features};
use ringmain_engine::{Config, Engine, EngineError};
use ringmain_testkit::wait::until;

on_every_backend!(basics);

/// Echoes, but answers `who` with the worker's number.
fn names_worker(setting: Setting) -> App {
    let mut app = setting.echo();
    app.data = Box::new(|conn, bytes| {
        let number = [b'0' + conn.cx().worker() as u8];
        // A connection that cannot be written to is being closed.
        let _ = conn.write(if bytes == b"who" { &number } else { bytes });
        bytes.len()
    });
    app
}

fn basics(config: Config) {
    let server = serve(
        Config {
            workers: Some(2),
            ..config
        },
        names_worker,
    );
    echo_works(&server);
    connecting_works(&server);
    a_skewed_worker_gives(&server);
    let reports = server.running.report().workers;
    assert_eq!(reports.iter().map(|w| w.panics).sum::<u64>(), 0);
    server.running.stop();
    server.running.join().unwrap();
}

fn echo_works(server: &Server) {
    let mut client = server.client();
    echo(&mut client, b"hello");
    let sent = pattern(3_000_000);
    let mut writer = client.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
    let mut back = vec![0; sent.len()];
    client.read_exact(&mut back).unwrap();
    assert!(back == sent);
    writing.join().unwrap();
}

fn connecting_works(server: &Server) {
    let to = server.addr.into();
    let (give, take) = std::sync::mpsc::channel();
    server.on_worker(0, move |cx| {
        let inner = cx.clone();
        let talk = async move {
            let stream = inner.connect_stream(&to, None).await?;
            stream.write_all(b"hello").await?;
            let mut back = [0; 5];
            stream.read_exact(&mut back).await?;
            Ok::<_, std::io::Error>(back)
        };
        cx.spawn(async move { give.send(talk.await).unwrap() }).unwrap();
    });
    assert_eq!(&take.recv_timeout(scripted::PATIENCE).unwrap().unwrap(), b"hello");
}

fn who(client: &mut std::net::TcpStream) -> u8 {
    client.write_all(b"who").unwrap();
    let mut number = [0];
    client.read_exact(&mut number).unwrap();
    number[0] - b'0'
}

/// Keeps the connections of worker 0 and ends those of worker 1, until worker 0 gives new ones away.
fn a_skewed_worker_gives(server: &Server) {
    let mut kept = Vec::new();
    loop {
        let mut client = server.client();
        let number = who(&mut client);
        let report = server.running.report().workers;
        if report[1].adopted > 0 {
            assert_eq!(number, 1, "what was given is served over there");
            // The giver may hear of it later than the receiver.
            until("the giver's count", || {
                server.running.report().workers[0].given > 0
            });
            break;
        }
        if number == 0 {
            kept.push(client);
            assert!(kept.len() < 200, "worker 0 gives nothing away");
        }
    }
    assert!(kept.len() > ringmain_engine::limits::SKEW_CONNECTIONS as usize);
    for client in &mut kept {
        echo(client, b"still here");
    }
}

#[test]
fn basics_hold_without_each_feature() {
    for (feature, name) in FEATURES {
        println!("without {name}");
        basics(Config {
            without: Features::none().with(feature),
            ..direct()
        });
    }
    println!("without any");
    basics(Config {
        without: Features::all(),
        ..direct()
    });
}

#[test]
fn basics_hold_with_a_submission_thread() {
    basics(Config {
        sqpoll: Some(Duration::from_millis(10)),
        ..direct()
    });
    basics(Config {
        sqpoll: Some(Duration::from_millis(10)),
        without: Features::all(),
        ..direct()
    });
}

#[test]
fn basics_hold_with_zero_copy_which_loopback_gives_up() {
    basics(Config {
        zero_copy: Some(1),
        ..direct()
    });
    basics(Config {
        zero_copy: Some(1024),
        without: Features::none().with(Feature::DirectDescriptors),
        ..direct()
    });
}

#[test]
fn busy_polling_works_or_says_why_not() {
    let config = Config {
        busy_poll: Some(Duration::from_micros(10)),
        ..direct()
    };
    match Engine::new(config.clone()) {
        Ok(_) => basics(config),
        Err(EngineError::Probe(error)) => assert!(error.to_string().starts_with("busy-poll"), "{error}"),
        Err(error) => panic!("{error}"),
    }
}
