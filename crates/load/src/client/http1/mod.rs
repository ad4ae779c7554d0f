//! HTTP/1.1, the client's side: where each answer ends, and whether it is the one that was expected.
//!
//! Knows neither time nor connections.

use ringmain_wire::h1::{
    self, BodyDecoder, BodyEvent, FieldTable, Framing, HeadScanner, Parsed, parse_response,
};

use super::{Answer, Told};
use crate::limits;
use crate::traffic::{Step, Values};

#[cfg(test)]
mod tests;

/// What a server may send; it is under test, not attacking.
const LIMITS: h1::Limits = h1::Limits {
    chunk_extension_bytes: 64 * 1024,
    ..h1::Limits::INTERNET
};

/// What all connections of a worker share.
#[derive(Debug)]
pub(crate) struct Http1 {
    table: FieldTable,
}

/// What is known of the answer that is on its way on one connection.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    scanner: HeadScanner,
    /// Bytes of a head that is not whole have been seen.
    begun: bool,
    body: Option<Body>,
}

/// An answer whose head is read.
#[derive(Debug)]
struct Body {
    decoder: BodyDecoder,
    status: u16,
    /// The connection ends with it.
    last: bool,
    right: bool,
    /// What the checks of its step have yet to see.
    kept: Option<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    head: Vec<u8>,
    body: Vec<u8>,
    /// It was longer than [`limits::CHECKED_BODY_BYTES`].
    cut: bool,
}

impl Http1 {
    pub(crate) fn new() -> Http1 {
        Http1 {
            table: FieldTable::new(&LIMITS),
        }
    }

    /// Reads bytes of the response to `step`. Returns the number of bytes consumed, and the outcome.
    pub(crate) fn read(
        &mut self,
        reading: &mut Reading,
        step: &Step,
        values: &mut Values,
        input: &[u8],
    ) -> (usize, Told) {
        let mut at = 0;
        if reading.body.is_none() {
            match self.head(reading, step, values, input) {
                (taken, Some(heard)) => return (taken, heard),
                (taken, None) => at = taken,
            }
        }
        let (taken, heard) = self.body(reading, step, values, &input[at..]);
        (at + taken, heard)
    }

    /// The server has sent its last byte. An answer that lasts until then is whole.
    pub(crate) fn end(&mut self, reading: &mut Reading, step: &Step, values: &mut Values) -> Told {
        let Some(body) = &mut reading.body else {
            return Told::Broken(if reading.begun {
                "closed within a response"
            } else {
                "closed without a response"
            });
        };
        match body.decoder.end_of_input() {
            Ok(()) => Told::Answer(self.finish(reading, step, values)),
            Err(_) => Told::Broken("closed within a response"),
        }
    }

    /// Reads heads until one has a body to come. An answer that is there as a whole is judged in place.
    fn head(
        &mut self,
        reading: &mut Reading,
        step: &Step,
        values: &mut Values,
        input: &[u8],
    ) -> (usize, Option<Told>) {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let parsed = parse_response(
                rest,
                step.method(),
                &LIMITS,
                &mut reading.scanner,
                &mut self.table,
            );
            let (head, bytes) = match parsed {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Partial) => {
                    reading.begun = !rest.is_empty();
                    return (at, Some(Told::More));
                }
                Err(_) => return (at, Some(Told::Broken("not HTTP/1.1"))),
            };
            reading.begun = false;
            if head.is_interim() {
                at += bytes;
                continue;
            }
            if head.switches {
                return (at, Some(Told::Broken("switched protocols")));
            }
            let whole = whole(head.framing, &rest[bytes..]);
            if let Some(body) = whole {
                let answer = Answer {
                    status: head.status,
                    right: step.judge(head.status, &head.fields, body, values).is_ok(),
                    last: !head.keep_alive,
                    code: None,
                };
                return (at + bytes + body.len(), Some(Told::Answer(answer)));
            }
            let Ok(decoder) = BodyDecoder::new(head.framing, &LIMITS) else {
                return (at, Some(Told::Broken("not HTTP/1.1")));
            };
            let later = step.needs_body();
            reading.body = Some(Body {
                decoder,
                status: head.status,
                last: !head.keep_alive,
                right: later || step.judge(head.status, &head.fields, b"", values).is_ok(),
                kept: later.then(|| {
                    Box::new(Kept {
                        head: rest[..bytes].to_vec(),
                        body: Vec::new(),
                        cut: false,
                    })
                }),
            });
            return (at + bytes, None);
        }
    }

    fn body(
        &mut self,
        reading: &mut Reading,
        step: &Step,
        values: &mut Values,
        input: &[u8],
    ) -> (usize, Told) {
        let body = reading.body.as_mut().expect("a head was read");
        let mut at = 0;
        loop {
            let Ok(next) = body.decoder.decode(&input[at..]) else {
                return (at, Told::Broken("not HTTP/1.1"));
            };
            at += next.consumed;
            match next.event {
                BodyEvent::Data(data) => {
                    if let Some(kept) = &mut body.kept {
                        kept.take(data);
                    }
                }
                BodyEvent::NeedMore => return (at, Told::More),
                BodyEvent::Trailers(_) => {}
                BodyEvent::End => break,
            }
        }
        (at, Told::Answer(self.finish(reading, step, values)))
    }

    fn finish(&mut self, reading: &mut Reading, step: &Step, values: &mut Values) -> Answer {
        let body = reading.body.take().expect("a head was read");
        let right = match body.kept {
            None => body.right,
            Some(kept) => !kept.cut && self.judge_late(&kept, step, values),
        };
        Answer {
            status: body.status,
            right,
            last: body.last,
            code: None,
        }
    }

    /// Reads the kept head once more: its fields lay in bytes that are gone.
    fn judge_late(&mut self, kept: &Kept, step: &Step, values: &mut Values) -> bool {
        let mut scanner = HeadScanner::new();
        let parsed = parse_response(&kept.head, step.method(), &LIMITS, &mut scanner, &mut self.table);
        match parsed {
            Ok(Parsed::Complete { head, .. }) => {
                step.judge(head.status, &head.fields, &kept.body, values).is_ok()
            }
            _ => false,
        }
    }
}

impl Kept {
    fn take(&mut self, data: &[u8]) {
        let room = limits::CHECKED_BODY_BYTES - self.body.len();
        self.cut |= data.len() > room;
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }
}

/// The body, if all of it is there already and it is not too long to be checked in place: a longer one fails its checks, however it
/// is cut.
fn whole(framing: Framing, behind: &[u8]) -> Option<&[u8]> {
    match framing {
        Framing::None => Some(&[]),
        Framing::Length(length) => usize::try_from(length)
            .ok()
            .filter(|length| *length <= limits::CHECKED_BODY_BYTES)
            .and_then(|length| behind.get(..length)),
        Framing::Chunked | Framing::UntilClose => None,
    }
}
