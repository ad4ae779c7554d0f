//! Frames out, appended to the caller's buffer, for either role. Mask keys are the caller's to bring: they must not be
//! foreseeable (RFC 6455 §10.3).

use super::close::{Close, Closing};
use super::deflate::Deflater;
use super::extension::Deflation;
use super::header::{CONTROL_BYTES, FIN, Opcode, RSV1, Written};
use super::mask;
use super::misuse::Misuse;
use super::role::{Kind, Role};

/// A message, or a fragment of one, to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Text. Fragments are cut between characters.
    Text(&'a str),
    /// Any bytes.
    Binary(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Binary(_) => Kind::Binary,
        }
    }

    /// Its bytes.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(data) => data,
        }
    }
}

/// Where the keys of frames come from.
pub enum Mask<'k> {
    /// A server masks nothing.
    None,
    /// A client takes a new key for every frame.
    Keys(&'k mut dyn FnMut() -> [u8; 4]),
}

impl Mask<'_> {
    fn key(&mut self) -> Option<[u8; 4]> {
        match self {
            Self::None => None,
            Self::Keys(next) => Some(next()),
        }
    }

    const fn header_bytes(&self, payload: usize) -> usize {
        let key = match self {
            Self::None => 0,
            Self::Keys(_) => 4,
        };
        let length = match payload {
            0..=125 => 0,
            126..=0xFFFF => 2,
            _ => 8,
        };
        2 + length + key
    }
}

impl std::fmt::Debug for Mask<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are taken, not looked at.
        f.write_str(match self {
            Self::None => "None",
            Self::Keys(_) => "Keys",
        })
    }
}

/// Encodes what one end sends after the opening handshake, and holds it to the rules of order: no frame after a Close,
/// no message within a message.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    role: Role,
    deflation: Option<Deflation>,
    /// Payload bytes of a frame at most; not 0.
    frame_bytes: usize,
    closing: Closing,
    /// The kind of the fragmented message under way.
    open: Option<Kind>,
    /// Whether the deflater's context between messages holds something.
    context_begun: bool,
}

impl Encoder {
    /// For this end's `role`; `deflation` is what was agreed on. Messages of more than `frame_bytes` payload (at least
    /// one; `usize::MAX` for no limit) go out in several frames, for peers who bound what a frame holds.
    #[must_use]
    pub fn new(role: Role, deflation: Option<Deflation>, frame_bytes: usize) -> Self {
        Self {
            role,
            deflation,
            frame_bytes: frame_bytes.max(1),
            closing: Closing::Open,
            open: None,
            context_begun: false,
        }
    }

    /// How far the closing handshake is.
    #[must_use]
    pub const fn closing(&self) -> Closing {
        self.closing
    }

    /// The decoder read the peer's Close. Returns how far the closing handshake is now: in
    /// [`Received`](Closing::Received) a Close is to be sent.
    pub const fn close_received(&mut self) -> Closing {
        self.closing = self.closing.received();
        self.closing
    }

    /// Appends a message.
    ///
    /// # Errors
    /// `AfterClose`, `MessageOpen`, `Mask`; nothing is written.
    pub fn message(
        &mut self,
        out: &mut Vec<u8>,
        message: Message<'_>,
        mut mask: Mask<'_>,
    ) -> Result<(), Misuse> {
        self.check_start(&mask)?;
        let mut opcode = Opcode::Message(message.kind());
        let mut rest = message.data();
        while rest.len() > self.frame_bytes {
            let (frame, after) = rest.split_at(self.frame_bytes);
            append(out, opcode.bits(), frame, &mut mask);
            opcode = Opcode::Continuation;
            rest = after;
        }
        append(out, FIN | opcode.bits(), rest, &mut mask);
        Ok(())
    }

    /// Appends a message deflated. The `deflater` must be this connection's own if
    /// [`own_context`](Deflation::own_context) was agreed on; else it may be any.
    ///
    /// # Errors
    /// `AfterClose`, `MessageOpen`, `Mask`, `NotNegotiated`, `Window`; nothing is written.
    pub fn deflated(
        &mut self,
        out: &mut Vec<u8>,
        message: Message<'_>,
        deflater: &mut Deflater,
        mask: Mask<'_>,
    ) -> Result<(), Misuse> {
        self.check_start(&mask)?;
        let deflation = self.deflation.ok_or(Misuse::NotNegotiated)?;
        if deflater.window() > deflation.own_window {
            return Err(Misuse::Window);
        }
        if !self.context_begun {
            deflater.reset();
        }
        self.context_begun = deflation.own_context;
        let start = out.len();
        deflater.message(message.data(), out);
        frame(out, start, message.kind(), self.frame_bytes, mask);
        Ok(())
    }

    /// Appends the next fragment of a message that is not known as a whole yet; `last` ends the message. Between two
    /// fragments control frames may be sent, and no message.
    ///
    /// # Errors
    /// `AfterClose`, `MessageOpen` if a message of the other kind is under way, `Mask`; nothing is written.
    pub fn fragment(
        &mut self,
        out: &mut Vec<u8>,
        fragment: Message<'_>,
        last: bool,
        mut mask: Mask<'_>,
    ) -> Result<(), Misuse> {
        self.check(&mask)?;
        let kind = fragment.kind();
        let opcode = match self.open {
            None => Opcode::Message(kind),
            Some(open) if open == kind => Opcode::Continuation,
            Some(_) => return Err(Misuse::MessageOpen),
        };
        self.open = (!last).then_some(kind);
        let fin = if last { FIN } else { 0 };
        append(out, fin | opcode.bits(), fragment.data(), &mut mask);
        Ok(())
    }

