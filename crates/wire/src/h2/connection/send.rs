//! Frames out: heads, data, trailers, and what keeps a connection going or ends it.

use super::{Connection, FIRST_WINDOW, Life, Role};
use crate::h1::{FieldBlock, Known, Method};
use crate::h2::code::ErrorCode;
use crate::h2::frame;
use crate::h2::limits::FRAME_BYTES;
use crate::h2::misuse::Misuse;
use crate::h2::streams::{Record, Side, Stream};
use crate::h2::tag::{Kind, Tag};

/// What the ping before the last GOAWAY says.
pub(super) const LAST_CALL: [u8; 8] = *b"ringmain";

/// What a stream number cannot exceed.
const STREAM_MOST: u32 = (1 << 31) - 1;

/// An answer's head being written. What was written cannot be taken back, for the next head builds on it: one that is dropped is
/// sent as it is, and its stream stays open.
#[derive(Debug)]
#[must_use = "a head is sent by `finish`"]
pub struct ResponseWriter<'c> {
    connection: &'c mut Connection,
    out: &'c mut Vec<u8>,
    stream: Stream,
    start: usize,
    status: u16,
    finished: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method<'a>,
    /// `http` or `https`; not for CONNECT without a protocol.
    pub scheme: &'a str,
    /// Host and perhaps port.
    pub authority: &'a str,
    /// Path and query, or `*`; not for CONNECT without a protocol.
    pub path: &'a str,
    /// What extended CONNECT asks for (RFC 8441).
    pub protocol: Option<&'a str>,
}

