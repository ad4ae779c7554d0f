//! gRPC (the protocol over HTTP/2 of its authors) and gRPC-Web, both roles, as far as it is not HTTP: messages with a length in front,
//! statuses, deadlines, encodings of messages, metadata, and what gRPC-Web has in place of trailers.
//!
//! ```text
//! body ─▶ (TextDecoder: base64 of gRPC-Web) ─▶ Decoder ─▶ Begin, Data …, End ─▶ (Inflater: gzip, deflate) ─▶ message
//! message ─▶ (Deflater) ─▶ Slot: the prefix ─▶ (encode_text) ─▶ body
//! ```
//!
//! *Laws*, each with a test: any cut of the input gives the same events; what was written reads as the same; nothing is allocated but
//! what the caller's buffers need, and of an inflated message no more than its limit; no input panics. What a message means, who
//! answers it and when is not known here.

mod code;
mod content_type;
mod encoding;
mod fault;
mod inflating;
mod limits;
mod messages;
mod metadata;
mod misuse;
mod percent;
mod text;
mod timeout;
mod trailers;

pub use code::Code;
pub use content_type::{ContentType, Dialect};
pub use encoding::{Accepted, Encoding};
pub use fault::{FaultKind, Found, PeerFault};
pub use inflating::{Deflater, Inflater};
pub use limits::Limits;
pub use messages::{Decoder, Event, Frame, PREFIX_BYTES, Slot, Step};
pub use metadata::{binary_values, is_binary, is_reserved, is_text, is_valid_name, write_binary};
pub use misuse::Misuse;
pub use percent::{decode_message, encode_message};
pub use text::{TextDecoder, encode_text};
pub use timeout::{parse_timeout, write_timeout};
pub use trailers::{WebTrailers, write_web_trailers};
