//! Requests to the kernel over netlink, and its answers taken apart: messages and attributes, nothing of their meaning.
//!
//! Whoever asks knows the family. Lengths come from the kernel but are checked as if they did not.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink as families;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};

/// `NLM_F_*`: what is asked for.
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;

const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_MULTI`, `NLM_F_DUMP_INTR`.
const MULTI: u16 = 0x2;
const INTERRUPTED: u16 = 0x10;

/// `nlmsghdr`, and the length and kind before an attribute.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;

/// Bytes of one datagram of answers; the kernel makes them no longer than 32 KiB.
const DATAGRAM_BYTES: usize = 64 << 10;

/// Messages of one answer. More: the answer is an error, as nothing that is asked here has so many.
pub const MESSAGES: usize = 65_536;

/// How long an answer may take: the kernel gives it during the call that asks.
const PATIENCE_S: i64 = 2;

/// How often a dump is asked for again that a change has disturbed.
const DISTURBED: usize = 8;

/// A family of netlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Interfaces and queueing disciplines (`rtnetlink(7)`).
    Route,
    /// The audit system.
    Audit,
    /// The packet filter.
    Netfilter,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All there is of something.
    Dump,
    /// One thing, told.
    Get,
    /// Something is changed; with the family's own flags (`NLM_F_CREATE`, …).
    Change(u16),
}

/// One message of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The family's kind of message.
    pub kind: u16,
    /// All behind the header.
    pub payload: Vec<u8>,
}

/// A socket of one family.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens it.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` for a family that the kernel was built without; those of `socket(2)`.
    pub fn open(family: Family) -> io::Result<Netlink> {
        let protocol: Option<Protocol> = match family {
            // What rustix calls "nothing in particular" is zero, which is NETLINK_ROUTE.
            Family::Route => None,
            Family::Audit => Some(families::AUDIT),
            Family::Netfilter => Some(families::NETFILTER),
        };
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        let patience = std::time::Duration::from_secs(PATIENCE_S as u64);
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends one request and gathers its whole answer; of a change, that is nothing.
    ///
    /// # Errors
    /// What the kernel answers (`EPERM`, `EOPNOTSUPP`, `ENOENT`, …); `InvalidData` for an answer that cannot be read;
    /// `EAGAIN` where none comes.
    pub fn request(&mut self, kind: u16, ask: Ask, payload: &[u8]) -> io::Result<Vec<Message>> {
        for _ in 0..DISTURBED {
            match self.once(kind, ask, payload)? {
                Some(messages) => return Ok(messages),
                None => continue,
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("what was asked changed {DISTURBED} times while it was told"),
        ))
    }

    /// `None` if the answer was disturbed by a change.
    fn once(&mut self, kind: u16, ask: Ask, payload: &[u8]) -> io::Result<Option<Vec<Message>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = match ask {
            Ask::Dump => REQUEST | DUMP,
            Ask::Get => REQUEST,
            Ask::Change(own) => REQUEST | ACK | own,
        };
        send(
            &self.socket,
            &encode(kind, flags, self.sequence, payload),
            SendFlags::empty(),
        )?;
        let mut gathered = Gathered::default();
        let mut datagram = vec![0; DATAGRAM_BYTES];
        while !gathered.whole {
            let (length, _) = recv(&self.socket, &mut datagram[..], RecvFlags::empty())?;
            gathered.take(&datagram[..length], self.sequence)?;
        }
        Ok((!gathered.disturbed).then_some(gathered.messages))
    }
}

/// An answer as far as it is there.
#[derive(Debug, Default)]
struct Gathered {
    messages: Vec<Message>,
    whole: bool,
    disturbed: bool,
}

impl Gathered {
    fn take(&mut self, mut datagram: &[u8], sequence: u32) -> io::Result<()> {
        while datagram.len() >= HEADER && !self.whole {
            let length = u32_at(datagram, 0).unwrap_or(0) as usize;
            let message = datagram.get(..length).filter(|m| m.len() >= HEADER);
            let message = message.ok_or_else(|| invalid("a message that is cut"))?;
            datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
            // What answers a former request comes too late to be of use.
            if u32_at(message, 8) == Some(sequence) {
                self.message(message)?;
            }
        }
        Ok(())
    }

    fn message(&mut self, message: &[u8]) -> io::Result<()> {
        let kind = u16_at(message, 4).unwrap_or(0);
        let flags = u16_at(message, 6).unwrap_or(0);
        self.disturbed |= flags & INTERRUPTED != 0;
        match kind {
            ERROR => {
                let code = u32_at(message, HEADER).ok_or_else(|| invalid("an error without its number"))?;
                self.whole = true;
                match code as i32 {
                    0 => Ok(()),
                    number => Err(io::Error::from_raw_os_error(number.saturating_neg())),
                }
            }
            DONE => {
                self.whole = true;
                Ok(())
            }
            _ if self.messages.len() >= MESSAGES => Err(invalid("more messages than anything has")),
            _ => {
                self.messages.push(Message {
                    kind,
                    payload: message[HEADER..].to_vec(),
                });
                self.whole = flags & MULTI == 0;
                Ok(())
            }
        }
    }
}

fn encode(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + payload.len());
    out.extend(((HEADER + payload.len()) as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    // To whom: the kernel.
    out.extend(0u32.to_ne_bytes());
    out.extend(payload);
    out
}

/// Appends an attribute, padded to four bytes. `kind` may carry `NLA_F_NESTED`. A value of more than 64 KiB cannot be
/// written and is left out.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(ATTRIBUTE + value.len()) else {
        return;
    };
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The value of the first attribute of this kind; flags of kinds are not looked at.
#[must_use]
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// The attributes one by one, up to the first that is cut.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(ATTRIBUTE..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// A text of an attribute, up to its end mark.
#[must_use]
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Two bytes in the host's order; `None` where there are not so many.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Four bytes in the host's order; `None` where there are not so many.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn invalid(found: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("netlink: expected whole messages; found {found}"),
    )
}
