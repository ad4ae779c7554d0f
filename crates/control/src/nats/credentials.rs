//! Credentials files, and the signature of a server's nonce.
//!
//! An NKey is an Ed25519 key in base32: its kind, its bytes, and a checksum (CRC-16/XMODEM).

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The contents of a credentials file.
pub(super) struct Credentials {
    /// `None`: the key alone identifies the user.
    pub(super) jwt: Option<String>,
    key: Ed25519KeyPair,
}

/// The prefixes of a seed, and of its kind: a user.
const SEED: u8 = 18 << 3;
const USER: u8 = 20 << 3;

impl Credentials {
    /// Reads the text of a file: as `nsc` writes it, or a seed alone.
    ///
    /// # Errors
    /// Returns the expectation, without contents of the file.
    pub(super) fn parse(text: &str) -> Result<Credentials, &'static str> {
        let jwt = section(text, "NATS USER JWT");
        let seed = section(text, "USER NKEY SEED").or_else(|| (!text.contains("-----")).then(|| text.trim()));
        let expected = "expected a credentials file with a `USER NKEY SEED` of a user, found none";
        let raw = seed.and_then(decode).ok_or(expected)?;
        let (head, checksum) = raw.split_last_chunk::<2>().ok_or(expected)?;
        let ([first, second], seed) = head.split_first_chunk::<2>().ok_or(expected)?;
        let is_user = first & 0xf8 == SEED && ((first & 7) << 5) | (second >> 3) == USER;
        if !is_user || u16::from_le_bytes(*checksum) != crc(head) {
            return Err(expected);
        }
        let key = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| expected)?;
        Ok(Credentials {
            jwt: jwt.map(str::to_owned),
            key,
        })
    }

    /// Returns the public key in the encoding of NATS.
    pub(super) fn public(&self) -> String {
        let mut raw = vec![USER];
        raw.extend_from_slice(self.key.public_key().as_ref());
        raw.extend_from_slice(&crc(&raw).to_le_bytes());
        encode(&raw)
    }

    /// Signs a server's nonce.
    pub(super) fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.key.sign(nonce.as_bytes()))
    }
}

/// Returns the line after `-----BEGIN name-----`.
fn section<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, behind) = text.split_once(&format!("-----BEGIN {name}-----"))?;
    behind.trim_start().lines().next().map(str::trim_end)
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Decodes base32 (RFC 4648 §6) without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bits, mut pending) = (Vec::new(), 0u32, 0u32);
    for byte in text.bytes() {
        let value = BASE32.iter().position(|&digit| digit == byte)? as u32;
        pending = ((pending << 5) | value) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            out.push((pending >> bits) as u8);
        }
    }
    Some(out)
}

fn encode(bytes: &[u8]) -> String {
    let (mut out, mut bits, mut pending) = (String::new(), 0u32, 0u32);
    for &byte in bytes {
        pending = ((pending << 8) | u32::from(byte)) & 0xfff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            out.push(char::from(BASE32[((pending >> bits) & 31) as usize]));
        }
    }
    if bits > 0 {
        out.push(char::from(BASE32[((pending << (5 - bits)) & 31) as usize]));
    }
    out
}

/// Returns the CRC-16/XMODEM checksum.
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}
