//! A gateway that is taken out of service: probes, the delay of a shutdown (`limits.drain_delay`), and its clients meanwhile.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ringmain_testkit::wait;
use rustix::process::Signal;

use crate::common::{PATIENCE, engines, try_connect};
use crate::proxy::{Origin, Proxy, ask, get, until};

/// A gateway in front of an origin. A delay of an hour ends by a second signal only.
fn file(origin: &Origin, delay: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
admin: {{address: 127.0.0.1:0, metrics: 127.0.0.1:0}}
upstreams: {{backend: http://{}}}
routes: {{all: {{rules: [{{match: /, to: backend}}]}}}}
limits: {{drain: 30s, drain_delay: {delay}}}
",
        origin.addr()
    )
}

/// Returns the address in the first line with this text.
fn address_after(proxy: &mut Proxy, text: &str) -> String {
    let line = proxy.server.line_with(text);
    line.split_once(text).expect("the text").1.to_owned()
}

/// Clients that send one request after another, each on its connection until a response closes it.
struct Load {
    state: Arc<LoadState>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct LoadState {
    is_stopped: AtomicBool,
    responses: AtomicU64,
    /// Connections that a response has closed.
    closed: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    fn start(addr: &str) -> Load {
        let state = Arc::new(LoadState::default());
        let threads = (0..4).map(|_| {
            let (addr, state) = (addr.to_owned(), Arc::clone(&state));
            std::thread::spawn(move || {
                while !state.is_stopped.load(Ordering::Relaxed) {
                    if let Err(error) = run_connection(&addr, &state) {
                        state.failures.lock().expect("no panic").push(error.to_string());
                    }
                }
            })
        });
        let threads = threads.collect();
        Load { state, threads }
    }

    /// Waits for this many further responses.
    fn wait_for(&self, count: u64) {
        let from = self.state.responses.load(Ordering::Relaxed);
        wait::until("responses under load", || {
            self.state.responses.load(Ordering::Relaxed) >= from + count
        });
    }

    /// Stops the clients. Returns the number of connections that responses have closed, and the failures.
    fn stop(self) -> (u64, Vec<String>) {
        self.state.is_stopped.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
        let failures = self.state.failures.lock().expect("no panic").clone();
        (self.state.closed.load(Ordering::Relaxed), failures)
    }
}

/// Sends requests on one connection until a response closes it, or the load stops.
fn run_connection(addr: &str, state: &LoadState) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while !state.is_stopped.load(Ordering::Relaxed) {
        stream.write_all(b"GET /load HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let (mut length, mut closes, mut head) = (0, false, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().map_err(std::io::Error::other)?;
            }
            closes |= line == "connection: close";
            head += &line;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if !head.starts_with("http/1.1 200") || body != b"origin /load" {
            return Err(std::io::Error::other(head));
        }
        state.responses.fetch_add(1, Ordering::Relaxed);
        if closes {
            state.closed.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }
    Ok(())
}

#[test]
fn a_signal_takes_a_gateway_out_of_service_without_a_failed_request() {
    for engine in engines() {
        let origin = Origin::named("origin");
        let mut proxy = Proxy::start(&file(&origin, "1h"), &["--engine", engine, "--workers", "2"]);
        let probes = address_after(&mut proxy, "metrics at ");
        until(&probes, "any.test", "/readyz", |answer| answer.status == 200);
        let load = Load::start(proxy.addr());
        load.wait_for(200);
        assert_eq!(
            load.state.closed.load(Ordering::Relaxed),
            0,
            "connections are reused"
        );

        proxy.server.signal(Signal::TERM);
        proxy
            .server
            .wait_for("shutting down in 3600 s: new connections are still accepted");
        let answer = until(&probes, "any.test", "/readyz", |answer| answer.status == 503);
        assert!(answer.body.contains("draining"), "{answer:?}");
        assert_eq!(get(&probes, "any.test", "/healthz").status, 200);
        let metrics = get(&probes, "any.test", "/metrics").body;
        assert!(metrics.contains("\nringmain_draining 1\n"), "{metrics}");

        // Load balancers have not noticed yet: new connections are served, for one response each.
        load.wait_for(200);
        assert_eq!(get(proxy.addr(), "a", "/new").body, "origin /new");
        let (closed, failures) = load.stop();
        assert_eq!(failures, [""; 0], "{engine}");
        assert!(closed > 0, "{engine}: no response has closed its connection");

        proxy.server.signal(Signal::TERM);
        proxy
            .server
            .wait_for_each(&["a second signal ends them at once", "all connections are closed"]);
        let addr = proxy.addr().to_owned();
        let (status, said) = proxy.server.finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
        assert!(try_connect(&addr).is_err(), "no listener is left");
    }
}

#[test]
fn the_delay_ends_by_itself() {
    for engine in engines() {
        let origin = Origin::named("origin");
        let mut proxy = Proxy::start(&file(&origin, "50ms"), &["--engine", engine]);
        proxy.server.signal(Signal::TERM);
        proxy.server.wait_for_each(&[
            "shutting down in 1 s",
            "shutting down, 0 still open",
            "all connections are closed",
        ]);
        let (status, said) = proxy.server.finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
    }
}

/// As a `preStop` hook that requests it, before the signal of the kubelet.
#[test]
fn a_signal_after_a_requested_drain_leaves_the_delay() {
    let origin = Origin::named("origin");
    let mut proxy = Proxy::start(&file(&origin, "1h"), &[]);
    let admin = address_after(&mut proxy, "administration at ");
    until(&admin, "localhost", "/readyz", |answer| answer.status == 200);
    assert_eq!(ask(&admin, "POST", "localhost", "/drain", "").status, 202);
    // At once: the response to the request was the last that was ready.
    assert_eq!(get(&admin, "localhost", "/readyz").status, 503);
    proxy.server.wait_for("new connections are still accepted");
    proxy.server.signal(Signal::TERM);
    proxy.server.wait_for("new connections are still accepted");
    assert_eq!(get(proxy.addr(), "a", "/new").body, "origin /new");
    proxy.server.signal(Signal::TERM);
    proxy.server.wait_for("all connections are closed");
    let (status, said) = proxy.server.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
}
