//! An engine that only opens connections: without listeners, on chosen CPUs; how connecting ends, by which kind of error.
#![allow(
    clippy::disallowed_methods,
    reason = "servers in a test are real threads and sockets"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::time::Duration;

use crate::scripted::{self, Server, Setting, Told, start};
use ringmain_engine::backend::Time;
use ringmain_engine::{Addr, Choice, Config, Engine, EngineError, Reason};
use ringmain_testkit::port::Reserved;
use ringmain_testkit::wait::until;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with};

on_every_backend!(
    without_listeners_it_opens_connections_and_ends,
    without_listeners_it_stops_at_once,
    a_server_without_listeners_is_an_error,
    workers_run_on_the_cpus_that_were_chosen,
    there_is_a_worker_for_each_chosen_cpu,
    a_cpu_that_may_not_be_used_is_named,
    unix_sockets_are_connected_to,
    a_full_unix_listener,
    nobody_listens_is_refused,
    a_network_out_of_reach_is_told,
    a_foreign_source_is_not_available,
    used_up_ports_are_not_available,
    silence_times_out,
    a_deadline_ends_connecting,
    a_deadline_set_while_connecting_holds_afterwards,
);

fn clients(config: Config) -> Server {
    let config = Config {
        clients_only: true,
        ..config
    };
    let engine = Engine::new(config).expect("the back-end is there");
    start(engine, SocketAddr::from(([0, 0, 0, 0], 0)).into(), Setting::echo)
}

impl Server {
    /// Opens a connection. Returns the worker's time at that moment, from which the deadline counts.
    fn connect(&self, to: &Addr, deadline: Option<Duration>) -> Time {
        let to = to.clone();
        self.on_worker(0, move |cx| {
            let id = cx.connect(&to, None).expect("a socket");
            cx.conn(id).set_deadline(deadline);
            cx.now()
        })
    }

    fn not_connected(&self) -> Reason {
        self.until(|_, told| match told {
            Told::NotConnected(reason) => Some(reason),
            Told::Opened(_) | Told::Closed(_) => panic!("{told:?}: there is nobody to connect to"),
            _ => None,
        })
    }

    fn fails(&self, to: &Addr, kind: ErrorKind) {
        self.connect(to, None);
        assert_eq!(self.not_connected(), Reason::NotConnected(kind), "{to}");
        self.is_free();
    }

    /// Waits until the slot and the socket are free again.
    fn is_free(&self) {
        until("the connection is gone", || {
            self.on_worker(0, |_| ());
            self.running.report().workers[0].connections == 0
        });
    }
}

fn tcp() -> (TcpListener, Addr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addr = listener.local_addr().unwrap().into();
    (listener, addr)
}

fn talk(mut peer: impl Read + Write) {
    scripted::echo(&mut peer, b"the client echoes");
}

fn without_listeners_it_opens_connections_and_ends(config: Config) {
    let server = clients(config);
    assert!(server.running.addrs().is_empty());
    let (listener, addr) = tcp();
    server.connect(&addr, None);
    let (mut peer, _) = listener.accept().unwrap();
    talk(&mut peer);
    server.running.shut_down();
    server.expect(&Told::Drain);
    assert_eq!(server.closed(), Reason::Closed);
    let summary = server.running.join().unwrap();
    assert_eq!(summary.report.workers[0].closed, 1);
}

fn without_listeners_it_stops_at_once(config: Config) {
    let server = clients(Config {
        workers: Some(3),
        ..config
    });
    let (listener, addr) = tcp();
    server.connect(&addr, None);
    let (_peer, _) = listener.accept().unwrap();
    server.opened();
    server.running.stop();
    assert_eq!(server.closed(), Reason::Shutdown);
    server.running.join().unwrap();
}

fn a_server_without_listeners_is_an_error(config: Config) {
    let engine = Engine::new(config).unwrap();
    let outcome = engine.start(|_| ringmain_engine::on_data(|_, bytes| bytes.len()));
    assert!(matches!(outcome.err(), Some(EngineError::NoListener)));
}

