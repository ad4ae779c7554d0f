//! The receiving side of a session: parses frames, and stores their content by stream for the readers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::stream::Receiver;
use ringmain_wire::h1::{FieldBlock, Fields, ResponseHead};
use ringmain_wire::h2::{ErrorCode, Event, FaultKind, PeerFault, Stream, store_response};

use super::Lost;
use super::session::{Common, Gone, Session, State};
use crate::limits;

/// A reader of a response without a task.
pub(crate) trait Reader: std::fmt::Debug {
    /// Called once when part of the response has arrived, or when no more will.
    fn came(&self);
}

/// The received and unread part of a stream.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: Stream,
    pub(super) came: RefCell<Came>,
    /// The reader without a task, if any.
    pub(super) attendant: RefCell<Option<Rc<dyn Reader>>>,
}

#[derive(Debug, Default)]
pub(super) struct Came {
    /// Heads as stored: interim ones, then that of the response.
    pub(super) heads: VecDeque<Vec<u8>>,
    /// Unread bytes of the body, at most the stream's window.
    pub(super) body: Vec<u8>,
    /// Bytes at the start of `body` that were read.
    pub(super) read: usize,
    /// All bytes that were read, including those no longer in memory.
    pub(super) taken: u64,
    pub(super) trailers: Option<FieldBlock>,
    /// The stream has ended.
    pub(super) ended: bool,
    /// The reason that the stream ended early. Parts received before remain readable.
    pub(super) lost: Option<Lost>,
    pub(super) reader: Option<Waker>,
    /// Waits for the stream's window.
    pub(super) writer: Option<Waker>,
    /// Memory for the next head.
    spare: Vec<u8>,
    /// Bytes of the body's memory that are counted as held for a slow reader.
    counted: usize,
}

/// The unit in which this memory is counted, in bytes.
const COUNTED_UNIT: usize = 8 * 1024;

impl Incoming {
    pub(super) fn new(stream: Stream) -> Rc<Incoming> {
        Rc::new(Incoming {
            stream,
            came: RefCell::default(),
            attendant: RefCell::default(),
        })
    }

    /// Clears the state for another stream; memory is retained.
    fn clear(&mut self) {
        let came = self.came.get_mut();
        if let Some(head) = came.heads.pop_back() {
            came.spare = head;
        }
        came.spare.clear();
        came.spare.shrink_to(limits::INCOMING_HEAD_KEPT);
        came.heads.clear();
        came.body.clear();
        came.body.shrink_to(limits::INCOMING_BODY_KEPT);
        *came = Came {
            heads: std::mem::take(&mut came.heads),
            body: std::mem::take(&mut came.body),
            spare: std::mem::take(&mut came.spare),
            ..Came::default()
        };
        *self.attendant.get_mut() = None;
    }

    /// Ends the stream in both directions.
    pub(super) fn lose(&self, why: Lost) {
        let came = &mut *self.came.borrow_mut();
        came.lost.get_or_insert(why);
        came.wake();
    }
}

impl Came {
    /// Appends part of a body: beyond the first window memory grows in steps instead of doubling.
    fn append(&mut self, data: &[u8], cx: &Cx) {
        let length = self.body.len() + data.len();
        if length > self.body.capacity() && length > limits::UPSTREAM_FIRST_WINDOW as usize {
            let whole = length.next_multiple_of(limits::CHANNEL_BODY_STEP);
            self.body.reserve_exact(whole - self.body.len());
        }
        self.body.extend_from_slice(data);
        self.count(cx);
    }

    /// Counts the memory of unread bytes as held for a slow reader.
    pub(super) fn count(&mut self, cx: &Cx) {
        let held = match self.read < self.body.len() {
            true => self.body.capacity() & !(COUNTED_UNIT - 1),
            false => 0,
        };
        if held != self.counted {
            cx.hold(self.counted, held);
            self.counted = held;
        }
    }

