//! tokio's I/O helpers and hyper's own HTTP/1 connections on workers of both real back-ends, without a
//! tokio runtime anywhere.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support::{PATIENCE, Rig, for_each_engine, pattern, thread};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::{Executor, Timer};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use ringmain_engine::adapters::hyper::{HyperExecutor, HyperStream, HyperTimer};
use ringmain_engine::adapters::tokio::TokioStream;
use ringmain_engine::stream::Stream;
use ringmain_engine::{Addr, Choice, Cx, limits};
use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LARGE: usize = 5_000_000;
const ENDLESS: usize = 256_000_000;

fn dial(rig: &Rig) -> TcpStream {
    let stream = TcpStream::connect(rig.addr()).expect("the engine listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

#[test]
fn tokio_copies_between_the_halves() {
    for_each_engine(|choice| {
        let rig = Rig::serving(choice, |stream| async move {
            let (mut reader, mut writer) = tokio::io::split(TokioStream::new(stream));
            let copied = tokio::io::copy(&mut reader, &mut writer).await;
            assert_eq!(copied.expect("no error"), LARGE as u64);
            writer.shutdown().await.expect("no error");
        });
        let client = dial(&rig);
        let mut writer = client.try_clone().expect("a descriptor");
        let sender = thread(move || {
            writer.write_all(&pattern(LARGE)).expect("it is read");
            writer.shutdown(std::net::Shutdown::Write).expect("it is open");
        });
        let mut all = Vec::new();
        (&client).read_to_end(&mut all).expect("an orderly end");
        assert!(all == pattern(LARGE));
        sender.join().expect("no panic");
        rig.wait_connections(0);
        assert_eq!(rig.report().panics, 0);
    });
}

#[test]
fn tokio_reads_lines_and_writes_pieces() {
    for_each_engine(|choice| {
        let rig = Rig::serving(choice, |stream| async move {
            let mut stream = TokioStream::new(stream);
            assert!(tokio::io::AsyncWrite::is_write_vectored(&stream));
            let mut line = [0; 6];
            stream.read_exact(&mut line).await.expect("it is sent");
            assert_eq!(&line, b"hello\n");
            let pieces = [&b"wo"[..], b"", b"rld\n"].map(io::IoSlice::new);
            assert_eq!(stream.write_vectored(&pieces).await.expect("it is open"), 6);
            // Beyond the mark a vectored write is cut, too.
            let large = vec![b'x'; limits::WRITE_MARK];
            let pieces = [&large[..], &large].map(io::IoSlice::new);
            let count = stream.write_vectored(&pieces).await.expect("it is open");
            assert_eq!(count, limits::WRITE_MARK - 6);
            stream.flush().await.expect("it is open");
            assert_eq!(stream.read(&mut line).await.expect("an orderly end"), 0);
        });
        let mut client = dial(&rig);
        client.write_all(b"hello\n").expect("it is read");
        let mut answer = vec![0; limits::WRITE_MARK];
        client.read_exact(&mut answer).expect("it is sent");
        assert_eq!(&answer[..8], b"world\nxx");
        drop(client);
        rig.wait_connections(0);
        assert_eq!(rig.report().panics, 0);
    });
}

/// `left` bytes in pieces, counted as they are taken.
struct Pieces {
    left: usize,
    taken: Arc<AtomicUsize>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let count = self.left.min(10_000);
        self.left -= count;
        self.taken.fetch_add(count, Ordering::Relaxed);
        Poll::Ready((count > 0).then(|| Ok(Frame::data(Bytes::from(vec![b'.'; count])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// The request's own body, or a counted one.
enum Answer {
    Echo(Incoming),
    Pieces(Pieces),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Answer::Echo(body) => Pin::new(body).poll_frame(context),
            Answer::Pieces(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Echo(body) => body.size_hint(),
            Answer::Pieces(body) => body.size_hint(),
        }
    }
}

/// Serves HTTP/1 by hyper. A path that is a number is answered with so many bytes, any other with an echo.
/// How each connection ended arrives at the receiver.
fn hyper_server(choice: Choice) -> (Rig, mpsc::Receiver<hyper::Result<()>>, Arc<AtomicUsize>) {
    hyper_server_within(choice, PATIENCE)
}

/// As [`hyper_server`], with a limit on the time that a request's head may take.
fn hyper_server_within(
    choice: Choice,
    limit: Duration,
) -> (Rig, mpsc::Receiver<hyper::Result<()>>, Arc<AtomicUsize>) {
    let (sender, ends) = mpsc::sync_channel(4);
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let serve = move |stream: Stream| {
        let (sender, counter) = (sender.clone(), Arc::clone(&counter));
        async move {
            // Not `Send`, as handlers on a worker may be.
            let requests = Rc::new(Cell::new(0));
            let timer = HyperTimer::new(stream.cx()).expect("room for a task");
            let service = service_fn(|request: Request<Incoming>| {
                let (requests, counter) = (Rc::clone(&requests), Arc::clone(&counter));
                async move {
                    requests.set(requests.get() + 1);
                    let body = match request.uri().path()[1..].parse() {
                        Ok(left) => Answer::Pieces(Pieces { left, taken: counter }),
                        Err(_) => Answer::Echo(request.into_body()),
                    };
                    let response = Response::builder().header("x-request", requests.get());
                    Ok::<_, Infallible>(response.body(body).expect("valid parts"))
                }
            });
            let end = hyper::server::conn::http1::Builder::new()
                .timer(timer)
                .header_read_timeout(limit)
                .serve_connection(HyperStream::new(stream), service)
                .await;
            sender.send(end).expect("the test waits");
        }
    };
    (Rig::serving(choice, serve), ends, taken)
}

/// Reads a response's head; returns its header lines.
fn head(reader: &mut impl BufRead) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a response");
        let line = line.trim_end();
        if line.is_empty() {
            return lines;
        }
        lines.push(line.to_ascii_lowercase());
    }
}

fn ended(rig: &Rig, ends: &mpsc::Receiver<hyper::Result<()>>) -> hyper::Result<()> {
    let end = ends.recv_timeout(PATIENCE).expect("the connection ends");
    rig.wait_connections(0);
    assert_eq!(rig.report().panics, 0);
    end
}

#[test]
fn hyper_keeps_a_connection_alive() {
    for_each_engine(|choice| {
        let (rig, ends, _) = hyper_server(choice);
        let client = dial(&rig);
        let mut reader = BufReader::new(&client);
        for number in 1..=3 {
            (&client)
                .write_all(b"POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: 4\r\n\r\nping")
                .expect("it is read");
            let lines = head(&mut reader);
            assert_eq!(lines[0], "http/1.1 200 ok");
            assert!(lines.contains(&format!("x-request: {number}")), "{lines:?}");
            let mut body = [0; 4];
            reader.read_exact(&mut body).expect("the body");
            assert_eq!(&body, b"ping");
        }
        drop(reader);
        drop(client);
        ended(&rig, &ends).expect("an orderly end");
    });
}

#[test]
fn hyper_answers_pipelined_requests_in_order() {
    for_each_engine(|choice| {
        let (rig, ends, _) = hyper_server(choice);
        let client = dial(&rig);
        (&client)
            .write_all(b"GET /1000 HTTP/1.1\r\nhost: here\r\n\r\nGET /2000 HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
            .expect("it is read");
        let mut reader = BufReader::new(&client);
        for len in [1000, 2000] {
            assert!(head(&mut reader).contains(&format!("content-length: {len}")));
            reader.read_exact(&mut vec![0; len]).expect("the body");
        }
        assert_eq!(reader.read(&mut [0; 1]).expect("an orderly end"), 0);
        ended(&rig, &ends).expect("an orderly end");
    });
}

#[test]
fn hyper_echoes_a_large_body() {
    for_each_engine(|choice| {
        let (rig, ends, _) = hyper_server(choice);
        let client = dial(&rig);
        let mut writer = client.try_clone().expect("a descriptor");
        let sender = thread(move || {
            let head = format!("POST /echo HTTP/1.1\r\nhost: here\r\ncontent-length: {LARGE}\r\n\r\n");
            writer.write_all(head.as_bytes()).expect("it is read");
            writer.write_all(&pattern(LARGE)).expect("it is read");
        });
        let mut reader = BufReader::new(&client);
        assert!(head(&mut reader).contains(&format!("content-length: {LARGE}")));
        let mut body = vec![0; LARGE];
        reader.read_exact(&mut body).expect("the body");
        assert!(body == pattern(LARGE));
        sender.join().expect("no panic");
        drop(reader);
        drop(client);
        ended(&rig, &ends).expect("an orderly end");
    });
}

/// Asks for an endless body, reads its head and waits until the server can write no more.
fn stuck(rig: &Rig, taken: &AtomicUsize) -> TcpStream {
    let client = dial(rig);
    (&client)
        .write_all(format!("GET /{ENDLESS} HTTP/1.1\r\nhost: here\r\n\r\n").as_bytes())
        .expect("it is read");
    let lines = head(&mut BufReader::with_capacity(1, &client));
    assert_eq!(lines[0], "http/1.1 200 ok");
    let mut before = 0;
    loop {
        rig.run(|cx: Cx| async move { cx.sleep(Duration::from_millis(30)).await });
        let now = taken.load(Ordering::Relaxed);
        if now == before && now > 0 {
            return client;
        }
        before = now;
    }
}

#[test]
fn a_slow_reader_holds_back_the_body() {
    for_each_engine(|choice| {
        let (rig, ends, taken) = hyper_server(choice);
        let mut client = stuck(&rig, &taken);
        let produced = taken.load(Ordering::Relaxed);
        assert!(produced < ENDLESS / 4, "{produced} bytes wait for a reader");
        let mut part = vec![0; 1 << 20];
        let mut read = 0;
        while read < ENDLESS {
            let count = client.read(&mut part).expect("the body");
            assert!(count > 0 && part[..count].iter().all(|byte| *byte == b'.'));
            read += count;
        }
        assert_eq!(read, ENDLESS);
        drop(client);
        ended(&rig, &ends).expect("an orderly end");
    });
}

#[test]
fn a_reset_in_the_middle_of_a_response_surfaces() {
    for_each_engine(|choice| {
        let (rig, ends, taken) = hyper_server(choice);
        let client = stuck(&rig, &taken);
        set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket option");
        drop(client);
        let error = ended(&rig, &ends).expect_err("the response is not through");
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>());
        let kind = source.map(io::Error::kind);
        assert!(
            matches!(
                kind,
                Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            ),
            "{error:?}"
        );
    });
}

#[test]
fn hyper_times_out_an_unfinished_head() {
    for_each_engine(|choice| {
        let (rig, ends, _) = hyper_server_within(choice, Duration::from_millis(100));
        let mut client = dial(&rig);
        client.write_all(b"GET / HTTP/1.1\r\nhos").expect("it is read");
        let error = ended(&rig, &ends).expect_err("the head never ends");
        assert!(error.is_timeout(), "{error:?}");
    });
}

#[test]
fn hyper_as_a_client_on_the_worker() {
    for_each_engine(|choice| {
        let (rig, ends, _) = hyper_server(choice);
        let addr = Addr::Inet(rig.addr());
        let (status, received) = rig.run(|cx: Cx| async move {
            let stream = cx.connect_stream(&addr, None).await.expect("it listens");
            let (mut sender, connection) = hyper::client::conn::http1::handshake(HyperStream::new(stream))
                .await
                .expect("a handshake costs no packet");
            HyperExecutor::new(&cx).execute(connection);
            let body = Pieces {
                left: LARGE,
                taken: Arc::default(),
            };
            let request = Request::post("/echo").header("host", "here").body(body);
            let response = sender.send_request(request.expect("valid parts")).await;
            let response = response.expect("an answer");
            let status = response.status();
            let mut body = response.into_body();
            let mut received = 0;
            while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                let data = frame.expect("no error").into_data().expect("no trailers");
                assert!(data.iter().all(|byte| *byte == b'.'));
                received += data.len();
            }
            (status, received)
        });
        assert_eq!((status, received), (StatusCode::OK, LARGE));
        ended(&rig, &ends).expect("an orderly end");
    });
}

/// Polls on this thread, as an executor elsewhere would.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn sleeps_of_hyper_are_never_early_and_may_be_dropped() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let mut spans = rig.run(|cx: Cx| async move {
            let timer = HyperTimer::new(&cx).expect("room for a task");
            let begun = cx.now();
            let (ended, all) = mpsc::channel();
            for span in [30, 10, 20, 0].map(Duration::from_millis) {
                let (sleep, ended, worker) = (timer.sleep(span), ended.clone(), cx.clone());
                let task = async move {
                    sleep.await;
                    ended
                        .send((span, worker.now().since(begun)))
                        .expect("collected below");
                };
                cx.spawn(task).expect("room for a task");
            }
            drop(timer.sleep(Duration::from_millis(1)));
            drop(timer.sleep(Duration::from_secs(3600)));
            timer.sleep_until(timer.now() + Duration::from_millis(40)).await;
            let mut spans = Vec::new();
            while spans.len() < 4 {
                spans.extend(all.try_iter());
                cx.sleep(Duration::from_millis(1)).await;
            }
            spans
        });
        spans.sort();
        assert_eq!(
            spans.iter().map(|(span, _)| span.as_millis()).collect::<Vec<_>>(),
            [0, 10, 20, 30]
        );
        assert!(spans.iter().all(|(span, slept)| slept >= span), "{spans:?}");
        assert_eq!(rig.report().panics, 0);
    });
}

#[test]
fn a_sleep_of_hyper_works_on_another_thread_and_ends_with_the_worker() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let timer = rig.run(|cx: Cx| async move { HyperTimer::new(&cx).expect("room for a task") });
        block_on(timer.sleep(Duration::from_millis(10)));
        let endless = timer.sleep(Duration::from_secs(3600));
        let waits = thread(move || block_on(endless));
        drop(rig);
        waits.join().expect("no panic");
        block_on(timer.sleep(Duration::from_secs(3600)));
    });
}
