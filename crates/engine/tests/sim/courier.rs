//! The handler under test: an echo whose bytes come back on many different ways.
//!
//! A connection's first byte chooses the way. What comes back is always what was sent, in order.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::mail::PostError;
use ringmain_engine::stream::Stream;
use ringmain_engine::{Addr, Conn, ConnId, Cx, Handler, Post, Reason, Start, Via, limits};

/// The listeners' numbers: by the handler, as a stream, as a proxy of two streams.
pub(crate) const HANDLER: u32 = 7;
pub(crate) const STREAM: u32 = 8;
pub(crate) const PROXY: u32 = 9;

/// The handler's timer for mail that was refused; other keys are connections.
const RETRY_MAIL: u64 = 0;
/// Bytes after which [`Way::Close`], [`Way::Abort`] and [`Way::Half`] end their direction.
const ENOUGH: usize = 500;

/// Bytes of a record of [`Way::Records`].
pub(crate) const RECORD: usize = 48;

/// How a connection's bytes come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Write,
    Frame,
    /// By way of another worker.
    Mail,
    /// After a sleep in a task.
    Task,
    /// Through the blocking pool.
    Blocking,
    /// Consumed in part, paused, and offered again.
    Sip,
    /// In whole records only; the rest waits for more.
    Records,
    /// Through a connection that the handler opens.
    Relay,
    /// As that, but the connection is given up before it stands.
    Fickle,
    /// At once, with FIN instead of a close at the end.
    Fin,
    /// Until nothing comes for a while.
    Deadline,
    /// Until it is enough, then closed.
    Close,
    /// Until it is enough, then reset.
    Abort,
    /// Until it is enough, then FIN; the rest is swallowed.
    Half,
}

impl Way {
    pub(crate) const ALL: [Way; 14] = [
        Way::Write,
        Way::Frame,
        Way::Mail,
        Way::Task,
        Way::Blocking,
        Way::Sip,
        Way::Records,
        Way::Relay,
        Way::Fickle,
        Way::Fin,
        Way::Deadline,
        Way::Close,
        Way::Abort,
        Way::Half,
    ];

    /// Whether every byte must come back.
    pub(crate) fn echoes_all(self) -> bool {
        !matches!(
            self,
            Way::Fickle | Way::Deadline | Way::Close | Way::Abort | Way::Half
        )
    }
}

/// Mail of the couriers.
pub(crate) enum Letter {
    /// Bytes of a connection of worker `home`, to be sent back there.
    There {
        home: usize,
        key: u64,
        bytes: Vec<u8>,
    },
    Back {
        key: u64,
        bytes: Vec<u8>,
    },
    /// From outside; counted.
    Nudge,
}

/// What tasks and the handler know of a connection.
struct Entry {
    id: ConnId,
    /// Pieces on their way.
    outstanding: usize,
    ended: bool,
    /// The other half of a relay.
    partner: Option<u64>,
    /// Bytes echoed.
    echoed: usize,
}

/// What the test looks at.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) opened: u64,
    pub(crate) closed: u64,
    /// Connections asked for, and what came of them.
    pub(crate) asked: u64,
    pub(crate) connected: u64,
    pub(crate) not_connected: u64,
    pub(crate) nudges: u64,
    /// The most unsent bytes of any one connection.
    pub(crate) unsent: usize,
    pub(crate) reasons: Vec<Reason>,
    /// What must never happen.
    pub(crate) faults: Vec<String>,
}

impl Seen {
    fn unsent(&mut self, bytes: usize) {
        self.unsent = self.unsent.max(bytes);
    }
}

#[derive(Default)]
struct Book {
    entries: BTreeMap<u64, Entry>,
    last_key: u64,
}

impl Book {
    fn add(&mut self, id: ConnId, partner: Option<u64>) -> u64 {
        self.last_key += 1;
        let entry = Entry {
            id,
            outstanding: 0,
            ended: false,
            partner,
            echoed: 0,
        };
        self.entries.insert(self.last_key, entry);
        self.last_key
    }

    fn id(&self, key: u64) -> Option<ConnId> {
        self.entries.get(&key).map(|entry| entry.id)
    }
}

