//! Connections that the gateway forwards as bytes: callers in front and parrots behind, with a ledger between them that the
//! gateway does not know.
//!
//! The bytes of each direction are unlike any other connection's, so that a mix-up is noticed at once. An orderly end is valid only if
//! the other side has closed in order, and then all its bytes have arrived; any other end of a connection must look broken.

mod client;
mod endpoint;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) use self::client::Caller;
pub(crate) use self::endpoint::Parrot;
use crate::fingerprint::pattern;

/// The kind of a connection, which selects its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    /// TLS with this SNI.
    Named(&'static str),
}

/// Every kind, by its number in a header.
pub(crate) const KINDS: [Kind; 3] = [Kind::Tcp, Kind::Named("a.sim"), Kind::Named("x.b.sim")];

/// The bytes and the ends of one connection, as recorded by its two ends.
#[derive(Debug, Default)]
pub(crate) struct Account {
    up: usize,
    up_ended: bool,
    down: usize,
    down_ended: bool,
    /// Its first bytes have arrived.
    arrived: bool,
}

/// The shared records of callers and parrots.
pub(crate) type Ledger = Rc<RefCell<Book>>;

#[derive(Debug, Default)]
pub(crate) struct Book {
    /// By the numbers of connections.
    accounts: BTreeMap<u64, Account>,
    /// Connections that a parrot has ended in order before it knew whose they are.
    left: usize,
}

impl Book {
    fn of(&mut self, id: u64) -> &mut Account {
        self.accounts.get_mut(&id).expect("a caller's")
    }
}

/// The first bytes of a caller, after its ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    id: u64,
    kind: u8,
    /// The caller ends its side when the other has ended.
    last: bool,
    up: u32,
    down: u32,
}

const HEADER: usize = 19;

impl Header {
    fn write(&self) -> Vec<u8> {
        let mut bytes = vec![b'A'];
        bytes.extend(self.id.to_le_bytes());
        bytes.extend([self.kind, u8::from(self.last)]);
        bytes.extend(self.up.to_le_bytes());
        bytes.extend(self.down.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..HEADER)?;
        assert_eq!(bytes[0], b'A', "what a caller says first");
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        Some(Header {
            id: u64::from_le_bytes(bytes[1..9].try_into().expect("eight")),
            kind: bytes[9],
            last: bytes[10] != 0,
            up: number(11),
            down: number(15),
        })
    }

    /// Returns the request bytes after the header.
    fn body(&self) -> Vec<u8> {
        pattern(self.id ^ 0x0b, self.up as usize)
    }

    /// Returns the response bytes.
    fn answer(&self) -> Vec<u8> {
        let mut bytes = vec![b'B'];
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(pattern(self.id ^ 0xd0, self.down as usize));
        bytes
    }
}

/// Returns a ClientHello with a name (RFC 8446 §4.1.2, RFC 6066 §3) that no handshake could continue.
fn hello(name: &str) -> Vec<u8> {
    fn prefixed(width: usize, bytes: &[u8]) -> Vec<u8> {
        let length = (bytes.len() as u32).to_be_bytes();
        [&length[4 - width..], bytes].concat()
    }
    let host = [&[0][..], &prefixed(2, name.as_bytes())].concat();
    let server_name = [&[0, 0][..], &prefixed(2, &prefixed(2, &host))].concat();
    let versions = [0, 43, 0, 3, 2, 3, 4];
    let extensions = prefixed(2, &[&versions[..], &server_name].concat());
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, 2, 0x13, 1],
        &[1, 0],
        &extensions,
    ]
    .concat();
    let message = [&[1][..], &prefixed(3, &body)].concat();
    [&[22, 3, 1][..], &prefixed(2, &message)].concat()
}
