//! Full tables: accepting pauses with a message, nothing breaks, and who waits is served when others leave.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use crate::scripted::{self, Setting, client, serve};
use ringmain_engine::Config;
use ringmain_testkit::wait::until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

on_every_backend!(
    beyond_the_connection_limit_clients_wait_their_turn,
    the_limit_of_the_process_holds_for_all_workers,
    beyond_the_descriptor_limit_clients_wait_their_turn,
);

fn with_limit(config: Config, workers: usize, limit: u32) -> Config {
    Config {
        workers: Some(workers),
        max_connections: Some(limit),
        ..config
    }
}

/// Opens `count` connections with a request each, calls `all_open`, and then ends each when it is answered.
fn crowd(addr: SocketAddr, count: usize, all_open: impl FnOnce(), mut each: impl FnMut()) {
    let mut waiting: Vec<TcpStream> = (0..count).map(|_| client(addr)).collect();
    for client in &mut waiting {
        client.write_all(b"x").unwrap();
    }
    all_open();
    let patience = Timespec {
        tv_sec: scripted::PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    while !waiting.is_empty() {
        let mut ready: Vec<_> = waiting.iter().map(|c| PollFd::new(c, PollFlags::IN)).collect();
        let found = poll(&mut ready, Some(&patience)).unwrap();
        assert!(found > 0, "{} clients are not served", waiting.len());
        each();
        let first = ready.iter().position(|r| !r.revents().is_empty()).unwrap();
        let mut byte = [0];
        let mut served = waiting.swap_remove(first);
        served.read_exact(&mut byte).expect("nobody is turned away");
    }
}

fn beyond_the_connection_limit_clients_wait_their_turn(config: Config) {
    let server = serve(with_limit(config, 1, 5), Setting::echo);
    let paused = || {
        until("a pause", || server.running.report().workers[0].accept_pauses > 0);
    };
    let below = || {
        let open = server.running.report().workers[0].connections;
        assert!(open <= 5, "{open} are open");
    };
    crowd(server.addr, 60, paused, below);
    assert_eq!(server.running.report().workers[0].accepted, 60);
}

fn the_limit_of_the_process_holds_for_all_workers(config: Config) {
    let server = serve(with_limit(config, 2, 8), Setting::echo);
    let below = || {
        let workers = server.running.report().workers;
        let open: u32 = workers.iter().map(|w| w.connections).sum();
        // Each of the others may be accepting one more at that moment.
        assert!(open <= 8 + 1, "{open} are open");
    };
    crowd(server.addr, 60, || {}, below);
    let workers = server.running.report().workers;
    assert_eq!(workers.iter().map(|w| w.accepted).sum::<u64>(), 60);
}

struct Print;

impl log::Log for Print {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    #[expect(clippy::print_stdout, reason = "the test reads it there")]
    fn log(&self, record: &log::Record<'_>) {
        println!("log {}", record.args());
    }

    fn flush(&self) {}
}

const CHILD: &str = "RINGMAIN_TEST_BACKEND";

/// Not a test: the server of [`beyond_the_descriptor_limit_clients_wait_their_turn`], in a process with a small
/// descriptor limit of its own.
#[test]
fn server_with_few_descriptors() {
    let Ok(backend) = std::env::var(CHILD) else {
        return;
    };
    log::set_logger(&Print).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let config = match backend.as_str() {
        "direct" => scripted::direct(),
        "plain" => scripted::plain(),
        _ => scripted::epoll(),
    };
    // More than the limit has room for, so that the descriptors run out first.
    let server = serve(config, Setting::echo);
    let spare = std::fs::File::open("/dev/null").unwrap();
    let hoard: Vec<_> = match backend.as_str() {
        "direct" => Vec::new(),
        _ => (0..20).map(|_| spare.try_clone().unwrap()).collect(),
    };
    println!("port {}", server.addr.port());
    let mut nothing = String::new();
    std::io::stdin().read_line(&mut nothing).unwrap();
    drop(hoard);
    println!("panics {}", server.running.report().workers[0].panics);
    server.running.shut_down();
    server.running.join().unwrap();
    println!("ended");
}

fn beyond_the_descriptor_limit_clients_wait_their_turn(config: Config) {
    let backend = match (config.engine, config.without) {
        (ringmain_engine::Choice::Epoll, _) => "epoll",
        (_, without) if without == scripted::direct().without => "direct",
        _ => "plain",
    };
    let starting = scripted::starts_process();
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "overload::server_with_few_descriptors", "--nocapture"])
        .env(CHILD, backend)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(starting);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = |part: &str| {
        let mut seen = Vec::new();
        loop {
            let Some(line) = lines.next() else {
                panic!("no line with `{part}` in {seen:?}");
            };
            let line = line.unwrap();
            if let Some((_, rest)) = line.split_once(part) {
                return rest.to_owned();
            }
            seen.push(line);
        }
    };
    let port: u16 = until("port ").parse().unwrap();
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let message = || {
        let rest = until(": accepting paused with ");
        assert!(
            rest.contains("waiting clients stay in the listen queue"),
            "{rest}"
        );
    };
    crowd(addr, 150, message, || {});
    // And again, now that it knows.
    crowd(addr, 150, || {}, || {});
    drop(child.stdin.take());
    assert_eq!(until("panics "), "0");
    until("ended");
    assert!(child.wait().unwrap().success());
}