pub(crate) struct Courier {
    cx: Cx,
    post: Post<Letter>,
    upstream: Addr,
    book: Rc<RefCell<Book>>,
    seen: Rc<RefCell<Seen>>,
    /// Refused mail, oldest first.
    waiting: VecDeque<(usize, Letter)>,
    /// Connections being opened, for which client, and what that has sent meanwhile.
    connecting: Vec<(ConnId, u64, Vec<u8>)>,
}

/// A connection's state.
pub(crate) struct Line {
    key: u64,
    way: Option<Way>,
    upstream: bool,
}

impl Courier {
    pub(crate) fn new(start: Start<Letter>, upstream: Addr, seen: Rc<RefCell<Seen>>) -> Courier {
        let Start { cx, post } = start;
        Courier {
            cx,
            post,
            upstream,
            book: Rc::default(),
            seen,
            waiting: VecDeque::new(),
            connecting: Vec::new(),
        }
    }

    fn send(&mut self, to: usize, letter: Letter) {
        self.waiting.push_back((to, letter));
        if self.waiting.len() == 1 {
            self.send_waiting();
        }
    }

    /// Sends in order; a full queue is tried again later.
    fn send_waiting(&mut self) {
        while let Some((to, letter)) = self.waiting.pop_front() {
            match self.post.send(to, letter) {
                // A worker that has ended takes its connections' bytes with it.
                Ok(()) | Err(PostError::Gone(_)) => {}
                Err(PostError::Full(letter)) => {
                    self.waiting.push_front((to, letter));
                    assert!(self.cx.timer(Duration::from_millis(1), RETRY_MAIL));
                    return;
                }
            }
        }
    }

    /// Sends a piece on a way that comes back to [`reply`] later.
    fn by_detour(&mut self, conn: Conn<'_>, key: u64, way: Way, piece: Vec<u8>) {
        let (cx, book) = (self.cx.clone(), Rc::clone(&self.book));
        let home = cx.worker();
        let task: std::pin::Pin<Box<dyn Future<Output = ()>>> = match way {
            Way::Mail => {
                // One way for all bytes of a connection, or they could overtake each other.
                let to = (home + 1) % cx.workers();
                let letter = Letter::There {
                    home,
                    key,
                    bytes: piece,
                };
                return self.send(to, letter);
            }
            Way::Task => Box::pin(async move {
                cx.sleep(Duration::from_millis(cx.random() % 3)).await;
                reply(&cx, &book, key, &piece);
            }),
            _ => Box::pin(async move {
                let work = piece.clone();
                let done = cx.blocking(move || work).await;
                reply(&cx, &book, key, &done.unwrap_or(piece));
            }),
        };
        conn.pause();
        self.cx.spawn(task).expect("there is room for tasks");
    }

    /// Sends bytes back on the connection's way; returns how many it took.
    fn carry(&mut self, conn: Conn<'_>, key: u64, way: Way, bytes: &[u8], echoed: usize) -> usize {
        // A refused write is one on a connection that is ending.
        match way {
            Way::Mail | Way::Task | Way::Blocking => self.by_detour(conn, key, way, bytes.to_vec()),
            Way::Relay | Way::Fickle => self.relay(conn, key, way, bytes),
            Way::Frame => {
                let _ = conn.write_frame(Bytes::copy_from_slice(bytes));
            }
            Way::Sip => {
                let count = 1 + self.cx.random() as usize % bytes.len();
                let _ = conn.write(&bytes[..count]);
                if count < bytes.len() {
                    conn.pause();
                    assert!(self.cx.timer(Duration::from_millis(1), key));
                }
                return count;
            }
            Way::Records => {
                let count = bytes.len() / RECORD * RECORD;
                let _ = conn.write(&bytes[..count]);
                return count;
            }
            _ => {
                let _ = conn.write(bytes);
            }
        }
        match way {
            Way::Deadline => conn.set_deadline(Some(Duration::from_millis(20))),
            Way::Close if echoed > ENOUGH => conn.close(),
            Way::Abort if echoed > ENOUGH => conn.abort(),
            Way::Half if echoed > ENOUGH => conn.shutdown(),
            _ => {}
        }
        bytes.len()
    }