    /// Discards the body: it has no reader any more.
    pub(super) fn discard(&mut self, cx: &Cx) {
        self.body.clear();
        self.read = 0;
        cx.freed(self.counted);
        self.count(cx);
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

/// The receiver of the engine's events on a session's connection.
pub(super) struct Ear(pub(super) Gone);

impl Receiver for Ear {
    fn data(&self, bytes: &[u8]) -> usize {
        if let Some(session) = self.0.upgrade() {
            session.hear(bytes);
        }
        bytes.len()
    }

    fn news(&self) {
        if let Some(session) = self.0.upgrade() {
            session.listen();
        }
    }
}

impl Common {
    /// Creates the state of a stream, from pooled memory if there is any.
    pub(super) fn incoming(&self, stream: Stream) -> Rc<Incoming> {
        let Some(mut spare) = self.spare.borrow_mut().pop() else {
            return Incoming::new(stream);
        };
        match Rc::get_mut(&mut spare) {
            Some(own) => own.stream = stream,
            None => return Incoming::new(stream),
        }
        spare
    }

    /// Returns the state of a stream to the pool.
    pub(super) fn put(&self, mut incoming: Rc<Incoming>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < limits::INCOMING_KEPT
            && let Some(own) = Rc::get_mut(&mut incoming)
        {
            own.clear();
            spare.push(incoming);
        }
    }
}

/// The effects of a block of received bytes on the session as a whole.
#[derive(Default)]
struct Turn {
    broken: Option<Lost>,
    /// The endpoint accepts no more streams.
    retired: bool,
    settings: bool,
    /// Readers to notify.
    readers: Vec<Rc<dyn Reader>>,
}

impl Turn {
    /// Registers a stream's reader for notification.
    fn note(&mut self, incoming: &Incoming) {
        self.readers.extend(incoming.attendant.take());
    }
}

impl Session {
    /// Processes received bytes. An incomplete frame is buffered.
    pub(super) fn hear(&self, bytes: &[u8]) {
        self.lives();
        let mut heard = Turn {
            readers: std::mem::take(&mut *self.common.readers.borrow_mut()),
            ..Turn::default()
        };
        self.with(|state| {
            let mut kept = std::mem::take(&mut state.partial);
            let consumed = if kept.is_empty() {
                self.events(state, bytes, &mut heard)
            } else {
                kept.extend_from_slice(bytes);
                self.events(state, &kept, &mut heard)
            };
            if kept.is_empty() {
                kept.extend_from_slice(&bytes[consumed..]);
            } else {
                kept.drain(..consumed);
            }
            kept.shrink_to(limits::SESSION_PARTIAL_KEPT);
            state.partial = kept;
        });
        heard.readers.drain(..).for_each(|reader| reader.came());
        *self.common.readers.borrow_mut() = heard.readers;
        if heard.settings {
            self.has_begun();
        }
        if let Some(why) = heard.broken {
            drop(self.end(why));
        } else if heard.retired {
            self.retire();
        } else if heard.settings {
            // The endpoint may accept more streams than before.
            self.offer(self.room());
        } else {
            self.breathe();
        }
    }

    /// Processes all events in order. Returns the number of bytes consumed.
    fn events(&self, state: &mut State, input: &[u8], heard: &mut Turn) -> usize {
        let heads = &mut *self.common.heads.borrow_mut();
        let now = Duration::from_nanos(self.cx.now().0);
        let mut consumed = 0;
        loop {
            let step = state
                .connection
                .receive(&input[consumed..], now, heads, &mut state.out);
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    let known = state.connection.is_established();
                    heard.broken = Some(match known {
                        true => lost(fault),
                        false => Lost::NotHttp2,
                    });
                    log::debug!("{self:?}: {fault}");
                    return input.len();
                }
            };
            consumed += step.consumed;
            match step.event {
                Event::NeedMore => return consumed,
                Event::GoAway { last, code } => {
                    log::debug!("{self:?}: GOAWAY, {code}, streams above {last} are not answered");
                    heard.retired = true;
                    for incoming in state.streams.iter().flatten() {
                        if incoming.stream.id() > last && !incoming.came.borrow().ended {
                            incoming.lose(Lost::Refused);
                            heard.note(incoming);
                        }
                    }
                }
                event => {
                    heard.settings |= matches!(event, Event::Settings);
                    self.event(state, event, heard);
                }
            }
        }
    }

