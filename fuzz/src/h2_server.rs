//! HTTP/2 as a server hears it: whole and cut, with what it holds, and answers that its own client reads.
//!
//! The first byte of an input says limits and how it is answered; the rest is what a client sends behind its preface.

use std::time::Duration;

use ringmain_wire::h1::FieldTable;
use ringmain_wire::h2::{
    Connection, Event, HeadBuffer, Limits, PREFACE, PeerFault, Role, Stream, load_request, store_request,
};

use crate::conversation;

/// Bytes read of an input.
const INPUT_LIMIT: usize = 8192;

/// Bytes that a connection may hold, whatever it is told: two tables, streams, a block that is not whole.
const MEMORY: usize = 64 * 1024;

/// What the first byte says.
#[derive(Clone, Copy, Debug)]
struct Setting {
    limits: Limits,
    /// Answered at once, at its end, or never.
    answers: u8,
}

impl Setting {
    fn of(control: u8) -> Setting {
        let few = control & 4 != 0;
        Setting {
            limits: Limits {
                head_bytes: if few { 600 } else { 16_000 },
                fields: if few { 5 } else { 100 },
                streams: if few { 3 } else { 100 },
                stream_window: if few { 100 } else { 65_535 },
                connect: control & 8 != 0,
                extended_connect: control & 16 != 0,
                ..Limits::INTERNET
            },
            answers: control & 3,
        }
    }
}

/// What was heard, what was written, how it ended.
type Run = (Vec<String>, Vec<u8>, Option<PeerFault>);

/// Laws: no panic; cuts change nothing; memory is bounded; a request's head, stored and loaded, is the same; what is answered,
/// a client of ours reads without fault.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((&control, input)) = input.split_first() else {
        return;
    };
    let setting = Setting::of(control);
    let input = &input[..input.len().min(INPUT_LIMIT)];
    let input = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0][..], input].concat();
    let whole = serve(&setting, &input, &[]);
    let cuts = conversation::cuts(&input);
    assert_eq!(serve(&setting, &input, &cuts), whole, "cut at {cuts:?}");
}

/// Serves `input` cut at `cuts`.
fn serve(setting: &Setting, input: &[u8], cuts: &[usize]) -> Run {
    let mut out = Vec::new();
    let now = Duration::from_secs(1);
    let mut connection = Connection::new(Role::Server, &setting.limits, now, &mut out);
    let mut heads = HeadBuffer::new(&setting.limits);
    let mut heard = Vec::new();
    let (mut buffer, mut from) = (Vec::new(), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        buffer.extend_from_slice(&input[from..cut]);
        from = cut;
        let mut at = 0;
        loop {
            let step = match connection.receive(&buffer[at..], now, &mut heads, &mut out) {
                Ok(step) => step,
                Err(fault) => {
                    check(&connection, &out);
                    return (heard, out, Some(fault));
                }
            };
            at += step.consumed;
            let (text, due) = look(&step.event, setting.answers);
            heard.extend(text);
            let more = !matches!(step.event, Event::NeedMore);
            if let Some(stream) = due {
                answer(&mut connection, stream, &mut out);
            }
            if !more {
                break;
            }
        }
        buffer.drain(..at);
        assert!(connection.memory() < MEMORY, "{} bytes", connection.memory());
    }
    check(&connection, &out);
    (heard, out, None)
}

/// An event as text, and the stream that is to be answered now.
fn look(event: &Event<'_>, answers: u8) -> (Option<String>, Option<Stream>) {
    let (at_once, at_end) = (answers == 0, answers == 1);
    match event {
        Event::NeedMore => (None, None),
        Event::Request { stream, head, end } => {
            let mut stored = Vec::new();
            store_request(head, &mut stored);
            let mut table = FieldTable::new(&ringmain_wire::h1::Limits::INTERNET);
            let loaded = load_request(&stored, &mut table).expect("stored");
            assert_eq!(format!("{loaded:?}"), format!("{head:?}"));
            let due = (at_once || (at_end && *end)).then_some(*stream);
            (Some(format!("{stream:?} {head:?} {end}")), due)
        }
        Event::Data { stream, data, end } => {
            let due = (at_end && *end).then_some(*stream);
            (Some(format!("{stream:?} {} {end}", data.escape_ascii())), due)
        }
        Event::Trailers { stream, fields } => {
            (Some(format!("{stream:?} {fields:?}")), at_end.then_some(*stream))
        }
        Event::TooLarge { stream, .. } => (Some(format!("{stream:?} too large")), Some(*stream)),
        other => (Some(format!("{other:?}")), None),
    }
}

/// As much of an answer as the windows let through; the rest is given up.
fn answer(connection: &mut Connection, stream: Stream, out: &mut Vec<u8>) {
    let Ok(mut head) = connection.respond(stream, 200, out) else {
        return;
    };
    head.field("x-answer", b"yes").expect("a field");
    head.length(300);
    head.finish(false);
    let sent = connection.data(stream, &[b'a'; 300], true, out);
    if sent != Ok(300) {
        connection.reset(stream, ringmain_wire::h2::ErrorCode::CANCEL, out);
    }
}

/// What was written is whole frames.
fn check(connection: &Connection, out: &[u8]) {
    let mut rest = out;
    while !rest.is_empty() {
        let length = usize::from(rest[0]) << 16 | usize::from(rest[1]) << 8 | usize::from(rest[2]);
        rest = rest.get(9 + length..).expect("a whole frame");
    }
    assert!(connection.memory() < MEMORY, "{} bytes", connection.memory());
}
