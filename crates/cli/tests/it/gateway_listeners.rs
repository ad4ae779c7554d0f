//! `ringmain run FILE` with listeners that are added and removed, and passthrough connections.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use crate::common::{PATIENCE, engines};
use crate::proxy::{Origin, Proxy, get};
use ringmain_testkit::port::own_host;
use ringmain_testkit::wait;
use rustix::process::Signal;

/// A file with these listeners, whose requests and connections go to an origin.
fn file(listeners: &[(&str, &str)], origin: &Origin) -> String {
    let listeners = listeners
        .iter()
        .map(|(name, what)| format!("  {name}: {{{what}}}\n"));
    let listeners: String = listeners.collect();
    format!(
        "listeners:\n{listeners}
routes: {{all: {{to: origin}}}}
streams: {{bytes: {{to: origin}}}}
upstreams: {{origin: http://{}}}
access_log: {{to: ./access.log, format: json}}
",
        origin.addr()
    )
}

const WEB: (&str, &str) = ("web", "address: 127.0.0.1:0");

const ASKED: &str = "GET /bytes HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends a request over a passthrough connection, and closes its side first.
fn ask(addr: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(ASKED.as_bytes()).expect("it is read");
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer and its end");
    answer
}

#[test]
fn a_listener_is_added_persisted_and_removed() {
    for engine in engines() {
        let origin = Origin::named("origin");
        let mut proxy = Proxy::start(&file(&[WEB], &origin), &["--engine", engine, "--workers", "2"]);
        let bytes = format!("address: '{}:0', protocol: tcp", own_host());
        let bytes = ("bytes", &bytes[..]);
        fs::write(&proxy.file, file(&[WEB, bytes], &origin)).expect("written");
        let line = proxy.server.wait_for("listening on");
        let addr = line.rsplit(' ').next().expect("an address").trim().to_owned();
        proxy.server.wait_for("configuration reloaded in");
        let answer = ask(&addr);
        assert!(answer.ends_with("\r\n\r\norigin /bytes"), "{answer}");
        // One log line, when the connection is closed.
        let log = proxy.folder.join("access.log");
        let noted = wait::find("a line of the access log", || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let line = text.lines().find(|line| line.contains("\"ended\""));
            line.map(str::to_owned)
        });
        let length = answer.len();
        for part in [
            "\"remote\":\"127.0.0.1\",\"method\":\"TCP\",\"target\":\"-\",\"status\":200,",
            &format!("\"bytes\":{length},"),
            "\"route\":\"bytes\",\"upstream\":\"origin\",",
            "\"tries\":1,",
            &format!("\"received\":{},\"ended\":\"client\"", ASKED.len()),
        ] {
            assert!(noted.contains(part), "{part} in {noted}");
        }
        // The listener is removed; its connections remain open.
        let mut there = TcpStream::connect(&addr).expect("it listens");
        there.set_read_timeout(Some(PATIENCE)).expect("a socket");
        there.write_all(b"GET /1 HTTP/1.1\r\n\r\n").expect("it is read");
        let mut first = [0; 12];
        there.read_exact(&mut first).expect("an answer");
        fs::write(&proxy.file, file(&[WEB], &origin)).expect("written");
        proxy.server.wait_for("configuration reloaded in");
        assert!(TcpStream::connect(&addr).is_err(), "nobody listens there");
        there.write_all(b"GET /2 HTTP/1.1\r\n\r\n").expect("it is read");
        there.shutdown(Shutdown::Write).expect("it is open");
        let mut rest = String::new();
        there.read_to_string(&mut rest).expect("the end");
        assert!(rest.ends_with("origin /2"), "{rest}");
        assert_eq!(get(proxy.addr(), "a", "/").status, 200);
        proxy.server.terminate();
    }
}

#[test]
fn an_address_in_use_is_reported_and_retried() {
    let origin = Origin::named("origin");
    let mut proxy = Proxy::start(&file(&[WEB], &origin), &[]);
    let other = TcpListener::bind((own_host(), 0)).expect("a free port");
    let addr = other.local_addr().expect("it is bound").to_string();
    let more = format!("address: '{addr}'");
    fs::write(&proxy.file, file(&[WEB, ("more", &more)], &origin)).expect("written");
    let line = proxy.server.wait_for("in use");
    for part in ["proxy.yaml:3:", "an address that can be listened at", &addr] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(get(proxy.addr(), "a", "/").status, 200);
    drop(other);
    proxy.server.signal(Signal::HUP);
    proxy.server.wait_for("listening on");
    assert_eq!(get(&addr, "a", "/").status, 200);
    proxy.server.terminate();
}
