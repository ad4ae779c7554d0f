//! A worker that is held: it is named in the log, and its new connections go to the others.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

#[macro_use]
mod scripted;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use ringmain_engine::{Config, Cx};
use scripted::{Letter, Server, Setting, Told, echo, serve};

on_every_backend!(
    the_handler_that_holds_a_worker_is_named,
    others_take_the_connections_of_a_worker_that_is_held,
    without_another_worker_they_wait,
    a_worker_that_recovers_in_between_loses_none,
    an_engine_that_shuts_down_during_a_stall_ends,
);

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
static ALONE: Mutex<()> = Mutex::new(());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

/// The log is one for the process: one case at a time.
fn captured() -> MutexGuard<'static, ()> {
    static SET: Once = Once::new();
    SET.call_once(|| {
        log::set_logger(&Capture).expect("no other logger here");
        log::set_max_level(log::LevelFilter::Info);
    });
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
    guard
}

fn await_line(part: &str) {
    let found = || {
        let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().any(|line| line.contains(part))
    };
    let (_never, nothing) = channel::<()>();
    for _ in 0..10_000 {
        if found() {
            return;
        }
        let _ = nothing.recv_timeout(Duration::from_millis(3));
    }
    panic!("no line with `{part}` in {:?}", LOG.lock().unwrap());
}

/// Holds a worker until the sender goes.
fn hold(server: &Server, worker: usize) -> Sender<()> {
    let (release, released): (Sender<()>, Receiver<()>) = channel();
    let (begun, begins) = channel();
    let block = move |_: &Cx| {
        begun.send(()).unwrap();
        let _ = released.recv();
    };
    let letter = Letter::Run(Box::new(block));
    assert!(server.running.inbox(worker).post(letter).is_ok());
    begins.recv_timeout(scripted::PATIENCE).unwrap();
    release
}

fn watched(config: Config, workers: usize) -> Server {
    let config = Config {
        workers: Some(workers),
        stall: Duration::from_millis(20),
        ..config
    };
    serve(config, Setting::echo)
}

fn the_handler_that_holds_a_worker_is_named(config: Config) {
    let _alone = captured();
    let server = watched(config, 1);
    let release = hold(&server, 0);
    await_line("WARN worker 0 is held by scripted app for");
    drop(release);
    await_line("INFO worker 0 goes on after");
    echo(&mut server.client(), b"as before");
}

fn others_take_the_connections_of_a_worker_that_is_held(config: Config) {
    let _alone = captured();
    let server = watched(config, 2);
    let release = hold(&server, 0);
    // Until it is noticed, connections may still be given to it.
    await_line("WARN worker 0 is held");
    let mut clients: Vec<_> = (0..64).map(|_| server.client()).collect();
    for client in &mut clients {
        echo(client, b"answered");
    }
    let report = server.running.report();
    assert_eq!(
        (report.workers[0].accepted, report.workers[0].connections),
        (0, 0)
    );
    assert!(report.workers[1].adopted > 0, "none of 64 was hashed to worker 0");
    assert_eq!(report.workers[1].accepted + report.workers[1].adopted, 64);
    drop(release);
    await_line("INFO worker 0 goes on after");
    while server.running.report().workers[0].accepted == 0 {
        echo(&mut server.client(), b"it accepts again");
    }
}

fn without_another_worker_they_wait(config: Config) {
    let _alone = captured();
    let server = watched(config, 1);
    let release = hold(&server, 0);
    let mut clients: Vec<_> = (0..16).map(|_| server.client()).collect();
    await_line("WARN worker 0 is held");
    assert_eq!(server.running.report().workers[0].accepted, 0);
    drop(release);
    for client in &mut clients {
        echo(client, b"answered");
    }
}

fn a_worker_that_recovers_in_between_loses_none(config: Config) {
    let _alone = captured();
    let config = Config {
        stall: Duration::from_millis(4),
        ..config
    };
    let config = Config {
        workers: Some(2),
        ..config
    };
    let server = serve(config, Setting::echo);
    for round in 0..40 {
        let release = hold(&server, round % 2);
        let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
        // Before the stall is noticed, at that moment, or after.
        for _ in 0..round * 100 {
            std::thread::yield_now();
        }
        drop(release);
        for client in &mut clients {
            echo(client, b"answered");
        }
    }
    for _ in 0..40 * 20 {
        server.until(|_, told| matches!(told, Told::Opened(_)).then_some(()));
    }
}

fn an_engine_that_shuts_down_during_a_stall_ends(config: Config) {
    let _alone = captured();
    let server = watched(config, 2);
    let release = hold(&server, 1);
    await_line("WARN worker 1 is held");
    let mut client = server.client();
    echo(&mut client, b"served");
    server.running.shut_down();
    assert!(scripted::read_all(&mut client).is_empty());
    drop(release);
    server.running.join().unwrap();
}
