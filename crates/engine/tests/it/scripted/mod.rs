//! A scripted application on a real engine, for the behaviour tests.
//!
//! Owns the three ways to reach the kernel ([`direct`], [`plain`], [`epoll`]), the handler [`App`] whose every
//! event can be scripted and is told to the test, and clients that give up after [`PATIENCE`]
//! rather than hang. Knows no single case.
#![allow(unreachable_pub, reason = "a module of one test binary")]
#![allow(
    clippy::disallowed_methods,
    reason = "clients and servers in a test are real threads and sockets"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::features::{Feature, Features};
use ringmain_engine::{
    Addr, Choice, Config, Conn, ConnId, Cx, Engine, Handler, ListenOptions, Post, Reason, Running, Via,
};

/// How long a test waits for what must come: a guard against hanging, never a measure.
pub const PATIENCE: Duration = ringmain_testkit::PATIENCE;

pub use ringmain_testkit::program::{no_process_starts, starts_process};

/// io_uring with all that works here, one worker.
pub fn direct() -> Config {
    Config {
        engine: Choice::Uring,
        workers: Some(1),
        pin: false,
        ..Config::default()
    }
}

/// io_uring with ordinary descriptors.
pub fn plain() -> Config {
    Config {
        without: Features::none().with(Feature::DirectDescriptors),
        ..direct()
    }
}

/// epoll.
pub fn epoll() -> Config {
    Config {
        engine: Choice::Epoll,
        ..direct()
    }
}

