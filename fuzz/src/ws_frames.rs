//! WebSocket frames: ours against itself in pieces, against what it writes, and, without deflate, against tungstenite.
//!
//! The first byte of an input says role, extension, limits and sizes; the rest is what the peer sends before it closes.

use std::io::{self, Read, Write};

use ringmain_wire::ws::{
    Decoder, Deflater, Deflation, Encoder, Event, FaultKind, Inflater, Kind, Limits, Mask, Message,
    PeerFault, Role, Window,
};
use tungstenite::protocol::{Role as TheirRole, WebSocket, WebSocketConfig};
use tungstenite::{Error, Message as TheirMessage, error::ProtocolError};

use crate::conversation;

/// Bytes read of an input.
const INPUT_LIMIT: usize = 4096;

/// What a whole message or a control frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
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
/// the same; tungstenite reads the same of what we take, and takes nothing that we refuse but what is named here.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((&control, input)) = input.split_first() else {
        return;
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
    if setting.deflation.is_none() {
        compare(&setting, input, &seen, fault.map(|fault| fault.kind));
    }
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
fn theirs(setting: &Setting, input: &[u8]) -> (Vec<Seen>, bool) {
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

/// Where tungstenite and ours differ: we know faults earlier; it takes lengths in more bytes than they need; it reads a
/// Close with a code that may not be sent, or with 1014, as one of 1002.
fn compare(setting: &Setting, input: &[u8], ours: &[Seen], fault: Option<FaultKind>) {
    let (theirs, refused) = theirs(setting, input);
    for pair in ours.iter().zip(&theirs) {
        match pair {
            (Seen::Close(Some((1014, _))), Seen::Close(Some((1002, _)))) => {}
            (ours, theirs) => assert_eq!(ours, theirs, "tungstenite"),
        }
    }
    match fault {
        None => assert_eq!(
            (theirs.len(), refused),
            (ours.len(), false),
            "{theirs:?}: tungstenite refuses"
        ),
        // A control frame's length has no longer form.
        Some(FaultKind::LengthNotMinimal | FaultKind::ControlTooLong) => {}
        Some(FaultKind::CloseCode) => assert!(theirs.len() <= ours.len() + 1, "{theirs:?}"),
        Some(fault) => assert_eq!(
            theirs.len(),
            ours.len(),
            "{fault:?}: tungstenite takes it: {theirs:?}"
        ),
    }
}
