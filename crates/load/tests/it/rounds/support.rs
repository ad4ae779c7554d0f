//! A server in threads that does what a test says, and what holds for every round. Knows no single case.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_load::figures::Counts;
use ringmain_load::plan::{Extent, Pace, Plan, Protocol};
use ringmain_load::report::Round;
use ringmain_load::run::Session;
use ringmain_load::traffic::{Request, Traffic};
use ringmain_testkit::port::own_host;
use ringmain_tls::{AcceptHandle, Acceptor};

use crate::rounds::secured::Secured;

/// How long a test waits for what must come: a guard against hanging, never a measure.
pub(crate) const PATIENCE: Duration = ringmain_testkit::PATIENCE;

/// Runs each case on each back-end; says so where io_uring is not there.
macro_rules! on_every_backend {
    ($($case:ident),+ $(,)?) => {
        mod uring { $(#[test] fn $case() { crate::rounds::support::on_uring(stringify!($case), super::$case) })+ }
        mod epoll { $(#[test] fn $case() { super::$case(ringmain_engine::Choice::Epoll) })+ }
    };
}

/// Runs a case on io_uring. Without it the case is skipped, and standard error says so past the test harness,
/// which would hide it.
pub(crate) fn on_uring(name: &str, case: fn(Choice)) {
    let config = ringmain_engine::Config {
        engine: Choice::Uring,
        clients_only: true,
        ..ringmain_engine::Config::default()
    };
    match ringmain_engine::Engine::new(config) {
        Ok(_) => case(Choice::Uring),
        Err(error) => {
            let line = format!("SKIPPED {name} on io_uring: {error}\n");
            std::io::stderr()
                .write_all(line.as_bytes())
                .expect("standard error");
        }
    }
}

pub(crate) trait Duplex: Read + Write + Send {
    /// From now on the end of the connection is not announced, where that could be done.
    fn cut(&mut self) {}
}

impl Duplex for TcpStream {}
impl Duplex for UnixStream {}

/// A connection as the server sees it.
pub(crate) struct Peer {
    /// Its number, from 0, in the order of accepting.
    pub(crate) number: usize,
    pub(crate) from: Option<SocketAddr>,
    stream: Box<dyn Duplex>,
    kept: Vec<u8>,
    traffic: Arc<Wire>,
}

/// Bytes that the server has seen and sent.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// A request as it came.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Peer {
    /// More bytes, if the client has not ended the connection.
    fn receive(&mut self) -> bool {
        let mut piece = vec![0; 64 * 1024];
        let count = match self.stream.read(&mut piece) {
            Ok(count) => count,
            Err(error) => {
                let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(gone.contains(&error.kind()), "reading: {error}");
                0
            }
        };
        self.kept.extend_from_slice(&piece[..count]);
        self.traffic.received.fetch_add(count as u64, Ordering::SeqCst);
        count > 0
    }

    /// The next request; `None` when the client has ended the connection.
    pub(crate) fn request(&mut self) -> Option<Asked> {
        loop {
            if let Some(asked) = self.waiting_request() {
                return Some(asked);
            }
            if !self.receive() {
                return None;
            }
        }
    }

    /// A request that is here already.
    pub(crate) fn waiting_request(&mut self) -> Option<Asked> {
        let end = self.kept.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(self.kept[..end].to_vec()).expect("a head in ASCII");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |value| value.parse().expect("a length"));
        if self.kept.len() < end + length {
            return None;
        }
        let body = self.kept[end..end + length].to_vec();
        self.kept.drain(..end + length);
        let mut words = head.split(' ');
        Some(Asked {
            method: words.next().expect("a method").to_owned(),
            target: words.next().expect("a target").to_owned(),
            body,
            head,
        })
    }

    /// Puts bytes back, before those that have not been looked at.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.kept.splice(..0, bytes.iter().copied());
    }

    /// Some bytes, whatever they mean; none when the client has ended the connection.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        if self.kept.is_empty() {
            self.receive();
        }
        std::mem::take(&mut self.kept)
    }

    /// Sends bytes; a client that is gone is none of the server's business. They count before they leave: who has
    /// them may compare the counts at once.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let sent = &self.traffic.sent;
        sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        if self.stream.write_all(bytes).is_err() {
            sent.fetch_sub(bytes.len() as u64, Ordering::SeqCst);
        }
    }

    pub(crate) fn answer(&mut self, status: u16, body: &str) {
        self.send(answer(status, body));
    }

    /// Ends the connection without announcing it.
    pub(crate) fn cut(&mut self) {
        self.stream.cut();
    }

    /// Answers all requests with 200.
    pub(crate) fn serve(&mut self) {
        while self.request().is_some() {
            self.answer(200, "ok");
        }
    }

    /// Waits until the client ends the connection.
    pub(crate) fn wait(&mut self) {
        while self.receive() {}
    }
}

