//! What the tests of the WebSocket codec share: one side of a connection read into comparable events, frames by hand,
//! and a seeded generator. Knows no rule.

pub(crate) use crate::shared_rng::Rng;
use ringmain_wire::ws::{
    Decoder, Deflation, Event as Decoded, FaultKind, Inflater, Kind, Limits, PeerFault, Piece, Role,
};

/// What a reader of a connection sees, with neighbouring pieces merged: cuts must not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Bytes of a message, and whether it ends with them.
    Data(Kind, Vec<u8>, bool),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<(u16, String)>),
    Fault(PeerFault),
}

/// A whole text.
pub(crate) fn text(text: &str) -> Event {
    Event::Data(Kind::Text, text.into(), true)
}

/// A whole binary message.
pub(crate) fn binary(data: &[u8]) -> Event {
    Event::Data(Kind::Binary, data.to_vec(), true)
}

/// Which connection is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) deflation: Option<Deflation>,
    /// Size of the inflater's pieces.
    pub(crate) piece_bytes: usize,
}

impl Setting {
    pub(crate) const SERVER: Self = Self {
        role: Role::Server,
        limits: Limits::INTERNET,
        deflation: None,
        piece_bytes: 4096,
    };
    pub(crate) const CLIENT: Self = Self {
        role: Role::Client,
        ..Self::SERVER
    };
    pub(crate) const DEFLATE: Self = Self {
        deflation: Some(Deflation::SHARED),
        ..Self::CLIENT
    };
    pub(crate) const CONTEXT: Self = Self {
        deflation: Some(Deflation::CONTEXT),
        ..Self::CLIENT
    };
}

/// A connection being read: what its owner must keep between two receipts.
pub(crate) struct Reader {
    pub(crate) decoder: Decoder,
    setting: Setting,
    inflater: Option<Inflater>,
    buffer: Vec<u8>,
    events: Vec<Event>,
    /// The message under way.
    message: Option<(Kind, Vec<u8>)>,
    dead: bool,
}

impl Reader {
    pub(crate) fn new(setting: &Setting) -> Self {
        Self {
            decoder: Decoder::new(setting.role, &setting.limits, setting.deflation),
            setting: *setting,
            inflater: None,
            buffer: Vec::new(),
            events: Vec::new(),
            message: None,
            dead: false,
        }
    }

    /// Takes one receipt.
    pub(crate) fn feed(&mut self, receipt: &[u8]) {
        self.buffer.extend_from_slice(receipt);
        while !self.dead && self.step() {}
        // As an owner of many connections keeps it.
        if let Some(resting) = self.decoder.rest() {
            let setting = &self.setting;
            self.decoder = resting.wake(setting.role, &setting.limits, setting.deflation);
        }
        assert!(
            self.dead || self.buffer.len() <= 131,
            "{} bytes held",
            self.buffer.len()
        );
    }

    /// What was read since the last call.
    pub(crate) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What was read, without a message that a fault cut short.
    pub(crate) fn finish(mut self) -> Vec<Event> {
        if let [.., Event::Data(_, _, false), Event::Fault(_)] = self.events[..] {
            self.events.remove(self.events.len() - 2);
        }
        self.events
    }

    /// Whether to go on.
    fn step(&mut self) -> bool {
        let decoded = self.decoder.decode(&mut self.buffer, self.inflater.as_mut());
        let step = match decoded {
            Ok(step) => step,
            Err(fault) => {
                self.dead = true;
                self.events.push(Event::Fault(fault));
                assert_eq!(
                    self.decoder.decode(&mut [], None),
                    Err(fault),
                    "a fault is for ever"
                );
                return false;
            }
        };
        let (consumed, mut goes_on, mut lends) = (step.consumed, true, false);
        match step.event {
            Decoded::NeedMore => goes_on = false,
            Decoded::NeedInflater => lends = true,
            Decoded::Piece(piece) => note(&mut self.message, &mut self.events, piece),
            Decoded::Ping(data) => self.events.push(Event::Ping(data.to_vec())),
            Decoded::Pong(data) => self.events.push(Event::Pong(data.to_vec())),
            Decoded::Close(close) => {
                let close = close.map(|close| (close.code.number(), close.reason.to_owned()));
                self.events.push(Event::Close(close));
            }
        }
        if lends {
            assert!(self.inflater.is_none(), "there is one");
            self.inflater = Some(Inflater::new(self.setting.piece_bytes));
        } else if !self.decoder.keeps_inflater() {
            self.inflater = None;
        }
        self.buffer.drain(..consumed);
        goes_on
    }
}

