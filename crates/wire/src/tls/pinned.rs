//! Server certificates that are among the trusted ones themselves, such as a self-signed one made by `openssl req -x509`.
//!
//! Such a certificate is trusted as it is, whatever it says of authorities: path building (RFC 5280 §6.1) ends at a trust anchor. Owns
//! that rule; the chain of any other certificate is the next verifier's to judge.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::certificate::Certificate;
use super::identity::{Identity, check_names};

/// A verifier that accepts trusted certificates as a server's own, and leaves all others to the next one.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// Names, one of which the certificate has to be for; none for the requested name.
    pub(super) names: Vec<Identity>,
    pub(super) next: Arc<dyn ServerCertVerifier>,
}

impl Pinned {
    /// Checks the name and the validity period of a certificate that is trusted.
    fn check(&self, der: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
        let about = Certificate::read("", der).map_err(|_| CertificateError::BadEncoding)?;
        if now.as_secs() > about.not_after {
            let not_after = UnixTime::since_unix_epoch(std::time::Duration::from_secs(about.not_after));
            return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
        }
        if now.as_secs() < about.not_before {
            let not_before = UnixTime::since_unix_epoch(std::time::Duration::from_secs(about.not_before));
            return Err(CertificateError::NotValidYetContext {
                time: now,
                not_before,
            }
            .into());
        }
        let parsed = ParsedCertificate::try_from(der)?;
        if self.names.is_empty() {
            verify_server_name(&parsed, name)
        } else {
            check_names(&self.names, der, &parsed)
        }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.certificates.iter().any(|trusted| trusted == end_entity) {
            self.check(end_entity, name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.next
            .verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.next.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.next.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.next.supported_verify_schemes()
    }
}
