//! What a NATS says: the consumers' decoder against a second reader, which has all of it at once.
//!
//! The first byte of an input is what a payload may have, the next two say where the rest, which is what a server sends, is cut.

use ringmain_control::nats::protocol::{Decoder, LINE_BYTES, ProtocolError, SUBJECT_BYTES, ServerEvent};

/// What was said, kept.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Info(Vec<u8>),
    Message(String, u64, Vec<u8>),
    TooLarge(String, u64, usize),
    Word(&'static str),
    Error(String),
}

/// What came of all of it.
type Outcome = (Vec<Said>, Option<ProtocolError>);

/// Laws: no panic; any cut gives the outcome of the whole, and so does one byte at a time; what is held is never more than a line
/// and a payload; the outcome is what the second reader finds.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some(([most, high, low], bytes)) = input.split_first_chunk::<3>() else {
        return;
    };
    let most = usize::from(*most);
    let cut = usize::from(u16::from_be_bytes([*high, *low])) % (bytes.len() + 1);
    let whole = read(most, [bytes]);
    let (one, two) = bytes.split_at(cut);
    assert_eq!(read(most, [one, two]), whole, "cut at {cut}");
    // Each piece is looked at together with what is held: a long input would take the square of its length.
    let step = 1 + bytes.len() / 4096;
    assert_eq!(read(most, bytes.chunks(step)), whole, "{step} at a time");
    assert_eq!(naive(most, bytes), whole, "the second reader");
}

fn read<'b>(most: usize, pieces: impl IntoIterator<Item = &'b [u8]>) -> Outcome {
    let mut decoder = Decoder::new(most);
    let (mut held, mut said) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            match decoder.decode(&held) {
                Err(fault) => return (said, Some(fault)),
                Ok((used, event)) => {
                    let is_over = event.is_none();
                    said.extend(event.map(keep));
                    held.drain(..used);
                    if is_over {
                        break;
                    }
                }
            }
        }
        assert!(held.len() < LINE_BYTES + most + 2, "{} are held", held.len());
    }
    (said, None)
}

fn keep(event: ServerEvent<'_>) -> Said {
    match event {
        ServerEvent::Info(json) => Said::Info(json.to_vec()),
        ServerEvent::Message {
            subject,
            subscription,
            payload,
        } => Said::Message(subject.to_owned(), subscription, payload.to_vec()),
        ServerEvent::TooLarge {
            subject,
            subscription,
            bytes,
        } => Said::TooLarge(subject.to_owned(), subscription, bytes),
        ServerEvent::Ping => Said::Word("ping"),
        ServerEvent::Pong => Said::Word("pong"),
        ServerEvent::Ok => Said::Word("+ok"),
        ServerEvent::Error(why) => Said::Error(why.to_owned()),
    }
}

/// Reads what is there from the front to the end, line by line.
fn naive(most: usize, mut bytes: &[u8]) -> Outcome {
    let mut said = Vec::new();
    loop {
        match first(most, bytes) {
            Ok(None) => return (said, None),
            Err(fault) => return (said, Some(fault)),
            Ok(Some((one, rest))) => {
                said.push(one);
                bytes = rest;
            }
        }
    }
}

/// The first that is said, and what is behind it.
fn first(most: usize, bytes: &[u8]) -> Result<Option<(Said, &[u8])>, ProtocolError> {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let (line, rest) = (lines.next().unwrap_or_default(), lines.next());
    if line.len() >= LINE_BYTES {
        return Err(ProtocolError::LongLine);
    }
    let Some(rest) = rest else {
        return Ok(None);
    };
    let line = line.strip_suffix(b"\r").ok_or(ProtocolError::LineEnd)?;
    let mut halves = line.splitn(2, |byte| b" \t".contains(byte));
    let word = halves.next().unwrap_or_default().to_ascii_lowercase();
    let said = halves.next().unwrap_or_default().trim_ascii();
    let one = match &*word {
        b"ping" => Said::Word("ping"),
        b"pong" => Said::Word("pong"),
        b"+ok" => Said::Word("+ok"),
        b"info" => Said::Info(said.to_vec()),
        b"-err" => {
            let why = String::from_utf8(said.to_vec()).map_err(|_| ProtocolError::Unknown)?;
            Said::Error(why.trim_matches('\'').to_owned())
        }
        b"msg" => return message(most, said, rest),
        _ => return Err(ProtocolError::Unknown),
    };
    Ok(Some((one, rest)))
}

fn message<'b>(most: usize, said: &[u8], rest: &'b [u8]) -> Result<Option<(Said, &'b [u8])>, ProtocolError> {
    let text = String::from_utf8(said.to_vec()).map_err(|_| ProtocolError::Message)?;
    let parts: Vec<&str> = text.split([' ', '\t']).filter(|part| !part.is_empty()).collect();
    let (subject, subscription, bytes) = match parts[..] {
        [subject, subscription, bytes] | [subject, subscription, _, bytes] => (subject, subscription, bytes),
        _ => return Err(ProtocolError::Message),
    };
    let number = |text: &str| {
        let digits = text.chars().all(|c| c.is_ascii_digit());
        text.parse::<u64>()
            .ok()
            .filter(|_| digits)
            .ok_or(ProtocolError::Message)
    };
    let (subscription, bytes) = (number(subscription)?, number(bytes)?);
    if subject.len() > SUBJECT_BYTES || bytes > (usize::MAX - 2) as u64 {
        return Err(ProtocolError::Message);
    }
    let (subject, bytes) = (subject.to_owned(), bytes as usize);
    if bytes > most {
        let behind = rest.get(bytes + 2..).unwrap_or_default();
        return Ok(Some((Said::TooLarge(subject, subscription, bytes), behind)));
    }
    let Some(end) = rest.get(bytes..bytes + 2) else {
        return Ok(None);
    };
    match end {
        b"\r\n" => Ok(Some((
            Said::Message(subject, subscription, rest[..bytes].to_vec()),
            &rest[bytes + 2..],
        ))),
        _ => Err(ProtocolError::PayloadEnd),
    }
}
