//! What the tests of the HTTP/1 codec share: a whole conversation read into comparable events, a seeded
//! generator, and the corpus. Knows no rule.

pub(crate) use crate::shared_rng::Rng;
use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FaultKind, FieldTable, Framing, HeadScanner, Limits, Method, Parsed, PeerFault,
    RequestHead, parse_request, parse_response,
};

/// What a reader of a connection sees, with neighbouring data merged: cuts must not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Head(String),
    Data(Vec<u8>),
    Trailers(Vec<(String, String)>),
    End,
    Fault(PeerFault),
    /// The input ended: in the middle of a message, or not.
    Truncated,
}

/// Which role reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role<'m> {
    Server,
    /// Reads answers to requests with this method.
    Client(Method<'m>),
}

/// A connection being read: what its owner must keep between two receipts.
pub(crate) struct Reader<'m> {
    role: Role<'m>,
    limits: Limits,
    scanner: HeadScanner,
    table: FieldTable,
    body: Option<BodyDecoder>,
    buffer: Vec<u8>,
    /// Framed bytes of finished messages, so that faults of different messages differ.
    pub(crate) events: Vec<Event>,
    dead: bool,
}

impl<'m> Reader<'m> {
    pub(crate) fn new(role: Role<'m>, limits: &Limits) -> Self {
        Self {
            role,
            limits: *limits,
            scanner: HeadScanner::new(),
            table: FieldTable::new(limits),
            body: None,
            buffer: Vec::new(),
            events: Vec::new(),
            dead: false,
        }
    }

    /// Takes one receipt.
    pub(crate) fn feed(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
        while !self.dead && self.step() {}
    }

    /// The peer closed.
    pub(crate) fn finish(mut self) -> Vec<Event> {
        if self.dead {
            return self.events;
        }
        match &mut self.body {
            Some(body) => match body.end_of_input() {
                Ok(()) => self.events.push(Event::End),
                Err(fault) => self.events.push(Event::Fault(fault)),
            },
            None if self.buffer.is_empty() => {}
            None => self.events.push(Event::Truncated),
        }
        self.events
    }

    fn step(&mut self) -> bool {
        if self.body.is_some() {
            self.step_body()
        } else {
            !self.buffer.is_empty() && self.step_head()
        }
    }

    fn step_head(&mut self) -> bool {
        let (limits, scanner, table) = (&self.limits, &mut self.scanner, &mut self.table);
        let read = match self.role {
            Role::Server => parse_request(&self.buffer, limits, scanner, table).map(|parsed| match parsed {
                Parsed::Complete { head, bytes } => Some((describe(&head), head.framing, bytes)),
                Parsed::Partial => None,
            }),
            Role::Client(method) => {
                parse_response(&self.buffer, method, limits, scanner, table).map(|parsed| match parsed {
                    Parsed::Complete { head, bytes } => Some((format!("{head:?}"), head.framing, bytes)),
                    Parsed::Partial => None,
                })
            }
        };
        match read.and_then(|head| match head {
            Some((text, framing, bytes)) => Ok(Some((text, BodyDecoder::new(framing, limits)?, bytes))),
            None => Ok(None),
        }) {
            Ok(None) => false,
            Ok(Some((text, body, bytes))) => {
                self.events.push(Event::Head(text));
                self.body = Some(body);
                self.buffer.drain(..bytes);
                true
            }
            Err(fault) => self.die(fault),
        }
    }

    fn step_body(&mut self) -> bool {
        let body = self.body.as_mut().expect("only called with a body");
        let step = match body.decode(&self.buffer) {
            Ok(step) => step,
            Err(fault) => {
                assert_eq!(
                    body.decode(b"GET / HTTP/1.1\r\n\r\n").err(),
                    Some(fault),
                    "no read after error"
                );
                return self.die(fault);
            }
        };
        let more = match step.event {
            BodyEvent::NeedMore => false,
            BodyEvent::Data(data) => {
                assert!(!data.is_empty());
                if let Some(Event::Data(before)) = self.events.last_mut() {
                    before.extend_from_slice(data);
                } else {
                    self.events.push(Event::Data(data.to_vec()));
                }
                true
            }
            BodyEvent::Trailers(trailers) => {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                let fields = trailers.iter().map(|field| (text(field.name), text(field.value)));
                self.events.push(Event::Trailers(fields.collect()));
                true
            }
            BodyEvent::End => {
                assert!(body.is_over());
                self.events.push(Event::End);
                self.body = None;
                true
            }
        };
        self.buffer.drain(..step.consumed);
        more
    }

    fn die(&mut self, fault: PeerFault) -> bool {
        assert!(!fault.to_string().is_empty());
        self.events.push(Event::Fault(fault));
        self.dead = true;
        false
    }
}

/// Everything that a request head says.
pub(crate) fn describe(head: &RequestHead<'_>) -> String {
    format!("{head:?}")
}

/// All events of `input` in pieces that end at `cuts` (ascending).
pub(crate) fn events(role: Role<'_>, limits: &Limits, input: &[u8], cuts: &[usize]) -> Vec<Event> {
    let mut reader = Reader::new(role, limits);
    let mut from = 0;
    for &cut in cuts {
        reader.feed(&input[from..cut]);
        from = cut;
    }
    reader.feed(&input[from..]);
    reader.finish()
}

/// A server's view of a whole input: `Ok` with the first head's debug text, or the first fault's kind.
pub(crate) fn verdict(role: Role<'_>, limits: &Limits, input: &[u8]) -> Result<Vec<Event>, FaultKind> {
    let events = events(role, limits, input, &[]);
    match events.last() {
        Some(Event::Fault(fault)) => Err(fault.kind),
        _ => Ok(events),
    }
}

/// Parses one head and hands it to `inspect`.
pub(crate) fn with_request<T>(input: &[u8], inspect: impl FnOnce(RequestHead<'_>, usize) -> T) -> T {
    let limits = Limits {
        connect: true,
        ..Limits::default()
    };
    let mut table = FieldTable::new(&limits);
    match parse_request(input, &limits, &mut HeadScanner::new(), &mut table) {
        Ok(Parsed::Complete { head, bytes }) => inspect(head, bytes),
        other => panic!("expected a head in `{}`, found {other:?}", input.escape_ascii()),
    }
}

/// The framing of a request.
pub(crate) fn framing(input: &[u8]) -> Framing {
    with_request(input, |head, _| head.framing)
}

/// Reads `input` as a server: `None` expects that all of it is taken.
pub(crate) fn check(input: &str, expected: Option<FaultKind>) {
    check_with(&Limits::default(), input.as_bytes(), expected);
}

pub(crate) fn check_with(limits: &Limits, input: &[u8], expected: Option<FaultKind>) {
    let verdict = verdict(Role::Server, limits, input);
    let found = verdict.as_ref().err().copied();
    assert_eq!(found, expected, "`{}`: {verdict:?}", input.escape_ascii());
    if let Ok(events) = verdict {
        assert_eq!(
            events.last(),
            Some(&Event::End),
            "`{}`: {events:?}",
            input.escape_ascii()
        );
    }
}

/// A request with these field lines, `Host` aside, and `body`.
pub(crate) fn check_fields(fields: &str, body: &str, expected: Option<FaultKind>) {
    check(
        &format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}"),
        expected,
    );
}
