//! WebSocket frames: ours against itself in pieces, against what it writes, and, without deflate, against tungstenite
//! and fastwebsockets. Where they may differ is listed in `ws_differences`.
//!
//! The first byte of an input says role, extension, limits and sizes; the rest is what the peer sends before it closes.

use std::io::{self, Read, Write};

use ringmain_wire::ws::{
    Decoder, Deflater, Deflation, Encoder, Event, FaultKind, Inflater, Kind, Limits, Mask, Message,
    PeerFault, Role, Window,
};
use tungstenite::protocol::{Role as TheirRole, WebSocket, WebSocketConfig};
use tungstenite::{Error, Message as TheirMessage, error::ProtocolError};

use crate::ws_differences::{Difference, Otherwise, Reader, is_listed};
use crate::{conversation, ws_fast};

/// Bytes read of an input.
const INPUT_LIMIT: usize = 4096;

/// What a whole message or a control frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Message(Kind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
}

/// What the first byte says.
#[derive(Clone, Copy, Debug)]
struct Setting {
    role: Role,
    deflation: Option<Deflation>,
    limits: Limits,
    piece_bytes: usize,
    frame_bytes: usize,
}

impl Setting {
    fn of(control: u8) -> Self {
        // Not below 125: tungstenite's limit is for control frames too.
        let bytes = if control & 8 == 0 { 1 << 20 } else { 128 };
        Self {
            role: if control & 1 == 0 {
                Role::Server
            } else {
                Role::Client
            },
            deflation: match control >> 1 & 3 {
                0 => None,
                1 => Some(Deflation::SHARED),
                _ => Some(Deflation::CONTEXT),
            },
            limits: Limits {
                frame_bytes: bytes,
                message_bytes: bytes,
                control_frames: u32::MAX,
            },
            piece_bytes: [1, 7, 100, 4096][usize::from(control >> 4 & 3)],
            frame_bytes: [usize::MAX, 1, 9, 300][usize::from(control >> 6)],
        }
    }
}

/// Laws: no panic; cuts change nothing; what is handed out stays within the limits; what was read, written again reads
/// the same; tungstenite and fastwebsockets read the same, but for what is listed.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    for difference in differences(input) {
        assert!(is_listed(difference), "{difference:?} is not listed");
    }
}

/// Where the other readers differ from ours about this input, listed or not. Checks the other laws as [`run`] does.
///
/// # Panics
/// When a law is broken, or both take an input and read it differently.
#[must_use]
pub fn differences(input: &[u8]) -> Vec<Difference> {
    let Some((&control, input)) = input.split_first() else {
        return Vec::new();
    };
    let input = &input[..input.len().min(INPUT_LIMIT)];
    let setting = Setting::of(control);
    let (seen, fault) = read(&setting, input, &[]);
    let cuts = conversation::cuts(input);
    assert_eq!(
        read(&setting, input, &cuts),
        (seen.clone(), fault),
        "cut at {cuts:?}"
    );
    write_again(&setting, &seen);
    if setting.deflation.is_some() {
        return Vec::new();
    }
    let fault = fault.map(|fault| fault.kind);
    let is_server = setting.role == Role::Server;
    let limit = setting.limits.message_bytes as usize;
    let theirs = tungstenite(&setting, input);
    let first = compare(Reader::Tungstenite, &theirs, &seen, fault);
    let theirs = ws_fast::read(is_server, limit, input);
    let second = compare(Reader::Fastwebsockets, &theirs, &seen, fault);
    first.into_iter().chain(second).collect()
}

/// Reads `input` cut at `cuts`.
fn read(setting: &Setting, input: &[u8], cuts: &[usize]) -> (Vec<Seen>, Option<PeerFault>) {
    let mut decoder = Decoder::new(setting.role, &setting.limits, setting.deflation);
    let mut inflater = Inflater::new(setting.piece_bytes);
    let (mut seen, mut message) = (Vec::new(), Vec::new());
    let mut buffer = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&input.len()]) {
        buffer.extend_from_slice(&input[from..cut]);
        from = cut;
        loop {
            let step = match decoder.decode(&mut buffer, Some(&mut inflater)) {
                Ok(step) => step,
                Err(fault) => return (seen, Some(fault)),
            };
            let consumed = step.consumed;
            match step.event {
                Event::NeedMore => {
                    buffer.drain(..consumed);
                    break;
                }
                Event::NeedInflater => panic!("there is one"),
                Event::Piece(piece) => {
                    message.extend_from_slice(piece.data);
                    assert!(
                        message.len() as u64 <= setting.limits.message_bytes,
                        "within the limit"
                    );
                    if piece.last {
                        seen.push(Seen::Message(piece.kind, std::mem::take(&mut message)));
                    }
                }
                Event::Ping(data) => seen.push(Seen::Ping(data.to_vec())),
                Event::Pong(data) => seen.push(Seen::Pong(data.to_vec())),
                Event::Close(close) => {
                    let close = close.map(|close| (close.code.number(), close.reason.to_owned()));
                    seen.push(Seen::Close(close));
                }
            }
            buffer.drain(..consumed);
        }
        assert!(buffer.len() <= 131, "{} bytes held", buffer.len());
    }
    (seen, None)
}

