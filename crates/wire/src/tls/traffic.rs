//! Records once the handshake is over: data, alerts, updates of keys and tickets. Owns keys and what is kept of a message
//! that came in parts; knows nothing of how keys were agreed on.
//!
//! Nothing is renegotiated: TLS 1.3 has no such thing, and in TLS 1.2 it is answered with a warning (RFC 5246 §7.2.2).

use std::ops::Range;

use rustls::{ContentType, Error, ProtocolVersion};

use super::fault::{Fault, FaultKind};
use super::handshake::{Done, Kernel};
use super::limits::{IDLE_RECORDS, LATE_MESSAGE, RECORD_PLAIN};
use super::protection::{BadKeys, Broken, Keys};

/// Kinds of records (RFC 8446 §B.1) and of messages in them (§B.3).
mod kind {
    pub(super) const ALERT: u8 = 21;
    pub(super) const HANDSHAKE: u8 = 22;
    pub(super) const DATA: u8 = 23;

    pub(super) const HELLO_REQUEST: u8 = 0;
    pub(super) const CLIENT_HELLO: u8 = 1;
    pub(super) const NEW_SESSION_TICKET: u8 = 4;
    pub(super) const KEY_UPDATE: u8 = 24;
}

/// Alerts that are not the end (RFC 5246 §7.2, RFC 8446 §6).
mod alert {
    pub(super) const WARNING: u8 = 1;
    pub(super) const FATAL: u8 = 2;
    pub(super) const CLOSE_NOTIFY: u8 = 0;
    pub(super) const USER_CANCELED: u8 = 90;
    pub(super) const NO_RENEGOTIATION: u8 = 100;
}

/// Bytes of a message's head.
const MESSAGE_HEAD: usize = 4;

/// An update of keys, as it is sent: the peer's may stay as they are (RFC 8446 §4.6.3).
const KEY_UPDATE: [u8; 5] = [kind::KEY_UPDATE, 0, 0, 1, 0];

/// What came of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing for the owner.
    Nothing,
    /// Data, at these bytes of the record.
    Data(Range<usize>),
    /// The peer has ended its side.
    End,
}

/// Both directions of a connection whose handshake is over.
pub(super) struct Traffic {
    received: Keys,
    sent: Keys,
    kernel: Kernel,
    version: ProtocolVersion,
    /// Records after which keys have to be changed.
    limit: u64,
    /// The part of a message that has come so far; holds no memory when there is none.
    partial: Vec<u8>,
    /// Records and messages without data that may still come before the next one with data.
    budget: u32,
}

/// An error of ours.
fn ours(_: BadKeys) -> Fault {
    Fault::new(FaultKind::Ours, "keys that cannot be used")
}

impl Traffic {
    pub(super) fn new(done: Done) -> Result<Self, Fault> {
        let version = match done.facts.version {
            super::Version::Tls12 => ProtocolVersion::TLSv1_2,
            super::Version::Tls13 => ProtocolVersion::TLSv1_3,
        };
        let (received, sent) = (done.secrets.rx, done.secrets.tx);
        Ok(Self {
            received: Keys::new(version, received.0, received.1).map_err(ours)?,
            sent: Keys::new(version, sent.0, sent.1).map_err(ours)?,
            kernel: done.kernel,
            version,
            limit: done.limit,
            partial: Vec::new(),
            budget: IDLE_RECORDS,
        })
    }

    fn is_tls13(&self) -> bool {
        self.version == ProtocolVersion::TLSv1_3
    }