/// Merges `piece` with what stands before it.
fn note(message: &mut Option<(Kind, Vec<u8>)>, events: &mut Vec<Event>, piece: Piece<'_>) {
    assert_eq!(piece.first, message.is_none(), "a message begins once");
    assert!(!piece.data.is_empty() || piece.last, "pieces bring something");
    if let Some(text) = piece.text {
        assert_eq!((text.as_bytes(), piece.kind), (piece.data, Kind::Text));
    }
    let (kind, whole) = message.get_or_insert_with(|| (piece.kind, Vec::new()));
    assert_eq!(*kind, piece.kind);
    whole.extend_from_slice(piece.data);
    if piece.last {
        let is_text = piece.kind == Kind::Text;
        assert!(
            !is_text || std::str::from_utf8(whole).is_ok(),
            "{whole:?} is text"
        );
        assert!(
            !(is_text && piece.first) || piece.text.is_some(),
            "whole text is text"
        );
        *message = None;
    }
    if let Some(Event::Data(_, data, last @ false)) = events.last_mut() {
        data.extend_from_slice(piece.data);
        *last = piece.last;
        return;
    }
    events.push(Event::Data(piece.kind, piece.data.to_vec(), piece.last));
}

/// All events of `input` cut at `cuts` (rising).
pub(crate) fn events(setting: &Setting, input: &[u8], cuts: &[usize]) -> Vec<Event> {
    let mut reader = Reader::new(setting);
    let mut from = 0;
    for &cut in cuts.iter().chain([&input.len()]) {
        reader.feed(&input[from..cut]);
        from = cut;
    }
    reader.finish()
}

/// The fault that `input` ends in.
pub(crate) fn fault(setting: &Setting, input: &[u8]) -> Option<FaultKind> {
    match events(setting, input, &[]).last() {
        Some(Event::Fault(fault)) => Some(fault.kind),
        _ => None,
    }
}

/// `input` is taken without a fault, as these events.
pub(crate) fn takes(setting: &Setting, input: &[u8], expected: &[Event]) {
    let found = events(setting, input, &[]);
    assert_eq!(found, expected, "`{}`", input.escape_ascii());
}

/// `input` ends in that fault.
pub(crate) fn refuses(setting: &Setting, input: &[u8], kind: FaultKind) {
    let found = events(setting, input, &[]);
    assert_eq!(
        fault(setting, input),
        Some(kind),
        "`{}`: {found:?}",
        input.escape_ascii()
    );
}

pub(crate) const FIN: u8 = 0x80;
pub(crate) const RSV1: u8 = 0x40;
pub(crate) const MORE: u8 = 0x00;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8A;

/// A frame without a mask, as servers send it, with the shortest length.
pub(crate) fn plain(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(length as u8),
        length @ 126..=0xFFFF => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

pub(crate) const KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// The same as clients send it.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = plain(first, payload);
    let start = frame.len() - payload.len();
    frame[1] |= 0x80;
    for (byte, key) in frame[start..].iter_mut().zip(KEY.iter().cycle()) {
        *byte ^= key;
    }
    frame.splice(start..start, KEY);
    frame
}

/// Frames in a row, as `role`'s peer sends them.
pub(crate) fn frames(role: Role, frames: &[(u8, &[u8])]) -> Vec<u8> {
    let one = match role {
        Role::Server => masked,
        Role::Client => plain,
    };
    frames
        .iter()
        .flat_map(|(first, payload)| one(*first, payload))
        .collect()
}

/// What WebSocket is tested with.
impl Rng {
    pub(crate) fn key(&mut self) -> [u8; 4] {
        (self.next() as u32).to_ne_bytes()
    }

    /// Text of up to `length` characters of one to four bytes.
    pub(crate) fn text(&mut self, length: usize) -> String {
        let count = self.below(length + 1);
        (0..count)
            .map(|_| ['a', ' ', 'ß', '€', '\u{1F600}', '\0'][self.below(6)])
            .collect()
    }

    /// Up to `length` bytes, of which many repeat.
    pub(crate) fn data(&mut self, length: usize) -> Vec<u8> {
        let count = self.below(length + 1);
        let spread = 1 + self.below(256);
        (0..count).map(|_| self.below(spread) as u8).collect()
    }
}