impl Connection {
    /// What each side sends first (RFC 9113 §3.4).
    pub(super) fn write_preface(&mut self, out: &mut Vec<u8>) {
        let limits = self.limits;
        if self.role == Role::Client {
            out.extend_from_slice(frame::PREFACE);
        }
        let client = self.role == Role::Client;
        let settings = [
            client.then_some((2, 0)),
            (!client).then_some((3, limits.streams)),
            Some((4, limits.stream_window)),
            Some((6, limits.head_bytes)),
            (!client && limits.extended_connect).then_some((8, 1)),
        ];
        let start = out.len();
        out.extend_from_slice(&[0; frame::HEADER]);
        for (number, value) in settings.into_iter().flatten() {
            out.extend_from_slice(&u16::to_be_bytes(number));
            out.extend_from_slice(&u32::to_be_bytes(value));
        }
        let length = out.len() - start - frame::HEADER;
        out[start..start + frame::HEADER].copy_from_slice(&frame::header(length, frame::SETTINGS, 0, 0));
        let more = limits.connection_window.saturating_sub(FIRST_WINDOW as u32);
        if more > 0 {
            self.receive += more as i32;
            frame::write(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
        }
    }

    /// Begins an answer, interim ones included.
    ///
    /// # Errors
    /// `NoStream`, `HeadOrder`, `Status`, `Role`.
    pub fn respond<'c>(
        &'c mut self,
        stream: Stream,
        status: u16,
        out: &'c mut Vec<u8>,
    ) -> Result<ResponseWriter<'c>, Misuse> {
        if self.role == Role::Client {
            return Err(Misuse::Role);
        }
        if !(100..=999).contains(&status) || status == 101 {
            return Err(Misuse::Status);
        }
        let record = self.streams.get(stream).ok_or(Misuse::NoStream)?;
        if record.local != Side::Idle {
            return Err(Misuse::HeadOrder);
        }
        let start = begin_block(out);
        self.encoder.begin(out);
        self.encoder.status(status, out);
        Ok(ResponseWriter {
            connection: self,
            out,
            stream,
            start,
            status,
            finished: false,
        })
    }

    /// Whether a request can be sent: the peer takes another stream.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.openable() > 0
    }

    /// How many requests can be sent now, beside those that are under way. Before the peer has said how many it takes: any number.
    #[must_use]
    pub fn openable(&self) -> usize {
        let opens = self.role == Role::Client && self.last_taken.is_none() && self.life == Life::Serving;
        if !opens || self.is_out_of_numbers() {
            return 0;
        }
        let left = (STREAM_MOST - self.next).div_ceil(2) as usize;
        left.min((self.peer.streams as usize).saturating_sub(self.streams.len()))
    }

    /// Sends a request's head. `length`: bytes of its body, if known; `end`: there is no body.
    ///
    /// # Errors
    /// `Role`, `TooManyStreams`, `Target`. Nothing was written.
    pub fn request(
        &mut self,
        request: &Request<'_>,
        fields: &FieldBlock,
        length: Option<u64>,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<Stream, Misuse> {
        if self.role == Role::Server {
            return Err(Misuse::Role);
        }
        if !self.can_open() {
            return Err(Misuse::TooManyStreams);
        }
        let plain_connect = request.method == Method::Connect && request.protocol.is_none();
        check_request(request, plain_connect)?;
        let id = self.next;
        let start = begin_block(out);
        let encoder = &mut self.encoder;
        encoder.begin(out);
        encoder.field(b":method", request.method.as_str().as_bytes(), out);
        if !plain_connect {
            encoder.field(b":scheme", request.scheme.as_bytes(), out);
        }
        encoder.field(b":authority", request.authority.as_bytes(), out);
        if !plain_connect {
            encoder.field(b":path", request.path.as_bytes(), out);
        }
        if let Some(protocol) = request.protocol {
            encoder.field(b":protocol", protocol.as_bytes(), out);
        }
        self.write_block(fields, out);
        if let Some(length) = length {
            self.encoder.number(b"content-length", length, out);
        }
        self.end_block(start, id, end, out);
        Ok(self.open_stream(end, request.method == Method::Head))
    }

    /// Notes the stream of a request whose head was written; `bodiless`: its answer has no body.
    pub(super) fn open_stream(&mut self, end: bool, bodiless: bool) -> Stream {
        let mut record = Record::new(self.next, self.peer.window, self.first_receive());
        self.next += 2;
        record.local = if end { Side::Ended } else { Side::Open };
        record.bodiless = bodiless;
        self.streams.insert(record)
    }

    /// Whether the numbers of streams are used up.
    pub(super) fn is_out_of_numbers(&self) -> bool {
        self.next >= STREAM_MOST
    }

    /// Bytes of data that may be sent on a stream now; 0 also for one that is over.
    #[must_use]
    #[inline]
    pub fn window(&self, stream: Stream) -> usize {
        match self.streams.get(stream) {
            Some(record) if record.local == Side::Open => record.send.min(self.send).max(0) as usize,
            _ => 0,
        }
    }

    /// Begins a frame of as much of `length` bytes of data as may be sent now: writes its header and returns how many of them
    /// the caller must append. `end`: with all of them the stream is ended. Nothing is written when nothing may be sent, but
    /// an end without data, which needs no window.
    ///
    /// # Errors
    /// `NoStream`, `HeadOrder`, `Ended`.
    pub fn begin_data(
        &mut self,
        stream: Stream,
        length: usize,
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Misuse> {
        let window = self.send;
        let most = self.peer.frame.min(FRAME_BYTES);
        let record = self.streams.get_mut(stream).ok_or(Misuse::NoStream)?;
        match record.local {
            Side::Idle => return Err(Misuse::HeadOrder),
            Side::Ended => return Err(Misuse::Ended),
            Side::Open => {}
        }
        let room = record.send.min(window).max(0) as usize;
        let taken = length.min(room).min(most);
        let last = end && taken == length;
        if taken == 0 && !last {
            return Ok(0);
        }
        record.send -= taken as i32;
        self.send -= taken as i32;
        if last {
            record.local = Side::Ended;
            // What that may have written stands before the header, which the data follows.
            self.finish_local(stream, out);
        }
        let flags = if last { frame::END_STREAM } else { 0 };
        out.extend_from_slice(&frame::header(taken, frame::DATA, flags, stream.id));
        let budgets = self.limits.budgets;
        self.spending.window_updates.earn(budgets.window_updates, 2);
        self.spending.small.earn(budgets.small, 1);
        self.spending.control.earn(budgets.control, 1);
        Ok(taken)
    }

    /// Sends as much of `data` as may be sent now; returns how much that was. `end`: with all of it the stream is ended.
    ///
    /// # Errors
    /// As [`begin_data`](Self::begin_data).
    pub fn data(
        &mut self,
        stream: Stream,
        data: &[u8],
        end: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Misuse> {
        let mut sent = 0;
        loop {
            let rest = &data[sent..];
            let taken = self.begin_data(stream, rest.len(), end, out)?;
            out.extend_from_slice(&rest[..taken]);
            sent += taken;
            if taken == 0 || sent == data.len() {
                return Ok(sent);
            }
        }
    }

    /// Ends this side of a stream by trailers.
    ///
    /// # Errors
    /// As [`begin_data`](Self::begin_data).
    pub fn trailers(&mut self, stream: Stream, fields: &FieldBlock, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let record = self.streams.get_mut(stream).ok_or(Misuse::NoStream)?;
        match record.local {
            Side::Idle => return Err(Misuse::HeadOrder),
            Side::Ended => return Err(Misuse::Ended),
            Side::Open => record.local = Side::Ended,
        }
        let start = begin_block(out);
        self.encoder.begin(out);
        self.write_block(fields, out);
        self.end_block(start, stream.id, true, out);
        self.finish_local(stream, out);
        Ok(())
    }

    /// Gives a stream up, unless it is over. It is gone.
    pub fn reset(&mut self, stream: Stream, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some() {
            self.write_reset(stream.id, code, out);
            self.forget(stream, out);
        }
    }

    /// So many bytes of a stream's body are done with: the peer may send as many again. For a stream that is over nothing is left to
    /// do: all that came on it counts as done with.
    pub fn consume(&mut self, stream: Stream, bytes: usize, out: &mut Vec<u8>) {
        self.consume_within(stream, bytes, self.limits.stream_window, out);
    }

    /// The same, with another window for this stream from now on: a larger one is granted once half of the window in the settings
    /// of this side was consumed, so that short bodies cost no frame; a smaller one takes effect as the peer uses up what it was
    /// granted.
    pub fn consume_within(&mut self, stream: Stream, bytes: usize, window: u32, out: &mut Vec<u8>) {
        let half = self.limits.stream_window / 2;
        let is_heeded = self.is_heeded;
        let Some(record) = self.streams.get_mut(stream) else {
            return;
        };
        let bytes = (bytes as u32).min(record.held);
        record.held -= bytes;
        if record.remote != Side::Ended {
            record.consumed += bytes;
            if record.consumed >= half {
                // Before the peer has read these settings it may go by the first window (RFC 9113 §6.9.2).
                let more = if is_heeded {
                    i64::from(window) - i64::from(record.receive) - i64::from(record.held)
                } else {
                    i64::from(record.consumed)
                };
                if more < i64::from(half.max(window / 2)) && is_heeded {
                    return self.replenish(bytes, out);
                }
                record.consumed = 0;
                let more = more as u32;
                record.receive += more as i32;
                frame::write(frame::WINDOW_UPDATE, 0, stream.id, &more.to_be_bytes(), out);
            }
        }
        self.replenish(bytes, out);
    }

    /// The same of the connection alone.
    pub(super) fn replenish(&mut self, bytes: u32, out: &mut Vec<u8>) {
        self.consumed += bytes;
        if self.consumed >= self.limits.connection_window / 2 {
            let more = std::mem::take(&mut self.consumed);
            self.receive += more as i32;
            frame::write(frame::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
        }
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&mut self, payload: [u8; 8], out: &mut Vec<u8>) {
        frame::write(frame::PING, 0, 0, &payload, out);
    }

    /// Tells a client that the end is near: it opens no more streams once it has read this, and those that are on their way are
    /// answered. When it has confirmed, [`go_away`](Self::go_away) follows of itself; call it if that takes too long.
    pub fn announce_end(&mut self, out: &mut Vec<u8>) {
        if self.life == Life::Serving {
            self.life = Life::Announced;
            self.write_go_away(STREAM_MOST, ErrorCode::NO_ERROR, out);
            self.ping(LAST_CALL, out);
        }
    }

    /// Tells the peer that no more streams are answered than have come.
    pub fn go_away(&mut self, out: &mut Vec<u8>) {
        if matches!(self.life, Life::Serving | Life::Announced) {
            self.life = Life::GoingAway(self.last);
            self.write_go_away(self.last, ErrorCode::NO_ERROR, out);
        }
    }

    /// Gives the connection up: GOAWAY with `code`, and nothing is to follow.
    pub fn abandon(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        self.life = Life::GoingAway(self.last);
        self.write_go_away(self.last, code, out);
    }

    pub(super) fn write_go_away(&mut self, last: u32, code: ErrorCode, out: &mut Vec<u8>) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&code.0.to_be_bytes());
        frame::write(frame::GOAWAY, 0, 0, &payload, out);
    }

    /// This side of a stream was ended.
    fn finish_local(&mut self, stream: Stream, out: &mut Vec<u8>) {
        if self.role == Role::Server {
            let budgets = self.limits.budgets;
            let given_back = self.early.answer();
            self.spending.resets.earn(budgets.resets, given_back);
            // A client may give a stream up when its answer is on its way.
            self.spending.control.earn(budgets.control, 1);
        }
        self.settle(stream, out);
    }

    /// Appends the fields of a block, but for those of a connection.
    fn write_block(&mut self, fields: &FieldBlock, out: &mut Vec<u8>) {
        for (name, value) in fields.iter() {
            if !is_dropped(name) {
                self.encoder.field(name.as_bytes(), value, out);
            }
        }
    }

    /// The same for a block that goes by a number.
    fn write_known(&mut self, id: u64, fields: &FieldBlock, out: &mut Vec<u8>) {
        if self.encoder.recall(id, out) {
            return;
        }
        let (mark, start) = (self.encoder.mark(), out.len());
        self.write_block(fields, out);
        self.encoder.remember(id, mark, &out[start..]);
    }

    /// Makes frames of the block behind `start`.
    fn end_block(&mut self, start: usize, id: u32, end: bool, out: &mut Vec<u8>) {
        let most = self.peer.frame.min(FRAME_BYTES);
        let length = out.len() - start - frame::HEADER;
        let flags = if end { frame::END_STREAM } else { 0 };
        if length <= most {
            let header = frame::header(length, frame::HEADERS, flags | frame::END_HEADERS, id);
            out[start..start + frame::HEADER].copy_from_slice(&header);
            return;
        }
        let block = out.split_off(start + frame::HEADER);
        out.truncate(start);
        let mut fragments = block.chunks(most).peekable();
        let mut kind = frame::HEADERS;
        let mut flags = flags;
        while let Some(fragment) = fragments.next() {
            if fragments.peek().is_none() {
                flags |= frame::END_HEADERS;
            }
            frame::write(kind, flags, id, fragment, out);
            (kind, flags) = (frame::CONTINUATION, 0);
        }
    }
}

/// Keeps room for the header of the first frame.
fn begin_block(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; frame::HEADER]);
    start
}

