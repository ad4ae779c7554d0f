//! A worker that is held: it is named in the log, and its new connections go to the others.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use crate::scripted::{self, App, Letter, Server, Setting, Told, echo, serve};
use ringmain_engine::{Config, Cx};
use ringmain_testkit::wait::{self, give_way};

on_every_backend!(
    the_handler_that_holds_a_worker_is_named,
    others_take_the_connections_of_a_worker_that_is_held,
    without_another_worker_they_wait,
    a_worker_that_recovers_in_between_loses_none,
    an_engine_that_shuts_down_during_a_stall_ends,
);

/// Lines with the thread that wrote them: each engine's watchdog is one.
static LOG: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());
const NAME: &str = "an app that is held";

static ALONE: Mutex<()> = Mutex::new(());

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        LOG.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((std::thread::current().id(), line));
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

/// Waits until a watchdog has logged that the handler of these cases holds the worker; returns that watchdog.
fn await_held(worker: usize) -> ThreadId {
    await_line(None, &format!("WARN worker {worker} is held by {NAME} for"))
}

/// Waits for a line, of this watchdog if one is given: other tests of this process have workers that are held as well.
fn await_line(watchdog: Option<ThreadId>, part: &str) -> ThreadId {
    let found = || {
        let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = log
            .iter()
            .filter(|(thread, _)| watchdog.is_none_or(|watchdog| watchdog == *thread));
        lines
            .find(|(_, line)| line.contains(part))
            .map(|(thread, _)| *thread)
    };
    wait::find(&format!("a line with `{part}`"), found)
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
    serve(config, stallable)
}

/// Echoes, under a name that no other test's handler has.
fn stallable(setting: Setting) -> App {
    let mut app = setting.echo();
    app.name = NAME;
    app
}

fn the_handler_that_holds_a_worker_is_named(config: Config) {
    let _alone = captured();
    let server = watched(config, 1);
    let release = hold(&server, 0);
    let watchdog = await_held(0);
    drop(release);
    await_line(Some(watchdog), "INFO worker 0 goes on after");
    echo(&mut server.client(), b"as before");
}

fn others_take_the_connections_of_a_worker_that_is_held(config: Config) {
    let _alone = captured();
    let server = watched(config, 2);
    let release = hold(&server, 0);
    // Until it is noticed, connections may still be given to it.
    let watchdog = await_held(0);
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
    await_line(Some(watchdog), "INFO worker 0 goes on after");
    while server.running.report().workers[0].accepted == 0 {
        echo(&mut server.client(), b"it accepts again");
    }
}

fn without_another_worker_they_wait(config: Config) {
    let _alone = captured();
    let server = watched(config, 1);
    let release = hold(&server, 0);
    let mut clients: Vec<_> = (0..16).map(|_| server.client()).collect();
    await_held(0);
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
            give_way();
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
    await_held(1);
    let mut client = server.client();
    echo(&mut client, b"served");
    server.running.shut_down();
    assert!(scripted::read_all(&mut client).is_empty());
    drop(release);
    server.running.join().unwrap();
}
