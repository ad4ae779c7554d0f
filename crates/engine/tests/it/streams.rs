//! Streams on workers of both real back-ends: connecting, moving bytes, half-close, and every way to end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::support::{PATIENCE, Rig, fill, for_each_engine, pattern, thread};
use ringmain_engine::stream::{Receiver, Stream};
use ringmain_engine::{Addr, Choice, Cx};
use ringmain_testkit::port::Reserved;
use rustix::net::sockopt::set_socket_linger;

const LARGE: usize = 10_000_000;

fn dial(rig: &Rig) -> TcpStream {
    let stream = TcpStream::connect(rig.addr()).expect("the engine listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Closes so that the engine sees a reset.
fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket option");
}

fn read_all(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).map(|_| all)
}

/// Serves one connection by `serve` and hands out what it returns.
fn served<T, F>(
    choice: Choice,
    serve: impl Fn(Stream) -> F + Send + Sync + 'static,
) -> (Rig, mpsc::Receiver<T>)
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (sender, receiver) = mpsc::sync_channel(1);
    let rig = Rig::serving(choice, move |stream| {
        let (sender, future) = (sender.clone(), serve(stream));
        async move { sender.send(future.await).expect("the test waits") }
    });
    (rig, receiver)
}

/// Waits on the worker until the test has set the flag, and for one more turn, in which the worker receives the bytes in the kernel's buffer.
async fn until_set(stream: &Stream, flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        stream.cx().sleep(Duration::from_millis(1)).await;
    }
    stream.cx().sleep(Duration::from_millis(1)).await;
}

/// What the far side sees and what the served stream returned; all is freed at the end.
fn outcome<T>(rig: &Rig, receiver: &mpsc::Receiver<T>) -> T {
    let value = receiver.recv_timeout(PATIENCE).expect("the stream's task ends");
    rig.wait_connections(0);
    value
}

#[test]
fn nobody_listens() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let reserved = Reserved::new();
        let addr = Addr::Inet(reserved.addr());
        let error = rig.run(|cx: Cx| async move { cx.connect_stream(&addr, None).await.map(drop) });
        assert_eq!(
            error.expect_err("nobody is there").kind(),
            io::ErrorKind::ConnectionRefused
        );
        rig.wait_connections(0);
    });
}

/// A listener whose queue is full: the kernel drops further attempts.
fn silent() -> (SocketAddr, impl Sized) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
    let socket = |flags| socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
    let listener = socket(SocketFlags::CLOEXEC);
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    bind(&listener, &any).expect("a free port");
    listen(&listener, 0).expect("it is bound");
    let listener = TcpListener::from(listener);
    let addr = listener.local_addr().expect("it is bound");
    let fill = |_| {
        let stream = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        // In progress, or dropped because the queue is full.
        let _ = connect(&stream, &addr);
        stream
    };
    let queue: Vec<_> = (0..4).map(fill).collect();
    (addr, (listener, queue))
}

#[test]
fn a_silent_host_is_given_up_in_time() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (addr, _keep) = silent();
        let addr = Addr::Inet(addr);
        let error = rig.run(|cx: Cx| async move {
            let begun = cx.now();
            let span = Duration::from_millis(50);
            let error = cx.connect_within(&addr, None, span).await.map(drop);
            assert!(cx.now().since(begun) >= span);
            error
        });
        assert_eq!(error.expect_err("nobody answers").kind(), io::ErrorKind::TimedOut);
        rig.wait_connections(0);
    });
}

#[test]
fn a_dropped_attempt_to_connect_leaves_nothing() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (addr, _keep) = silent();
        rig.run(move |cx: Cx| async move {
            let worker = cx.clone();
            let attempt = async move {
                let outcome = worker.connect_stream(&Addr::Inet(addr), None).await;
                unreachable!("nobody answers: {outcome:?}");
            };
            let task = cx.spawn(attempt).expect("room for a task");
            cx.sleep(Duration::from_millis(5)).await;
            cx.cancel(task);
        });
        rig.wait_connections(0);
    });
}

#[test]
fn ten_megabytes_each_way() {
    for_each_engine(|choice| {
        let (rig, ended) = served(choice, |stream| async move {
            let mut data = vec![0; LARGE];
            stream.read_exact(&mut data).await?;
            stream.write_all(&data).await
        });
        let client = dial(&rig);
        let (data, mut writer) = (pattern(LARGE), client.try_clone().expect("a descriptor"));
        writer.write_all(&data).expect("it is read");
        assert!(read_all(&client).expect("it comes back") == data);
        outcome(&rig, &ended).expect("no error");
    });
}