/// Fields of HTTP/1 connections, which a block may hold (RFC 9113 §8.2.2).
fn is_dropped(name: &str) -> bool {
    match Known::of(name.as_bytes()) {
        Some(known) => matches!(
            known,
            Known::Connection | Known::KeepAlive | Known::TransferEncoding | Known::Upgrade | Known::Host
        ),
        None => name.eq_ignore_ascii_case("proxy-connection"),
    }
}

fn check_request(request: &Request<'_>, plain_connect: bool) -> Result<(), Misuse> {
    let right = |kind: Kind, name: &[u8], text: &str| {
        let tag = Tag::of(name, text.as_bytes());
        tag.kind == kind && tag.fault.is_none()
    };
    let target = plain_connect
        || (right(Kind::Scheme, b":scheme", request.scheme) && right(Kind::Path, b":path", request.path));
    let method = right(Kind::Method, b":method", request.method.as_str());
    let protocol = request
        .protocol
        .is_none_or(|text| right(Kind::Protocol, b":protocol", text));
    if target && method && protocol && right(Kind::Authority, b":authority", request.authority) {
        Ok(())
    } else {
        Err(Misuse::Target)
    }
}

impl ResponseWriter<'_> {
    /// Appends fields that were checked before; those of HTTP/1 connections are left out.
    pub fn block(&mut self, fields: &FieldBlock) {
        self.connection.write_block(fields, self.out);
    }

    /// The same for a block that many heads have: `id`, above 0, stands for these very fields, and for no others, on all
    /// connections that it is said on.
    pub fn known_block(&mut self, id: u64, fields: &FieldBlock) {
        self.connection.write_known(id, fields, self.out);
    }

    /// Appends a field.
    ///
    /// # Errors
    /// `Field`: nothing was written, and the head goes on without it.
    pub fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        let lower = name.to_ascii_lowercase();
        let tag = Tag::of(lower.as_bytes(), value);
        if tag.fault.is_some() || name.starts_with(':') {
            return Err(Misuse::Field);
        }
        self.connection.encoder.field(name.as_bytes(), value, self.out);
        Ok(())
    }

    /// `Content-Length`.
    pub fn length(&mut self, bytes: u64) {
        self.connection.encoder.number(b"content-length", bytes, self.out);
    }

    /// Ends the head. `end`: there is no body. An interim one never ends its stream.
    pub fn finish(mut self, end: bool) {
        self.end(end);
    }

    fn end(&mut self, end: bool) {
        self.finished = true;
        let interim = self.status < 200;
        let end = end && !interim;
        self.connection
            .end_block(self.start, self.stream.id, end, self.out);
        if interim {
            return;
        }
        if let Some(record) = self.connection.streams.get_mut(self.stream) {
            record.local = if end { Side::Ended } else { Side::Open };
        }
        if end {
            self.connection.finish_local(self.stream, self.out);
        }
    }
}

impl Drop for ResponseWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.end(false);
        }
    }
}
