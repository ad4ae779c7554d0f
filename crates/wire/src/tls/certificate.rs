//! Certificates as they are served: read, judged before they are used, and described.
//!
//! Owns the checks of one certificate with its chain and key; whether a peer's certificate is trusted is rustls's decision.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::fault::{cut, list, moment};
use super::finding::Finding;
use super::pem::KeyPair;

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Where it is from: [`Pem::source`](super::Pem).
    pub source: String,
    /// Names and addresses that it is for, in lower case; `*.` in front for all names one label below.
    pub names: Vec<String>,
    /// Whom it is issued to, as it says.
    pub subject: String,
    /// Who issued it, as it says.
    pub issuer: String,
    /// From when it is valid: seconds since 1970.
    pub not_before: u64,
    /// To when it is valid: seconds since 1970.
    pub not_after: u64,
    /// SHA-256 of its DER.
    pub fingerprint: [u8; 32],
}

/// A certificate that can be served.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) about: Certificate,
    pub(super) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Whole days from `now` (seconds since 1970) until it expires; negative once it has.
    #[must_use]
    pub fn days_left(&self, now: u64) -> i64 {
        (self.not_after as i64 - now as i64).div_euclid(86_400)
    }

    /// The fingerprint as others print it: pairs of hexadecimal digits with colons.
    #[must_use]
    pub fn fingerprint_text(&self) -> String {
        let pairs: Vec<String> = self
            .fingerprint
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        pairs.join(":")
    }

    /// Reads one from DER.
    pub(super) fn read(source: &str, der: &[u8]) -> Result<Self, Finding> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| {
            Finding::error(
                source,
                format!("expected an X.509 certificate; found one that cannot be read: {error}"),
            )
        })?;
        let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, der).as_ref());
        Ok(Self {
            source: source.to_owned(),
            names: names(&parsed),
            subject: cut(&parsed.subject().to_string()),
            issuer: cut(&parsed.issuer().to_string()),
            not_before: seconds(parsed.validity().not_before),
            not_after: seconds(parsed.validity().not_after),
            fingerprint,
        })
    }

    /// The names for a message.
    pub(super) fn names_text(&self) -> String {
        if self.names.is_empty() {
            self.subject.clone()
        } else {
            list(self.names.iter().map(|name| cut(name)))
        }
    }

    /// Whether it is valid at `now`; one that is `serving` already stays, with a warning.
    fn check_time(&self, now: u64, serving: &[[u8; 32]], findings: &mut Vec<Finding>) {
        let text = if now > self.not_after {
            format!(
                "expected a certificate that is valid now ({}); found one for {} that expired on {}. Renew it",
                moment(now),
                self.names_text(),
                moment(self.not_after)
            )
        } else if now < self.not_before {
            format!(
                "expected a certificate that is valid now ({}); found one for {} that is valid from {}. \
                 Is this machine's clock right?",
                moment(now),
                self.names_text(),
                moment(self.not_before)
            )
        } else {
            return;
        };
        findings.push(if serving.contains(&self.fingerprint) {
            Finding::warning(&self.source, text)
        } else {
            Finding::error(&self.source, text)
        });
    }
}

/// The name that a certificate in DER is known by: its first URI, such as a SPIFFE id, else its first DNS name, else its subject. `None`
/// for other bytes.
pub(super) fn certificate_principal(der: &[u8]) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    let uri = names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let dns = || {
        names.iter().find_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
    };
    Some(uri.or_else(dns).unwrap_or_else(|| parsed.subject().to_string()))
}

