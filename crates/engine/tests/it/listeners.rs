//! Listeners that come and go while the engine serves, on every real back-end.
#![allow(
    clippy::disallowed_methods,
    reason = "the far ends of these tests are ordinary threads"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringmain_engine::{Addr, Choice, Config, Conn, Engine, Handler, ListenOptions, Running, Via};
use ringmain_testkit::port::own_host;
use ringmain_testkit::wait::until;

/// A guard against hanging, never a measure.
const PATIENCE: Duration = ringmain_testkit::PATIENCE;

/// Says by which listener a connection came, and sends back what comes.
struct Echo;

impl Handler for Echo {
    type Conn = ();
    type Mail = std::convert::Infallible;

    fn open(&mut self, conn: Conn<'_>, via: Via) -> Option<()> {
        let Via::Listener(number) = via else { return None };
        conn.write(&[b'0' + u8::try_from(number).expect("few listeners")])
            .expect("it is open");
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        // Refused if it has just ended.
        let _ = conn.write(bytes);
        bytes.len()
    }

    fn drain(&mut self, _conn: Conn<'_>, _state: &mut ()) {}
}

fn for_each_engine(test: impl Fn(Config)) {
    for engine in [Choice::Uring, Choice::Epoll] {
        for workers in [1, 3] {
            let config = Config {
                engine,
                workers: Some(workers),
                pin: false,
                ..Config::default()
            };
            match Engine::new(config.clone()) {
                Ok(_) => test(config),
                Err(error) => {
                    let line = format!("SKIPPED on {engine:?}: {error}\n");
                    std::io::stderr()
                        .write_all(line.as_bytes())
                        .expect("standard error");
                }
            }
        }
    }
}

fn start(config: Config) -> (Running<std::convert::Infallible>, SocketAddr) {
    let mut engine = Engine::new(config).expect("the back-end is there");
    let addr = engine
        .listen(&any(), &ListenOptions::default())
        .expect("a free port");
    (engine.start(|_| Echo).expect("it starts"), inet(&addr))
}

/// Of a host of its own: no other test gets the port once it is closed.
fn any() -> Addr {
    Addr::Inet(SocketAddr::from((own_host(), 0)))
}

fn inet(addr: &Addr) -> SocketAddr {
    match addr {
        Addr::Inet(addr) => *addr,
        other => panic!("{other} is no internet address"),
    }
}

/// A connection that has been told by which listener it came.
fn client(addr: SocketAddr, number: u8) -> TcpStream {
    let mut client = TcpStream::connect(addr).expect("somebody listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut told = [0];
    client.read_exact(&mut told).expect("it is told");
    assert_eq!(told[0] - b'0', number);
    client
}

fn expect_echo(client: &mut (impl Read + Write)) {
    client.write_all(b"hello").expect("it is open");
    let mut back = [0; 5];
    client.read_exact(&mut back).expect("it is open");
    assert_eq!(&back, b"hello");
}

fn expect_nobody(addr: SocketAddr) {
    let error = TcpStream::connect(addr).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn end(running: Running<std::convert::Infallible>) {
    running.stop();
    running.join().expect("an orderly end");
}

#[test]
fn one_comes_and_goes() {
    let _nothing_starts = crate::scripted::no_process_starts();
    for_each_engine(|config| {
        let (running, first) = start(config);
        let listeners = running.listeners();
        let options = ListenOptions::default();
        let second = inet(&listeners.open(1, &any(), &options).expect("a free port"));
        // Enough that each worker has some.
        let mut all: Vec<_> = (0..20).map(|_| client(second, 1)).collect();
        client(first, 0);
        listeners.close(1);
        expect_nobody(second);
        all.iter_mut().for_each(expect_echo);
        // At the same address, at once, with another number.
        assert_eq!(
            inet(
                &listeners
                    .open(2, &Addr::Inet(second), &options)
                    .expect("it is free again")
            ),
            second
        );
        expect_echo(&mut client(second, 2));
        all.iter_mut().for_each(expect_echo);
        // That of the start, too.
        listeners.close(0);
        expect_nobody(first);
        expect_echo(&mut client(second, 2));
        // None that is there.
        listeners.close(7);
        end(running);
    });
}

#[test]
fn a_thousand_times() {
    let _nothing_starts = crate::scripted::no_process_starts();
    for_each_engine(|config| {
        let (running, first) = start(config);
        let listeners = running.listeners();
        let mut addr = any();
        let mut old = client(first, 0);
        for _ in 0..250 {
            addr = listeners
                .open(1, &addr, &ListenOptions::default())
                .expect("it is free");
            let mut new = client(inet(&addr), 1);
            listeners.close(1);
            expect_echo(&mut new);
        }
        expect_nobody(inet(&addr));
        expect_echo(&mut old);
        end(running);
    });
}

#[test]
fn nobody_is_left_hanging() {
    for_each_engine(|config| {
        let (running, _) = start(config);
        let listeners = running.listeners();
        let addr = listeners
            .open(1, &any(), &ListenOptions::default())
            .expect("a free port");
        // Connected, and perhaps not accepted yet. Each is served, unless the kernel had not put it in the queue.
        let clients: Vec<_> = (0..50)
            .map(|_| TcpStream::connect(inet(&addr)).expect("somebody listens"))
            .collect();
        listeners.close(1);
        for mut client in clients {
            client.set_read_timeout(Some(PATIENCE)).expect("a socket");
            match client.read(&mut [0]) {
                Ok(1) => expect_echo(&mut client),
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
        end(running);
    });
}

#[test]
fn what_cannot_be_opened_is_told_and_leaves_nothing() {
    for_each_engine(|config| {
        let (running, first) = start(config);
        let listeners = running.listeners();
        let options = ListenOptions::default();
        let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = Addr::Inet(other.local_addr().expect("it is bound"));
        let error = listeners.open(1, &taken, &options).expect_err("somebody has it");
        assert!(error.to_string().contains("in use"), "{error}");
        let own = listeners.open(1, &Addr::Inet(first), &options);
        assert!(own.is_err(), "this process has it");
        let again = listeners
            .open(0, &any(), &options)
            .expect_err("the number is taken");
        assert!(again.to_string().contains("number"), "{again}");
        let foreign = "192.0.2.1:0".parse().expect("an address");
        assert!(
            listeners.open(1, &foreign, &options).is_err(),
            "no address of this host"
        );
        // The number is still free.
        let addr = listeners.open(1, &any(), &options).expect("a free port");
        expect_echo(&mut client(inet(&addr), 1));
        running.shut_down();
        let late = listeners
            .open(2, &any(), &options)
            .expect_err("it is shutting down");
        assert!(late.to_string().contains("shutting down"), "{late}");
        end(running);
    });
}

#[test]
fn a_unix_socket_takes_its_file_along() {
    for_each_engine(|config| {
        let (running, _) = start(config);
        let listeners = running.listeners();
        let folder = std::env::temp_dir().join(format!("ringmain-listeners-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("socket");
        let addr: Addr = format!("unix:{}", path.display()).parse().expect("an address");
        for number in [1, 2] {
            listeners
                .open(number, &addr, &ListenOptions::default())
                .expect("the file is free");
            let mut client = UnixStream::connect(&path).expect("somebody listens");
            client.set_read_timeout(Some(PATIENCE)).expect("a socket");
            client.read_exact(&mut [0]).expect("it is told");
            listeners.close(number);
            assert!(!path.exists(), "the file has gone");
            expect_echo(&mut client);
        }
        std::fs::remove_dir(&folder).expect("it is empty");
        end(running);
    });
}

#[test]
fn a_shutdown_ends_those_that_came_later() {
    for_each_engine(|config| {
        let (running, _) = start(config);
        let addr = running
            .listeners()
            .open(1, &any(), &ListenOptions::default())
            .expect("a free port");
        let mut there = client(inet(&addr), 1);
        running.shut_down();
        until("it listens no more", || TcpStream::connect(inet(&addr)).is_err());
        expect_echo(&mut there);
        drop(there);
        running.stop();
        running.join().expect("an orderly end");
    });
}
