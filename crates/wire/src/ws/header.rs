//! Frame headers (RFC 6455 §5.2), in and out. Knows no payload.

use super::fault::{FaultKind, Found};
use super::role::{Kind, Role};

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Message(Kind),
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const fn of(bits: u8) -> Option<Self> {
        match bits {
            0x0 => Some(Self::Continuation),
            0x1 => Some(Self::Message(Kind::Text)),
            0x2 => Some(Self::Message(Kind::Binary)),
            0x8 => Some(Self::Close),
            0x9 => Some(Self::Ping),
            0xA => Some(Self::Pong),
            _ => None,
        }
    }

    pub(super) const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Message(Kind::Text) => 0x1,
            Self::Message(Kind::Binary) => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xA,
        }
    }

    pub(super) const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The last frame of its message.
pub(super) const FIN: u8 = 0x80;
/// The message is deflated (RFC 7692 §6).
pub(super) const RSV1: u8 = 0x40;
const MASKED: u8 = 0x80;

/// Most bytes that a control frame carries.
pub(super) const CONTROL_BYTES: usize = 125;

/// Bytes of the longest header.
const LONGEST: usize = 14;

/// A header that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) opcode: Opcode,
    pub(super) last: bool,
    pub(super) deflated: bool,
    pub(super) key: Option<[u8; 4]>,
    /// Bytes of the payload.
    pub(super) length: u64,
    /// Bytes of the header itself.
    pub(super) bytes: usize,
}

/// What the rules of a header depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    /// Who reads.
    pub(super) role: Role,
    /// Whether a fragmented message is under way.
    pub(super) in_message: bool,
    /// Whether permessage-deflate was agreed on.
    pub(super) deflate: bool,
}

/// A rule that was broken.
pub(super) type Broken = (FaultKind, Found);

/// Reads the header at the start of `input`; `None` when there is more to come. Every byte is judged as soon as it is
/// there.
#[inline]
pub(super) fn parse(input: &[u8], expectation: Expectation) -> Result<Option<Header>, Broken> {
    let Some(&first) = input.first() else {
        return Ok(None);
    };
    let opcode = first_byte(first, expectation)?;
    let Some(&second) = input.get(1) else {
        return Ok(None);
    };
    second_byte(second, opcode, expectation.role)?;
    let Some((length, mut bytes)) = length(input, second & 0x7F)? else {
        return Ok(None);
    };
    let mut key = None;
    if second & MASKED != 0 {
        let Some(found) = input.get(bytes..).and_then(|rest| rest.first_chunk::<4>()) else {
            return Ok(None);
        };
        key = Some(*found);
        bytes += 4;
    }
    Ok(Some(Header {
        opcode,
        last: first & FIN != 0,
        deflated: first & RSV1 != 0,
        key,
        length,
        bytes,
    }))
}

#[inline]
fn first_byte(byte: u8, expectation: Expectation) -> Result<Opcode, Broken> {
    let found = Found::Byte(byte);
    let opcode = Opcode::of(byte & 0x0F);
    // RFC 7692 §6.1: only the first frame of a message says that it is deflated.
    let may_deflate = expectation.deflate && matches!(opcode, Some(Opcode::Message(_)));
    let reserved = byte & 0x70;
    if reserved != 0 && !(may_deflate && reserved == RSV1) {
        return Err((FaultKind::ReservedBits, found));
    }
    let opcode = opcode.ok_or((FaultKind::Opcode, found))?;
    match opcode {
        Opcode::Continuation if !expectation.in_message => Err((FaultKind::ContinuationAlone, found)),
        Opcode::Message(_) if expectation.in_message => Err((FaultKind::MessageInMessage, found)),
        _ if opcode.is_control() && byte & FIN == 0 => Err((FaultKind::ControlFragmented, found)),
        _ => Ok(opcode),
    }
}

#[inline]
fn second_byte(byte: u8, opcode: Opcode, role: Role) -> Result<(), Broken> {
    let found = Found::Byte(byte);
    match (role, byte & MASKED != 0) {
        (Role::Server, false) => return Err((FaultKind::MaskMissing, found)),
        (Role::Client, true) => return Err((FaultKind::MaskForbidden, found)),
        (Role::Server, true) | (Role::Client, false) => {}
    }
    let length = byte & 0x7F;
    if opcode.is_control() && usize::from(length) > CONTROL_BYTES {
        return Err((FaultKind::ControlTooLong, found));
    }
    if opcode == Opcode::Close && length == 1 {
        return Err((FaultKind::CloseLength, found));
    }
    Ok(())
}

/// The length of the payload, and the bytes of the header up to there.
#[inline]
fn length(input: &[u8], short: u8) -> Result<Option<(u64, usize)>, Broken> {
    match short {
        126 => {
            let Some(bytes) = input[2..].first_chunk::<2>() else {
                return Ok(None);
            };
            let length = u64::from(u16::from_be_bytes(*bytes));
            if length < 126 {
                return Err((FaultKind::LengthNotMinimal, Found::Number(length)));
            }
            Ok(Some((length, 4)))
        }
        127 => {
            if let Some(&high) = input.get(2)
                && high & 0x80 != 0
            {
                return Err((FaultKind::LengthHighBit, Found::Byte(high)));
            }
            let Some(bytes) = input[2..].first_chunk::<8>() else {
                return Ok(None);
            };
            let length = u64::from_be_bytes(*bytes);
            if length <= u64::from(u16::MAX) {
                return Err((FaultKind::LengthNotMinimal, Found::Number(length)));
            }
            Ok(Some((length, 10)))
        }
        _ => Ok(Some((u64::from(short), 2))),
    }
}

/// A header to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Written {
    /// `first` is the first byte; the payload has `length` bytes and is masked with `key`.
    pub(super) fn new(first: u8, length: usize, key: Option<[u8; 4]>) -> Self {
        let mut header = Self {
            bytes: [0; LONGEST],
            length: 0,
        };
        let masked = if key.is_some() { MASKED } else { 0 };
        header.push(&[first]);
        match length {
            0..=125 => header.push(&[masked | length as u8]),
            126..=0xFFFF => {
                header.push(&[masked | 126]);
                header.push(&(length as u16).to_be_bytes());
            }
            _ => {
                header.push(&[masked | 127]);
                header.push(&(length as u64).to_be_bytes());
            }
        }
        if let Some(key) = key {
            header.push(&key);
        }
        header
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}