    /// Sends bytes on to the other half of a relay, which is opened first.
    fn relay(&mut self, conn: Conn<'_>, key: u64, way: Way, bytes: &[u8]) {
        let partner = self.book.borrow().entries[&key].partner;
        if let Some(partner) = partner.and_then(|partner| self.book.borrow().id(partner)) {
            let other = self.cx.conn(partner);
            if other.write(bytes).is_err() || other.unsent() > limits::WRITE_MARK {
                conn.pause();
            }
            return;
        }
        if partner.is_some() {
            return conn.abort();
        }
        conn.pause();
        match self.cx.connect(&self.upstream, None) {
            Ok(id) => {
                self.seen.borrow_mut().asked += 1;
                self.connecting.push((id, key, bytes.to_vec()));
                match self.cx.random() % 3 {
                    _ if way == Way::Relay => {}
                    0 => self.cx.conn(id).abort(),
                    1 => self.cx.conn(id).close(),
                    _ => self.cx.conn(id).set_deadline(Some(Duration::from_millis(1))),
                }
            }
            Err(_) => conn.abort(),
        }
    }

    /// The upstream half stands.
    fn relayed(&mut self, conn: Conn<'_>) -> Option<Line> {
        self.seen.borrow_mut().connected += 1;
        conn.set_deadline(None);
        let at = self.connecting.iter().position(|(id, ..)| *id == conn.id());
        let (_, client, bytes) = self.connecting.swap_remove(at.expect("it was asked for"));
        let mut book = self.book.borrow_mut();
        let (id, ended) = book.entries.get(&client).map(|entry| (entry.id, entry.ended))?;
        let key = book.add(conn.id(), Some(client));
        book.entries.get_mut(&client).expect("it was just there").partner = Some(key);
        drop(book);
        let _ = conn.write(&bytes);
        if ended {
            conn.shutdown();
        }
        self.cx.conn(id).resume();
        Some(Line {
            key,
            way: Some(Way::Relay),
            upstream: true,
        })
    }

    fn fault(&self, what: String) {
        self.seen.borrow_mut().faults.push(what);
    }
}

/// Writes a reply, and closes behind the last one.
fn reply(cx: &Cx, book: &RefCell<Book>, key: u64, bytes: &[u8]) {
    let Some((id, last)) = book.borrow_mut().entries.get_mut(&key).map(|entry| {
        entry.outstanding -= 1;
        (entry.id, entry.ended && entry.outstanding == 0)
    }) else {
        return;
    };
    let conn = cx.conn(id);
    // A connection that broke in the meantime has no use for it.
    let _ = conn.write(bytes);
    conn.resume();
    if last {
        conn.close();
    }
}

