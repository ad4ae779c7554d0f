//! Cipher suites by the names of IANA's registry, and the cryptography that is used.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Suites and their names, the preferred first. AES-128 stands before AES-256: its hash, SHA-256, has instructions on today's
/// processors where SHA-384 has none and takes a fifth of a handshake (docs/decisions/0010-aes-128-first.md).
const NAMES: &[(CipherSuite, &str)] = &[
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

/// The names of the suites that there are, the preferred first: all of them have forward secrecy and an AEAD.
pub fn suite_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|suite| suite.1)
}

/// The IANA name of a suite.
pub(super) fn name(suite: CipherSuite) -> &'static str {
    let named = NAMES.iter().find(|named| named.0 == suite);
    named.map_or("unknown", |named| named.1)
}

/// The cryptography, with the suites of these names in this order; with all of them if there are no names.
///
/// # Errors
/// The names that no suite has.
pub(super) fn provider(names: &[String]) -> Result<Arc<CryptoProvider>, Vec<String>> {
    let mut provider = aws_lc_rs::default_provider();
    if names.is_empty() {
        let place = |suite| {
            NAMES
                .iter()
                .position(|named| named.0 == suite)
                .unwrap_or(NAMES.len())
        };
        provider.cipher_suites.sort_by_key(|suite| place(suite.suite()));
        return Ok(Arc::new(provider));
    }
    let all = std::mem::take(&mut provider.cipher_suites);
    let mut unknown = Vec::new();
    for wanted in names {
        match all.iter().find(|suite| name(suite.suite()) == wanted) {
            Some(suite) => provider.cipher_suites.push(*suite),
            None => unknown.push(wanted.clone()),
        }
    }
    if unknown.is_empty() {
        Ok(Arc::new(provider))
    } else {
        Err(unknown)
    }
}
