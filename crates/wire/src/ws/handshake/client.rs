//! The client's side: the fields of its request out, the response's head in (RFC 6455 §4.1).

use super::fault::{HandshakeFault, HandshakeFaultKind as Kind};
use super::{ACCEPT, EXTENSIONS, KEY, PROTOCOL, PROTOCOLS, VERSION, VERSIONS, holds, is_token, key, only};
use crate::h1::{self, FieldBlock, Known, RequestEncoder, RequestHead, ResponseHead};
use crate::ws::extension::{self, Deflation};
use crate::ws::misuse::Misuse;

/// A handshake that a client begins. It lives until the response is there.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'w> {
    key: [u8; key::KEY_BYTES],
    protocols: &'w [&'w str],
    deflation: Option<Deflation>,
}

/// What the server agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'w> {
    /// The subprotocol.
    pub protocol: Option<&'w str>,
    /// permessage-deflate: for the decoder and the encoder.
    pub deflation: Option<Deflation>,
}

/// A key and what answers it: for an intermediary that asks by HTTP/1.1 for what it was asked for over HTTP/2, where there are
/// none (RFC 8441 §5), or the other way about. All other fields of the handshake are its client's.
#[derive(Clone, Copy, Debug)]
pub struct Challenge {
    key: [u8; key::KEY_BYTES],
}

impl Challenge {
    /// The field that has the key.
    pub const FIELD: &str = KEY;

    /// With 16 random bytes.
    #[must_use]
    pub fn new(nonce: [u8; 16]) -> Challenge {
        Challenge { key: key::key(nonce) }
    }

    /// The key of a client that asks by HTTP/1.1; `None` if it has none, or more than one, or what is none.
    #[must_use]
    pub fn of(head: &RequestHead<'_>) -> Option<Challenge> {
        let found = only(&head.fields, KEY).filter(|key| key::is_key(key))?;
        Some(Challenge {
            key: found.try_into().ok()?,
        })
    }

    /// Adds what answers the key to the fields of a 101.
    ///
    /// # Errors
    /// None that this field could have.
    pub fn answer(&self, fields: &mut FieldBlock) -> Result<(), h1::Misuse> {
        fields.push(ACCEPT, &key::accept(&self.key))
    }

    /// Adds the key to the head of a request.
    ///
    /// # Errors
    /// None that this field could have.
    pub fn write_field(&self, head: &mut RequestEncoder<'_>) -> Result<(), h1::Misuse> {
        head.field(KEY, &self.key)
    }

    /// Whether a field is of the handshake's that this stands for.
    #[must_use]
    pub fn replaces(name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(KEY.as_bytes())
    }

    /// Whether the head of a 101 answers the key.
    #[must_use]
    pub fn is_met(&self, head: &ResponseHead<'_>) -> bool {
        only(&head.fields, ACCEPT) == Some(&key::accept(&self.key))
    }
}

impl<'w> Opening<'w> {
    /// With 16 random bytes, the subprotocols in order of preference, and permessage-deflate as it is wished.
    ///
    /// # Errors
    /// `Protocol`.
    pub fn new(
        nonce: [u8; 16],
        protocols: &'w [&'w str],
        deflation: Option<Deflation>,
    ) -> Result<Self, Misuse> {
        for (index, protocol) in protocols.iter().enumerate() {
            if !is_token(protocol.as_bytes()) || protocols[..index].contains(protocol) {
                return Err(Misuse::Protocol);
            }
        }
        Ok(Self {
            key: key::key(nonce),
            protocols,
            deflation,
        })
    }

    /// Adds the handshake's fields to the head of a GET; then
    /// [`finish_with_upgrade`](RequestEncoder::finish_with_upgrade) to `websocket`, without a body.
    ///
    /// # Errors
    /// None that these fields could have: they are checked by [`new`](Self::new).
    pub fn write_fields(&self, head: &mut RequestEncoder<'_>) -> Result<(), h1::Misuse> {
        head.field(VERSIONS, VERSION)?;
        head.field(KEY, &self.key)?;
        if !self.protocols.is_empty() {
            head.field(PROTOCOLS, self.protocols.join(", ").as_bytes())?;
        }
        if let Some(wish) = &self.deflation {
            head.field(EXTENSIONS, extension::offer(wish).as_bytes())?;
        }
        Ok(())
    }

    /// Checks the response's head; what follows it are frames.
    ///
    /// # Errors
    /// The first rule of the opening handshake that the server broke. `Status` is also an honest answer of HTTP, such
    /// as 401 or 302.
    pub fn conclude(&self, head: &ResponseHead<'_>) -> Result<Opened<'w>, HandshakeFault> {
        let fields = &head.fields;
        if head.status != 101 {
            return Err(Kind::Status.into());
        }
        if !holds(fields, Known::Upgrade, PROTOCOL) || !holds(fields, Known::Connection, b"upgrade") {
            return Err(Kind::UpgradeOther.into());
        }
        if only(fields, ACCEPT) != Some(&key::accept(&self.key)) {
            return Err(Kind::Accept.into());
        }
        let deflation = extension::concluded(fields.all(EXTENSIONS), self.deflation.as_ref());
        Ok(Opened {
            protocol: self.protocol(head)?,
            deflation: deflation.map_err(|_| Kind::ExtensionUnasked)?,
        })
    }

    fn protocol(&self, head: &ResponseHead<'_>) -> Result<Option<&'w str>, Kind> {
        let mut said = head.fields.all(PROTOCOLS);
        let Some(name) = said.next() else {
            return Ok(None);
        };
        let asked = self.protocols.iter().find(|asked| asked.as_bytes() == name);
        match (asked, said.next()) {
            (Some(asked), None) => Ok(Some(asked)),
            _ => Err(Kind::ProtocolUnasked),
        }
    }
}