#[test]
fn ten_megabytes_each_way_at_once_as_a_client() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = Addr::Inet(listener.local_addr().expect("it is bound"));
        let far = thread(move || {
            let (peer, _) = listener.accept().expect("the engine connects");
            let (mut reader, mut writer) = (peer.try_clone().expect("a descriptor"), peer);
            io::copy(&mut reader, &mut writer).expect("an echo")
        });
        let right = rig.run(|cx: Cx| async move {
            let stream = std::rc::Rc::new(cx.connect_stream(&addr, None).await?);
            let writer = std::rc::Rc::clone(&stream);
            let write = async move {
                writer.write_all(&pattern(LARGE)).await.expect("it is read");
                writer.shutdown().await.expect("it is read");
            };
            cx.spawn(write).expect("room for a task");
            let mut data = vec![0; LARGE];
            stream.read_exact(&mut data).await?;
            let end = stream.read(&mut [0; 1]).await?;
            io::Result::Ok(data == pattern(LARGE) && end == 0)
        });
        assert!(right.expect("no error"));
        assert_eq!(far.join().expect("no panic"), LARGE as u64);
        rig.wait_connections(0);
    });
}

#[test]
fn the_peer_closes_its_half_first() {
    for_each_engine(|choice| {
        let (rig, ended) = served(choice, |stream| async move {
            let mut received = Vec::new();
            let mut part = [0; 1000];
            loop {
                match stream.read(&mut part).await? {
                    0 => break,
                    count => received.extend_from_slice(&part[..count]),
                }
            }
            assert_eq!(stream.read(&mut part).await?, 0, "the end stays the end");
            stream.write_all(&pattern(1_000_000)).await?;
            stream.shutdown().await?;
            let refused = stream.write_all(b"more").await.map_err(|error| error.kind());
            io::Result::Ok((received, refused))
        });
        let mut client = dial(&rig);
        client.write_all(b"all I have").expect("it is read");
        client.shutdown(Shutdown::Write).expect("it is open");
        assert!(read_all(&client).expect("an orderly end") == pattern(1_000_000));
        let (received, refused) = outcome(&rig, &ended).expect("no error");
        assert_eq!(received, b"all I have");
        assert_eq!(refused, Err(io::ErrorKind::BrokenPipe));
    });
}

#[test]
fn the_engine_closes_its_half_first() {
    for_each_engine(|choice| {
        let (rig, ended) = served(choice, |stream| async move {
            stream.write_all(b"all I have").await?;
            stream.shutdown().await?;
            let mut data = vec![0; 1_000_000];
            stream.read_exact(&mut data).await?;
            let end = stream.read(&mut [0; 1]).await?;
            io::Result::Ok((data, end))
        });
        let mut client = dial(&rig);
        assert_eq!(read_all(&client).expect("an orderly end"), b"all I have");
        client.write_all(&pattern(1_000_000)).expect("it is read");
        drop(client);
        let (data, end) = outcome(&rig, &ended).expect("no error");
        assert!(data == pattern(1_000_000));
        assert_eq!(end, 0);
    });
}

#[test]
fn bytes_before_the_end_survive_our_own_end() {
    for_each_engine(|choice| {
        let client_has_ended = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&client_has_ended);
        let (rig, ended) = served(choice, move |stream| {
            let has_ended = Arc::clone(&has_ended);
            async move {
                let mut first = [0; 1];
                stream.read_exact(&mut first).await?;
                // The end has arrived, with most bytes unread.
                until_set(&stream, &has_ended).await;
                stream.shutdown().await?;
                stream.cx().sleep(Duration::from_millis(5)).await;
                let mut rest = vec![0; 999];
                stream.read_exact(&mut rest).await?;
                let end = stream.read(&mut first).await?;
                io::Result::Ok((rest, end))
            }
        });
        let mut client = dial(&rig);
        client.write_all(&pattern(1000)).expect("it is read");
        client.shutdown(Shutdown::Write).expect("it is open");
        client_has_ended.store(true, Ordering::Release);
        let (rest, end) = outcome(&rig, &ended).expect("no error");
        assert_eq!((rest, end), (pattern(1000)[1..].to_vec(), 0));
        assert_eq!(read_all(&client).expect("an orderly end"), b"");
    });
}

#[test]
fn flush_waits_for_the_kernel() {
    for_each_engine(|choice| {
        let (go, may_read) = mpsc::channel();
        let (rig, ended) = served(choice, move |stream| {
            let go = go.clone();
            async move {
                stream.flush().await.expect("nothing is queued");
                let written = fill(&stream).await;
                let early = poll_fn(|context| Poll::Ready(stream.poll_flush(context).is_ready())).await;
                go.send(()).expect("the test waits");
                stream.flush().await.expect("it is read");
                let late = poll_fn(|context| Poll::Ready(stream.poll_flush(context).is_ready())).await;
                (written, early, late)
            }
        });
        let client = dial(&rig);
        may_read.recv_timeout(PATIENCE).expect("the kernel is full");
        let read = read_all(&client).expect("an orderly end").len();
        assert_eq!(outcome(&rig, &ended), (read, false, true));
    });
}

