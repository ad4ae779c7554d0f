//! A certificate for the developer's own machine, made in memory: an authority for this one certificate, whose key is forgotten.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair as Key, KeyUsagePurpose, date_time_ymd,
};
use ringmain_wire::tls::{KeyPair, Pem};

use crate::limits::DEVELOPMENT_DAYS;

/// Where messages say that it is from.
const SOURCE: &str = "development certificate";

/// What it is for, always.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate and the authority that issued it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Development {
    /// What is served.
    pub pair: KeyPair,
    /// What a client trusts, in PEM, as for `curl --cacert`; it can issue nothing else, since nobody has its key.
    pub authority: Pem,
}

/// It could not be made.
#[derive(Debug, thiserror::Error)]
#[error("expected to make a certificate for {names}; found: {error}")]
pub struct NoCertificate {
    names: String,
    error: rcgen::Error,
}

impl Development {
    /// Makes one for localhost, its addresses and `names`, valid for [`DEVELOPMENT_DAYS`] from a day before `now`, which is wall
    /// time since 1970.
    ///
    /// # Errors
    /// [`NoCertificate`] when a name is none.
    pub fn new(names: &[String], now: Duration) -> Result<Self, NoCertificate> {
        let mut all: Vec<String> = NAMES.iter().map(|&name| name.to_owned()).collect();
        all.extend(
            names
                .iter()
                .filter(|name| !NAMES.contains(&name.as_str()))
                .cloned(),
        );
        make(&all, now).map_err(|error| NoCertificate {
            names: all.join(", "),
            error,
        })
    }
}

fn make(names: &[String], now: Duration) -> Result<Development, rcgen::Error> {
    let mut authority = params(Vec::new(), "Ringmain development authority", now)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority_key = Key::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let mut leaf = params(names.to_vec(), "Ringmain development", now)?;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let key = Key::generate()?;
    let certificate = leaf.signed_by(&key, &Issuer::new(authority, authority_key))?;
    let pem = |text: String| Pem {
        source: SOURCE.to_owned(),
        bytes: text.into_bytes(),
    };
    Ok(Development {
        pair: KeyPair {
            chain: pem(certificate.pem()),
            key: pem(key.serialize_pem()),
        },
        authority: pem(authority_certificate.pem()),
    })
}

fn params(names: Vec<String>, title: &str, now: Duration) -> Result<CertificateParams, rcgen::Error> {
    const DAY: Duration = Duration::from_secs(86_400);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, title);
    let start = date_time_ymd(1970, 1, 1) + now.saturating_sub(DAY);
    params.not_before = start;
    params.not_after = start + DAY * DEVELOPMENT_DAYS;
    Ok(params)
}
