//! gRPC's bodies and fields. The first byte of an input says what the rest is, the second how it is cut.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringmain_wire::grpc::{
    Code, ContentType, Decoder, Deflater, Encoding, Event, Frame, Inflater, Limits, PeerFault, TextDecoder,
    WebTrailers, binary_values, decode_message, encode_message, encode_text, parse_timeout, write_binary,
    write_timeout,
};

const LIMITS: Limits = Limits {
    message_bytes: 1000,
    trailer_bytes: 100,
};

/// Bytes of an inflated message.
const INFLATED: usize = 10_000;

/// Laws: no panic; no cut of a body changes what is seen in it; no frame is longer than its limit; text reads as another reader of
/// base64 has it; an inflated message keeps its limit and is the same after another round; what is read from a field reads as the
/// same when it is written.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let [kind, cut, rest @ ..] = input else {
        return;
    };
    let cut = usize::from(*cut) + 1;
    match kind % 6 {
        0 => messages(&Decoder::new(&LIMITS), rest, cut),
        1 => messages(&Decoder::with_trailers(&LIMITS), rest, cut),
        2 => text(rest, cut),
        3 => inflated(Encoding::Gzip, rest),
        4 => inflated(Encoding::Deflate, rest),
        _ => fields(rest),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Frame(Frame, Vec<u8>),
    Fault(PeerFault),
}

fn messages(decoder: &Decoder, body: &[u8], cut: usize) {
    let whole = read(*decoder, &mut [body].into_iter());
    assert_eq!(read(*decoder, &mut body.chunks(cut)), whole);
    for seen in whole {
        match seen {
            Seen::Frame(Frame::Message { .. }, payload) => {
                assert!(payload.len() <= LIMITS.message_bytes as usize);
            }
            Seen::Frame(Frame::Trailers, payload) => {
                assert!(payload.len() <= LIMITS.trailer_bytes as usize);
                trailers(&payload);
            }
            Seen::Fault(fault) => assert!(fault.at <= body.len() as u64 && fault.code() != Code::Ok),
        }
    }
}

fn read(mut decoder: Decoder, pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<Seen> {
    let (mut seen, mut payload, mut frame) = (Vec::new(), Vec::new(), None);
    for piece in pieces {
        let mut rest = piece;
        loop {
            let step = match decoder.decode(rest) {
                Ok(step) => step,
                Err(fault) => {
                    seen.push(Seen::Fault(fault));
                    return seen;
                }
            };
            rest = &rest[step.consumed..];
            match step.event {
                Event::Begin { frame: begun, .. } => frame = Some(begun),
                Event::Data(data) => payload.extend_from_slice(data),
                Event::End => {
                    let frame = frame.take().expect("it has begun");
                    seen.push(Seen::Frame(frame, std::mem::take(&mut payload)));
                }
                Event::NeedMore => break,
            }
        }
        assert!(rest.is_empty(), "all of it is done with");
    }
    if let Err(fault) = decoder.end_of_input() {
        seen.push(Seen::Fault(fault));
    }
    seen
}

/// Lines that are taken part at CRLF and the first colon, and at nothing else.
fn trailers(payload: &[u8]) {
    let Ok(trailers) = WebTrailers::parse(payload) else {
        return;
    };
    let text = String::from_utf8_lossy(payload);
    let lines: Vec<_> = text.split_terminator("\r\n").collect();
    assert_eq!(trailers.iter().count(), lines.len());
    for (field, line) in trailers.iter().zip(lines) {
        let (name, value) = line.split_once(':').expect("a name and a value");
        assert_eq!(String::from_utf8_lossy(field.name), name);
        assert_eq!(
            String::from_utf8_lossy(field.value),
            value.trim_matches([' ', '\t'])
        );
    }
}

fn text(text: &[u8], cut: usize) {
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    let outcome = decode([text].into_iter(), &mut whole);
    assert_eq!(decode(text.chunks(cut), &mut pieces), outcome);
    assert_eq!(pieces, whole);
    // Group by group, by a reader that knows whole texts alone.
    let groups = text.chunks(4).map(|group| {
        let whole = Some(group).filter(|group| group.len() == 4);
        whole.and_then(|group| STANDARD.decode(group).ok())
    });
    let good: Vec<_> = groups.map_while(|group| group).collect();
    assert_eq!(good.concat(), whole);
    assert_eq!(outcome.is_ok(), good.len() * 4 == text.len());
    let mut again = Vec::new();
    encode_text(&mut again, &whole);
    let mut back = Vec::new();
    assert_eq!(decode([&again[..]].into_iter(), &mut back), Ok(()));
    assert_eq!(back, whole);
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> Result<(), PeerFault> {
    let mut decoder = TextDecoder::new();
    for piece in pieces {
        decoder.decode(piece, out)?;
    }
    decoder.end_of_input()
}

fn inflated(encoding: Encoding, message: &[u8]) {
    let mut out = b"x".to_vec();
    let outcome = Inflater::new().inflate(encoding, message, INFLATED, &mut out);
    if let Err(fault) = outcome {
        assert!(fault.at <= message.len() as u64);
        assert_eq!(out, b"x", "nothing of a broken message");
        return;
    }
    assert!(out.len() <= INFLATED + 1);
    let mut again = Vec::new();
    Deflater::new(1).deflate(encoding, &out[1..], &mut again);
    let mut back = Vec::new();
    let done = Inflater::new().inflate(encoding, &again, out.len() - 1, &mut back);
    assert_eq!(done, Ok(()));
    assert_eq!(back, out[1..]);
}

fn fields(value: &[u8]) {
    if let Some(timeout) = parse_timeout(value) {
        let mut text = String::new();
        write_timeout(&mut text, timeout);
        assert_eq!(parse_timeout(text.as_bytes()), Some(timeout), "{text}");
    }
    let message = decode_message(value);
    let mut text = String::new();
    encode_message(&mut text, &message);
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
    assert_eq!(decode_message(text.as_bytes()), message);
    assert_eq!(text.trim(), text);
    for bytes in binary_values(value).flatten() {
        let mut text = String::new();
        write_binary(&mut text, &bytes);
        assert_eq!(binary_values(text.as_bytes()).next(), Some(Some(bytes)));
    }
    if let Some(content) = ContentType::parse(value) {
        let answer = ContentType::parse(content.of_answer().as_bytes()).expect("gRPC");
        assert_eq!(answer.dialect, content.dialect);
    }
    let code = Code::parse(value);
    assert_eq!(Code::parse(code.number().to_string().as_bytes()), code);
}