pub(crate) fn answer(status: u16, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} Text\r\nContent-Length: {length}\r\n\r\n{body}")
}

type Script = Arc<dyn Fn(&mut Peer) + Send + Sync>;

enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Mutex<AcceptHandle>),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> (Box<dyn Duplex>, Option<SocketAddr>) {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = accept(listener);
                (Box::new(stream), Some(from))
            }
            Listener::Tls(listener, acceptor) => {
                let (stream, from) = accept(listener);
                let mut acceptor = acceptor.lock().expect("nobody panics with it");
                let session = acceptor.accept(ringmain_sys::clock::realtime());
                (Box::new(Secured::new(stream, session)), Some(from))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().expect("a connection");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
                (Box::new(stream), None)
            }
        }
    }
}

fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (stream, from) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_nodelay(true).expect("a socket");
    (stream, from)
}

/// A server that runs a script on each connection, in a thread of its own.
pub(crate) struct Server {
    pub(crate) addr: Addr,
    pub(crate) traffic: Arc<Wire>,
    connections: Arc<(Mutex<usize>, Condvar)>,
    ending: Arc<AtomicBool>,
    accepting: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

impl Server {
    pub(crate) fn new(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Server {
        Server::limited(usize::MAX, script)
    }

    /// Takes so many connections; serves them when it does not listen any more.
    pub(crate) fn limited(most: usize, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Server {
        // Of a host of its own: no other server gets the port when this one has stopped listening.
        let listener = TcpListener::bind((own_host(), 0)).expect("a free port");
        let addr = listener.local_addr().expect("an address").into();
        Server::start(Listener::Tcp(listener), addr, most, Arc::new(script))
    }

    /// With TLS.
    pub(crate) fn tls(acceptor: &Acceptor, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let addr = listener.local_addr().expect("an address").into();
        let listener = Listener::Tls(listener, Mutex::new(acceptor.handle()));
        Server::start(listener, addr, usize::MAX, Arc::new(script))
    }

    /// On a Unix socket in the file system.
    pub(crate) fn unix(path: &std::path::Path, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Server {
        // Of a run that was ended.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a free name");
        let addr = Addr::Unix(path.to_owned());
        Server::start(Listener::Unix(listener), addr, usize::MAX, Arc::new(script))
    }

    fn start(listener: Listener, addr: Addr, most: usize, script: Script) -> Server {
        let traffic = Arc::new(Wire::default());
        let connections = Arc::new((Mutex::new(0), Condvar::new()));
        let ending = Arc::new(AtomicBool::new(false));
        let (count, end, wire) = (
            Arc::clone(&connections),
            Arc::clone(&ending),
            Arc::clone(&traffic),
        );
        let accepting = std::thread::spawn(move || {
            let (mut threads, mut held) = (Vec::new(), Vec::new());
            let visit = |mut peer: Peer| {
                let script = Arc::clone(&script);
                std::thread::spawn(move || script(&mut peer))
            };
            for number in 0..most {
                let (stream, from) = listener.accept();
                if end.load(Ordering::SeqCst) {
                    break;
                }
                *count.0.lock().expect("nobody panics with it") += 1;
                count.1.notify_all();
                let peer = Peer {
                    number,
                    from,
                    stream,
                    kept: Vec::new(),
                    traffic: Arc::clone(&wire),
                };
                if most == usize::MAX {
                    threads.push(visit(peer));
                } else {
                    held.push(peer);
                }
            }
            drop(listener);
            threads.extend(held.into_iter().map(visit));
            threads
        });
        Server {
            addr,
            traffic,
            connections,
            ending,
            accepting: Some(accepting),
        }
    }

    /// Connections so far, once there are so many: the kernel makes them before the server hears of them, so that a
    /// client may be done with all its requests on one before another was accepted here.
    pub(crate) fn connections(&self, expected: usize) -> usize {
        let (count, changed) = &*self.connections;
        let count = count.lock().expect("nobody panics with it");
        let (count, _) = changed
            .wait_timeout_while(count, PATIENCE, |count| *count < expected)
            .expect("nobody panics with it");
        *count
    }

    /// Ends it; fails if a script has failed.
    pub(crate) fn finish(mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let addr = self.addr.clone();
        // Wakes who accepts, if somebody still does.
        match &addr {
            Addr::Inet(addr) => drop(TcpStream::connect(addr)),
            Addr::Unix(path) => drop(UnixStream::connect(path)),
            _ => unreachable!("no test listens there"),
        }
        let accepting = self.accepting.take().expect("it runs");
        for thread in accepting.join().expect("it accepts") {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Something that waits until the test says so.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("nobody panics with it") = true;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let open = self.0.0.lock().expect("nobody panics with it");
        let (open, _) = self
            .0
            .1
            .wait_timeout_while(open, PATIENCE, |open| !*open)
            .expect("nobody panics with it");
        assert!(*open, "the gate stays shut");
    }
}

/// Two connections, one thread, a closed loop of ten requests.
pub(crate) fn plan(server: &Server, engine: Choice) -> Plan {
    plan_to(server.addr.clone(), engine)
}

pub(crate) fn plan_to(target: Addr, engine: Choice) -> Plan {
    Plan {
        target,
        others: Vec::new(),
        sources: Vec::new(),
        protocol: Protocol::Http1,
        tls: None,
        connections: 2,
        pipeline: 1,
        reconnect_after: None,
        pace: Pace::Closed,
        extent: Extent::Count(10),
        warmup: Duration::ZERO,
        rounds: 1,
        timeout: PATIENCE,
        connect_timeout: PATIENCE,
        interval: Duration::from_millis(10),
        threads: 1,
        cpus: Vec::new(),
        engine,
        seed: 7,
    }
}

pub(crate) fn get() -> Traffic {
    Traffic::single(Request::get("/", "test")).expect("a request")
}

/// Carries out one round of the plan and checks what holds for all of them.
#[track_caller]
pub(crate) fn round(plan: Plan, traffic: Traffic) -> Round {
    let session = Session::new(plan, traffic).expect("a plan that makes sense");
    let round = session.round(0, None, &mut |_| ()).expect("a round");
    check(&round, session.plan());
    round
}

/// What holds for every round.
#[track_caller]
pub(crate) fn check(round: &Round, plan: &Plan) {
    let figures = &round.figures;
    let counts = &figures.counts;
    let over = counts.answered + counts.failed() + counts.unfinished;
    assert_eq!(counts.sent, over, "each request has one end: {counts:#?}");
    let mut sum = Counts::default();
    let (mut until, mut answered) = (Duration::ZERO, 0);
    for interval in &round.series {
        sum.merge(&interval.counts);
        until += interval.length;
        answered += interval.counts.answered;
        assert_eq!(interval.until, until, "without gaps");
    }
    assert_eq!(&sum, counts, "the series is the whole");
    assert_eq!(until, round.elapsed);
    assert_eq!(answered, counts.answered);
    if plan.protocol.is_http() {
        assert_eq!(counts.statuses.values().sum::<u64>(), counts.answered);
    }
    assert_eq!(figures.service.count(), counts.answered);
    let scheduled = if plan.pace == Pace::Closed {
        0
    } else {
        counts.answered
    };
    assert_eq!(figures.response.count(), scheduled);
    assert_eq!(figures.connect.count(), counts.connects);
    let known = |what: &&str| counts.connect_errors.contains_key(*what) || counts.broken.contains_key(*what);
    assert_eq!(counts.first_errors.keys().find(|what| !known(what)), None);
    assert!(counts.connects >= u64::from(plan.connections));
    assert_eq!(round.workers.len(), plan.threads);
    if let Extent::Time(time) = plan.extent {
        assert_eq!(round.elapsed, time);
    }
}
