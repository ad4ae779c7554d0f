//! Protection of records once the handshake is over: sealing and opening where they lie, without allocation.
//!
//! Keys come from rustls, AEADs from aws-lc-rs; what stands here is the form of a record in TLS 1.2 (RFC 5246 §6.2.3.3,
//! RFC 5288 §3, RFC 7905 §2) and in TLS 1.3 (RFC 8446 §5.2). Knows no connection: whoever asks says what the content is.

use std::ops::Range;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce as Unique, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{Iv, Nonce, make_tls12_aad, make_tls13_aad};
use rustls::{ContentType, ProtocolVersion};

use super::limits::{HEADER, RECORD_PLAIN};

/// Bytes of the tag of every AEAD that TLS uses here.
const TAG: usize = 16;

/// Bytes of a nonce that a record of TLS 1.2 carries with AES-GCM.
const EXPLICIT: usize = 8;

/// How records of one direction look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// TLS 1.3: the kind of content is within, and may be followed by padding.
    Inner,
    /// TLS 1.2 with a nonce in each record.
    Explicit,
    /// TLS 1.2 with a nonce of the record's number.
    Implicit,
}

/// Keys of one direction, and the number of the next record.
pub(super) struct Keys {
    key: LessSafeKey,
    iv: Iv,
    next: u64,
    form: Form,
}

/// What an opened record holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The kind of content.
    pub(super) kind: u8,
    /// Where it lies in the record.
    pub(super) content: Range<usize>,
}

/// Why a record does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Its tag is wrong, or it is too short to have one.
    Tag,
    /// It holds no kind of content.
    Empty,
    /// It holds more than a record may.
    TooLong,
}

/// The keys have a form that aws-lc-rs does not take, which no suite of rustls has.
#[derive(Clone, Copy, Debug)]
pub(super) struct BadKeys;

impl Keys {
    /// Keys that rustls handed over, for the record `next` and those behind it.
    pub(super) fn new(
        version: ProtocolVersion,
        next: u64,
        secrets: ConnectionTrafficSecrets,
    ) -> Result<Self, BadKeys> {
        let inner = version == ProtocolVersion::TLSv1_3;
        let (algorithm, key, iv, form) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv, Form::Explicit),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv, Form::Explicit),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&CHACHA20_POLY1305, key, iv, Form::Implicit)
            }
            _ => return Err(BadKeys),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| BadKeys)?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv,
            next,
            form: if inner { Form::Inner } else { form },
        })
    }

    /// Records done with these keys.
    pub(super) const fn used(&self) -> u64 {
        self.next
    }

    /// Appends a record with `content`, which is at most [`RECORD_PLAIN`] bytes.
    pub(super) fn seal(
        &mut self,
        kind: ContentType,
        content: &[u8],
        wire: &mut Vec<u8>,
    ) -> Result<(), BadKeys> {
        debug_assert!(content.len() <= RECORD_PLAIN, "the caller cuts");
        let nonce = Nonce::new(&self.iv, self.next).0;
        let (outer, more) = match self.form {
            Form::Inner => (ContentType::ApplicationData, 1),
            Form::Explicit => (kind, EXPLICIT),
            Form::Implicit => (kind, 0),
        };
        let length = content.len() + more + TAG;
        let start = wire.len();
        wire.reserve(HEADER + length);
        wire.extend_from_slice(&[u8::from(outer), 3, 3]);
        wire.extend_from_slice(&(length as u16).to_be_bytes());
        if self.form == Form::Explicit {
            wire.extend_from_slice(&nonce[4..]);
        }
        let from = wire.len();
        wire.extend_from_slice(content);
        if self.form == Form::Inner {
            wire.push(u8::from(kind));
        }
        let unique = Unique::assume_unique_for_key(nonce);
        let sealed = match self.form {
            Form::Inner => {
                let aad = Aad::from(make_tls13_aad(length));
                self.key
                    .seal_in_place_separate_tag(unique, aad, &mut wire[from..])
            }
            Form::Explicit | Form::Implicit => {
                let aad = Aad::from(make_tls12_aad(
                    self.next,
                    kind,
                    ProtocolVersion::TLSv1_2,
                    content.len(),
                ));
                self.key
                    .seal_in_place_separate_tag(unique, aad, &mut wire[from..])
            }
        };
        let Ok(tag) = sealed else {
            // Nothing in the clear may stay behind.
            wire.truncate(start);
            return Err(BadKeys);
        };
        wire.extend_from_slice(tag.as_ref());
        self.next += 1;
        Ok(())
    }

    /// Opens the whole record `record`, header included, where it lies.
    pub(super) fn open(&mut self, record: &mut [u8]) -> Result<Opened, Broken> {
        let (header, body) = record.split_at_mut(HEADER);
        let kind = header[0];
        let explicit = if self.form == Form::Explicit { EXPLICIT } else { 0 };
        if body.len() < explicit + TAG {
            return Err(Broken::Tag);
        }
        let mut nonce = Nonce::new(&self.iv, self.next).0;
        let length = body.len();
        let (carried, sealed) = body.split_at_mut(explicit);
        if self.form == Form::Explicit {
            nonce[..4].copy_from_slice(&self.iv.as_ref()[..4]);
            nonce[4..].copy_from_slice(carried);
        }
        let unique = Unique::assume_unique_for_key(nonce);
        let opened = match self.form {
            Form::Inner => self
                .key
                .open_in_place(unique, Aad::from(make_tls13_aad(length)), sealed),
            Form::Explicit | Form::Implicit => {
                let version = ProtocolVersion::TLSv1_2;
                let aad = make_tls12_aad(self.next, ContentType::from(kind), version, sealed.len() - TAG);
                self.key.open_in_place(unique, Aad::from(aad), sealed)
            }
        };
        let plain = opened.map_err(|_| Broken::Tag)?;
        self.next += 1;
        let (kind, length) = match self.form {
            Form::Explicit | Form::Implicit => (kind, plain.len()),
            Form::Inner => {
                // RFC 8446 §5.4: zeroes behind the kind are padding.
                let last = plain.iter().rposition(|&byte| byte != 0).ok_or(Broken::Empty)?;
                (plain[last], last)
            }
        };
        if length > RECORD_PLAIN {
            return Err(Broken::TooLong);
        }
        let from = HEADER + explicit;
        Ok(Opened {
            kind,
            content: from..from + length,
        })
    }
}
