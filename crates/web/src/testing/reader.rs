//! Parses responses from bytes: the client's role of the codec, with every byte retained.

use ringmain_wire::h1::{
    self, BodyDecoder, BodyEvent, FieldTable, Fields, HeadScanner, Method, Parsed, parse_response,
};

use super::TestError;
use super::reply::TestReply;

/// Parses the responses of one connection, strictly: a protocol violation is an error.
pub struct ReplyReader {
    input: Vec<u8>,
    ended: bool,
    scanner: HeadScanner,
    table: FieldTable,
    interim: Vec<u16>,
    present: Option<(TestReply, BodyDecoder)>,
}

/// A client reads the whole response to its request.
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
    /// Returns the reader of a new connection.
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

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Records that the server has sent its last byte.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns the bytes that belong to no response so far.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.input
    }

    /// Returns the interim responses before the next expected one.
    #[must_use]
    pub fn interim(&self) -> &[u16] {
        let present = self.present.as_ref().map(|(reply, _)| reply.interim.as_slice());
        present.unwrap_or(&self.interim)
    }

    /// Returns the head of the final response in progress, if it was parsed.
    #[must_use]
    pub fn partial_head(&self) -> Option<&TestReply> {
        self.present.as_ref().map(|(reply, _)| reply)
    }

    /// Returns true if part of a response was received.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.present.is_some() || !self.input.is_empty() || !self.interim.is_empty()
    }

    /// Returns the next response, to a request with `method`, once it is complete. Its interim responses are recorded with it.
    ///
    /// # Errors
    /// The server violated the protocol, or ended within the response.
    pub fn next(&mut self, method: &str) -> Result<Option<TestReply>, TestError> {
        if !self.head(method)? {
            return Ok(None);
        }
        let is_finished = self.body()?;
        Ok(self.present.take_if(|_| is_finished).map(|(reply, _)| reply))
    }

    /// Returns the response in progress once its head is complete, with the received part of its body, and whether it is complete.
    ///
    /// # Errors
    /// As [`ReplyReader::next`].
    pub fn partial(&mut self, method: &str) -> Result<Option<(&mut TestReply, bool)>, TestError> {
        if !self.head(method)? {
            return Ok(None);
        }
        let is_finished = self.body()?;
        Ok(self.present.as_mut().map(|(reply, _)| (reply, is_finished)))
    }

    /// Parses heads until a final one is complete; returns whether it is.
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

    /// Reads the body of the response in progress; returns whether it is complete.
    fn body(&mut self) -> Result<bool, TestError> {
        let Some((reply, decoder)) = &mut self.present else {
            return Ok(false);
        };
        let mut at = 0;
        let is_finished = loop {
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
        if is_finished || !self.ended {
            return Ok(is_finished);
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
fn broken(problem: &str, bytes: &[u8]) -> TestError {
    let excerpt = &bytes[..bytes.len().min(200)];
    TestError(format!("{problem}, at `{}`", excerpt.escape_ascii()))
}

impl std::fmt::Debug for ReplyReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReplyReader with {} bytes unread", self.input.len())
    }
}
