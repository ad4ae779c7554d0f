//! An engine of one worker on which a test runs asynchronous code. Knows nothing of what is tested.
#![allow(clippy::print_stdout, reason = "a failed test says on which engine it ran")]
#![allow(
    clippy::disallowed_methods,
    reason = "the far ends of these tests are ordinary threads"
)]

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_engine::stream::Stream;
use ringmain_engine::{
    Addr, Choice, Config, Conn, Cx, Engine, Handler, ListenOptions, Running, Via, WorkerReport,
};

/// So long a test waits for what must come.
pub(crate) const PATIENCE: Duration = ringmain_testkit::PATIENCE;

pub(crate) fn for_each_engine(test: impl Fn(Choice)) {
    for choice in [Choice::Uring, Choice::Epoll] {
        println!("on {choice:?}");
        test(choice);
    }
}

type Letter = Box<dyn FnOnce(&Cx) + Send>;
type Serve = Arc<dyn Fn(Stream) + Send + Sync>;

/// Runs what it is sent, and gives every accepted connection to `serve` as a stream.
struct Host {
    serve: Serve,
}

impl Handler for Host {
    type Conn = ();
    type Mail = Letter;

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<()> {
        (self.serve)(conn.into_stream());
        None
    }

    fn data(&mut self, _conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        bytes.len()
    }

    fn mail(&mut self, cx: &Cx, letter: Letter) {
        letter(cx);
    }
}

pub(crate) struct Rig {
    running: Running<Letter>,
}

impl Rig {
    /// An engine that only runs tasks.
    pub(crate) fn new(choice: Choice) -> Rig {
        Rig::with(choice, |_| {}, |stream| async move { drop(stream) })
    }

    /// An engine that runs `serve` for every connection.
    pub(crate) fn serving<F>(choice: Choice, serve: impl Fn(Stream) -> F + Send + Sync + 'static) -> Rig
    where
        F: Future<Output = ()> + 'static,
    {
        Rig::with(choice, |_| {}, serve)
    }

    pub(crate) fn with<F>(
        choice: Choice,
        change: impl FnOnce(&mut Config),
        serve: impl Fn(Stream) -> F + Send + Sync + 'static,
    ) -> Rig
    where
        F: Future<Output = ()> + 'static,
    {
        let mut config = Config {
            engine: choice,
            workers: Some(1),
            ..Config::default()
        };
        change(&mut config);
        let mut engine = Engine::new(config).expect("the engine is there");
        let addr: Addr = "127.0.0.1:0".parse().expect("an address");
        engine
            .listen(&addr, &ListenOptions::default())
            .expect("a free port");
        let serve: Serve = Arc::new(move |stream: Stream| {
            let cx = stream.cx().clone();
            cx.spawn(serve(stream)).expect("room for a task");
        });
        let running = engine
            .start(move |_| Host {
                serve: Arc::clone(&serve),
            })
            .expect("the engine starts");
        Rig { running }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match &self.running.addrs()[0] {
            Addr::Inet(addr) => *addr,
            other => panic!("{other} is no internet address"),
        }
    }

    /// Runs a task on the worker to its end and returns its value.
    pub(crate) fn run<T, F>(&self, task: impl FnOnce(Cx) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.begin(task).recv_timeout(PATIENCE).expect("the task ends")
    }

    /// Begins a task on the worker; its value arrives at the receiver.
    pub(crate) fn begin<T, F>(&self, task: impl FnOnce(Cx) -> F + Send + 'static) -> mpsc::Receiver<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (sender, receiver) = mpsc::channel();
        let letter: Letter = Box::new(move |cx| {
            let future = task(cx.clone());
            let body = async move {
                // A test that has stopped waiting has failed already.
                let _ = sender.send(future.await);
            };
            cx.spawn(body).expect("room for a task");
        });
        self.running.inbox(0).post(letter).expect("room for mail");
        receiver
    }

    pub(crate) fn report(&self) -> WorkerReport {
        self.running.report().workers[0]
    }

    /// Waits until the worker has freed all connections but `left`.
    pub(crate) fn wait_connections(&self, left: u32) {
        while self.report().connections > left {
            self.run(|cx| async move { cx.sleep(Duration::from_millis(1)).await });
        }
    }
}

/// A far end on a thread of its own.
pub(crate) fn thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(body)
}

/// Bytes that differ from place to place, so that lost, doubled or swapped ones show.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// Writes until neither the stream nor the kernel takes more; returns how much they took. The stream is full when it returns, however
/// late the kernel is: nothing runs on the worker between the last write that was refused and the return.
pub(crate) async fn fill(stream: &Stream) -> usize {
    let mut written = 0;
    let mut idle = 0;
    loop {
        let before = written;
        poll_fn(|context| {
            while let Poll::Ready(count) = stream.poll_write(context, &[7; 4096]) {
                written += count.expect("it is open");
            }
            Poll::Ready(())
        })
        .await;
        idle = if written == before { idle + 1 } else { 0 };
        if idle == 10 {
            return written;
        }
        stream.cx().sleep(Duration::from_millis(3)).await;
    }
}
