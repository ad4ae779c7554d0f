//! Messages out and back in: the input is a program that writes one message with whatever names, values, lengths
//! and framings it says.
//!
//! Not a law: an `Expect` that servers refuse may be written, since an expectation is the caller's to have.

use ringmain_wire::h1::{
    AnswerTo, BodyDecoder, BodyEncoder, BodyEvent, Exchange, FaultKind, FieldBlock, FieldTable, Fields,
    Framing, HeadScanner, Known, LengthSlot, Limits, Method, Misuse, Parsed, RequestEncoder, ResponseEncoder,
    Version, parse_request, parse_response,
};

/// Bytes read of an input: what they say stays below every limit.
const INPUT_LIMIT: usize = 4096;

/// What stands in the buffer before the message.
const BEFORE: &[u8] = b"before";

const LIMITS: Limits = Limits {
    connect: true,
    ..Limits::INTERNET
};

/// A name and a value.
type Field = (String, Vec<u8>);

/// Laws: no panic; what is refused leaves the buffer as it was; what is accepted parses back to the same message,
/// all of it; a body that ended early reads as cut off.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let mut script = Script(&input[..input.len().min(INPUT_LIMIT)]);
    let message = Message::of(&mut script);
    let mut out = BEFORE.to_vec();
    let written = if script.byte().is_multiple_of(2) {
        request(&mut script, &message, &mut out)
    } else {
        response(&mut script, &message, &mut out)
    };
    if written.is_none() {
        assert_eq!(out, BEFORE, "what is refused leaves the buffer as it was");
    }
}

/// Bytes read as decisions.
struct Script<'i>(&'i [u8]);

impl<'i> Script<'i> {
    /// Zero once the input is over.
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// A length below 64, then as many bytes as there are.
    fn bytes(&mut self) -> &'i [u8] {
        let length = usize::from(self.byte() % 64).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// One of `usual`, or a text of the script's own.
    fn one_of(&mut self, usual: &[&str]) -> String {
        match usual.get(usize::from(self.byte())) {
            Some(usual) => (*usual).to_owned(),
            None => self.text(),
        }
    }

    /// One byte of mantissa, one of magnitude: any length.
    fn number(&mut self) -> u64 {
        let mantissa = u64::from(self.byte());
        let shift = u32::from(self.byte() % 64);
        (mantissa << shift).wrapping_sub(u64::from(shift % 2))
    }
}

/// What is to be written after the start line.
struct Message {
    fields: Vec<Field>,
    pieces: Vec<Vec<u8>>,
    framing: Framing,
    /// Only if the body is to end with them.
    trailers: Option<FieldBlock>,
    trailer_fields: Vec<Field>,
}

impl Message {
    fn of(script: &mut Script<'_>) -> Self {
        let list = |script: &mut Script<'_>| -> Vec<Field> {
            (0..script.byte() % 16)
                .map(|_| (script.one_of(NAMES), script.bytes().to_vec()))
                .collect()
        };
        let fields = list(script);
        let pieces: Vec<Vec<u8>> = (0..script.byte() % 8).map(|_| script.bytes().to_vec()).collect();
        let whole = pieces.iter().map(Vec::len).sum::<usize>() as u64;
        let framing = match script.byte() % 5 {
            0 => Framing::None,
            1 => Framing::Length(whole),
            2 => Framing::Length(script.number()),
            3 => Framing::Chunked,
            _ => Framing::UntilClose,
        };
        let mut trailer_fields = Vec::new();
        let trailers = (script.byte() % 2 == 1).then(|| {
            let (block, accepted) = block(&list(script));
            trailer_fields = accepted;
            block
        });
        Self {
            fields,
            pieces,
            framing,
            trailers,
            trailer_fields,
        }
    }
}

/// Names worth a byte.
const NAMES: &[&str] = &[
    "X",
    "Host",
    "Content-Length",
    "transfer-encoding",
    "Connection",
    "Upgrade",
    "Transfer_Encoding",
    "Content.Length",
    "Expect",
    "Trailer",
    "Date",
];