/// What was read, sent on by the other role, reads the same.
fn write_again(setting: &Setting, seen: &[Seen]) {
    let role = match setting.role {
        Role::Server => Role::Client,
        Role::Client => Role::Server,
    };
    let mut encoder = Encoder::new(role, setting.deflation, setting.frame_bytes);
    let mut deflater = Deflater::new(Window::MIN, 1);
    let mut out = Vec::new();
    for one in seen {
        let mut key = || [1, 2, 3, 4];
        let mask = match role {
            Role::Server => Mask::None,
            Role::Client => Mask::Keys(&mut key),
        };
        let sent = match one {
            Seen::Message(kind, data) => {
                let message = match kind {
                    Kind::Text => Message::Text(std::str::from_utf8(data).expect("text was checked")),
                    Kind::Binary => Message::Binary(data),
                };
                match setting.deflation {
                    Some(_) => encoder.deflated(&mut out, message, &mut deflater, mask),
                    None => encoder.message(&mut out, message, mask),
                }
            }
            Seen::Ping(data) => encoder.ping(&mut out, data, mask),
            Seen::Pong(data) => encoder.pong(&mut out, data, mask),
            Seen::Close(close) => {
                let close = close.as_ref().map(|(code, reason)| ringmain_wire::ws::Close {
                    code: ringmain_wire::ws::CloseCode::new(*code).expect("it was received"),
                    reason,
                });
                encoder.close(&mut out, close, mask)
            }
        };
        sent.expect("in order");
    }
    let wide = Setting {
        // Deflated, a small message may be larger.
        limits: Limits {
            frame_bytes: u64::MAX,
            ..setting.limits
        },
        ..*setting
    };
    assert_eq!(read(&wide, &out, &[]), (seen.to_vec(), None));
}

/// A peer that has sent all it will, and hears nothing.
struct Sent<'a>(&'a [u8]);

impl Read for Sent<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What tungstenite makes of it, and whether it refused something.
fn tungstenite(setting: &Setting, input: &[u8]) -> (Vec<Seen>, bool) {
    let role = match setting.role {
        Role::Server => TheirRole::Server,
        Role::Client => TheirRole::Client,
    };
    let limit = Some(setting.limits.message_bytes as usize);
    let config = WebSocketConfig::default()
        .read_buffer_size(INPUT_LIMIT)
        .max_frame_size(limit)
        .max_message_size(limit);
    let mut socket = WebSocket::from_raw_socket(Sent(input), role, Some(config));
    let mut seen = Vec::new();
    loop {
        seen.push(match socket.read() {
            Ok(TheirMessage::Text(text)) => Seen::Message(Kind::Text, text.as_bytes().to_vec()),
            Ok(TheirMessage::Binary(data)) => Seen::Message(Kind::Binary, data.to_vec()),
            Ok(TheirMessage::Ping(data)) => Seen::Ping(data.to_vec()),
            Ok(TheirMessage::Pong(data)) => Seen::Pong(data.to_vec()),
            Ok(TheirMessage::Close(close)) => {
                let close = close.map(|close| (u16::from(close.code), close.reason.to_string()));
                seen.push(Seen::Close(close));
                return (seen, false);
            }
            Ok(TheirMessage::Frame(frame)) => panic!("{frame:?} is never read"),
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => return (seen, false),
            Err(_) => return (seen, true),
        });
    }
}

/// How what another made of an input, and whether it refused something, differs from ours. We may know a fault earlier
/// than another, never later.
fn compare(
    reader: Reader,
    (theirs, refused): &(Vec<Seen>, bool),
    ours: &[Seen],
    fault: Option<FaultKind>,
) -> Option<Difference> {
    let close = |seen: &[Seen]| match seen.last() {
        Some(Seen::Close(Some((code, _)))) => Some(*code),
        _ => None,
    };
    let common = ours.len().min(theirs.len());
    if ours[..common] != theirs[..common] {
        // A Close is the last of all.
        let last = common - 1;
        let codes = close(&ours[..common]).zip(close(&theirs[..common]));
        let (code, read) = codes
            .filter(|_| ours[..last] == theirs[..last])
            .unwrap_or_else(|| {
                panic!("{reader} reads {theirs:?}, we read {ours:?}");
            });
        assert_ne!(code, read, "{reader} reads {theirs:?}, we read {ours:?}");
        return Some(Difference::Taken(reader, Otherwise::ReadsCode(code, read)));
    }
    match fault {
        Some(fault) if theirs.len() > ours.len() => Some(Difference::Refused(reader, fault)),
        None if *refused && theirs.len() + 1 == ours.len() && close(ours).is_some() => {
            close(ours).map(|code| Difference::Taken(reader, Otherwise::RefusesCode(code)))
        }
        None => {
            assert_eq!(
                (theirs.len(), *refused),
                (ours.len(), false),
                "{reader} reads {theirs:?}, we read {ours:?}"
            );
            None
        }
        Some(fault) => {
            assert_eq!(
                theirs.len(),
                ours.len(),
                "{reader} refuses {theirs:?} before {fault:?}, we read {ours:?}"
            );
            None
        }
    }
}
