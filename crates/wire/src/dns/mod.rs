//! DNS (RFC 1035, RFC 3596): questions for the addresses of a name, and what answers say of it.
//!
//! Owns the form of messages. Knows no server, no cache and no time: how long an answer holds is told in seconds. A
//! forger must guess number, port and name: the caller draws the number and checks where an answer came from.

mod answer;
mod name;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

pub use answer::{Answer, AnswerFault, Outcome, parse};

/// Bytes of a name in its longest form (RFC 1035 §2.3.4), its length bytes counted.
pub const NAME_BYTES: usize = 255;

/// Bytes of an answer that a server may send by UDP, as the question says (RFC 6891 §6.2.5): what passes every network.
pub const UDP_BYTES: u16 = 1232;

/// Addresses of one answer. More are left out.
pub const ADDRESSES: usize = 256;

/// Aliases that lead from the name asked for to the one that has addresses. More: the answer is refused.
pub const ALIASES: usize = 16;

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A: IPv4.
    V4,
    /// AAAA: IPv6.
    V6,
}

impl Kind {
    const fn number(self) -> u16 {
        match self {
            Kind::V4 => 1,
            Kind::V6 => 28,
        }
    }
}

/// What was asked, to be recognised in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'n> {
    /// Drawn by chance.
    pub id: u16,
    /// The name, with or without a dot at its end.
    pub name: &'n str,
    /// Which addresses.
    pub kind: Kind,
}

/// The text is no name that DNS could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a name of labels of 1 to 63 bytes, {NAME_BYTES} in all")]
pub struct BadName;

impl Question<'_> {
    /// Appends the message that asks it.
    ///
    /// # Errors
    /// [`BadName`]; nothing was written.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), BadName> {
        let start = out.len();
        out.extend_from_slice(&self.id.to_be_bytes());
        // Recursion desired; one question, one additional record.
        out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        if let Err(bad) = name::write(self.name, out) {
            out.truncate(start);
            return Err(bad);
        }
        out.extend_from_slice(&self.kind.number().to_be_bytes());
        out.extend_from_slice(&CLASS_IN.to_be_bytes());
        // RFC 6891 §6.1.2: how long an answer may be.
        out.extend_from_slice(&[0, 0, 41]);
        out.extend_from_slice(&UDP_BYTES.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0]);
        Ok(())
    }
}

const CLASS_IN: u16 = 1;

/// An address record's data.
fn address(kind: Kind, data: &[u8]) -> Option<IpAddr> {
    match kind {
        Kind::V4 => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        Kind::V6 => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    }
}