/// The fields that a block accepts.
fn block(fields: &[Field]) -> (FieldBlock, Vec<Field>) {
    let mut block = FieldBlock::new();
    let mut accepted = Vec::new();
    for (name, value) in fields {
        let before = block.clone();
        let result = block.push(name, value);
        assert_eq!(result, expected(name, value), "`{name}`: {value:?}");
        match result {
            Ok(()) => accepted.push((name.clone(), trimmed(value))),
            Err(_) => assert_eq!(block, before, "what is refused leaves the block as it was"),
        }
    }
    (block, accepted)
}

/// What an encoder must say to a field, by a naive reading of the rules.
fn expected(name: &str, value: &[u8]) -> Result<(), Misuse> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(Misuse::FieldName);
    }
    if value
        .iter()
        .any(|&byte| byte == 0x7F || byte < b' ' && byte != b'\t')
    {
        return Err(Misuse::FieldValue);
    }
    let lower = name.to_ascii_lowercase();
    let hyphens = lower.replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    let framing = ["connection", "host", "upgrade"].contains(&lower.as_str());
    if framing || ["content-length", "transfer-encoding"].contains(&hyphens.as_str()) {
        return Err(Misuse::FramingField);
    }
    Ok(())
}

/// Blanks around a value are no part of it (RFC 9110 §5.5).
fn trimmed(value: &[u8]) -> Vec<u8> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = value.iter().position(|byte| !is_blank(byte));
    let to = value.iter().rposition(|byte| !is_blank(byte));
    from.zip(to)
        .map_or_else(Vec::new, |(from, to)| value[from..=to].to_vec())
}

/// Writes fields by the two ways there are; returns those that were accepted.
fn write_fields(
    fields: &[Field],
    mut write: impl FnMut(Result<(&str, &[u8]), &FieldBlock>) -> Result<(), Misuse>,
) -> Vec<Field> {
    let (ready, rest) = fields.split_at(fields.len() / 2);
    let (block, mut accepted) = block(ready);
    write(Err(&block)).expect("a block was checked before");
    for (name, value) in rest {
        let result = write(Ok((name, value)));
        assert_eq!(result, expected(name, value), "`{name}`: {value:?}");
        if result.is_ok() {
            accepted.push((name.clone(), trimmed(value)));
        }
    }
    accepted
}

/// `None` if it was refused.
fn request(script: &mut Script<'_>, message: &Message, out: &mut Vec<u8>) -> Option<()> {
    let method = script.one_of(&["GET", "POST", "CONNECT", "OPTIONS", "HEAD"]);
    // Also a name of its own by the way that is for others.
    let method = if script.byte().is_multiple_of(2) {
        Method::new(&method)
    } else {
        Method::Other(&method)
    };
    let target = script.one_of(&["/", "*", "a:443", "http://b/c?d", "/e?f"]);
    let host = script.one_of(&["a", "a:1", "[::1]:80"]);
    let keep_alive = script.byte().is_multiple_of(2);
    let protocol = (script.byte() % 4 == 1).then(|| script.bytes());

    let mut head = RequestEncoder::new(out, method, &target, &host).ok()?;
    let fields = write_fields(&message.fields, |field| match field {
        Ok((name, value)) => head.field(name, value),
        Err(block) => {
            head.block(block);
            Ok(())
        }
    });
    let body = match protocol {
        None => head.finish(message.framing, keep_alive),
        Some(protocol) => head.finish_with_upgrade(message.framing, protocol),
    };
    let (data, whole) = write_body(body.ok()?, message, out, false);

    let input = &out[BEFORE.len()..];
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(&LIMITS));
    let head = match parse_request(input, &LIMITS, &mut scanner, &mut table) {
        Ok(Parsed::Complete { head, bytes }) => {
            check_body(&input[bytes..], head.framing, &data, whole, message);
            head
        }
        Err(fault) if fault.kind == FaultKind::Expectation => {
            let expect = |(name, _): &Field| name.eq_ignore_ascii_case("expect");
            assert!(fields.iter().any(expect), "only what was written is refused");
            return Some(());
        }
        other => panic!("`{}` was accepted: {other:?}", input.escape_ascii()),
    };
    assert_eq!(head.method.as_str(), method.as_str());
    assert_eq!(head.target_text, target);
    assert_eq!(head.fields.known(Known::Host), Some(host.as_bytes()));
    assert_eq!(head.framing, message.framing);
    assert_eq!(head.keep_alive, keep_alive || protocol.is_some());
    assert_eq!(head.upgrade.map(<[u8]>::to_vec), protocol.map(trimmed));
    check_fields(&head.fields, 1, &fields);
    Some(())
}

