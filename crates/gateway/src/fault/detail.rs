//! The protocol rule that an upstream violated: detail beyond the name of a fault such as `garbage_head`.

use ringmain_wire::{h1, h2};

use crate::limits;

/// A violated protocol rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The rule's name: from docs/http1-rules.md, from HTTP/2 or from docs/tls-rules.md.
    pub(crate) rule: String,
    /// The expectation and the finding, for operators.
    pub(crate) text: String,
}

impl Violation {
    /// Describes a violation of HTTP/1.1.
    #[cold]
    pub(crate) fn from_http1(fault: &h1::PeerFault) -> Box<Violation> {
        let text = fault.to_string();
        // The status that a server would respond with does not apply to an upstream.
        let text = match text.rsplit_once("; answer ") {
            Some((text, _)) => format!("{text})"),
            None => text,
        };
        Box::new(Violation {
            rule: format!("{:?}", fault.kind),
            text,
        })
    }

    /// Describes a violation of HTTP/2.
    #[cold]
    pub(crate) fn from_http2(kind: h2::FaultKind) -> Box<Violation> {
        let (expected, section) = (kind.expected(), kind.section());
        Violation::new(
            &format!("{kind:?}"),
            format!("expected {expected}; found {kind:?} ({section})"),
        )
    }

    /// Describes a violation of TLS.
    #[cold]
    pub(crate) fn from_tls(fault: &ringmain_tls::Fault) -> Box<Violation> {
        Violation::new(&format!("{:?}", fault.kind), fault.to_string())
    }

    /// Describes more interim responses than are forwarded.
    #[cold]
    pub(crate) fn interim() -> Box<Violation> {
        let limit = limits::INTERIM_ANSWERS;
        Violation::new(
            "InterimResponses",
            format!("expected at most {limit} interim responses; found more"),
        )
    }

    /// Describes a violation of a rule by its name.
    #[cold]
    pub(crate) fn new(rule: &str, text: String) -> Box<Violation> {
        Box::new(Violation {
            rule: rule.to_owned(),
            text,
        })
    }
}
