//! HTTP/2 connections to endpoints, shared by the requests of a worker: each request has a stream of its own.
//!
//! ```text
//! Local::link ─▶ opening: a session with room, one that is being dialled, a new one ─▶ Channel
//!                  Session: one connection, its codec, its queue of writers ◀── bytes ── receive
//!                  Channel: one request's stream: head, body, trailers, both ways; dropped, it is given up
//! ```
//!
//! Received data is buffered per stream, up to its window: a slow client blocks its own stream and no other. Knows no rules and does
//! not interpret requests.

mod acquire;
mod receive;
mod request;
mod session;
mod stream;

pub(super) use self::acquire::SessionList;
pub(crate) use self::acquire::negotiated_h2;
pub(crate) use self::receive::StreamObserver;
pub(crate) use self::request::{H2Request, H2ResponsePart, send_request};
pub(crate) use self::session::{H2Pool, H2Session, SessionParams};
pub(crate) use self::stream::{BodyRefused, H2Stream};

use ringmain_wire::h2::{Budgets, FaultKind, Limits, Rate};

use crate::fault::{Fault, Violation};
use crate::limits;

/// The reason that a stream ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamError {
    /// The endpoint refused the stream and did not process it.
    Refused,
    /// The endpoint, or an intermediary, reset the stream or the connection.
    Reset,
    /// The endpoint closed the connection.
    Closed,
    /// The endpoint violated this rule of HTTP/2. `None`: it sent more interim responses than are forwarded.
    ProtocolViolation(Option<FaultKind>),
    /// A head or trailers exceed this limit.
    TooLarge(FaultKind),
    /// The endpoint does not speak HTTP/2.
    NotHttp2,
    /// The stream's deadline has passed.
    TimedOut,
}

impl StreamError {
    /// Returns the fault if this occurs before the head of the response; `timeout_fault` supplies that of a passed deadline.
    pub(crate) fn fault_before_head(self, timeout_fault: impl FnOnce() -> Fault) -> Fault {
        match self {
            StreamError::Refused => Fault::StreamRefused,
            StreamError::Reset => Fault::ResetBeforeHead,
            StreamError::Closed => Fault::ClosedBeforeHead,
            StreamError::ProtocolViolation(_) => Fault::GarbageHead,
            StreamError::TooLarge(_) => Fault::HeadTooLarge,
            StreamError::NotHttp2 => Fault::NoHttp2,
            StreamError::TimedOut => timeout_fault(),
        }
    }

    /// Returns the violated rule, if there is one.
    pub(crate) fn detail(self) -> Option<Box<Violation>> {
        match self {
            StreamError::ProtocolViolation(Some(kind)) | StreamError::TooLarge(kind) => {
                Some(Violation::from_http2(kind))
            }
            StreamError::ProtocolViolation(None) => Some(Violation::interim()),
            _ => None,
        }
    }

    /// Returns the fault if this occurs within the body.
    pub(crate) fn fault_in_body(self, timeout_fault: impl FnOnce() -> Fault) -> Fault {
        match self {
            StreamError::TimedOut => timeout_fault(),
            StreamError::ProtocolViolation(_) | StreamError::TooLarge(_) | StreamError::NotHttp2 => {
                Fault::GarbageBody
            }
            StreamError::Refused | StreamError::Reset | StreamError::Closed => Fault::BodyCut,
        }
    }
}

/// Returns the limits for an endpoint's frames on a connection with this many streams.
pub(crate) fn h2_limits(streams: u32) -> Limits {
    let budgets = Limits::INTERNET.budgets;
    // gRPC sends streams of small messages, and the configuration trusts the endpoint more than an unknown client.
    let widen = |rate: Rate| Rate {
        most: rate.most.saturating_mul(limits::UPSTREAM_TRUST),
        per_second: rate.per_second.saturating_mul(limits::UPSTREAM_TRUST),
    };
    let window = u64::from(streams.max(1)) * u64::from(limits::UPSTREAM_STREAM_WINDOW);
    Limits {
        head_bytes: limits::RESPONSE_HEAD_BYTES,
        fields: limits::RESPONSE_FIELDS,
        stream_window: limits::UPSTREAM_FIRST_WINDOW,
        // As large as the windows of its streams together, up to a limit, so that unread streams do not block the others.
        connection_window: window.min(limits::UPSTREAM_CONNECTION_WINDOW) as u32,
        budgets: Budgets {
            resets: budgets.resets,
            control: widen(budgets.control),
            window_updates: widen(budgets.window_updates),
            empty: widen(budgets.empty),
            small: widen(budgets.small),
        },
        ..Limits::INTERNET
    }
}
