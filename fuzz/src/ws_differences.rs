//! The differences between WebSocket readers that are allowed. `ws-differences.md` shows this list, and a test
//! holds the two together. What is not listed here fails.

use std::fmt;

use ringmain_wire::ws::FaultKind;

/// A reader that ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// tungstenite, messages.
    Tungstenite,
    /// fastwebsockets with its `FragmentCollector`.
    Fastwebsockets,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tungstenite => "tungstenite",
            Self::Fastwebsockets => "fastwebsockets",
        })
    }
}

/// What a reader makes of something that we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It refuses a Close with this code.
    RefusesCode(u16),
    /// It reads a Close with the first code as one with the second.
    ReadsCode(u16, u16),
}

/// That a reader and ours differ about an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// We take what the reader refuses or reads otherwise.
    Taken(Reader, Otherwise),
    /// We refuse with this fault what the reader takes.
    Refused(Reader, FaultKind),
}

/// Something that we take and another reads otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// What it is.
    pub input: &'static str,
    /// Who differs.
    pub reader: Reader,
    /// How.
    pub otherwise: Otherwise,
    /// Why we take it.
    pub why: &'static str,
}

/// Something that we refuse and others take.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// What it is.
    pub input: &'static str,
    /// Who takes it.
    pub taken_by: &'static [Reader],
    /// What we say.
    pub fault: FaultKind,
    /// Why we refuse it.
    pub why: &'static str,
}

impl fmt::Display for Taken {
    /// A row of the file's table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.otherwise {
            Otherwise::RefusesCode(_) => "refuses it".to_owned(),
            Otherwise::ReadsCode(_, read) => format!("reads {read}"),
        };
        write!(f, "| {} | {} | {what} | {} |", self.input, self.reader, self.why)
    }
}

impl fmt::Display for Refused {
    /// A row of the file's table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readers: Vec<String> = self.taken_by.iter().map(Reader::to_string).collect();
        let code = self.fault.close_code().map_or(1006, |code| code.number());
        write!(
            f,
            "| {} | {} | {code} | {} |",
            self.input,
            readers.join(", "),
            self.why
        )
    }
}

/// The differences that the lists allow.
pub fn listed() -> Vec<Difference> {
    let taken = TAKEN
        .iter()
        .map(|row| Difference::Taken(row.reader, row.otherwise));
    let refused = REFUSED.iter().flat_map(|row| {
        row.taken_by
            .iter()
            .map(|&reader| Difference::Refused(reader, row.fault))
    });
    taken.chain(refused).collect()
}

/// Whether a difference is listed.
#[must_use]
pub fn is_listed(difference: Difference) -> bool {
    listed().contains(&difference)
}

/// Frames that we take and another reads otherwise.
pub const TAKEN: &[Taken] = &[
    Taken {
        input: "a Close with 1014",
        reader: Reader::Tungstenite,
        otherwise: Otherwise::ReadsCode(1014, 1002),
        why: "registered with IANA after RFC 6455: Bad Gateway",
    },
    Taken {
        input: "a Close with 1014",
        reader: Reader::Fastwebsockets,
        otherwise: Otherwise::RefusesCode(1014),
        why: "as above",
    },
];

const BOTH: &[Reader] = &[Reader::Tungstenite, Reader::Fastwebsockets];
const TUNGSTENITE: &[Reader] = &[Reader::Tungstenite];
const FASTWEBSOCKETS: &[Reader] = &[Reader::Fastwebsockets];

/// Frames that we refuse and others take.
pub const REFUSED: &[Refused] = &[
    Refused {
        input: "a length in more bytes than it needs",
        taken_by: BOTH,
        fault: FaultKind::LengthNotMinimal,
        why: "RFC 6455 §5.2: MUST; two readings of one length are where filters are passed by",
    },
    Refused {
        input: "a control frame with a length of 126 or 127; with fastwebsockets also a long Pong or Close",
        taken_by: BOTH,
        fault: FaultKind::ControlTooLong,
        why: "RFC 6455 §5.5: at most 125 bytes, which have one form",
    },
    Refused {
        input: "a Close with a code that may not be sent, such as 999, 1005 or 5000",
        taken_by: TUNGSTENITE,
        fault: FaultKind::CloseCode,
        why: "RFC 6455 §7.4; tungstenite reads 1002",
    },
    Refused {
        input: "a client's frame without a mask",
        taken_by: FASTWEBSOCKETS,
        fault: FaultKind::MaskMissing,
        why: "RFC 6455 §5.1: MUST; without masks a client can be made to write what a proxy takes for HTTP",
    },
    Refused {
        input: "a server's frame with a mask",
        taken_by: FASTWEBSOCKETS,
        fault: FaultKind::MaskForbidden,
        why: "RFC 6455 §5.1: MUST; fastwebsockets hands out the masked bytes",
    },
    Refused {
        input: "the first fragment of a message in the middle of another",
        taken_by: FASTWEBSOCKETS,
        fault: FaultKind::MessageInMessage,
        why: "RFC 6455 §5.4: MUST NOT be interleaved; fastwebsockets forgets the first message",
    },
    Refused {
        input: "a message of fragments beyond the limit",
        taken_by: FASTWEBSOCKETS,
        fault: FaultKind::MessageTooLarge,
        why: "fastwebsockets limits frames only",
    },
    Refused {
        input: "a text of fragments that ends within a character",
        taken_by: FASTWEBSOCKETS,
        fault: FaultKind::Text,
        why: "RFC 6455 §8.1; fastwebsockets drops the cut character",
    },
];
