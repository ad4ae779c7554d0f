//! Peers that send to streams that nobody reads, on every real back-end: what a worker holds for them.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use crate::scripted::{Setting, echo, pattern, serve_at};
use ringmain_engine::limits::{READ_MARK, RECEIVE_BUFFER_BYTES, RECEIVE_WINDOW};
use ringmain_engine::stream::Stream;
use ringmain_engine::{Config, ListenOptions};

on_every_backend!(
    a_stream_that_nobody_reads_holds_its_mark_and_one_receipt,
    one_that_takes_all_buffers_keeps_nobody_waiting,
);

/// Bytes that each peer would send.
const FLOOD: usize = 16 * 1024 * 1024;

/// One receipt before the worker can stop it: a window's worth on `uring`, a buffer on `epoll`.
const RECEIPT: usize = RECEIVE_WINDOW as usize * RECEIVE_BUFFER_BYTES as usize;

fn a_stream_that_nobody_reads_holds_its_mark_and_one_receipt(config: Config) {
    let listen = &"127.0.0.1:0".parse().unwrap();
    let server = serve_at(config, listen, &ListenOptions::default(), |setting| {
        let streams: Rc<RefCell<Vec<Stream>>> = Rc::default();
        let mut app = setting.echo();
        app.open = Box::new(move |conn| streams.borrow_mut().push(conn.into_stream()));
        app
    });
    let mut writers = Vec::new();
    for count in 1..=12 {
        let mut client = server.client();
        let cut = client.try_clone().unwrap();
        // Ends with an error when the connection is cut.
        let writing = std::thread::spawn(move || client.write_all(&pattern(FLOOD)));
        writers.push((cut, writing));
        while server.on_worker(0, |cx| cx.held()) < count * READ_MARK {}
        for _ in 0..100 {
            let held = server.on_worker(0, |cx| cx.held());
            let most = count * (READ_MARK + RECEIPT);
            assert!(held <= most, "{held} bytes of {count} peers, at most {most}");
        }
    }
    for (cut, writing) in writers {
        cut.shutdown(std::net::Shutdown::Both).unwrap();
        writing.join().unwrap().expect_err("cut in the middle");
    }
}

/// A peer that always has more to send than the kernel has buffers, and others with small messages.
fn one_that_takes_all_buffers_keeps_nobody_waiting(config: Config) {
    let listen = &"127.0.0.1:0".parse().unwrap();
    let server = serve_at(config, listen, &ListenOptions::default(), |setting: Setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            // The flood is taken and not answered.
            if bytes.len() < 100 {
                let _ = conn.write(bytes);
            }
            bytes.len()
        });
        app
    });
    let mut flood = server.client();
    let cut = flood.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let bytes = vec![b'x'; FLOOD];
        while flood.write_all(&bytes).is_ok() {}
    });
    let mut clients: Vec<_> = (0..40).map(|_| server.client()).collect();
    for _ in 0..20 {
        for client in &mut clients {
            echo(client, b"small");
        }
    }
    cut.shutdown(std::net::Shutdown::Both).unwrap();
    writing.join().unwrap();
}