/// `None` if it was refused or rolled back.
fn response(script: &mut Script<'_>, message: &Message, out: &mut Vec<u8>) -> Option<()> {
    let status = match script.byte() {
        byte @ 0..=127 => [200, 204, 304, 100, 101, 103, 205, 999][usize::from(byte % 8)],
        byte => u16::from(byte % 8) << 8 | u16::from(script.byte()),
    };
    let choices = script.byte();
    let (asked, exchange) = exchange(choices);
    let end = script.byte() % 8;
    let protocol = script.bytes();

    let mut head = ResponseEncoder::new(out, status, exchange).ok()?;
    let fields = write_fields(&message.fields, |field| match field {
        Ok((name, value)) => head.field(name, value),
        Err(block) => {
            head.block(block);
            Ok(())
        }
    });
    let undeclared = asked == Method::Head || status == 304;
    // RFC 9110 §15.3.6: a 205 declares a length of 0, whatever is written.
    let silent = undeclared || status == 205;
    let (data, whole, framing) = match end {
        0 => {
            head.switch(protocol).ok()?;
            (Vec::new(), true, Framing::None)
        }
        1 | 2 => {
            let slot = head.finish_with_length_to_come().ok()?;
            let (data, framing) = fill(slot, message, out, end == 1)?;
            (if silent { Vec::new() } else { data }, true, framing)
        }
        _ => {
            let body = head.finish(message.framing).ok()?;
            let (data, whole) = write_body(body, message, out, silent);
            (data, whole, message.framing)
        }
    };

    let input = &out[BEFORE.len()..];
    let (mut scanner, mut table) = (HeadScanner::new(), FieldTable::new(&LIMITS));
    let parsed = parse_response(input, asked, &LIMITS, &mut scanner, &mut table);
    let Ok(Parsed::Complete { head, bytes }) = parsed else {
        panic!("`{}` was accepted: {parsed:?}", input.escape_ascii());
    };
    check_body(&input[bytes..], head.framing, &data, whole, message);
    assert_eq!(head.status, status);
    let tunnel = asked == Method::Connect && matches!(status, 200..=299);
    assert_eq!(head.switches, status == 101 || tunnel);
    let expected = match framing {
        _ if undeclared || status < 200 || status == 204 || tunnel => Framing::None,
        _ if status == 205 => Framing::Length(0),
        Framing::None => Framing::Length(0),
        framing => framing,
    };
    assert_eq!(head.framing, expected);
    if status >= 200 && !tunnel {
        let lasts = exchange.keep_alive && framing != Framing::UntilClose;
        assert_eq!(head.keep_alive, lasts, "`{}`", input.escape_ascii());
    }
    check_fields(&head.fields, 0, &fields);
    Some(())
}

/// The request that is answered.
fn exchange(choices: u8) -> (Method<'static>, Exchange) {
    let (asked, method) = [
        (Method::Get, AnswerTo::Other),
        (Method::Head, AnswerTo::Head),
        (Method::Connect, AnswerTo::Connect),
    ][usize::from(choices % 3)];
    let exchange = Exchange {
        version: if choices & 4 == 0 {
            Version::Http11
        } else {
            Version::Http10
        },
        keep_alive: choices & 8 == 0,
        method,
    };
    (asked, exchange)
}

