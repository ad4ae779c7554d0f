//! Frames in. One at a time, whole: what is not whole waits with the caller.

use std::time::Duration;

use super::{Connection, Event, FIRST_WINDOW, Life, Role, Step, WINDOW_MOST};
use crate::h2::code::ErrorCode;
use crate::h2::fault::{FaultKind, PeerFault, Scope};
use crate::h2::frame::{self, Header};
use crate::h2::head::HeadBuffer;
use crate::h2::limits::{FRAME_BYTES, SMALL_DATA};
use crate::h2::streams::{Side, Stream, UNKNOWN};

/// What a frame came to: an event, but for what it borrows.
pub(super) enum Came {
    Nothing,
    Request {
        stream: Stream,
        end: bool,
    },
    TooLarge {
        stream: Stream,
        end: bool,
    },
    Response {
        stream: Stream,
        end: bool,
        bodiless: bool,
    },
    Trailers(Stream),
    Data {
        stream: Stream,
        from: usize,
        to: usize,
        end: bool,
    },
    Reset(Stream, ErrorCode),
    Broken(Option<Stream>, PeerFault),
    Window(Option<Stream>),
    Settings,
    GoAway(u32, ErrorCode),
    Pong([u8; 8]),
}

/// Faults on the way: those of the connection, and those of a stream, which were not answered yet.
pub(super) type Taken = Result<Came, PeerFault>;

