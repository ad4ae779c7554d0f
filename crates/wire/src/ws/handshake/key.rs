//! The nonce of a client and its proof by the server (RFC 6455 §4.2.2). Not a secret: it only shows that the server
//! knows the protocol, so that SHA-1 does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Base64 of 16 bytes.
pub(super) const KEY_BYTES: usize = 24;
/// Base64 of the 20 bytes of a SHA-1.
pub(super) const ACCEPT_BYTES: usize = 28;

/// A client's key from 16 random bytes.
pub(super) fn key(nonce: [u8; 16]) -> [u8; KEY_BYTES] {
    encoded(&nonce)
}

/// Whether a client may send that key.
pub(super) fn is_key(key: &[u8]) -> bool {
    // Decoding estimates by whole groups of four characters, so there is room for 18 bytes.
    let mut nonce = [0; 18];
    key.len() == KEY_BYTES && STANDARD.decode_slice(key, &mut nonce) == Ok(16)
}

/// What the server answers to a client's key.
pub(super) fn accept(key: &[u8]) -> [u8; ACCEPT_BYTES] {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(SUFFIX);
    encoded(&hash.digest().bytes())
}

fn encoded<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let mut text = [0; BYTES];
    let length = STANDARD.encode_slice(bytes, &mut text);
    assert_eq!(length, Ok(BYTES), "lengths are constants of the protocol");
    text
}