    /// Appends a ping of at most 125 bytes.
    ///
    /// # Errors
    /// `AfterClose`, `ControlTooLong`, `Mask`; nothing is written.
    pub fn ping(&mut self, out: &mut Vec<u8>, data: &[u8], mask: Mask<'_>) -> Result<(), Misuse> {
        self.control(out, Opcode::Ping, data, mask)
    }

    /// Appends a pong: the answer to a ping, with the same bytes.
    ///
    /// # Errors
    /// `AfterClose`, `ControlTooLong`, `Mask`; nothing is written.
    pub fn pong(&mut self, out: &mut Vec<u8>, data: &[u8], mask: Mask<'_>) -> Result<(), Misuse> {
        self.control(out, Opcode::Pong, data, mask)
    }

    /// Appends a Close; the last frame. A fragmented message under way stays cut.
    ///
    /// # Errors
    /// `AfterClose`, `ReasonTooLong`, `Mask`; nothing is written.
    pub fn close(
        &mut self,
        out: &mut Vec<u8>,
        close: Option<Close<'_>>,
        mut mask: Mask<'_>,
    ) -> Result<(), Misuse> {
        self.check(&mask)?;
        let mut payload = [0; CONTROL_BYTES];
        let mut length = 0;
        if let Some(Close { code, reason }) = close {
            length = 2 + reason.len();
            let (head, tail) = payload.split_at_mut(2);
            let room = tail.get_mut(..reason.len()).ok_or(Misuse::ReasonTooLong)?;
            head.copy_from_slice(&code.number().to_be_bytes());
            room.copy_from_slice(reason.as_bytes());
        }
        append(out, FIN | Opcode::Close.bits(), &payload[..length], &mut mask);
        self.closing = self.closing.sent();
        Ok(())
    }

    /// Whether what [`encode_shared`] wrote may be sent now on this connection: the plain variant, or the one deflated
    /// with `deflater`'s window.
    ///
    /// # Errors
    /// `AfterClose`, `MessageOpen`, `Mask` for a client, `NotNegotiated`, `ContextKept`, `Window`.
    pub fn check_shared(&self, deflater: Option<&Deflater>) -> Result<(), Misuse> {
        self.check_start(&Mask::None)?;
        let Some(deflater) = deflater else {
            return Ok(());
        };
        match self.deflation {
            None => Err(Misuse::NotNegotiated),
            Some(deflation) if deflation.own_context => Err(Misuse::ContextKept),
            Some(deflation) if deflater.window() > deflation.own_window => Err(Misuse::Window),
            Some(_) => Ok(()),
        }
    }

    fn control(
        &mut self,
        out: &mut Vec<u8>,
        opcode: Opcode,
        data: &[u8],
        mut mask: Mask<'_>,
    ) -> Result<(), Misuse> {
        self.check(&mask)?;
        if data.len() > CONTROL_BYTES {
            return Err(Misuse::ControlTooLong);
        }
        append(out, FIN | opcode.bits(), data, &mut mask);
        Ok(())
    }

    fn check(&self, mask: &Mask<'_>) -> Result<(), Misuse> {
        match (self.role, mask) {
            (Role::Server, Mask::None) | (Role::Client, Mask::Keys(_)) => {}
            _ => return Err(Misuse::Mask),
        }
        if self.closing.may_send() {
            Ok(())
        } else {
            Err(Misuse::AfterClose)
        }
    }

    fn check_start(&self, mask: &Mask<'_>) -> Result<(), Misuse> {
        self.check(mask)?;
        if self.open.is_some() {
            return Err(Misuse::MessageOpen);
        }
        Ok(())
    }
}

/// Appends a message as one frame of a server, to be sent to any number of clients: plain, or deflated with a
/// `deflater` that remembers nothing of it. Whom it may be sent to says [`Encoder::check_shared`].
pub fn encode_shared(out: &mut Vec<u8>, message: Message<'_>, deflater: Option<&mut Deflater>) {
    match deflater {
        None => {
            let first = FIN | Opcode::Message(message.kind()).bits();
            append(out, first, message.data(), &mut Mask::None);
        }
        Some(deflater) => {
            let start = out.len();
            deflater.reset();
            deflater.message(message.data(), out);
            frame(out, start, message.kind(), usize::MAX, Mask::None);
        }
    }
}

/// Appends one frame.
fn append(out: &mut Vec<u8>, first: u8, payload: &[u8], mask: &mut Mask<'_>) {
    let key = mask.key();
    out.extend_from_slice(Written::new(first, payload.len(), key).as_bytes());
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = key {
        mask::apply(&mut out[start..], key);
    }
}

/// Makes frames of the deflated message that begins at `start`: moves its parts apart, the last one first.
fn frame(out: &mut Vec<u8>, start: usize, kind: Kind, frame_bytes: usize, mut mask: Mask<'_>) {
    let end = out.len();
    let frames = (end - start).div_ceil(frame_bytes).max(1);
    let whole = mask.header_bytes(frame_bytes);
    let tail = mask.header_bytes(end - start - (frames - 1) * frame_bytes);
    out.resize(end + (frames - 1) * whole + tail, 0);
    for index in (0..frames).rev() {
        let from = start + index * frame_bytes;
        let length = frame_bytes.min(end - from);
        let (opcode, rsv1) = match index {
            0 => (Opcode::Message(kind), RSV1),
            _ => (Opcode::Continuation, 0),
        };
        let fin = if index + 1 == frames { FIN } else { 0 };
        let key = mask.key();
        let header = Written::new(fin | rsv1 | opcode.bits(), length, key);
        let header_at = from + index * whole;
        let at = header_at + header.as_bytes().len();
        out.copy_within(from..from + length, at);
        out[header_at..at].copy_from_slice(header.as_bytes());
        if let Some(key) = key {
            mask::apply(&mut out[at..at + length], key);
        }
    }
}
