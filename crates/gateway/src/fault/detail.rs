//! The rule of a protocol that an upstream broke: what a fault such as `garbage_head` says no more of.

use ringmain_wire::{h1, h2};

use crate::limits;

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// The rule's name: of docs/http1-rules.md, of HTTP/2 or of docs/tls-rules.md.
    pub(crate) rule: String,
    /// What was expected and what was found, for people.
    pub(crate) text: String,
}

impl Detail {
    /// A rule of HTTP/1.1.
    #[cold]
    pub(crate) fn http1(fault: &h1::PeerFault) -> Box<Detail> {
        let text = fault.to_string();
        // What a server would answer is not for an upstream.
        let text = match text.rsplit_once("; answer ") {
            Some((text, _)) => format!("{text})"),
            None => text,
        };
        Box::new(Detail {
            rule: format!("{:?}", fault.kind),
            text,
        })
    }

    /// A rule of HTTP/2.
    #[cold]
    pub(crate) fn http2(kind: h2::FaultKind) -> Box<Detail> {
        let (expected, section) = (kind.expected(), kind.section());
        Detail::new(
            &format!("{kind:?}"),
            format!("expected {expected}; found {kind:?} ({section})"),
        )
    }

    /// A rule of TLS.
    #[cold]
    pub(crate) fn tls(fault: &ringmain_tls::Fault) -> Box<Detail> {
        Detail::new(&format!("{:?}", fault.kind), fault.to_string())
    }

    /// More interim responses than are passed on.
    #[cold]
    pub(crate) fn interim() -> Box<Detail> {
        let most = limits::INTERIM_ANSWERS;
        Detail::new(
            "InterimResponses",
            format!("expected at most {most} interim responses; found more"),
        )
    }

    /// A rule by its name.
    #[cold]
    pub(crate) fn new(rule: &str, text: String) -> Box<Detail> {
        Box::new(Detail {
            rule: rule.to_owned(),
            text,
        })
    }
}