#[test]
fn what_is_queued_when_it_is_dropped_is_delivered() {
    for_each_engine(|choice| {
        for len in [1, 60_000, 8_000_000] {
            let (rig, ended) = served(choice, move |stream| async move {
                let written = stream.write_all(&pattern(len)).await;
                drop(stream);
                written
            });
            let client = dial(&rig);
            assert!(read_all(&client).expect("FIN and no reset") == pattern(len));
            outcome(&rig, &ended).expect("no error");
        }
    });
}

#[test]
fn a_stream_receives_while_its_peer_reads_nothing() {
    for_each_engine(|choice| {
        let (filled, is_full) = mpsc::channel();
        let (rig, ended) = served(choice, move |stream| {
            let filled = filled.clone();
            async move {
                let written = fill(&stream).await;
                filled.send(()).expect("the test waits");
                let mut early = vec![0; 100_000];
                stream.read_exact(&mut early).await.expect("it is sent");
                let unsent = stream.unsent();
                // Not delivered: only what the kernel has taken.
                let sent = stream.sent();
                stream.discard();
                (written, early == pattern(100_000), unsent > 0, sent)
            }
        });
        let mut client = dial(&rig);
        is_full.recv_timeout(PATIENCE).expect("the kernel is full");
        client.write_all(&pattern(100_000)).expect("it is read");
        let (written, is_right, is_unsent, sent) = outcome(&rig, &ended);
        assert!(is_right && is_unsent);
        let read = read_all(&client).expect("FIN and no reset").len();
        assert!(
            read as u64 >= sent && read < written,
            "{sent} <= {read} < {written}"
        );
    });
}

#[test]
fn abort_resets() {
    for_each_engine(|choice| {
        let (rig, ended) = served(choice, |stream| async move {
            let read = stream.read(&mut [0; 10]).await;
            stream.write_all(&[0; 1000]).await.expect("it is open");
            stream.abort();
            read.expect("a byte")
        });
        let mut client = dial(&rig);
        client.write_all(b"x").expect("it is read");
        let error = read_all(&client).expect_err("no orderly end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(outcome(&rig, &ended), 1);
    });
}

#[test]
fn a_deadline_ends_reads_for_good() {
    for_each_engine(|choice| {
        let (rig, ended) = served(choice, |stream| async move {
            stream.set_deadline(Some(Duration::from_secs(60)));
            stream.set_deadline(Some(Duration::from_millis(20)));
            let first = stream.read(&mut [0; 10]).await.map_err(|error| error.kind());
            let again = stream.read(&mut [0; 10]).await.map_err(|error| error.kind());
            let write = stream.write_all(b"x").await.map_err(|error| error.kind());
            (first, again, write)
        });
        let client = dial(&rig);
        assert_eq!(read_all(&client).expect("an orderly end"), b"");
        let timed_out = Err(io::ErrorKind::TimedOut);
        let (first, again, write) = outcome(&rig, &ended);
        assert_eq!((first, again), (timed_out, timed_out));
        assert_eq!(write, Err(io::ErrorKind::BrokenPipe));
    });
}

#[test]
fn after_a_reset_come_the_bytes_before_it_and_then_errors_only() {
    for_each_engine(|choice| {
        let (told, read_one) = mpsc::channel();
        let client_has_reset = Arc::new(AtomicBool::new(false));
        let has_reset = Arc::clone(&client_has_reset);
        let (rig, ended) = served(choice, move |stream| {
            let (told, has_reset) = (told.clone(), Arc::clone(&has_reset));
            async move {
                let mut data = [0; 4];
                stream.read_exact(&mut data[..1]).await.expect("it is sent");
                told.send(()).expect("the test waits");
                // The reset has arrived, with bytes unread.
                until_set(&stream, &has_reset).await;
                let rest = stream.read_exact(&mut data).await.map(|()| data);
                let first = stream.read(&mut data).await.map_err(|error| error.kind());
                let again = stream.read(&mut data).await.map_err(|error| error.kind());
                (rest, first, again)
            }
        });
        let mut client = dial(&rig);
        client.write_all(b"12345").expect("it is read");
        read_one.recv_timeout(PATIENCE).expect("it is read");
        reset(client);
        client_has_reset.store(true, Ordering::Release);
        let (rest, first, again) = outcome(&rig, &ended);
        assert_eq!(&rest.expect("they came before"), b"2345");
        assert_eq!(first, Err(io::ErrorKind::ConnectionReset));
        assert_eq!(again, Err(io::ErrorKind::ConnectionReset));
    });
}

#[test]
fn a_late_write_error_surfaces() {
    for_each_engine(|choice| {
        let (rig, ended) = served(choice, |stream| async move {
            let mut written = 0;
            loop {
                match stream.write_all(&[0; 10_000]).await {
                    Ok(()) => written += 10_000,
                    Err(error) => break (written, error.kind()),
                }
            }
        });
        let client = dial(&rig);
        (&client).read_exact(&mut [0; 1000]).expect("it is sent");
        reset(client);
        let (written, kind) = outcome(&rig, &ended);
        assert!(written >= 1000);
        assert!(
            matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe),
            "{kind:?}"
        );
    });
}