    /// Opens the whole record `record` where it lies.
    pub(super) fn record(&mut self, record: &mut [u8], wire: &mut Vec<u8>) -> Result<Content, Fault> {
        if self.is_tls13() && record[0] != kind::DATA {
            return Err(Fault::unexpected("a record in the clear after the handshake"));
        }
        let opened = self.received.open(record).map_err(|broken| match broken {
            Broken::Tag => Fault::new(FaultKind::Decrypt, "a record that its keys do not open"),
            Broken::Empty => Fault::unexpected("a record of padding alone"),
            Broken::TooLong => Fault::new(FaultKind::Record, "a record with more than 16384 bytes in it"),
        })?;
        let content = &record[opened.content.clone()];
        if !self.partial.is_empty() && opened.kind != kind::HANDSHAKE {
            return Err(Fault::unexpected("another record within a message"));
        }
        match opened.kind {
            kind::DATA if !content.is_empty() => {
                self.budget = IDLE_RECORDS;
                Ok(Content::Data(opened.content))
            }
            kind::DATA => self.spend().map(|()| Content::Nothing),
            kind::ALERT => self.alert(content),
            kind::HANDSHAKE => self.messages(content, wire).map(|()| Content::Nothing),
            _ => Err(Fault::unexpected("a record of a kind that has no place here")),
        }
    }

    /// Counts something that cost work and brought nothing.
    fn spend(&mut self) -> Result<(), Fault> {
        let left = self.budget.checked_sub(1);
        self.budget = left.ok_or_else(|| {
            let text = format!("more than {IDLE_RECORDS} records or messages in a row without data");
            Fault::new(FaultKind::Flood, text)
        })?;
        Ok(())
    }

    fn alert(&mut self, content: &[u8]) -> Result<Content, Fault> {
        let &[level, description] = content else {
            return Err(Fault::new(FaultKind::Decode, "an alert that is not of two bytes"));
        };
        // RFC 8446 §6: in TLS 1.3 the level says nothing.
        let warns = !self.is_tls13() && level == alert::WARNING;
        match description {
            alert::CLOSE_NOTIFY => Ok(Content::End),
            alert::USER_CANCELED => self.spend().map(|()| Content::Nothing),
            _ if warns => self.spend().map(|()| Content::Nothing),
            _ => Err(Fault::refused(description)),
        }
    }

    /// Reads messages, whole ones from where they lie; keeps the part of one that is not.
    fn messages(&mut self, content: &[u8], wire: &mut Vec<u8>) -> Result<(), Fault> {
        if content.is_empty() {
            return Err(Fault::unexpected("a record for a message with nothing in it"));
        }
        if self.partial.is_empty() {
            let read = self.whole(content, wire)?;
            self.partial.extend_from_slice(&content[read..]);
        } else {
            // A part brings no data either.
            self.spend()?;
            let mut all = std::mem::take(&mut self.partial);
            all.extend_from_slice(content);
            let read = self.whole(&all, wire)?;
            if read < all.len() {
                all.drain(..read);
                self.partial = all;
            }
        }
        Ok(())
    }

    /// Reads whole messages, and says how many bytes they were.
    fn whole(&mut self, content: &[u8], wire: &mut Vec<u8>) -> Result<usize, Fault> {
        let mut at = 0;
        while let Some(&[kind, a, b, c]) = content.get(at..at + MESSAGE_HEAD) {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > LATE_MESSAGE {
                let text =
                    format!("a message of {length} bytes after the handshake; {LATE_MESSAGE} are taken");
                return Err(Fault::new(FaultKind::HandshakeTooLong, text));
            }
            let from = at + MESSAGE_HEAD;
            let Some(body) = content.get(from..from + length) else {
                break;
            };
            at = from + length;
            self.spend()?;
            self.message(kind, body, at == content.len(), wire)?;
        }
        Ok(at)
    }

    fn message(&mut self, kind: u8, body: &[u8], last: bool, wire: &mut Vec<u8>) -> Result<(), Fault> {
        let server = matches!(self.kernel, Kernel::Server(_));
        match (self.is_tls13(), kind) {
            (true, kind::KEY_UPDATE) => self.key_update(body, last, wire),
            (true, kind::NEW_SESSION_TICKET) if !server => self.ticket(body),
            (false, kind::CLIENT_HELLO) if server => self.no_renegotiation(wire),
            (false, kind::HELLO_REQUEST) if !server => self.no_renegotiation(wire),
            _ => Err(Fault::unexpected(format!("message {kind} after the handshake"))),
        }
    }

