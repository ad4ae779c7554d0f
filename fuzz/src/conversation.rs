//! A connection read to its end by our codec, in pieces. Knows both roles by what a head says, compares nothing.

use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FieldTable, Framing, HeadScanner, Limits, Parsed, PeerFault,
};

/// A message with its body, as a reader saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What identifies it: method and target, or status.
    pub(crate) start: Vec<String>,
    pub(crate) body: Vec<u8>,
}

/// What a role says of a head.
pub(crate) struct Head {
    pub(crate) start: Vec<String>,
    pub(crate) framing: Framing,
    pub(crate) bytes: usize,
    /// Whether nothing is read after this message.
    pub(crate) last: bool,
}

/// Reads a head; `None` if it is not whole.
pub(crate) type ReadHead<'r> =
    &'r dyn Fn(&[u8], &Limits, &mut HeadScanner, &mut FieldTable) -> Result<Option<Head>, PeerFault>;

/// What came of an input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// Messages that were read to their end, up to the last.
    pub(crate) messages: Vec<Seen>,
    /// Where each head that was taken begins, and its length.
    pub(crate) heads: Vec<(usize, usize)>,
    pub(crate) fault: Option<PeerFault>,
    /// Where the head begins that has the fault, unless it is in a body.
    pub(crate) refused_at: Option<usize>,
}

/// Reads `input` in the pieces that end at `cuts` (ascending), then its end.
pub(crate) fn read(input: &[u8], cuts: &[usize], limits: &Limits, head: ReadHead<'_>) -> Conversation {
    let mut reader = Reader {
        read_head: head,
        limits: *limits,
        scanner: HeadScanner::new(),
        table: FieldTable::new(limits),
        at: 0,
        body: None,
        open: None,
        last: false,
        over: false,
        messages: Vec::new(),
        heads: Vec::new(),
    };
    let mut result = Ok(true);
    for end in cuts.iter().copied().chain([input.len()]) {
        while let Ok(true) = result {
            result = reader.step(&input[..end]);
        }
        if result == Ok(false) && !reader.over {
            result = Ok(true);
        }
    }
    let fault = result.err().or_else(|| reader.end_of_input());
    Conversation {
        refused_at: fault.filter(|_| reader.body.is_none()).map(|_| reader.at),
        messages: reader.messages,
        heads: reader.heads,
        fault,
    }
}

/// Two places to cut at that depend on nothing but the input.
pub(crate) fn cuts(input: &[u8]) -> [usize; 2] {
    let hash = input
        .iter()
        .fold(7_usize, |hash, &byte| hash.wrapping_mul(31) ^ usize::from(byte));
    let (one, other) = (hash % (input.len() + 1), (hash >> 13) % (input.len() + 1));
    [one.min(other), one.max(other)]
}

struct Reader<'r> {
    read_head: ReadHead<'r>,
    limits: Limits,
    scanner: HeadScanner,
    table: FieldTable,
    /// Bytes consumed.
    at: usize,
    body: Option<BodyDecoder>,
    open: Option<Seen>,
    last: bool,
    over: bool,
    messages: Vec<Seen>,
    heads: Vec<(usize, usize)>,
}

impl Reader<'_> {
    /// Whether there was something to do with `input`, all that has arrived.
    fn step(&mut self, input: &[u8]) -> Result<bool, PeerFault> {
        if self.over || self.at == input.len() && self.body.is_none() {
            return Ok(false);
        }
        let rest = &input[self.at..];
        let Some(body) = &mut self.body else {
            return self.head(rest);
        };
        let step = body.decode(rest)?;
        assert!(step.consumed <= rest.len(), "no more than there is");
        self.at += step.consumed;
        match step.event {
            BodyEvent::Data(data) => {
                assert!(!data.is_empty(), "data is never empty");
                let open = self.open.as_mut().expect("a body has a head");
                open.body.extend_from_slice(data);
            }
            BodyEvent::NeedMore => {
                let kept = rest.len() - step.consumed;
                let limit = self.limits.trailer_bytes as usize;
                assert!(kept < limit, "{kept} bytes to be kept of a body");
                return Ok(false);
            }
            BodyEvent::Trailers(trailers) => assert!(trailers.iter().all(|field| !field.name.is_empty())),
            BodyEvent::End => self.end_of_message(),
        }
        Ok(true)
    }

    fn head(&mut self, rest: &[u8]) -> Result<bool, PeerFault> {
        let head = (self.read_head)(rest, &self.limits, &mut self.scanner, &mut self.table)?;
        let Some(head) = head else {
            let limit = self.limits.head_bytes as usize;
            assert!(rest.len() < limit, "{} bytes to be kept of a head", rest.len());
            return Ok(false);
        };
        let body = BodyDecoder::new(head.framing, &self.limits)?;
        self.heads.push((self.at, head.bytes));
        self.at += head.bytes;
        self.last = head.last;
        self.open = Some(Seen {
            start: head.start,
            body: Vec::new(),
        });
        self.body = Some(body);
        Ok(true)
    }

    fn end_of_message(&mut self) {
        self.body = None;
        self.messages.extend(self.open.take());
        self.over = self.last;
    }

    fn end_of_input(&mut self) -> Option<PeerFault> {
        let ended = self.body.as_mut()?.end_of_input();
        match ended {
            Ok(()) => self.end_of_message(),
            Err(fault) => return Some(fault),
        }
        None
    }
}

/// `parsed` by what `describe` makes of a whole head and its length.
pub(crate) fn whole<H>(parsed: Parsed<H>, describe: impl FnOnce(H, usize) -> Head) -> Option<Head> {
    match parsed {
        Parsed::Complete { head, bytes } => Some(describe(head, bytes)),
        Parsed::Partial => None,
    }
}