/// Runs each case on each back-end.
macro_rules! on_every_backend {
    ($($case:ident),+ $(,)?) => {
        mod direct { $(#[test] fn $case() { super::$case($crate::scripted::direct()) })+ }
        mod plain { $(#[test] fn $case() { super::$case($crate::scripted::plain()) })+ }
        mod epoll { $(#[test] fn $case() { super::$case($crate::scripted::epoll()) })+ }
    };
}

/// What a test sends to a worker.
pub enum Letter {
    /// Is told back with the worker's number.
    Number(u64),
    /// Runs on the worker.
    Run(Box<dyn FnOnce(&Cx) + Send>),
}

/// What a worker tells the test.
#[derive(Debug, PartialEq)]
pub enum Told {
    Opened(ConnId),
    Data(usize),
    Drained,
    End,
    Deadline,
    Drain,
    Closed(Reason),
    NotConnected(Reason),
    Timer(u64),
    /// With the turn's time.
    Alarm(Time),
    Number(u64),
    /// A test's own word.
    Note(&'static str),
}

type OnConn = Box<dyn FnMut(Conn<'_>)>;
type OnData = Box<dyn FnMut(Conn<'_>, &mut [u8]) -> usize>;
type OnWorker<T> = Box<dyn FnMut(&Cx, T)>;

/// The handler. Unless scripted it echoes, and closes as the defaults do.
pub struct App {
    pub open: OnConn,
    pub data: OnData,
    pub end: OnConn,
    pub drained: OnConn,
    pub deadline: OnConn,
    pub drain: OnConn,
    pub closed: OnWorker<Reason>,
    pub timer: OnWorker<u64>,
    pub alarm: Box<dyn FnMut(&Cx)>,
    pub tell: Sender<(usize, Told)>,
    /// In the log.
    pub name: &'static str,
}

/// What an app is made from, on its worker's thread.
pub struct Setting {
    pub cx: Cx,
    pub post: Post<Letter>,
    pub tell: Sender<(usize, Told)>,
}

impl Setting {
    pub fn echo(self) -> App {
        App {
            open: Box::new(|_| {}),
            data: Box::new(|conn, bytes| {
                // A connection that cannot be written to is being closed.
                let _ = conn.write(bytes);
                bytes.len()
            }),
            end: Box::new(|conn| conn.close()),
            drained: Box::new(|_| {}),
            deadline: Box::new(|conn| conn.abort_because(Reason::Deadline)),
            drain: Box::new(|conn| conn.close()),
            closed: Box::new(|_, _| {}),
            timer: Box::new(|_, _| {}),
            alarm: Box::new(|_| {}),
            tell: self.tell,
            name: "scripted app",
        }
    }
}

impl App {
    fn tell(&self, cx: &Cx, told: Told) {
        // The test may have seen enough.
        let _ = self.tell.send((cx.worker(), told));
    }
}

impl Handler for App {
    type Conn = ();
    type Mail = Letter;

    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<()> {
        self.tell(conn.cx(), Told::Opened(conn.id()));
        (self.open)(conn);
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _: &mut (), bytes: &mut [u8]) -> usize {
        self.tell(conn.cx(), Told::Data(bytes.len()));
        (self.data)(conn, bytes)
    }

    fn end(&mut self, conn: Conn<'_>, _: &mut ()) {
        self.tell(conn.cx(), Told::End);
        (self.end)(conn);
    }

    fn drained(&mut self, conn: Conn<'_>, _: &mut ()) {
        self.tell(conn.cx(), Told::Drained);
        (self.drained)(conn);
    }

    fn deadline(&mut self, conn: Conn<'_>, _: &mut ()) {
        self.tell(conn.cx(), Told::Deadline);
        (self.deadline)(conn);
    }

    fn drain(&mut self, conn: Conn<'_>, _: &mut ()) {
        self.tell(conn.cx(), Told::Drain);
        (self.drain)(conn);
    }

    fn closed(&mut self, cx: &Cx, _: (), reason: Reason) {
        self.tell(cx, Told::Closed(reason));
        (self.closed)(cx, reason);
    }

    fn not_connected(&mut self, cx: &Cx, _: ConnId, reason: Reason) {
        self.tell(cx, Told::NotConnected(reason));
    }

    fn timer(&mut self, cx: &Cx, key: u64) {
        self.tell(cx, Told::Timer(key));
        (self.timer)(cx, key);
    }

    fn alarm(&mut self, cx: &Cx) {
        self.tell(cx, Told::Alarm(cx.now()));
        (self.alarm)(cx);
    }

    fn mail(&mut self, cx: &Cx, mail: Letter) {
        match mail {
            Letter::Number(number) => self.tell(cx, Told::Number(number)),
            Letter::Run(work) => work(cx),
        }
    }
}

/// An engine with one TCP listener on the loopback.
pub struct Server {
    pub running: Running<Letter>,
    pub addr: SocketAddr,
    pub told: Receiver<(usize, Told)>,
}

/// Serves with small socket buffers, so that a peer that does not read is felt soon.
pub fn serve(config: Config, make: impl Fn(Setting) -> App + Send + Sync + 'static) -> Server {
    let options = ListenOptions {
        send_buffer: Some(32 * 1024),
        receive_buffer: Some(32 * 1024),
        ..ListenOptions::default()
    };
    serve_at(config, &"127.0.0.1:0".parse().unwrap(), &options, make)
}

pub fn serve_at(
    config: Config,
    addr: &Addr,
    options: &ListenOptions,
    make: impl Fn(Setting) -> App + Send + Sync + 'static,
) -> Server {
    let mut engine = Engine::new(config).expect("the back-end is there");
    let addr = engine.listen(addr, options).expect("a free port");
    start(engine, addr, make)
}

/// Starts an engine that listens already.
pub fn start(engine: Engine, addr: Addr, make: impl Fn(Setting) -> App + Send + Sync + 'static) -> Server {
    let (tell, told) = channel();
    let running = engine
        .start(move |start| {
            make(Setting {
                cx: start.cx,
                post: start.post,
                tell: tell.clone(),
            })
        })
        .expect("the workers start");
    let addr = match addr {
        Addr::Inet(addr) => addr,
        _ => "0.0.0.0:0".parse().unwrap(),
    };
    Server { running, addr, told }
}

impl Server {
    pub fn client(&self) -> TcpStream {
        client(self.addr)
    }

    /// Waits for the first news that `wanted` takes, passing over others.
    pub fn until<T>(&self, mut wanted: impl FnMut(usize, Told) -> Option<T>) -> T {
        loop {
            let (worker, told) = self.told.recv_timeout(PATIENCE).expect("what the test waits for");
            if let Some(found) = wanted(worker, told) {
                return found;
            }
        }
    }

    /// Waits until this is told, passing over other news.
    pub fn expect(&self, wanted: &Told) {
        self.until(|_, told| (told == *wanted).then_some(()));
    }

    pub fn opened(&self) -> ConnId {
        self.until(|_, told| match told {
            Told::Opened(id) => Some(id),
            _ => None,
        })
    }

    pub fn closed(&self) -> Reason {
        self.until(|_, told| match told {
            Told::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    /// Runs `work` on a worker and waits for what it returns.
    pub fn on_worker<T: Send + 'static>(
        &self,
        worker: usize,
        work: impl FnOnce(&Cx) -> T + Send + 'static,
    ) -> T {
        let (give, take) = channel();
        let job = Box::new(move |cx: &Cx| give.send(work(cx)).expect("the test waits"));
        assert!(self.running.inbox(worker).post(Letter::Run(job)).is_ok());
        take.recv_timeout(PATIENCE).expect("the worker runs it")
    }
}

/// A client that gives up rather than hang.
pub fn client(addr: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(addr).expect("the server listens");
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

/// Sends `bytes` and waits for the same back.
pub fn echo(client: &mut (impl Read + Write), bytes: &[u8]) {
    client.write_all(bytes).expect("the server takes it");
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).expect("the server answers");
    assert!(back == bytes, "the answer is what was sent");
}

/// All that comes until the end of the stream.
pub fn read_all(client: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    client.read_to_end(&mut all).expect("an orderly end");
    all
}

/// Whether the connection ends by a reset.
pub fn is_reset(client: &mut impl Read) -> bool {
    // Unlike `read`, it goes on after an interruption.
    let outcome = client.read_exact(&mut [0]);
    outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Bytes whose position can be told from their value.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Makes the socket's close a reset.
pub fn reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
}
