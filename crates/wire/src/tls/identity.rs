//! Servers that are told by other names than the one that is asked for: one of a list of hosts and URIs.
//!
//! Owns the comparison of names; chain, time and purpose of a certificate are rustls's to judge.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::certificate::Certificate;
use super::client::PeerName;
use super::fault::{cut, list};

/// A name that a certificate may be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A host, or an address; a certificate for `*.` and the rest of it does too (RFC 9525 §6.3).
    Host(PeerName),
    /// A URI, compared byte by byte: a SPIFFE identity, for instance.
    Uri(String),
}

impl Identity {
    fn text(&self) -> String {
        match self {
            Identity::Host(name) => cut(&name.name().to_str()),
            Identity::Uri(uri) => cut(uri),
        }
    }
}

/// Takes certificates that these authorities have issued for at least one of these names.
#[derive(Debug)]
pub(super) struct AnyOf {
    pub(super) names: Vec<Identity>,
    pub(super) roots: RootCertStore,
    pub(super) provider: Arc<CryptoProvider>,
}

/// What such a certificate was refused for.
#[derive(Debug)]
pub(super) struct NoneOfThem {
    wanted: Vec<String>,
    presented: Vec<String>,
}

impl fmt::Display for NoneOfThem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = |names: &[String]| match names {
            [] => "no name at all (it has no subjectAltName)".to_owned(),
            names => list(names.iter().cloned()),
        };
        write!(
            f,
            "one for {}; accepted are {}",
            some(&self.presented),
            some(&self.wanted)
        )
    }
}

impl std::error::Error for NoneOfThem {}

/// Returns an error unless a certificate is for at least one of the names.
pub(super) fn check_names(
    names: &[Identity],
    der: &CertificateDer<'_>,
    parsed: &ParsedCertificate<'_>,
) -> Result<(), Error> {
    let uris = uris(der);
    let is_for = |name: &Identity| match name {
        Identity::Host(name) => verify_server_name(parsed, name.name()).is_ok(),
        Identity::Uri(uri) => uris.iter().any(|found| found == uri),
    };
    if names.iter().any(is_for) {
        return Ok(());
    }
    let hosts = Certificate::read("", der).map_or_else(|_| Vec::new(), |about| about.names);
    let presented = hosts.iter().chain(&uris).map(|name| cut(name)).collect();
    let none = NoneOfThem {
        wanted: names.iter().map(Identity::text).collect(),
        presented,
    };
    Err(Error::InvalidCertificate(CertificateError::Other(OtherError(
        Arc::new(none),
    ))))
}

/// The URIs that a certificate is for.
fn uris(der: &[u8]) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(der) else {
        return Vec::new();
    };
    let Ok(Some(extension)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let names = extension.value.general_names.iter();
    let uris = names.filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    uris.collect()
}

impl ServerCertVerifier for AnyOf {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        check_names(&self.names, end_entity, &parsed)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
