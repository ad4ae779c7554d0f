//! HTTP/1.1 (RFC 9112, with the semantics of RFC 9110 that framing needs), both roles, strict.
//!
//! ```text
//! bytes ─▶ parse_request / parse_response ─▶ head + Framing ─▶ BodyDecoder ─▶ Data … Trailers End
//!            HeadScanner: where it stopped     FieldTable: where the fields are
//!
//! RequestEncoder / ResponseEncoder ─▶ BodyEncoder ─▶ bytes
//! ```
//!
//! *Laws*, each with a test: any cut of the input gives the same events; what was encoded parses to the same
//! message; no allocation per message once buffers are warm; after a fault nothing is read any more; no input
//! panics. Where recipients are known to differ about a message's end, the message is refused rather than
//! repaired. This module never sends anything: a fault names the status, the caller answers and closes.

mod authority;
mod body;
mod body_encoder;
mod encoder;
mod fault;
mod field_block;
mod fields;
mod framing;
pub(crate) mod grammar;
mod head;
mod limits;
mod lines;
mod method;
mod misuse;
mod request;
mod response;
mod status;
mod target;
mod trailers;

pub use authority::Authority;
pub use body::{BodyDecoder, BodyEvent, BodyStep};
pub use body_encoder::BodyEncoder;
pub use encoder::{AnswerTo, Exchange, LengthSlot, Preface, RequestEncoder, ResponseEncoder};
pub use fault::{FaultKind, Found, PeerFault};
pub use field_block::FieldBlock;
pub(crate) use fields::Record;
pub use fields::{Field, FieldTable, Fields, Known};
pub use framing::{Framing, Version};
pub use head::{HeadProgress, HeadScanner, Parsed};
pub use limits::Limits;
pub use method::Method;
pub use misuse::Misuse;
pub use request::{RequestHead, parse_request};
pub use response::{ResponseHead, parse_response};
pub use status::{allows_content, reason};
pub use target::Target;
pub use trailers::Trailers;
