//! A certificate for local development, created in memory, with an authority that issues only this certificate and whose key is discarded.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair as Key, KeyUsagePurpose, date_time_ymd,
};
use ringmain_wire::tls::{KeyPair, Pem};

use crate::limits::DEV_CERTIFICATE_DAYS;

/// The source that diagnostics name.
const SOURCE: &str = "development certificate";

/// The names that each certificate is valid for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate and the authority that issued it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevCertificate {
    /// The certificate chain and key to serve.
    pub pair: KeyPair,
    /// The authority's certificate in PEM, which clients need to trust, as in `curl --cacert`. Its key is discarded, so it cannot issue
    /// another certificate.
    pub authority: Pem,
}

/// The certificate could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create a certificate for {names}: {error}")]
pub struct DevCertificateError {
    names: String,
    error: rcgen::Error,
}

impl DevCertificate {
    /// Creates a certificate for localhost, its addresses and `names`. It is valid for [`DEV_CERTIFICATE_DAYS`] days, from one day before
    /// `now`, which is the time since the Unix epoch.
    ///
    /// # Errors
    /// [`DevCertificateError`] if a name is invalid.
    pub fn new(names: &[String], now: Duration) -> Result<Self, DevCertificateError> {
        let mut all: Vec<String> = NAMES.iter().map(|&name| name.to_owned()).collect();
        all.extend(
            names
                .iter()
                .filter(|name| !NAMES.contains(&name.as_str()))
                .cloned(),
        );
        create(&all, now).map_err(|error| DevCertificateError {
            names: all.join(", "),
            error,
        })
    }
}

fn create(names: &[String], now: Duration) -> Result<DevCertificate, rcgen::Error> {
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
    Ok(DevCertificate {
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
    params.not_after = start + DAY * DEV_CERTIFICATE_DAYS;
    Ok(params)
}
