//! HTTP/2 (RFC 9113) with HPACK (RFC 7541), both roles, strict.
//!
//! ```text
//! bytes ─▶ Connection::receive ─▶ Request Response Data Trailers … Reset Broken Window GoAway Pong
//!             HeadBuffer: where heads are decoded to, one for many connections
//!
//! respond / request ─▶ data ─▶ trailers, reset, consume, ping, announce_end, go_away ─▶ bytes
//! ```
//!
//! *Laws*, each with a test: any cut of the input gives the same events; what was encoded decodes to the same; a request allocates
//! nothing once its connection is warm; after a fault of the connection nothing is read any more; no input panics; what a peer
//! can make this hold or do for nothing is bounded by [`Limits`], and each kind of flood by a budget of its own that fills
//! with time.
//!
//! Messages have the heads of `h1` ([`RequestHead`](crate::h1::RequestHead), [`ResponseHead`](crate::h1::ResponseHead)): who
//! answers need not know which protocol it is. Priorities are ignored, pushes are neither sent nor taken. This module sends
//! nothing and knows no time: the caller writes what was appended, and says how late it is.

mod budget;
mod code;
mod connection;
mod fault;
mod frame;
mod head;
mod hpack;
mod limits;
mod misuse;
mod stored;
mod streams;
mod tag;

pub use code::ErrorCode;
pub use connection::{Connection, Event, Repeated, Request, ResponseWriter, Role, Step};
pub use fault::{FaultKind, PeerFault, Scope};
pub use frame::PREFACE;
pub use head::HeadBuffer;
pub use limits::{
    ANSWERS_PER_RESET, Budgets, EARLY_RESET_WINDOW, EARLY_RESETS, FRAME_BYTES, Limits, RESET_MEMORY, Rate,
    SMALL_DATA, TABLE_BYTES,
};
pub use misuse::Misuse;
pub use stored::{load_request, load_response, store_request, store_response};
pub use streams::Stream;
