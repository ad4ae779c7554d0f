//! Connections with a layer between the wire and their owner, on both real back-ends.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};

use crate::scramble::Scramble;
use crate::support::{PATIENCE, Rig, for_each_engine, pattern};
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_engine::{
    Addr, Choice, Config, Conn, Cx, Engine, Handler, Layer, LayerFault, LayerStep, ListenOptions, Reason,
    Running, Via, limits,
};

const LARGE: usize = 3_000_000;

/// Sends back what it receives, until the end.
async fn echo(stream: Stream) {
    if stream.secure(Box::new(Scramble::new(false))).await.is_err() {
        return;
    }
    let mut buffer = vec![0; 10_000];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream
            .write_all(&buffer[..count])
            .await
            .expect("the client reads");
    }
}

#[test]
fn streams_talk_through_layers() {
    for_each_engine(|choice| {
        let rig = Rig::serving(choice, echo);
        let addr = Addr::Inet(rig.addr());
        let (back, cut) = rig.run(move |cx: Cx| async move {
            let stream = cx.connect_stream(&addr, None).await.expect("it listens");
            stream
                .secure(Box::new(Scramble::new(true)))
                .await
                .expect("it greets");
            let sent = pattern(LARGE);
            let writing = async {
                for part in sent.chunks(50_000) {
                    stream.write_all(part).await.expect("it reads");
                }
                stream.shutdown().await.expect("it is open");
            };
            let reading = async {
                let mut back = Vec::new();
                let mut buffer = vec![0; 30_000];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    back.extend_from_slice(&buffer[..count]);
                }
                back
            };
            let ((), back) = both(writing, reading).await;
            (back, stream.was_cut())
        });
        assert!(back == pattern(LARGE));
        assert!(!cut, "the end was announced");
        rig.wait_connections(0);
    });
}

/// Runs two futures to their ends.
async fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(move |context| {
        if a.is_none()
            && let std::task::Poll::Ready(value) = first.as_mut().poll(context)
        {
            a = Some(value);
        }
        if b.is_none()
            && let std::task::Poll::Ready(value) = second.as_mut().poll(context)
        {
            b = Some(value);
        }
        match (a.take(), b.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (left, right) => {
                (a, b) = (left, right);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn a_fault_is_an_error_of_the_stream_and_the_last_words_arrive() {
    for_each_engine(|choice| {
        let (sender, outcome) = mpsc::sync_channel(1);
        let rig = Rig::serving(choice, move |stream| {
            let sender = sender.clone();
            async move {
                let secured = stream.secure(Box::new(Scramble::new(false))).await;
                sender.send(secured.map_err(|error| error.kind())).unwrap();
            }
        });
        let mut client = TcpStream::connect(rig.addr()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"nonsense").unwrap();
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert_eq!(said, b"no");
        let outcome = outcome.recv_timeout(PATIENCE).unwrap();
        assert_eq!(outcome, Err(io::ErrorKind::ConnectionAborted));
        rig.wait_connections(0);
    });
}

/// Layers that came to stand in a turn.
#[derive(Default)]
struct Turns {
    /// The time of the last one: read once a turn, so it names the turn.
    at: Option<Time>,
    count: usize,
    most: usize,
}

impl Turns {
    fn stands(&mut self, at: Time) {
        if self.at.replace(at) != Some(at) {
            self.count = 0;
        }
        self.count += 1;
        self.most = self.most.max(self.count);
    }
}

#[test]
fn costly_steps_of_a_turn_are_bounded_and_all_are_done() {
    const CLIENTS: usize = 3 * limits::HANDSHAKE_STEPS_PER_TURN;
    for_each_engine(|choice| {
        let turns: Arc<Mutex<Turns>> = Arc::default();
        let counted = Arc::clone(&turns);
        let rig = Rig::serving(choice, move |stream| {
            let counted = Arc::clone(&counted);
            async move {
                let layer = Box::new(Scramble::new(false));
                stream.secure(layer).await.expect("they greet");
                counted.lock().unwrap().stands(stream.cx().now());
                stream.write_all(b"!").await.expect("they read");
            }
        });
        // The worker is held until all have greeted, so that one turn finds them.
        let (release, held) = mpsc::channel::<()>();
        let (tell, holding) = mpsc::channel();
        let done = rig.begin(move |_cx| async move {
            tell.send(()).unwrap();
            held.recv_timeout(PATIENCE).unwrap();
        });
        holding.recv_timeout(PATIENCE).unwrap();
        let mut clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut client = TcpStream::connect(rig.addr()).unwrap();
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                client.write_all(b"scramble").unwrap();
                client
            })
            .collect();
        release.send(()).unwrap();
        done.recv_timeout(PATIENCE).unwrap();
        for client in &mut clients {
            let mut said = Vec::new();
            client.read_to_end(&mut said).unwrap();
            assert_eq!(said, [b"scramble", record(b"!").as_slice(), &[0, 0]].concat());
        }
        let most = turns.lock().unwrap().most;
        assert!(most <= limits::HANDSHAKE_STEPS_PER_TURN, "{most} in one turn");
        rig.wait_connections(0);
    });
}

/// What a handler was told, in order.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Secured,
    Insecure,
    End { cut: bool },
    Closed(Reason),
}

/// Reads a line in the clear, then puts the layer in place and echoes until the end.
struct Upgrading(mpsc::Sender<Told>);

impl Handler for Upgrading {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, _conn: Conn<'_>, _via: Via) -> Option<()> {
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        if conn.has_layer() {
            conn.write(bytes).expect("far from the limit");
            return bytes.len();
        }
        let Some(line) = bytes.iter().position(|byte| *byte == b'\n') else {
            return 0;
        };
        conn.write(&bytes[..=line]).expect("far from the limit");
        conn.secure(Box::new(Scramble::new(false)));
        conn.write(b"first").expect("it waits until the layer stands");
        line + 1
    }

    fn secured(&mut self, conn: Conn<'_>, _state: &mut ()) {
        let costly = conn.layer(|layer: &mut Scramble| layer.costly);
        assert!(costly.is_some_and(|count| count > 0));
        self.0.send(Told::Secured).unwrap();
    }

    fn insecure(&mut self, _conn: Conn<'_>, _state: &mut ()) {
        self.0.send(Told::Insecure).unwrap();
    }

    fn end(&mut self, conn: Conn<'_>, _state: &mut ()) {
        self.0.send(Told::End { cut: conn.was_cut() }).unwrap();
        conn.close();
    }

    fn closed(&mut self, _cx: &Cx, _state: (), reason: Reason) {
        self.0.send(Told::Closed(reason)).unwrap();
    }
}

