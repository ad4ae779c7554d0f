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

use super::StreamError;
use super::session::{H2Pool, H2Session, SessionState, WeakSession};
use crate::limits;

/// A reader of a response without a task.
pub(crate) trait StreamObserver: std::fmt::Debug {
    /// Called once when part of the response has arrived, or when no more will.
    fn on_ready(&self);
}

/// The received and unread part of a stream.
#[derive(Debug)]
pub(super) struct StreamInput {
    pub(super) stream: Stream,
    pub(super) received: RefCell<ReceivedData>,
    /// The reader without a task, if any.
    pub(super) observer: RefCell<Option<Rc<dyn StreamObserver>>>,
}

#[derive(Debug, Default)]
pub(super) struct ReceivedData {
    /// Heads as stored: interim ones, then that of the response.
    pub(super) heads: VecDeque<Vec<u8>>,
    /// Unread bytes of the body, at most the stream's window.
    pub(super) body: Vec<u8>,
    /// Bytes at the start of `body` that were read.
    pub(super) read: usize,
    /// All bytes that were read, including those no longer in memory.
    pub(super) consumed: u64,
    pub(super) trailers: Option<FieldBlock>,
    /// The stream has ended.
    pub(super) ended: bool,
    /// The reason that the stream ended early. Parts received before remain readable.
    pub(super) error: Option<StreamError>,
    pub(super) reader: Option<Waker>,
    /// Waits for the stream's window.
    pub(super) writer: Option<Waker>,
    /// Memory for the next head.
    spare: Vec<u8>,
    /// Bytes of the body's memory that are counted as held for a slow reader.
    held_bytes: usize,
}

/// The unit in which this memory is counted, in bytes.
const HELD_UNIT: usize = 8 * 1024;

impl StreamInput {
    pub(super) fn new(stream: Stream) -> Rc<StreamInput> {
        Rc::new(StreamInput {
            stream,
            received: RefCell::default(),
            observer: RefCell::default(),
        })
    }

    /// Clears the state for another stream; memory is retained.
    fn reset_for_reuse(&mut self) {
        let received = self.received.get_mut();
        if let Some(head) = received.heads.pop_back() {
            received.spare = head;
        }
        received.spare.clear();
        received.spare.shrink_to(limits::INCOMING_HEAD_KEPT);
        received.heads.clear();
        received.body.clear();
        received.body.shrink_to(limits::INCOMING_BODY_KEPT);
        *received = ReceivedData {
            heads: std::mem::take(&mut received.heads),
            body: std::mem::take(&mut received.body),
            spare: std::mem::take(&mut received.spare),
            ..ReceivedData::default()
        };
        *self.observer.get_mut() = None;
    }

    /// Ends the stream in both directions.
    pub(super) fn fail(&self, error: StreamError) {
        let received = &mut *self.received.borrow_mut();
        received.error.get_or_insert(error);
        received.wake_both();
    }
}

impl ReceivedData {
    /// Appends part of a body: beyond the first window memory grows in steps instead of doubling.
    fn append_body(&mut self, data: &[u8], cx: &Cx) {
        let length = self.body.len() + data.len();
        if length > self.body.capacity() && length > limits::UPSTREAM_FIRST_WINDOW as usize {
            let capacity = length.next_multiple_of(limits::CHANNEL_BODY_STEP);
            self.body.reserve_exact(capacity - self.body.len());
        }
        self.body.extend_from_slice(data);
        self.update_held_bytes(cx);
    }

    /// Counts the memory of unread bytes as held for a slow reader.
    pub(super) fn update_held_bytes(&mut self, cx: &Cx) {
        let held = if self.read < self.body.len() {
            self.body.capacity() & !(HELD_UNIT - 1)
        } else {
            0
        };
        if held != self.held_bytes {
            cx.hold(self.held_bytes, held);
            self.held_bytes = held;
        }
    }

    /// Discards the body: it has no reader any more.
    pub(super) fn discard_body(&mut self, cx: &Cx) {
        self.body.clear();
        self.read = 0;
        cx.freed(self.held_bytes);
        self.update_held_bytes(cx);
    }