/// Carries bytes one way until they end, or one side breaks: then the other one ends too.
async fn pump(from: Rc<Stream>, to: Rc<Stream>) {
    let mut buffer = [0; 300];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn proxy(cx: Cx, client: Stream, to: Addr) {
    match cx.connect_stream(&to, None).await {
        Ok(upstream) => {
            let (client, upstream) = (Rc::new(client), Rc::new(upstream));
            let back = pump(Rc::clone(&upstream), Rc::clone(&client));
            cx.spawn(back).expect("there is room for tasks");
            pump(client, upstream).await;
        }
        Err(_) => client.abort(),
    }
}

impl Handler for Courier {
    type Conn = Line;
    type Mail = Letter;

    fn open(&mut self, conn: Conn<'_>, via: Via) -> Option<Line> {
        let line = match via {
            Via::Connect => self.relayed(conn)?,
            Via::Listener(HANDLER) => Line {
                key: self.book.borrow_mut().add(conn.id(), None),
                way: None,
                upstream: false,
            },
            Via::Listener(tag) => {
                let (cx, stream) = (self.cx.clone(), conn.into_stream());
                let spawned = if tag == PROXY {
                    self.cx.spawn(proxy(cx, stream, self.upstream.clone()))
                } else {
                    let stream = Rc::new(stream);
                    self.cx.spawn(pump(Rc::clone(&stream), stream))
                };
                spawned.expect("there is room for tasks");
                return None;
            }
        };
        self.seen.borrow_mut().opened += 1;
        Some(line)
    }

    fn data(&mut self, conn: Conn<'_>, line: &mut Line, bytes: &mut [u8]) -> usize {
        let key = line.key;
        self.seen.borrow_mut().unsent(conn.unsent());
        if line.upstream {
            let partner = self.book.borrow().entries[&key].partner.expect("made with it");
            let id = self.book.borrow().id(partner);
            match id.map(|id| self.cx.conn(id)) {
                Some(client) => {
                    if client.write(bytes).is_ok() && client.unsent() > limits::WRITE_MARK {
                        conn.pause();
                    }
                }
                None => conn.abort(),
            }
            return bytes.len();
        }
        let way = *line
            .way
            .get_or_insert(Way::ALL[usize::from(bytes[0]) % Way::ALL.len()]);
        let echoed = {
            let mut book = self.book.borrow_mut();
            let entry = book.entries.get_mut(&key).expect("it is open");
            entry.echoed += bytes.len();
            entry.outstanding += usize::from(matches!(way, Way::Mail | Way::Task | Way::Blocking));
            entry.echoed
        };
        self.carry(conn, key, way, bytes, echoed)
    }

    fn end(&mut self, conn: Conn<'_>, line: &mut Line) {
        let (partner, idle) = {
            let mut book = self.book.borrow_mut();
            let entry = book.entries.get_mut(&line.key).expect("it is open");
            entry.ended = true;
            let (partner, idle) = (entry.partner, entry.outstanding == 0);
            (partner.and_then(|partner| book.id(partner)), idle)
        };
        match (line.way, line.upstream) {
            (_, true) => {
                conn.close();
                if let Some(client) = partner {
                    self.cx.conn(client).close();
                }
            }
            (Some(Way::Relay | Way::Fickle), false) => {
                if let Some(upstream) = partner {
                    self.cx.conn(upstream).shutdown();
                }
            }
            // With both directions ended the connection is over.
            (Some(Way::Fin | Way::Half), false) => conn.shutdown(),
            _ if idle => conn.close(),
            _ => {}
        }
    }

    fn drained(&mut self, conn: Conn<'_>, line: &mut Line) {
        if conn.unsent() > limits::WRITE_MARK {
            self.fault("drained() above the mark".into());
        }
        let book = self.book.borrow();
        let partner = book.entries[&line.key].partner;
        if let Some(id) = partner.and_then(|partner| book.id(partner)) {
            drop(book);
            self.cx.conn(id).resume();
        }
    }

    fn deadline(&mut self, conn: Conn<'_>, line: &mut Line) {
        if line.way != Some(Way::Deadline) {
            self.fault(format!("a deadline that nobody set, on {:?}", line.way));
        }
        conn.close();
    }

    /// Every other connection stays until the grace time ends.
    fn drain(&mut self, conn: Conn<'_>, line: &mut Line) {
        if line.key.is_multiple_of(2) {
            conn.close();
        }
    }

    fn closed(&mut self, cx: &Cx, line: Line, reason: Reason) {
        let mut seen = self.seen.borrow_mut();
        seen.closed += 1;
        seen.reasons.push(reason);
        drop(seen);
        let entry = self.book.borrow_mut().entries.remove(&line.key);
        let Some(entry) = entry else {
            return self.fault("closed() twice".into());
        };
        let partner = entry.partner.and_then(|partner| self.book.borrow().id(partner));
        if let Some(other) = partner
            && reason != Reason::Closed
        {
            cx.conn(other).abort();
        }
    }

    fn not_connected(&mut self, cx: &Cx, conn: ConnId, _reason: Reason) {
        self.seen.borrow_mut().not_connected += 1;
        let at = self.connecting.iter().position(|(id, ..)| *id == conn);
        let (_, client, _) = self.connecting.swap_remove(at.expect("it was asked for"));
        let id = self.book.borrow().id(client);
        if let Some(id) = id {
            cx.conn(id).abort();
        }
    }

    fn timer(&mut self, cx: &Cx, key: u64) {
        if key == RETRY_MAIL {
            return self.send_waiting();
        }
        let id = self.book.borrow().id(key);
        if let Some(id) = id {
            cx.conn(id).resume();
        }
    }

    fn mail(&mut self, cx: &Cx, letter: Letter) {
        match letter {
            Letter::There { home, key, bytes } => self.send(home, Letter::Back { key, bytes }),
            Letter::Back { key, bytes } => reply(cx, &self.book, key, &bytes),
            Letter::Nudge => self.seen.borrow_mut().nudges += 1,
        }
    }
}
