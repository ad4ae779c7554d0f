//! Connections of HTTP/2 to endpoints, which many requests of a worker share: each has a stream of its own.
//!
//! ```text
//! Local::link ─▶ opening: a session with room, one that is being dialled, a new one ─▶ Channel
//!                  Session: one connection, its codec, who waits to write ◀── bytes ── receive
//!                  Channel: one request's stream: head, body, trailers, both ways; dropped, it is given up
//! ```
//!
//! What an endpoint sends is held for each stream up to its window: a client that is slow keeps its own stream back and no other.
//! Knows no rules, and nothing of what requests say.

mod ask;
mod channel;
mod opening;
mod receive;
mod session;

pub(crate) use self::ask::{Asked, Heard, ask};
pub(crate) use self::channel::{Channel, Refused};
pub(super) use self::opening::Sessions;
pub(crate) use self::opening::is_agreed;
pub(crate) use self::receive::Reader;
pub(crate) use self::session::{Beginning, Common, Session};

use ringmain_wire::h2::{Budgets, FaultKind, Limits, Rate};

use crate::fault::{Detail, Fault};
use crate::limits;

/// Why a stream brings nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The endpoint has done nothing for it, and said so.
    Refused,
    /// The endpoint, or whoever is between, broke it off.
    Reset,
    /// The endpoint closed the connection.
    Closed,
    /// The endpoint broke this rule of HTTP/2. `None`: it sent more interim responses than are passed on.
    Garbage(Option<FaultKind>),
    /// A head or trailers beyond this limit.
    TooLarge(FaultKind),
    /// The endpoint speaks something else.
    NotHttp2,
    /// The channel's deadline has passed.
    Late,
}

impl Lost {
    /// What it means before an answer's head; `late`: that the deadline has passed.
    pub(crate) fn before_head(self, late: impl FnOnce() -> Fault) -> Fault {
        match self {
            Lost::Refused => Fault::StreamRefused,
            Lost::Reset => Fault::ResetBeforeHead,
            Lost::Closed => Fault::ClosedBeforeHead,
            Lost::Garbage(_) => Fault::GarbageHead,
            Lost::TooLarge(_) => Fault::HeadTooLarge,
            Lost::NotHttp2 => Fault::NoHttp2,
            Lost::Late => late(),
        }
    }

    /// Returns the rule that was broken, if one was.
    pub(crate) fn detail(self) -> Option<Box<Detail>> {
        match self {
            Lost::Garbage(Some(kind)) | Lost::TooLarge(kind) => Some(Detail::http2(kind)),
            Lost::Garbage(None) => Some(Detail::interim()),
            _ => None,
        }
    }

    /// The same behind it.
    pub(crate) fn within_body(self, late: impl FnOnce() -> Fault) -> Fault {
        match self {
            Lost::Late => late(),
            Lost::Garbage(_) | Lost::TooLarge(_) | Lost::NotHttp2 => Fault::GarbageBody,
            Lost::Refused | Lost::Reset | Lost::Closed => Fault::BodyCut,
        }
    }
}

/// What an endpoint may send by a connection for so many streams.
pub(crate) fn limits_for(streams: u32) -> Limits {
    let budgets = Limits::INTERNET.budgets;
    // Streams of small messages are what gRPC is for, and whoever sends them was chosen by the configuration.
    let wider = |rate: Rate| Rate {
        most: rate.most.saturating_mul(limits::UPSTREAM_TRUST),
        per_second: rate.per_second.saturating_mul(limits::UPSTREAM_TRUST),
    };
    let window = u64::from(streams.max(1)) * u64::from(limits::UPSTREAM_STREAM_WINDOW);
    Limits {
        head_bytes: limits::RESPONSE_HEAD_BYTES,
        fields: limits::RESPONSE_FIELDS,
        stream_window: limits::UPSTREAM_FIRST_WINDOW,
        // So that streams which nobody reads do not keep the others back.
        connection_window: window.min(limits::UPSTREAM_CONNECTION_WINDOW) as u32,
        budgets: Budgets {
            resets: budgets.resets,
            control: wider(budgets.control),
            window_updates: wider(budgets.window_updates),
            empty: wider(budgets.empty),
            small: wider(budgets.small),
        },
        ..Limits::INTERNET
    }
}