    fn wake_both(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

/// The receiver of the engine's events on a session's connection.
pub(super) struct SessionReceiver(pub(super) WeakSession);

impl Receiver for SessionReceiver {
    fn data(&self, bytes: &[u8]) -> usize {
        if let Some(session) = self.0.upgrade() {
            session.on_data(bytes);
        }
        bytes.len()
    }

    fn news(&self) {
        if let Some(session) = self.0.upgrade() {
            session.read_available();
        }
    }
}

impl H2Pool {
    /// Creates the state of a stream, from pooled memory if there is any.
    pub(super) fn stream_input(&self, stream: Stream) -> Rc<StreamInput> {
        let Some(mut spare) = self.spare_inputs.borrow_mut().pop() else {
            return StreamInput::new(stream);
        };
        match Rc::get_mut(&mut spare) {
            Some(own) => own.stream = stream,
            None => return StreamInput::new(stream),
        }
        spare
    }

    /// Returns the state of a stream to the pool.
    pub(super) fn recycle(&self, mut incoming: Rc<StreamInput>) {
        let mut spare = self.spare_inputs.borrow_mut();
        if spare.len() < limits::INCOMING_KEPT
            && let Some(own) = Rc::get_mut(&mut incoming)
        {
            own.reset_for_reuse();
            spare.push(incoming);
        }
    }
}

/// The effects of a block of received bytes on the session as a whole.
#[derive(Default)]
struct ReceiveEffects {
    error: Option<StreamError>,
    /// The endpoint accepts no more streams.
    goaway: bool,
    settings_changed: bool,
    /// Readers to notify.
    observers: Vec<Rc<dyn StreamObserver>>,
}

impl ReceiveEffects {
    /// Registers a stream's reader for notification.
    fn notify_later(&mut self, incoming: &StreamInput) {
        self.observers.extend(incoming.observer.take());
    }
}

impl H2Session {
    /// Processes received bytes. An incomplete frame is buffered.
    pub(super) fn on_data(&self, bytes: &[u8]) {
        self.record_activity();
        let mut effects = ReceiveEffects {
            observers: std::mem::take(&mut *self.pool.observers.borrow_mut()),
            ..ReceiveEffects::default()
        };
        self.with_state(|state| {
            let mut partial = std::mem::take(&mut state.partial);
            let consumed = if partial.is_empty() {
                self.process_events(state, bytes, &mut effects)
            } else {
                partial.extend_from_slice(bytes);
                self.process_events(state, &partial, &mut effects)
            };
            if partial.is_empty() {
                partial.extend_from_slice(&bytes[consumed..]);
            } else {
                partial.drain(..consumed);
            }
            partial.shrink_to(limits::SESSION_PARTIAL_KEPT);
            state.partial = partial;
        });
        effects.observers.drain(..).for_each(|reader| reader.on_ready());
        *self.pool.observers.borrow_mut() = effects.observers;
        if effects.settings_changed {
            self.notify_settings();
        }
        if let Some(error) = effects.error {
            drop(self.fail(error));
        } else if effects.goaway {
            self.retire();
        } else if effects.settings_changed {
            // The endpoint may accept more streams than before.
            self.offer_streams(self.stream_capacity());
        } else {
            self.resume_offers();
        }
    }

    /// Processes all events in order. Returns the number of bytes consumed.
    fn process_events(&self, state: &mut SessionState, input: &[u8], effects: &mut ReceiveEffects) -> usize {
        let heads = &mut *self.pool.heads.borrow_mut();
        let now = Duration::from_nanos(self.cx.now().0);
        let mut consumed = 0;
        loop {
            let step = state
                .connection
                .receive(&input[consumed..], now, heads, &mut state.out);
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    let is_established = state.connection.is_established();
                    effects.error = Some(if is_established {
                        stream_error(fault)
                    } else {
                        StreamError::NotHttp2
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
                    effects.goaway = true;
                    for incoming in state.streams.iter().flatten() {
                        if incoming.stream.id() > last && !incoming.received.borrow().ended {
                            incoming.fail(StreamError::Refused);
                            effects.notify_later(incoming);
                        }
                    }
                }
                event => {
                    effects.settings_changed |= matches!(event, Event::Settings);
                    self.process_event(state, event, effects);
                }
            }
        }
    }

    fn process_event(&self, state: &mut SessionState, event: Event<'_>, effects: &mut ReceiveEffects) {
        match event {
            Event::Response { stream, head, end } => {
                self.store_response_head(state, stream, &head, end, effects)
            }
            Event::Data { stream, data, end } => store_body(state, stream, data, end, effects, &self.cx),
            Event::Trailers { stream, fields } => {
                if let Some(incoming) = state.stream_input(stream) {
                    effects.notify_later(&incoming);
                    let received = &mut *incoming.received.borrow_mut();
                    received.trailers = Some(copy_fields(&fields));
                    received.ended = true;
                    received.reader.take().into_iter().for_each(Waker::wake);
                }
            }
            Event::Reset { stream, code } => {
                let error = match code {
                    ErrorCode::REFUSED_STREAM => StreamError::Refused,
                    _ => StreamError::Reset,
                };
                self.is_refusing
                    .set(self.is_refusing.get() || error == StreamError::Refused);
                state.lose(stream, error, effects);
            }
            Event::Broken { stream, fault } => {
                log::debug!("{self:?}: {fault}");
                if let Some(stream) = stream {
                    state.lose(stream, stream_error(fault), effects);
                }
            }
            Event::Window { stream: Some(stream) } => {
                if let Some(incoming) = state.stream_input(stream) {
                    let writer = incoming.received.borrow_mut().writer.take();
                    writer.into_iter().for_each(Waker::wake);
                }
            }
            Event::Window { stream: None } | Event::Settings => {
                for incoming in state.streams.iter().flatten() {
                    let writer = incoming.received.borrow_mut().writer.take();
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

    fn store_response_head(
        &self,
        state: &mut SessionState,
        stream: Stream,
        head: &ResponseHead<'_>,
        end: bool,
        effects: &mut ReceiveEffects,
    ) {
        let Some(incoming) = state.stream_input(stream) else {
            return;
        };
        effects.notify_later(&incoming);
        let received = &mut *incoming.received.borrow_mut();
        // More interim responses than are forwarded.
        if received.heads.len() > limits::INTERIM_ANSWERS as usize {
            received.error.get_or_insert(StreamError::ProtocolViolation(None));
            state
                .connection
                .reset(stream, ErrorCode::ENHANCE_YOUR_CALM, &mut state.out);
        } else {
            let mut stored = std::mem::take(&mut received.spare);
            store_response(head, &mut stored);
            received.heads.push_back(stored);
            received.ended |= end;
            self.is_refusing.set(false);
        }
        received.reader.take().into_iter().for_each(Waker::wake);
    }
}

/// Stores part of a body.
fn store_body(
    state: &mut SessionState,
    stream: Stream,
    data: &[u8],
    end: bool,
    effects: &mut ReceiveEffects,
    cx: &Cx,
) {
    if let Some(incoming) = state.stream_input(stream) {
        effects.notify_later(&incoming);
        let received = &mut *incoming.received.borrow_mut();
        received.append_body(data, cx);
        received.ended |= end;
        received.reader.take().into_iter().for_each(Waker::wake);
        return;
    }
    let SessionState { connection, out, .. } = state;
    connection.consume(stream, data.len(), out);
    if !data.is_empty() {
        // The stream has no reader.
        connection.reset(stream, ErrorCode::CANCEL, out);
    }
}

impl SessionState {
    /// Returns the state of a stream.
    fn stream_input(&self, stream: Stream) -> Option<Rc<StreamInput>> {
        let entry = self.streams.get(stream.slot())?.as_ref()?;
        (entry.stream == stream).then(|| Rc::clone(entry))
    }

    fn lose(&mut self, stream: Stream, error: StreamError, effects: &mut ReceiveEffects) {
        if let Some(incoming) = self.stream_input(stream) {
            incoming.fail(error);
            effects.notify_later(&incoming);
        }
    }

    /// Registers the state of a stream.
    pub(super) fn put(&mut self, incoming: &Rc<StreamInput>) {
        let slot = incoming.stream.slot();
        if self.streams.len() <= slot {
            self.streams.resize(slot + 1, None);
        }
        self.streams[slot] = Some(Rc::clone(incoming));
    }

    /// Removes the state of a stream.
    pub(super) fn remove_stream(&mut self, stream: Stream) {
        if let Some(entry) = self.streams.get_mut(stream.slot())
            && entry.as_ref().is_some_and(|incoming| incoming.stream == stream)
        {
            *entry = None;
        }
    }
}

fn stream_error(fault: PeerFault) -> StreamError {
    match fault.kind {
        kind @ (FaultKind::HeadTooLarge | FaultKind::TooManyFields) => StreamError::TooLarge(kind),
        kind => StreamError::ProtocolViolation(Some(kind)),
    }
}

/// Copies fields, so that they outlive the buffer that they were received in.
fn copy_fields(fields: &Fields<'_>) -> FieldBlock {
    let mut block = FieldBlock::new();
    for field in fields.iter() {
        // Names are tokens. Fields that frame a message are refused, as intended.
        let name = str::from_utf8(field.name).unwrap_or_default();
        let _ = block.push(name, field.value);
    }
    block
}