impl Connection {
    /// Takes what can be taken at the start of `input`. Call it again with the rest, until it says [`Event::NeedMore`]; then with
    /// the same rest and more. What is to be sent is appended to `out`, also when it fails.
    ///
    /// # Errors
    /// The peer broke a rule of the connection, or went beyond a budget: GOAWAY was appended. The same for ever.
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        now: Duration,
        heads: &'a mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, PeerFault> {
        if let Life::Faulted(fault) = self.life {
            return Err(fault);
        }
        let mut consumed = match self.take_preface(input) {
            Ok(bytes) => bytes,
            Err(kind) => return Err(self.fail(kind.of_connection(), out)),
        };
        if self.role == Role::Server && self.preface < frame::PREFACE.len() {
            return Ok(Step {
                consumed,
                event: Event::NeedMore,
            });
        }
        loop {
            let rest = &input[consumed..];
            let Some(header) = Header::read(rest) else {
                return Ok(Step {
                    consumed,
                    event: Event::NeedMore,
                });
            };
            if header.length > FRAME_BYTES {
                return Err(self.fail(FaultKind::FrameTooLarge.of_connection(), out));
            }
            let Some(payload) = rest.get(frame::HEADER..frame::HEADER + header.length) else {
                return Ok(Step {
                    consumed,
                    event: Event::NeedMore,
                });
            };
            let at = consumed + frame::HEADER;
            consumed = at + header.length;
            let came = match self.frame(header, payload, now, heads, out) {
                Ok(came) => came,
                Err(fault) => self.broken(fault, now, out)?,
            };
            if !matches!(came, Came::Nothing) {
                let event = self.event(came, &input[at..consumed], heads);
                return Ok(Step { consumed, event });
            }
        }
    }

    /// Matches the preface against what is there of it; how many bytes that is.
    fn take_preface(&mut self, input: &[u8]) -> Result<usize, FaultKind> {
        if self.role == Role::Client || self.preface == frame::PREFACE.len() {
            return Ok(0);
        }
        let expected = &frame::PREFACE[self.preface..];
        let length = expected.len().min(input.len());
        if expected[..length] != input[..length] {
            return Err(FaultKind::Preface);
        }
        self.preface += length;
        Ok(length)
    }

    /// What a frame came to, with what it borrows.
    fn event<'a>(&self, came: Came, payload: &'a [u8], heads: &'a HeadBuffer) -> Event<'a> {
        const CHECKED: &str = "the head was asked for before";
        match came {
            Came::Nothing => Event::NeedMore,
            Came::Request { stream, end } => Event::Request {
                stream,
                head: heads.request(end, &self.limits).expect(CHECKED),
                end,
            },
            Came::TooLarge { stream, end } => Event::TooLarge { stream, end },
            Came::Response {
                stream,
                end,
                bodiless,
            } => Event::Response {
                stream,
                head: heads.response(end, bodiless).expect(CHECKED),
                end,
            },
            Came::Trailers(stream) => Event::Trailers {
                stream,
                fields: heads.trailers().expect(CHECKED),
            },
            Came::Data {
                stream,
                from,
                to,
                end,
            } => Event::Data {
                stream,
                data: &payload[from..to],
                end,
            },
            Came::Reset(stream, code) => Event::Reset { stream, code },
            Came::Broken(stream, fault) => Event::Broken { stream, fault },
            Came::Window(stream) => Event::Window { stream },
            Came::Settings => Event::Settings,
            Came::GoAway(last, code) => Event::GoAway { last, code },
            Came::Pong(payload) => Event::Pong { payload },
        }
    }

    /// Ends the connection for a fault.
    fn fail(&mut self, fault: PeerFault, out: &mut Vec<u8>) -> PeerFault {
        self.write_go_away(self.last, fault.code(), out);
        self.life = Life::Faulted(fault);
        fault
    }

    /// Answers a fault: RST_STREAM, which counts, or GOAWAY.
    fn broken(&mut self, fault: PeerFault, now: Duration, out: &mut Vec<u8>) -> Result<Came, PeerFault> {
        let Scope::Stream(id) = fault.scope else {
            return Err(self.fail(fault, out));
        };
        if !self.spending.resets.spend(self.limits.budgets.resets, now) {
            return Err(self.fail(FaultKind::TooManyResets.of_connection(), out));
        }
        self.write_reset(id, fault.code(), out);
        let stream = self.streams.find(id);
        if let Some(stream) = stream {
            self.forget(stream, out);
        }
        Ok(Came::Broken(stream, fault))
    }

    fn frame(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
        heads: &mut HeadBuffer,
        out: &mut Vec<u8>,
    ) -> Taken {
        if !self.peer.known && (header.kind != frame::SETTINGS || header.has(frame::ACK)) {
            return Err(FaultKind::SettingsFirst.of_connection());
        }
        if self.block.is_some() && header.kind != frame::CONTINUATION {
            return Err(FaultKind::Continuation.of_connection());
        }
        match header.kind {
            frame::DATA => self.data_frame(header, payload, now, out),
            frame::HEADERS => self.headers(header, payload, heads, out),
            frame::CONTINUATION => self.continuation(header, payload, heads, out, now),
            frame::RST_STREAM => self.rst_stream(header, payload, now, out),
            frame::WINDOW_UPDATE => self.window_update(header, payload, now),
            frame::SETTINGS => self.settings(header, payload, now, out),
            frame::PING => self.pinged(header, payload, now, out),
            frame::GOAWAY => self.gone_away(header, payload, now, out),
            frame::PRIORITY => self.priority(header, payload, now),
            frame::PUSH_PROMISE => Err(FaultKind::Push.of_connection()),
            // RFC 9113 §5.5.
            _ => self.charge_control(now).map(|()| Came::Nothing),
        }
    }

    pub(super) fn charge_control(&mut self, now: Duration) -> Result<(), PeerFault> {
        let fits = self.spending.control.spend(self.limits.budgets.control, now);
        if fits {
            Ok(())
        } else {
            Err(FaultKind::TooManyControlFrames.of_connection())
        }
    }

    /// A frame of a stream that is over. What a client has given up its server may have answered in full.
    fn charge_late(&mut self, now: Duration) -> Result<(), PeerFault> {
        match self.role {
            Role::Server => self.charge_control(now),
            Role::Client => Ok(()),
        }
    }

    pub(super) fn charge_empty(&mut self, now: Duration) -> Result<(), PeerFault> {
        let fits = self.spending.empty.spend(self.limits.budgets.empty, now);
        if fits {
            Ok(())
        } else {
            Err(FaultKind::TooManyEmptyFrames.of_connection())
        }
    }

    // RFC 9113 §6.1.
    fn data_frame(&mut self, header: Header, payload: &[u8], now: Duration, out: &mut Vec<u8>) -> Taken {
        let id = header.stream;
        if id == 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        let (from, to) = unpadded(header, payload)?;
        let end = header.has(frame::END_STREAM);
        // All of it counts, the padding too.
        let weight = payload.len() as i32;
        if weight > self.receive {
            return Err(FaultKind::Window.of_connection());
        }
        self.receive -= weight;
        self.charge_data(to - from, end, now)?;
        let Some(stream) = self.streams.find(id) else {
            self.replenish(payload.len() as u32, out);
            if self.is_unused(id) {
                return Err(FaultKind::StreamIdle.of_connection());
            }
            return if self.was_reset(id) || self.is_ignored(id) {
                self.charge_late(now).map(|()| Came::Nothing)
            } else {
                Err(FaultKind::StreamClosed.of_stream(id))
            };
        };
        if let Err(kind) = self.data_on(stream, weight, (to - from) as u64, end) {
            self.replenish(payload.len() as u32, out);
            return Err(kind.of_stream(id));
        }
        // Nobody else knows of the padding.
        self.consume(stream, payload.len() - (to - from), out);
        if end {
            self.end_remote(stream, out);
        }
        Ok(Came::Data {
            stream,
            from,
            to,
            end,
        })
    }

    fn charge_data(&mut self, bytes: usize, end: bool, now: Duration) -> Result<(), PeerFault> {
        let rate = self.limits.budgets.small;
        if bytes >= SMALL_DATA {
            self.spending.small.earn(rate, (bytes / SMALL_DATA) as u32);
            return Ok(());
        }
        if end {
            return Ok(());
        }
        if bytes == 0 {
            return self.charge_empty(now);
        }
        let fits = self.spending.small.spend(rate, now);
        if fits {
            Ok(())
        } else {
            Err(FaultKind::TooManySmallFrames.of_connection())
        }
    }

    /// Whether data may come on a stream, and as much.
    fn data_on(&mut self, stream: Stream, weight: i32, bytes: u64, end: bool) -> Result<(), FaultKind> {
        let Some(record) = self.streams.get_mut(stream) else {
            return Err(FaultKind::StreamClosed);
        };
        match record.remote {
            Side::Ended => return Err(FaultKind::StreamClosed),
            Side::Idle => return Err(FaultKind::StreamIdle),
            Side::Open => {}
        }
        if weight > record.receive {
            return Err(FaultKind::Window);
        }
        record.receive -= weight;
        if record.expected != UNKNOWN {
            let left = record
                .expected
                .checked_sub(bytes)
                .ok_or(FaultKind::ContentLengthSum)?;
            if end && left > 0 {
                return Err(FaultKind::ContentLengthSum);
            }
            record.expected = left;
        }
        record.held += weight as u32;
        Ok(())
    }

    /// The peer has ended its side.
    pub(super) fn end_remote(&mut self, stream: Stream, out: &mut Vec<u8>) {
        if let Some(record) = self.streams.get_mut(stream) {
            record.remote = Side::Ended;
        }
        self.settle(stream, out);
    }

    /// Whether a stream came behind the last that is answered.
    pub(super) fn is_ignored(&self, id: u32) -> bool {
        matches!(self.life, Life::GoingAway(last) if self.is_peers(id) && id > last)
    }

    // RFC 9113 §6.3, of which only the form is looked at.
    fn priority(&mut self, header: Header, payload: &[u8], now: Duration) -> Taken {
        let id = header.stream;
        if id == 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        let kind = match payload.len() {
            5 if is_own(payload, id) => FaultKind::SelfDependency,
            5 => return self.charge_control(now).map(|()| Came::Nothing),
            _ => FaultKind::FrameSize,
        };
        // What nobody has opened cannot be reset.
        if self.is_unused(id) {
            Err(kind.of_connection())
        } else {
            Err(kind.of_stream(id))
        }
    }

    // RFC 9113 §6.4.
    fn rst_stream(&mut self, header: Header, payload: &[u8], now: Duration, out: &mut Vec<u8>) -> Taken {
        let id = header.stream;
        let code = match (payload.len(), frame::number(payload)) {
            (4, Some(code)) => ErrorCode(code),
            _ => return Err(FaultKind::FrameSize.of_connection()),
        };
        if id == 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        if self.is_unused(id) {
            return Err(FaultKind::StreamIdle.of_connection());
        }
        let Some(stream) = self.streams.find(id) else {
            return self.charge_late(now).map(|()| Came::Nothing);
        };
        if self.role == Role::Server {
            let is_early = self
                .streams
                .get(stream)
                .is_some_and(|record| record.local == Side::Idle);
            let fits = self.spending.resets.spend(self.limits.budgets.resets, now)
                && (!is_early || self.early.reset(now));
            if !fits {
                return Err(FaultKind::TooManyResets.of_connection());
            }
        }
        self.forget(stream, out);
        Ok(Came::Reset(stream, code))
    }

    // RFC 9113 §6.5.
    fn settings(&mut self, header: Header, payload: &[u8], now: Duration, out: &mut Vec<u8>) -> Taken {
        if header.stream != 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        let ack = header.has(frame::ACK);
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() || (ack && !payload.is_empty()) {
            return Err(FaultKind::FrameSize.of_connection());
        }
        self.charge_control(now)?;
        if ack {
            self.heeded();
            return Ok(Came::Nothing);
        }
        for &[a, b, c, d, e, f] in settings {
            let (number, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
            self.setting(number, value).map_err(FaultKind::of_connection)?;
        }
        self.peer.known = true;
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], out);
        Ok(Came::Settings)
    }

    fn setting(&mut self, number: u16, value: u32) -> Result<(), FaultKind> {
        match number {
            1 => self.encoder.set_most(value),
            // A server pushes nothing, and says so if at all.
            2 if value > 1 || (value == 1 && self.role == Role::Client) => return Err(FaultKind::Setting),
            3 => self.peer.streams = value,
            4 => self.set_window(value)?,
            5 if !(16_384..=16_777_215).contains(&value) => return Err(FaultKind::Setting),
            5 => self.peer.frame = value as usize,
            // RFC 8441 §3: once said it stays.
            8 if value > 1 || (value == 0 && self.peer.extended_connect) => return Err(FaultKind::Setting),
            8 => self.peer.extended_connect = value == 1,
            _ => {}
        }
        Ok(())
    }

    /// RFC 9113 §6.9.2: it holds for the streams that there are, too.
    fn set_window(&mut self, value: u32) -> Result<(), FaultKind> {
        let window = i32::try_from(value).map_err(|_| FaultKind::InitialWindow)?;
        let change = i64::from(window) - i64::from(self.peer.window);
        self.peer.window = window;
        for record in self.streams.iter_mut() {
            let changed = i64::from(record.send) + change;
            if changed > WINDOW_MOST {
                return Err(FaultKind::WindowOverflow);
            }
            record.send = changed as i32;
        }
        Ok(())
    }

    // RFC 9113 §6.7.
    fn pinged(&mut self, header: Header, payload: &[u8], now: Duration, out: &mut Vec<u8>) -> Taken {
        if header.stream != 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else {
            return Err(FaultKind::FrameSize.of_connection());
        };
        self.charge_control(now)?;
        if !header.has(frame::ACK) {
            frame::write(frame::PING, frame::ACK, 0, &payload, out);
            return Ok(Came::Nothing);
        }
        if payload == super::send::LAST_CALL && self.life == Life::Announced {
            self.go_away(out);
        }
        Ok(Came::Pong(payload))
    }

    // RFC 9113 §6.8.
    fn gone_away(&mut self, header: Header, payload: &[u8], now: Duration, out: &mut Vec<u8>) -> Taken {
        if header.stream != 0 {
            return Err(FaultKind::FrameStream.of_connection());
        }
        let Some((&[a, b, c, d, e, f, g, h], _)) = payload.split_first_chunk::<8>() else {
            return Err(FaultKind::FrameSize.of_connection());
        };
        self.charge_control(now)?;
        let last = u32::from_be_bytes([a & 0x7F, b, c, d]);
        let code = ErrorCode(u32::from_be_bytes([e, f, g, h]));
        self.last_taken = Some(self.last_taken.map_or(last, |before| before.min(last)));
        if self.role == Role::Client {
            let lost: Vec<Stream> = self.streams.iter().filter(|stream| stream.id > last).collect();
            lost.into_iter().for_each(|stream| self.forget(stream, out));
        }
        Ok(Came::GoAway(last, code))
    }

    // RFC 9113 §6.9.
    fn window_update(&mut self, header: Header, payload: &[u8], now: Duration) -> Taken {
        let increment = match (payload.len(), frame::number(payload)) {
            (4, Some(number)) => i64::from(number & 0x7FFF_FFFF),
            _ => return Err(FaultKind::FrameSize.of_connection()),
        };
        let rate = self.limits.budgets.window_updates;
        if !self.spending.window_updates.spend(rate, now) {
            return Err(FaultKind::TooManyWindowUpdates.of_connection());
        }
        let id = header.stream;
        if id == 0 {
            let before = self.send;
            self.send = widened(before, increment).map_err(FaultKind::of_connection)?;
            return Ok(if before <= 0 {
                Came::Window(None)
            } else {
                Came::Nothing
            });
        }
        if self.is_unused(id) {
            return Err(FaultKind::StreamIdle.of_connection());
        }
        let Some(stream) = self.streams.find(id) else {
            return Ok(Came::Nothing);
        };
        let Some(record) = self.streams.get_mut(stream) else {
            return Ok(Came::Nothing);
        };
        let before = record.send;
        record.send = widened(before, increment).map_err(|kind| kind.of_stream(id))?;
        Ok(if before <= 0 {
            Came::Window(Some(stream))
        } else {
            Came::Nothing
        })
    }
}

fn widened(window: i32, increment: i64) -> Result<i32, FaultKind> {
    let wider = i64::from(window) + increment;
    match (increment, wider > WINDOW_MOST) {
        (0, _) => Err(FaultKind::WindowIncrement),
        (_, true) => Err(FaultKind::WindowOverflow),
        _ => Ok(wider as i32),
    }
}

/// Where a payload's content is, without its padding (RFC 9113 §6.1).
pub(super) fn unpadded(header: Header, payload: &[u8]) -> Result<(usize, usize), PeerFault> {
    if !header.has(frame::PADDED) {
        return Ok((0, payload.len()));
    }
    let Some((&padding, rest)) = payload.split_first() else {
        return Err(FaultKind::FrameSize.of_connection());
    };
    match rest.len().checked_sub(usize::from(padding)) {
        Some(length) => Ok((1, 1 + length)),
        None => Err(FaultKind::Padding.of_connection()),
    }
}

/// Whether the dependency at the start of `payload` is the stream itself.
pub(super) fn is_own(payload: &[u8], id: u32) -> bool {
    frame::number(payload).is_some_and(|other| other & 0x7FFF_FFFF == id)
}

const _: () = assert!(FIRST_WINDOW as i64 <= WINDOW_MOST);
