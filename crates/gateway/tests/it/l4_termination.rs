//! Connections that are passed on as bytes: early responses, and endpoints that cannot be connected to.

use std::io::{Read, Write};

use ringmain_engine::Config;
use ringmain_gateway::model::{Balance, Protocol};
use ringmain_gateway::stats::ConnectionEnd;

use crate::l4_rig::{self, Gates, echo, reserved, to};
use crate::support::pattern;

on_every_backend! {
    an_early_response_of_an_upstream_that_closes,
    a_last_message_of_a_client_that_closes,
    every_endpoint_is_tried,
}

/// A server that reads a part of an upload, answers and closes: its kernel resets the connection for the bytes that it did not read.
fn an_early_response_of_an_upstream_that_closes(engine: Config) {
    let refuses = l4_rig::bytes(|mut stream| {
        stream
            .read_exact(&mut [0; 1000])
            .expect("the client's first bytes");
        stream.write_all(b"too large").expect("the client reads");
        // More has arrived, and stays unread.
        stream.peek(&mut [0]).expect("the client sends much");
    });
    let gates = Gates::open(engine, to(Protocol::Tcp, &[refuses], |_, _, _| {}));
    for number in 0..20 {
        let mut client = gates.client(0);
        let _sending = client.send_behind(pattern(4 << 20));
        assert_eq!(client.take(9), b"too large", "connection {number}");
    }
    gates.shut_down();
}

/// The other way: a client that sends a last message and closes while it is sent much.
fn a_last_message_of_a_client_that_closes(engine: Config) {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let streams_much = l4_rig::bytes(move |mut stream| {
        let mut writer = stream.try_clone().expect("a socket");
        let writing = std::thread::spawn(move || while writer.write_all(&[0; 64 * 1024]).is_ok() {});
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        told.lock().expect("one test").send(all).expect("the test waits");
        drop(writing);
    });
    let gates = Gates::open(engine, to(Protocol::Tcp, &[streams_much], |_, _, _| {}));
    for number in 0..20 {
        let mut client = gates.client(0);
        assert_eq!(client.take(1), [0]);
        client.send(b"goodbye");
        drop(client);
        let all = heard
            .recv_timeout(crate::support::PATIENCE)
            .expect("it is notified");
        assert_eq!(all, b"goodbye", "connection {number}");
    }
    gates.shut_down();
}

fn every_endpoint_is_tried(engine: Config) {
    let addrs: Vec<_> = (0..6).map(|_| reserved()).chain([echo("alive")]).collect();
    let gates = Gates::open(
        engine,
        to(Protocol::Tcp, &addrs, |_, _, upstream| {
            upstream.balance = Balance::RoundRobin;
        }),
    );
    for _ in 0..8 {
        let mut client = gates.client(0);
        assert_eq!(client.take(5), b"alive");
        client.finish();
        client.expect_end();
    }
    gates.await_ended(ConnectionEnd::Client, 8);
    gates.shut_down();
}