    fn ticket(&mut self, body: &[u8]) -> Result<(), Fault> {
        match &mut self.kernel {
            Kernel::Client(client) => client
                .handle_new_session_ticket(body)
                .map_err(|error| Fault::of(&error)),
            Kernel::Server(_) => Err(Fault::unexpected("a ticket from a client")),
        }
    }

    /// RFC 5246 §7.2.2: a warning, and the connection goes on as it was.
    fn no_renegotiation(&mut self, wire: &mut Vec<u8>) -> Result<(), Fault> {
        self.send_alert(alert::WARNING, alert::NO_RENEGOTIATION, wire)
    }

    fn key_update(&mut self, body: &[u8], last: bool, wire: &mut Vec<u8>) -> Result<(), Fault> {
        let asked = match body {
            [0] => false,
            [1] => true,
            _ => {
                return Err(Fault::new(
                    FaultKind::Decode,
                    "an update of keys that asks for neither or either",
                ));
            }
        };
        // RFC 8446 §5.1: nothing in a record is behind a change of its keys.
        if !last {
            return Err(Fault::unexpected(
                "something behind an update of keys in one record",
            ));
        }
        let updated = match &mut self.kernel {
            Kernel::Client(client) => client.update_rx_secret(),
            Kernel::Server(server) => server.update_rx_secret(),
        };
        let (next, secrets) = updated.map_err(|error| Fault::of(&error))?;
        self.received = Keys::new(self.version, next, secrets).map_err(ours)?;
        if asked { self.update_sent(wire) } else { Ok(()) }
    }

    /// Changes the keys of what is sent, and says so with the old ones.
    fn update_sent(&mut self, wire: &mut Vec<u8>) -> Result<(), Fault> {
        self.sent
            .seal(ContentType::Handshake, &KEY_UPDATE, wire)
            .map_err(ours)?;
        let updated = match &mut self.kernel {
            Kernel::Client(client) => client.update_tx_secret(),
            Kernel::Server(server) => server.update_tx_secret(),
        };
        let (next, secrets) = updated.map_err(|error: Error| Fault::of(&error))?;
        self.sent = Keys::new(self.version, next, secrets).map_err(ours)?;
        Ok(())
    }

    /// Appends `plain` in as many records as it takes.
    pub(super) fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), Fault> {
        for piece in plain.chunks(RECORD_PLAIN) {
            // A record is left for the update itself, and one for the alert at the end.
            if self.sent.used() + 2 >= self.limit {
                if !self.is_tls13() {
                    return Err(Fault::new(
                        FaultKind::Ours,
                        "keys that are used up, and TLS 1.2 has no way to change them",
                    ));
                }
                self.update_sent(wire)?;
            }
            self.sent
                .seal(ContentType::ApplicationData, piece, wire)
                .map_err(ours)?;
        }
        Ok(())
    }

    /// Appends the alert that says that nothing more will be sent.
    pub(super) fn end(&mut self, wire: &mut Vec<u8>) {
        let _ = self.send_alert(alert::WARNING, alert::CLOSE_NOTIFY, wire);
    }

    /// Appends the alert that tells of `fault`, if one does.
    pub(super) fn tell(&mut self, fault: &Fault, wire: &mut Vec<u8>) {
        if let Some(description) = fault.kind.alert() {
            let _ = self.send_alert(alert::FATAL, description, wire);
        }
    }

    fn send_alert(&mut self, level: u8, description: u8, wire: &mut Vec<u8>) -> Result<(), Fault> {
        let sealed = self.sent.seal(ContentType::Alert, &[level, description], wire);
        sealed.map_err(ours)
    }
}

#[cfg(test)]
mod tests;
