//! WebSocket (RFC 6455) with permessage-deflate (RFC 7692), both roles, strict.
//!
//! ```text
//! server: h1::RequestHead ─▶ accept ─▶ Acceptance ─▶ fields of the 101
//! client: Opening ─▶ fields of the GET … h1::ResponseHead ─▶ conclude ─▶ Opened
//!                                  │
//!                                  ▼ Deflation, if both agreed on it
//! bytes ─▶ Decoder ─▶ Piece … Ping Pong Close
//!            Inflater: lent while a deflated message is under way
//!
//! Message Ping Pong Close ─▶ Encoder ─▶ bytes          Message ─▶ encode_shared ─▶ bytes for many
//!            Deflater: lent for a call                            Deflater
//! ```
//!
//! *Laws*, each with a test: any cut of the input gives the same events, but for where messages are cut into pieces;
//! what was encoded decodes to the same; nothing is allocated but for contexts and by the caller's buffers; after a
//! fault nothing is read any more; no input panics. Memory is bounded by what the caller gives: input is unmasked where
//! it lies, deflated messages come in pieces of the inflater's size, and limits hold before a byte beyond them is
//! handed out.
//!
//! This module sends nothing and knows no time. A fault names the close code, the caller sends it and disconnects; a
//! ping is an event, the caller answers it; [`Closing`] says how far the closing handshake is, the caller bounds how
//! long it lasts, and calls [`Decoder::renew_budget`] by its clock.

mod close;
mod decoder;
mod deflate;
mod encoder;
mod extension;
mod fault;
mod frame_tracker;
mod handshake;
mod header;
mod limits;
mod mask;
mod misuse;
mod role;
mod text;

pub use close::{Close, CloseCode, Closing};
pub use decoder::{Decoder, Event, Piece, Resting, Step};
pub use deflate::{Deflater, Inflater};
pub use encoder::{Encoder, Mask, Message, encode_shared};
pub use extension::{Deflation, Window};
pub use fault::{FaultKind, Found, PeerFault};
pub use frame_tracker::FrameTracker;
pub use handshake::{
    Acceptance, Challenge, HandshakeFault, HandshakeFaultKind, Opened, Opening, ServerWish, accept,
};
pub use limits::Limits;
pub use misuse::Misuse;
pub use role::{Kind, Role};