/// The body behind a length to come, and that length; `None` if it is rolled back.
fn fill(
    slot: LengthSlot,
    message: &Message,
    out: &mut Vec<u8>,
    rolls_back: bool,
) -> Option<(Vec<u8>, Framing)> {
    let data = message.pieces.concat();
    out.extend_from_slice(&data);
    if rolls_back {
        slot.roll_back(out);
        return None;
    }
    slot.fill(out);
    let framing = Framing::Length(data.len() as u64);
    Some((data, framing))
}

/// The data that was accepted and sent, and whether the body ended as it was declared.
fn write_body(mut body: BodyEncoder, message: &Message, out: &mut Vec<u8>, silent: bool) -> (Vec<u8>, bool) {
    assert_eq!(body.is_silent(), silent);
    let mut data = Vec::new();
    for piece in &message.pieces {
        let before = out.len();
        match body.data(out, piece) {
            Ok(()) if silent => assert_eq!(out.len(), before, "a silent body writes nothing"),
            Ok(()) => data.extend_from_slice(piece),
            Err(_) => assert_eq!(out.len(), before, "what is refused writes nothing"),
        }
    }
    let before = out.len();
    let ended = match &message.trailers {
        Some(trailers) => match body.finish_with_trailers(out, trailers) {
            Err(Misuse::TrailersWithoutChunks) => body.finish(out),
            ended => ended,
        },
        None => body.finish(out),
    };
    if ended.is_err() {
        assert_eq!(out.len(), before, "what is refused writes nothing");
    } else {
        assert_eq!(body.finish(out), Err(Misuse::BodyOver), "a body ends once");
    }
    (data, ended.is_ok())
}

/// `input` is all that was written after the head.
fn check_body(input: &[u8], framing: Framing, data: &[u8], whole: bool, message: &Message) {
    let mut decoder = BodyDecoder::new(framing, &LIMITS).expect("no limit of bytes");
    let (mut at, mut seen, mut trailers) = (0, Vec::new(), Vec::new());
    loop {
        let step = decoder
            .decode(&input[at..])
            .expect("what was accepted is no fault");
        at += step.consumed;
        match step.event {
            BodyEvent::Data(data) => seen.extend_from_slice(data),
            BodyEvent::Trailers(fields) => {
                let owned = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                trailers.extend(
                    fields
                        .iter()
                        .map(|field| (owned(field.name), field.value.to_vec())),
                );
            }
            BodyEvent::NeedMore | BodyEvent::End => break,
        }
    }
    assert_eq!(seen, data, "the same body");
    assert_eq!(at, input.len(), "nothing behind the body");
    assert_eq!(
        decoder.end_of_input().is_ok(),
        whole,
        "whole or cut off, as it was written"
    );
    if framing == Framing::Chunked {
        let expected = if message.trailers.is_some() {
            &message.trailer_fields[..]
        } else {
            &[]
        };
        assert_eq!(trailers, expected, "the same trailers");
    }
}

/// `expected` stand in `fields` after `skip` others; the encoder's own follow.
fn check_fields(fields: &Fields<'_>, skip: usize, expected: &[Field]) {
    let mut seen = fields.iter().skip(skip);
    for (name, value) in expected {
        let field = seen.next().expect("as many fields as were accepted");
        assert_eq!(
            (field.name, field.value),
            (name.as_bytes(), &value[..]),
            "the same field"
        );
    }
    let own = [
        Known::Connection,
        Known::ContentLength,
        Known::TransferEncoding,
        Known::Upgrade,
    ];
    for field in seen {
        let is = |known: &Known| field.name.eq_ignore_ascii_case(known.name().as_bytes());
        assert!(own.iter().any(is), "no field from nowhere");
    }
}