fn upgrading(choice: Choice) -> (Running<()>, TcpStream, mpsc::Receiver<Told>) {
    let mut engine = Engine::new(Config {
        engine: choice,
        workers: Some(1),
        ..Config::default()
    })
    .unwrap();
    engine
        .listen(&"127.0.0.1:0".parse().unwrap(), &ListenOptions::default())
        .unwrap();
    let (sender, told) = mpsc::channel();
    let running = engine.start(move |_| Upgrading(sender.clone())).unwrap();
    let Addr::Inet(addr) = running.addrs()[0] else {
        panic!("an internet address");
    };
    let client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    (running, client, told)
}

fn record(plain: &[u8]) -> Vec<u8> {
    let mut record = (plain.len() as u16).to_be_bytes().to_vec();
    record.extend(plain.iter().map(|byte| byte ^ 0xa5));
    record
}

fn expect(client: &mut TcpStream, wanted: &[u8]) {
    let mut found = vec![0; wanted.len()];
    client.read_exact(&mut found).unwrap();
    assert_eq!(found, wanted);
}

#[test]
fn bytes_behind_a_clear_beginning_belong_to_the_layer() {
    for_each_engine(|choice| {
        // All at once, or each byte alone: it must not matter.
        for cut in [false, true] {
            let (running, mut client, told) = upgrading(choice);
            let mut all = b"clear\nscramble".to_vec();
            all.extend(record(b"hello"));
            all.extend(record(b" world"));
            all.extend([0, 0]);
            client.set_nodelay(true).unwrap();
            for part in all.chunks(if cut { 1 } else { all.len() }) {
                client.write_all(part).unwrap();
            }
            expect(&mut client, b"clear\nscramble");
            expect(&mut client, &record(b"first"));
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).unwrap();
            let echoed = [record(b"hello"), record(b" world"), vec![0, 0]].concat();
            assert_eq!(rest, echoed, "and the end is announced");
            let told: Vec<Told> = (0..3).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
            let end = [Told::End { cut: false }, Told::Closed(Reason::Closed)];
            assert_eq!(told[0], Told::Secured);
            assert_eq!(told[1..], end);
            running.shut_down();
            running.join().unwrap();
        }
    });
}

#[test]
fn an_end_that_was_not_announced_is_told_apart() {
    for_each_engine(|choice| {
        let (running, mut client, told) = upgrading(choice);
        client.write_all(b"\nscramble").unwrap();
        client.write_all(&record(b"half")[..3]).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Told::Secured));
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Told::End { cut: true }));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Told::Closed(Reason::Closed)));
        running.shut_down();
        running.join().unwrap();
    });
}