impl Served {
    /// Reads a certificate, its chain and its key, and says all that is wrong with them.
    pub(super) fn read(
        pair: &KeyPair,
        provider: &CryptoProvider,
        now: u64,
        serving: &[[u8; 32]],
        findings: &mut Vec<Finding>,
    ) -> Option<Self> {
        let chain = pair.chain.certificates();
        let key = pair.key.key();
        let (chain, key) = match (chain, key) {
            (Ok(chain), Ok(key)) => (chain, key),
            (chain, key) => {
                findings.extend(chain.err());
                findings.extend(key.err());
                return None;
            }
        };
        let about = match Certificate::read(&pair.chain.source, &chain[0]) {
            Ok(about) => about,
            Err(finding) => {
                findings.push(finding);
                return None;
            }
        };
        about.check_time(now, serving, findings);
        check_chain(&about.source, &chain, findings);
        let first = chain[0].clone();
        match CertifiedKey::from_der(chain.clone(), key, provider) {
            Ok(key) => {
                if about.names.is_empty() {
                    let text = format!(
                        "expected names (subjectAltName); found none in {}: clients refuse it",
                        about.subject
                    );
                    findings.push(Finding::warning(&about.source, text));
                }
                Some(Self {
                    about,
                    key: Arc::new(key),
                })
            }
            Err(error) => {
                findings.push(key_finding(pair, &first, &chain, &error, provider));
                None
            }
        }
    }

    /// The algorithm of its key, as far as two of them can stand beside each other.
    pub(super) fn algorithm(&self) -> rustls::SignatureAlgorithm {
        self.key.key.algorithm()
    }
}

/// Why certificate and key do not go together.
fn key_finding(
    pair: &KeyPair,
    first: &CertificateDer<'_>,
    chain: &[CertificateDer<'static>],
    error: &Error,
    provider: &CryptoProvider,
) -> Finding {
    if *error != Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
        let text = format!(
            "expected a key of RSA (2048 bits or more), ECDSA or Ed25519; found one that cannot be used: {error}"
        );
        return Finding::error(&pair.key.source, text);
    }
    let of = |der: &[u8]| {
        Certificate::read(&pair.chain.source, der).map_or_else(|_| "it".to_owned(), |one| one.names_text())
    };
    // The key may be another's in the file.
    let other = chain.iter().skip(1).find(|der| {
        let key = pair
            .key
            .key()
            .ok()
            .and_then(|key| provider.key_provider.load_private_key(key).ok());
        key.is_some_and(|key| CertifiedKey::new(vec![(*der).clone()], key).keys_match().is_ok())
    });
    let text = match other {
        Some(other) => format!(
            "expected the certificate of the key in {} first; found {} first, and {} behind it. Put the certificate before those \
             that issued it",
            pair.key.source,
            of(first),
            of(other)
        ),
        None => format!(
            "expected the key of the certificate for {} (in {}); found another key",
            of(first),
            pair.chain.source
        ),
    };
    Finding::error(&pair.key.source, text)
}

/// Each certificate is issued by the next one (RFC 5246 §7.4.2; clients of RFC 8446 may do with less).
fn check_chain(source: &str, chain: &[CertificateDer<'_>], findings: &mut Vec<Finding>) {
    let parsed: Vec<_> = chain
        .iter()
        .map(|der| X509Certificate::from_der(der).ok().map(|one| one.1))
        .collect();
    for (at, pair) in parsed.windows(2).enumerate() {
        match pair {
            [Some(one), Some(next)] if one.issuer().as_raw() != next.subject().as_raw() => {
                let text = format!(
                    "expected each certificate to be issued by the next; found certificate {} ({}) issued by {}, and certificate {} \
                     is {}. Is the order wrong, or one missing?",
                    at + 1,
                    cut(&one.subject().to_string()),
                    cut(&one.issuer().to_string()),
                    at + 2,
                    cut(&next.subject().to_string()),
                );
                findings.push(Finding::error(source, text));
            }
            [_, None] => {
                let text = format!(
                    "expected X.509 certificates; found that certificate {} cannot be read",
                    at + 2
                );
                findings.push(Finding::error(source, text));
            }
            _ => {}
        }
    }
}

fn names(parsed: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(alternative)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|bytes| Ipv4Addr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|bytes| Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    };
    alternative.value.general_names.iter().filter_map(name).collect()
}
