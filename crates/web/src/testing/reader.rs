//! Answers out of bytes: the client's role of the codec, with everything kept.

use ringmain_wire::h1::{
    self, BodyDecoder, BodyEvent, FieldTable, Fields, HeadScanner, Method, Parsed, parse_response,
};

use super::TestError;
use super::reply::TestReply;

/// Reads the answers of one connection, strictly: what a rule forbids is an error.
pub struct ReplyReader {
    input: Vec<u8>,
    ended: bool,
    scanner: HeadScanner,
    table: FieldTable,
    interim: Vec<u16>,
    present: Option<(TestReply, BodyDecoder)>,
}

/// A client reads what it asked for.
const LIMITS: h1::Limits = h1::Limits {
    body_bytes: None,
    ..h1::Limits::INTERNET
};

impl Default for ReplyReader {
    fn default() -> ReplyReader {
        ReplyReader::new()
    }
}

impl ReplyReader {
    /// For a new connection.
    #[must_use]
    pub fn new() -> ReplyReader {
        ReplyReader {
            input: Vec::new(),
            ended: false,
            scanner: HeadScanner::new(),
            table: FieldTable::new(&LIMITS),
            interim: Vec::new(),
            present: None,
        }
    }

    /// Takes received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The server has sent its last byte.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Bytes that belong to no answer so far.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.input
    }

    /// Interim answers before the one that is expected next.
    #[must_use]
    pub fn interim(&self) -> &[u16] {
        let present = self.present.as_ref().map(|(reply, _)| reply.interim.as_slice());
        present.unwrap_or(&self.interim)
    }

    /// The head of the final answer that is not whole yet, as far as it was read.
    #[must_use]
    pub fn begun(&self) -> Option<&TestReply> {
        self.present.as_ref().map(|(reply, _)| reply)
    }

    /// Whether part of an answer is there.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.present.is_some() || !self.input.is_empty() || !self.interim.is_empty()
    }

    /// The next answer, to a request with `method`, once all of it is there. Interim ones are noted with it.
    ///
    /// # Errors
    /// The server broke a rule, or ended within the answer.
    pub fn next(&mut self, method: &str) -> Result<Option<TestReply>, TestError> {
        if !self.head(method)? {
            return Ok(None);
        }
        let over = self.body()?;
        Ok(self.present.take_if(|_| over).map(|(reply, _)| reply))
    }

    /// The answer under way, as far as it is there: its head, once it is whole, and so much of the body as came.
    ///
    /// # Errors
    /// As [`ReplyReader::next`].
    pub fn partial(&mut self, method: &str) -> Result<Option<(&mut TestReply, bool)>, TestError> {
        if !self.head(method)? {
            return Ok(None);
        }
        let over = self.body()?;
        Ok(self.present.as_mut().map(|(reply, _)| (reply, over)))
    }

    /// Reads heads until a final one is there; whether it is.
    fn head(&mut self, method: &str) -> Result<bool, TestError> {
        while self.present.is_none() {
            let method = Method::new(method);
            let parsed = parse_response(&self.input, method, &LIMITS, &mut self.scanner, &mut self.table);
            let (head, bytes) = match parsed {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Partial) if self.ended && !self.input.is_empty() => {
                    return Err(broken("an answer's head was cut", &self.input));
                }
                Ok(Parsed::Partial) => return Ok(false),
                Err(fault) => return Err(broken(&fault.to_string(), &self.input)),
            };
            if head.is_interim() {
                self.interim.push(head.status);
            } else {
                let decoder =
                    BodyDecoder::new(head.framing, &LIMITS).expect("without a limit all lengths fit");
                let reply = TestReply {
                    status: head.status,
                    version: head.version,
                    fields: fields(&head.fields),
                    interim: std::mem::take(&mut self.interim),
                    keep_alive: head.keep_alive,
                    body: Vec::new(),
                    trailers: Vec::new(),
                };
                self.present = Some((reply, decoder));
            }
            self.input.drain(..bytes);
        }
        Ok(true)
    }

    /// Reads the body of the answer under way; whether that was the last of it.
    fn body(&mut self) -> Result<bool, TestError> {
        let Some((reply, decoder)) = &mut self.present else {
            return Ok(false);
        };
        let mut at = 0;
        let over = loop {
            let step = decoder
                .decode(&self.input[at..])
                .map_err(|fault| broken(&fault.to_string(), &self.input[at..]))?;
            at += step.consumed;
            match step.event {
                BodyEvent::Data(data) => reply.body.extend_from_slice(data),
                BodyEvent::Trailers(trailers) => reply.trailers.extend(trailers.iter().map(pair)),
                BodyEvent::End => break true,
                BodyEvent::NeedMore => break decoder.is_over(),
            }
        };
        self.input.drain(..at);
        if over || !self.ended {
            return Ok(over);
        }
        decoder
            .end_of_input()
            .map_err(|fault| broken(&fault.to_string(), &self.input))?;
        Ok(true)
    }
}

fn fields(fields: &Fields<'_>) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(pair).collect()
}

fn pair(field: h1::Field<'_>) -> (String, Vec<u8>) {
    (
        String::from_utf8_lossy(field.name).into_owned(),
        field.value.to_vec(),
    )
}

#[cold]
fn broken(what: &str, bytes: &[u8]) -> TestError {
    let shown = &bytes[..bytes.len().min(200)];
    TestError(format!("{what}, at `{}`", shown.escape_ascii()))
}

impl std::fmt::Debug for ReplyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplyReader with {} bytes unread", self.input.len())
    }
}