#[test]
fn a_fault_is_told_before_the_end() {
    for_each_engine(|choice| {
        let (running, mut client, told) = upgrading(choice);
        client.write_all(b"\nscramble").unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Told::Secured));
        client.write_all(&[0xff; 40]).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Told::Insecure));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Told::Closed(Reason::Layer)));
        running.shut_down();
        running.join().unwrap();
    });
}

/// Echoes through the layer. The first connection has none: what it sends holds the worker until the test lets go.
struct Held {
    entered: mpsc::Sender<()>,
    gate: mpsc::Receiver<()>,
    first: bool,
}

impl Handler for Held {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<()> {
        if !std::mem::replace(&mut self.first, false) {
            conn.secure(Box::new(Scramble::new(false)));
        }
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        if conn.has_layer() {
            conn.write(bytes).unwrap();
        } else {
            self.entered.send(()).unwrap();
            self.gate.recv().unwrap();
        }
        bytes.len()
    }
}

/// More than a turn's costly steps at once, each with all its bytes and a bare end behind them: who waits for a step loses
/// nothing by the end.
#[test]
fn the_end_comes_behind_what_waits_for_a_costly_step() {
    for_each_engine(|choice| {
        let mut engine = Engine::new(Config {
            engine: choice,
            workers: Some(1),
            ..Config::default()
        })
        .unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let Ok(Addr::Inet(addr)) = engine.listen(&any, &ListenOptions::default()) else {
            panic!("a free port");
        };
        let (entered, has_entered) = mpsc::channel();
        let (open, gate) = mpsc::channel();
        let gate = Mutex::new(Some(gate));
        let running = engine
            .start(move |_| Held {
                entered: entered.clone(),
                gate: gate.lock().unwrap().take().unwrap(),
                first: true,
            })
            .unwrap();
        let mut holder = TcpStream::connect(addr).unwrap();
        holder.write_all(b"hold").unwrap();
        has_entered.recv_timeout(PATIENCE).unwrap();
        let mut all = b"scramble".to_vec();
        all.extend(record(b"hello"));
        let mut clients: Vec<TcpStream> = (0..3 * limits::HANDSHAKE_STEPS_PER_TURN)
            .map(|_| {
                let mut client = TcpStream::connect(addr).unwrap();
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                client.write_all(&all).unwrap();
                client.shutdown(std::net::Shutdown::Write).unwrap();
                client
            })
            .collect();
        open.send(()).unwrap();
        for client in &mut clients {
            let mut back = Vec::new();
            client.read_to_end(&mut back).unwrap();
            assert_eq!(
                back,
                [b"scramble".to_vec(), record(b"hello"), vec![0, 0]].concat()
            );
        }
        running.shut_down();
        running.join().unwrap();
    });
}

/// Panics at a byte that a peer may send.
struct Fragile(Scramble);

impl Layer for Fragile {
    fn receive(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> LayerStep {
        assert!(!bytes.contains(&b'!'), "planned");
        self.0.receive(bytes, wire)
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), LayerFault> {
        self.0.send(plain, wire)
    }

    fn begin(&mut self, wire: &mut Vec<u8>) {
        self.0.begin(wire);
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        self.0.end(wire);
    }

    fn is_costly(&self) -> bool {
        self.0.is_costly()
    }
}

/// Echoes through a layer that panics.
struct Brave(mpsc::Sender<Reason>);

impl Handler for Brave {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<()> {
        conn.secure(Box::new(Fragile(Scramble::new(false))));
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        conn.write(bytes).unwrap();
        bytes.len()
    }

    fn closed(&mut self, _cx: &Cx, _state: (), reason: Reason) {
        self.0.send(reason).unwrap();
    }
}

#[test]
fn a_panic_of_a_layer_ends_its_connection_alone() {
    for_each_engine(|choice| {
        let mut engine = Engine::new(Config {
            engine: choice,
            workers: Some(1),
            ..Config::default()
        })
        .unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let Ok(Addr::Inet(addr)) = engine.listen(&any, &ListenOptions::default()) else {
            panic!("a free port");
        };
        let (sender, told) = mpsc::channel();
        let running = engine.start(move |_| Brave(sender.clone())).unwrap();
        let connect = || {
            let mut client = TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"scramble").unwrap();
            expect(&mut client, b"scramble");
            client
        };
        let (mut first, mut second) = (connect(), connect());
        first.write_all(b"!").unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok(Reason::Layer));
        assert_eq!(first.read(&mut [0]).unwrap(), 0);
        second.write_all(&record(b"hello")).unwrap();
        expect(&mut second, &record(b"hello"));
        assert_eq!(running.report().workers[0].panics, 1);
        running.shut_down();
        running.join().unwrap();
    });
}
