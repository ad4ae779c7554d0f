//! The opening handshake (RFC 6455 §4) on heads that `h1` parsed and writes: what makes a connection a WebSocket.
//! Who may connect, from which origin, is the caller's to say.

mod client;
mod fault;
mod key;
mod server;

pub use client::{Challenge, Opened, Opening};
pub use fault::{HandshakeFault, HandshakeFaultKind};
pub use server::{Acceptance, ServerWish, accept};

use crate::h1::grammar::{self, TOKEN};
use crate::h1::{Fields, Known};

/// The version that both sides must name.
const VERSION: &[u8] = b"13";
/// What `Upgrade` says.
const PROTOCOL: &[u8] = b"websocket";

const ACCEPT: &str = "Sec-WebSocket-Accept";
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";
const KEY: &str = "Sec-WebSocket-Key";
const PROTOCOLS: &str = "Sec-WebSocket-Protocol";
const VERSIONS: &str = "Sec-WebSocket-Version";

/// Whether the lists in the fields `known` hold `member`, in any case.
fn holds(fields: &Fields<'_>, known: Known, member: &[u8]) -> bool {
    let mut members = fields.all_known(known).flat_map(grammar::list);
    members.any(|found| found.eq_ignore_ascii_case(member))
}

/// The value of a field that stands there exactly once.
fn only<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = fields.all(name);
    values.next().filter(|_| values.next().is_none())
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && grammar::class_end(bytes, 0, TOKEN) == bytes.len()
}
