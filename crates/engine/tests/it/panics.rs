//! A panic of the application costs the connection or task at hand, is counted, and nothing else.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::io::Write;

use crate::scripted::{self, Letter, Server, Setting, Told, echo, serve};
use ringmain_engine::{Config, EngineError, Reason};

on_every_backend!(
    in_data_it_costs_the_connection,
    in_open_it_costs_the_connection,
    in_end_it_costs_the_connection,
    in_closed_timer_and_mail_it_costs_nothing,
    a_task_that_panics_is_ended,
    blocking_work_that_panics_is_an_error,
    a_handler_that_cannot_be_made_ends_the_start,
);

fn panics(server: &Server) -> u64 {
    server.running.report().workers.iter().map(|w| w.panics).sum()
}

fn in_data_it_costs_the_connection(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            assert_ne!(bytes, b"panic", "on request");
            conn.write(bytes).unwrap();
            bytes.len()
        });
        app
    });
    let mut other = server.client();
    echo(&mut other, b"before");
    let mut client = server.client();
    client.write_all(b"panic").unwrap();
    assert_eq!(server.closed(), Reason::Panicked);
    assert!(scripted::is_reset(&mut client), "a reset");
    echo(&mut other, b"after");
    assert_eq!(panics(&server), 1);
}

fn in_open_it_costs_the_connection(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let mut first = true;
        app.open = Box::new(move |_| assert!(!std::mem::replace(&mut first, false), "the first one"));
        app
    });
    let mut client = server.client();
    assert!(scripted::is_reset(&mut client), "a reset");
    echo(&mut server.client(), b"the second");
    assert_eq!(panics(&server), 1);
}

fn in_end_it_costs_the_connection(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.end = Box::new(|_| panic!("on request"));
        app
    });
    let client = server.client();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.closed(), Reason::Panicked);
    // Kept open: its end would be the second panic.
    let mut other = server.client();
    echo(&mut other, b"goes on");
    assert_eq!(panics(&server), 1);
}

fn in_closed_timer_and_mail_it_costs_nothing(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.closed = Box::new(|_, _| panic!("on request"));
        app.timer = Box::new(|_, _| panic!("on request"));
        app
    });
    let mut kept = server.client();
    echo(&mut kept, b"before");
    drop(server.client());
    server.closed();
    server.on_worker(0, |cx| assert!(cx.timer(std::time::Duration::from_millis(1), 7)));
    server.expect(&Told::Timer(7));
    let letter = Letter::Run(Box::new(|_| panic!("on request")));
    assert!(server.running.inbox(0).post(letter).is_ok());
    // A letter and bytes of a connection have no order.
    while panics(&server) < 3 {
        echo(&mut kept, b"after");
    }
    assert_eq!(panics(&server), 3);
}

fn a_task_that_panics_is_ended(config: Config) {
    let server = serve(config, Setting::echo);
    let mut client = server.client();
    server.on_worker(0, |cx| {
        let inner = cx.clone();
        cx.spawn(async move {
            inner.sleep(std::time::Duration::from_millis(1)).await;
            panic!("on request");
        })
        .unwrap();
    });
    while panics(&server) == 0 {
        echo(&mut client, b"goes on");
    }
    echo(&mut client, b"goes on");
    assert_eq!(panics(&server), 1);
}

fn blocking_work_that_panics_is_an_error(config: Config) {
    let server = serve(config, Setting::echo);
    let (give, take) = std::sync::mpsc::channel();
    server.on_worker(0, move |cx| {
        let inner = cx.clone();
        cx.spawn(async move {
            let outcome = inner.blocking(|| panic!("on request")).await;
            give.send(outcome).unwrap();
        })
        .unwrap();
    });
    let outcome = take.recv_timeout(scripted::PATIENCE).unwrap();
    assert_eq!(outcome.unwrap_err().kind(), std::io::ErrorKind::Other);
    assert_eq!(panics(&server), 0);
}

fn a_handler_that_cannot_be_made_ends_the_start(config: Config) {
    let config = Config {
        workers: Some(2),
        ..config
    };
    let mut engine = ringmain_engine::Engine::new(config).unwrap();
    engine
        .listen(&"127.0.0.1:0".parse().unwrap(), &Default::default())
        .unwrap();
    let outcome = engine.start(|start| {
        assert_eq!(start.cx.worker(), 0, "only the first can be made");
        ringmain_engine::on_data(|_, bytes| bytes.len())
    });
    assert!(matches!(
        outcome.err(),
        Some(EngineError::Worker { worker: 1, .. })
    ));
}