/// Sends back what comes, but for what begins with `!`, which is left for whoever reads.
struct Echo {
    stream: Rc<Stream>,
    told: RefCell<Vec<String>>,
    news: Cell<u32>,
    waiting: RefCell<Option<Waker>>,
}

impl Receiver for Echo {
    fn data(&self, bytes: &[u8]) -> usize {
        assert!(!bytes.starts_with(b"panic"), "told to");
        if bytes.starts_with(b"!") {
            return 0;
        }
        self.told
            .borrow_mut()
            .push(String::from_utf8_lossy(bytes).into_owned());
        self.stream.write_now(bytes).expect("it is open");
        bytes.len()
    }

    fn news(&self) {
        self.news.set(self.news.get() + 1);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }
}

impl Echo {
    /// One that attends to a stream, whose client has been told so.
    fn attend(stream: Stream) -> Rc<Echo> {
        let echo = Rc::new(Echo {
            stream: Rc::new(stream),
            told: RefCell::default(),
            news: Cell::new(0),
            waiting: RefCell::new(None),
        });
        echo.stream.attend(Some(echo.clone()));
        echo.stream.write_now(b"ready").expect("it is open");
        echo
    }

    /// Waits until it was told that there is something to read, then attends no more.
    async fn news(&self) {
        poll_fn(|context| match self.news.get() {
            0 => {
                *self.waiting.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
        self.stream.attend(None);
    }
}

fn expect(stream: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    stream.read_exact(&mut read).expect("bytes in time");
    assert_eq!(read, bytes);
}

#[test]
fn a_receiver_is_told_at_once_and_what_it_leaves_is_read() {
    for_each_engine(|choice| {
        let (rig, receiver) = served(choice, |stream| async move {
            let echo = Echo::attend(stream);
            echo.news().await;
            let mut rest = [0; 16];
            let count = echo.stream.read(&mut rest).await.expect("what was left");
            let end = echo.stream.read(&mut rest[count..]).await.expect("the end");
            assert_eq!((&rest[..count], end), (&b"!left"[..], 0));
            (echo.told.take(), echo.news.get())
        });
        let mut client = dial(&rig);
        expect(&mut client, b"ready");
        for word in [&b"one"[..], b"two"] {
            client.write_all(word).expect("it is open");
            expect(&mut client, word);
        }
        client.write_all(b"!left").expect("it is open");
        client.shutdown(Shutdown::Write).expect("it is open");
        let (told, news) = outcome(&rig, &receiver);
        assert_eq!(told, ["one", "two"]);
        assert!(news >= 1, "of what was left");
    });
}

#[test]
fn a_receiver_hears_of_the_end_of_a_reset_and_of_the_deadline() {
    for_each_engine(|choice| {
        for case in ["end", "reset", "deadline"] {
            let (rig, receiver) = served(choice, move |stream| async move {
                let echo = Echo::attend(stream);
                if case == "deadline" {
                    echo.stream.set_deadline(Some(Duration::from_millis(1)));
                }
                echo.news().await;
                echo.stream.read(&mut [0; 16]).await.map_err(|error| error.kind())
            });
            let mut client = dial(&rig);
            expect(&mut client, b"ready");
            let kept = match case {
                "end" => {
                    client.shutdown(Shutdown::Write).expect("it is open");
                    Some(client)
                }
                "reset" => {
                    reset(client);
                    None
                }
                _ => Some(client),
            };
            let read = outcome(&rig, &receiver);
            match case {
                "end" => assert_eq!(read, Ok(0)),
                "reset" => assert_eq!(read, Err(io::ErrorKind::ConnectionReset)),
                _ => assert_eq!(read, Err(io::ErrorKind::TimedOut)),
            }
            drop(kept);
        }
    });
}

#[test]
fn a_receiver_that_panics_loses_its_connection_alone() {
    for_each_engine(|choice| {
        let (rig, receiver) = served(choice, |stream| async move {
            let echo = Echo::attend(stream);
            echo.news().await;
            echo.stream.read(&mut [0; 16]).await.is_err()
        });
        let mut client = dial(&rig);
        expect(&mut client, b"ready");
        client.write_all(b"panic").expect("it is open");
        assert!(outcome(&rig, &receiver), "it was aborted");
    });
}