fn workers_run_on_the_cpus_that_were_chosen(config: Config) {
    let last = *ringmain_sys::cpu::allowed().last().expect("never empty");
    let server = clients(Config {
        workers: Some(3),
        cpus: vec![last],
        ..config
    });
    for worker in 0..3 {
        let allowed = server.on_worker(worker, |_| ringmain_sys::cpu::allowed());
        assert_eq!(allowed, [last], "worker {worker}, pinned although `pin` is off");
    }
}

fn there_is_a_worker_for_each_chosen_cpu(config: Config) {
    let all = ringmain_sys::cpu::allowed();
    let cpus: Vec<usize> = all.iter().rev().chain(&all).copied().collect();
    let server = clients(Config {
        workers: None,
        cpus: cpus.clone(),
        ..config
    });
    assert_eq!(server.running.report().workers.len(), cpus.len());
    for (worker, cpu) in cpus.into_iter().enumerate() {
        let allowed = server.on_worker(worker, |_| ringmain_sys::cpu::allowed());
        assert_eq!(allowed, [cpu], "worker {worker}");
    }
}

fn a_cpu_that_may_not_be_used_is_named(config: Config) {
    let allowed = ringmain_sys::cpu::allowed();
    let error = Engine::new(Config {
        cpus: vec![allowed[0], 1000],
        ..config
    });
    let text = error.err().expect("there is no CPU 1000").to_string();
    let expected = format!("cpus: expected CPUs that this process may use: {allowed:?}, found CPU 1000");
    assert_eq!(text, expected);
}