    fn event(&self, state: &mut State, event: Event<'_>, heard: &mut Turn) {
        match event {
            Event::Response { stream, head, end } => self.response(state, stream, (&head, end), heard),
            Event::Data { stream, data, end } => data_came(state, stream, (data, end), heard, &self.cx),
            Event::Trailers { stream, fields } => {
                if let Some(incoming) = state.find(stream) {
                    heard.note(&incoming);
                    let came = &mut *incoming.came.borrow_mut();
                    came.trailers = Some(block(&fields));
                    came.ended = true;
                    came.reader.take().into_iter().for_each(Waker::wake);
                }
            }
            Event::Reset { stream, code } => {
                let why = match code {
                    ErrorCode::REFUSED_STREAM => Lost::Refused,
                    _ => Lost::Reset,
                };
                self.refuses.set(self.refuses.get() || why == Lost::Refused);
                state.lose(stream, why, heard);
            }
            Event::Broken { stream, fault } => {
                log::debug!("{self:?}: {fault}");
                if let Some(stream) = stream {
                    state.lose(stream, lost(fault), heard);
                }
            }
            Event::Window { stream: Some(stream) } => {
                if let Some(incoming) = state.find(stream) {
                    let writer = incoming.came.borrow_mut().writer.take();
                    writer.into_iter().for_each(Waker::wake);
                }
            }
            Event::Window { stream: None } | Event::Settings => {
                for incoming in state.streams.iter().flatten() {
                    let writer = incoming.came.borrow_mut().writer.take();
                    writer.into_iter().for_each(Waker::wake);
                }
            }
            // Only servers receive requests; the other events were handled above.
            Event::Request { .. }
            | Event::TooLarge { .. }
            | Event::Pong { .. }
            | Event::GoAway { .. }
            | Event::NeedMore => {}
        }
    }

    fn response(
        &self,
        state: &mut State,
        stream: Stream,
        (head, end): (&ResponseHead<'_>, bool),
        heard: &mut Turn,
    ) {
        let Some(incoming) = state.find(stream) else {
            return;
        };
        heard.note(&incoming);
        let came = &mut *incoming.came.borrow_mut();
        // More interim responses than are forwarded.
        if came.heads.len() > limits::INTERIM_ANSWERS as usize {
            came.lost.get_or_insert(Lost::Garbage(None));
            state
                .connection
                .reset(stream, ErrorCode::ENHANCE_YOUR_CALM, &mut state.out);
        } else {
            let mut stored = std::mem::take(&mut came.spare);
            store_response(head, &mut stored);
            came.heads.push_back(stored);
            came.ended |= end;
            self.refuses.set(false);
        }
        came.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// Stores part of a body.
fn data_came(state: &mut State, stream: Stream, (data, end): (&[u8], bool), heard: &mut Turn, cx: &Cx) {
    if let Some(incoming) = state.find(stream) {
        heard.note(&incoming);
        let came = &mut *incoming.came.borrow_mut();
        came.append(data, cx);
        came.ended |= end;
        came.reader.take().into_iter().for_each(Waker::wake);
        return;
    }
    let State { connection, out, .. } = state;
    connection.consume(stream, data.len(), out);
    if !data.is_empty() {
        // The stream has no reader.
        connection.reset(stream, ErrorCode::CANCEL, out);
    }
}

impl State {
    /// Returns the state of a stream.
    fn find(&self, stream: Stream) -> Option<Rc<Incoming>> {
        let place = self.streams.get(stream.slot())?.as_ref()?;
        (place.stream == stream).then(|| Rc::clone(place))
    }

    fn lose(&mut self, stream: Stream, why: Lost, heard: &mut Turn) {
        if let Some(incoming) = self.find(stream) {
            incoming.lose(why);
            heard.note(&incoming);
        }
    }

    /// Registers the state of a stream.
    pub(super) fn put(&mut self, incoming: &Rc<Incoming>) {
        let slot = incoming.stream.slot();
        if self.streams.len() <= slot {
            self.streams.resize(slot + 1, None);
        }
        self.streams[slot] = Some(Rc::clone(incoming));
    }

    /// Removes the state of a stream.
    pub(super) fn forget(&mut self, stream: Stream) {
        if let Some(place) = self.streams.get_mut(stream.slot())
            && place.as_ref().is_some_and(|incoming| incoming.stream == stream)
        {
            *place = None;
        }
    }
}

fn lost(fault: PeerFault) -> Lost {
    match fault.kind {
        kind @ (FaultKind::HeadTooLarge | FaultKind::TooManyFields) => Lost::TooLarge(kind),
        kind => Lost::Garbage(Some(kind)),
    }
}

/// Copies fields, so that they outlive the buffer that they were received in.
fn block(fields: &Fields<'_>) -> FieldBlock {
    let mut block = FieldBlock::new();
    for field in fields.iter() {
        // Names are tokens. Fields that frame a message are refused, as intended.
        let name = str::from_utf8(field.name).unwrap_or_default();
        let _ = block.push(name, field.value);
    }
    block
}