fn unix_sockets_are_connected_to(config: Config) {
    // A child of another test would have a copy of the listener.
    let _nothing_starts = scripted::no_process_starts();
    let server = clients(config);
    let path = std::env::temp_dir().join(format!("ringmain-clients-{:?}", std::thread::current().id()));
    // Of a run that was ended.
    let _ = std::fs::remove_file(&path);
    let name = format!(
        "ringmain-clients-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let abstract_name = UnixAddr::from_abstract_name(&name).unwrap();
    let listeners = [
        (Addr::Unix(path.clone()), UnixListener::bind(&path).unwrap()),
        (
            format!("@{name}").parse().unwrap(),
            UnixListener::bind_addr(&abstract_name).unwrap(),
        ),
    ];
    for (addr, listener) in &listeners {
        server.connect(addr, None);
        let (mut peer, _) = listener.accept().unwrap();
        talk(&mut peer);
        drop(peer);
        assert_eq!(server.closed(), Reason::Closed, "{addr}");
    }
    drop(listeners);
    server.fails(&Addr::Unix(path.clone()), ErrorKind::ConnectionRefused);
    std::fs::remove_file(&path).unwrap();
    server.fails(&Addr::Unix(path), ErrorKind::NotFound);
}

/// The kernel tells nobody when such a queue has room: io_uring has a thread that waits, epoll has none.
fn a_full_unix_listener(config: Config) {
    let waits = config.engine == Choice::Uring;
    let server = clients(config);
    let name = format!(
        "ringmain-full-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let at = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    let addr: Addr = format!("@{name}").parse().unwrap();
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = socket();
    bind(&listener, &at).unwrap();
    listen(&listener, 0).unwrap();
    let filler = socket();
    connect(&filler, &at).unwrap();
    let full = socket();
    assert_eq!(connect(&full, &at), Err(rustix::io::Errno::AGAIN));
    if !waits {
        return server.fails(&addr, ErrorKind::WouldBlock);
    }
    server.connect(&addr, Some(Duration::from_millis(30)));
    assert_eq!(server.not_connected(), Reason::Deadline);
    server.is_free();
    server.connect(&addr, None);
    let listener = UnixListener::from(listener);
    drop(listener.accept().unwrap());
    server.opened();
}

fn nobody_listens_is_refused(config: Config) {
    let reserved = Reserved::new();
    clients(config).fails(&reserved.addr().into(), ErrorKind::ConnectionRefused);
}

/// No stream goes to a broadcast address, whatever the host's routes.
fn a_network_out_of_reach_is_told(config: Config) {
    let addr = SocketAddr::from(([255, 255, 255, 255], 9)).into();
    clients(config).fails(&addr, ErrorKind::NetworkUnreachable);
}

fn a_foreign_source_is_not_available(config: Config) {
    let server = clients(config);
    let (_listener, to) = tcp();
    // From the block that is reserved for documentation.
    let source: Addr = SocketAddr::from(([192, 0, 2, 1], 0)).into();
    let error = server.on_worker(0, move |cx| cx.connect(&to, Some(&source)).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
}

const HTTP: u16 = 80;

/// Every connection to one address needs a port of its own here, and there are eight (of which the probe of io_uring may
/// have left one in TIME_WAIT).
fn used_up_ports_are_not_available(config: Config) {
    in_own_network(move || {
        set("net/ipv4/ip_local_port_range", "40000 40007");
        // Outside of that range, in a network that has no other socket.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, HTTP)).unwrap();
        let addr = listener.local_addr().unwrap().into();
        let server = clients(config);
        for _ in 0..9 {
            server.connect(&addr, None);
        }
        let reason = server.until(|_, told| match told {
            Told::NotConnected(reason) => Some(reason),
            _ => None,
        });
        assert_eq!(reason, Reason::NotConnected(ErrorKind::AddrNotAvailable));
    });
}

/// The kernel asks twice, within three seconds, and gives up.
fn silence_times_out(config: Config) {
    in_own_network(move || {
        set("net/ipv4/tcp_syn_retries", "1");
        let silent = Silent::new();
        clients(config).fails(&silent.addr, ErrorKind::TimedOut);
    });
}

fn a_deadline_ends_connecting(config: Config) {
    const DEADLINE: Duration = Duration::from_millis(30);
    let (silent, server) = (Silent::new(), clients(config));
    let begun = server.connect(&silent.addr, Some(DEADLINE));
    assert_eq!(server.not_connected(), Reason::Deadline);
    // By the worker's clock, which no load makes fast: a slow machine can only be later.
    let ended = server.on_worker(0, |cx| cx.now());
    assert!(ended.since(begun) >= DEADLINE, "not early");
    server.is_free();
    server.running.shut_down();
    server.running.join().unwrap();
}

/// It is one deadline for the connection: a handler that wants another one sets it in `open`.
fn a_deadline_set_while_connecting_holds_afterwards(config: Config) {
    let server = clients(config);
    let (listener, addr) = tcp();
    let mut deadline = Duration::from_millis(200);
    let connects = |deadline| {
        server.connect(&addr, Some(deadline));
        server.until(|_, told| match told {
            Told::Opened(_) => Some(true),
            Told::NotConnected(_) => Some(false),
            _ => None,
        })
    };
    // A worker that had no CPU for that long gave up before it saw the connection.
    while !connects(deadline) {
        deadline *= 2;
    }
    let (_peer, _) = listener.accept().unwrap();
    server.expect(&Told::Deadline);
    assert_eq!(server.closed(), Reason::Deadline);
}

/// An address that answers nothing: its listen queue is full.
struct Silent {
    addr: Addr,
    _held: Vec<OwnedFd>,
}

impl Silent {
    fn new() -> Silent {
        let socket = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = socket();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        bind(&listener, &any).unwrap();
        listen(&listener, 0).unwrap();
        let addr = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let mut held = vec![listener];
        for _ in 0..4 {
            let filler = socket();
            // Succeeds or goes on in the background.
            let _ = connect(&filler, &addr);
            held.push(filler);
        }
        Silent {
            addr: addr.into(),
            _held: held,
        }
    }
}

/// Runs `test` in a network of its own, with nothing but the loopback, whose settings may be changed. Needs root.
#[expect(
    clippy::print_stderr,
    reason = "a test that does nothing must not look like one that passed"
)]
fn in_own_network(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let inside = move || {
        // SAFETY: the thread's network alone changes, and no socket is open in it.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("a network");
        raise_loopback();
        test();
    };
    std::thread::spawn(inside)
        .join()
        .expect("the test holds in there");
}

fn raise_loopback() {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn set(name: &str, value: &str) {
    std::fs::write(format!("/proc/sys/{name}"), value).expect("root may");
}
