//! Certificates of clients: which of them settings demand, and which of those that clients show are valid.
//!
//! Owns both checks: that of the handshake, and that of an established session by settings that have changed since. Reads no clock
//! but the caller's.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::clock::Clock;
use super::facts::Facts;

/// The treatment of clients without a valid certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// They need none; an invalid one is refused.
    Optional,
    /// They are refused.
    Required,
    /// They are admitted.
    Unchecked,
}

/// The demands of one set of server settings.
#[derive(Clone, Debug)]
pub(super) struct ClientPolicy {
    /// `None`: clients are not asked for certificates.
    asked: Option<(Demand, Arc<dyn ClientCertVerifier>)>,
    clock: Clock,
}

impl ClientPolicy {
    pub(super) fn new(asked: Option<(Demand, Arc<dyn ClientCertVerifier>)>, clock: &Clock) -> Self {
        Self {
            asked,
            clock: clock.clone(),
        }
    }

    /// Returns the verifier of handshakes; `None`: clients are not asked.
    pub(super) fn handshake_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let (demand, verifier) = self.asked.as_ref()?;
        Some(match demand {
            Demand::Unchecked => Arc::new(AcceptsAny(Arc::clone(verifier))),
            Demand::Optional | Demand::Required => Arc::clone(verifier),
        })
    }

    /// Returns whether a handshake accepts certificates without verification.
    pub(super) fn is_unchecked(&self) -> bool {
        matches!(self.asked, Some((Demand::Unchecked, _)))
    }

    /// Separates a certificate that is not valid from those that are.
    pub(super) fn separate(&self, facts: &mut Facts) {
        if self.is_unchecked() && !self.verifies(&facts.peer_certificates) {
            facts.unverified_certificates = std::mem::take(&mut facts.peer_certificates);
        }
    }

    /// Returns whether a handshake by this policy would have had the same outcome as the one that established these facts.
    pub(super) fn admits(&self, facts: &Facts) -> bool {
        let (valid, invalid) = (&facts.peer_certificates, &facts.unverified_certificates);
        let Some((demand, _)) = &self.asked else {
            return valid.is_empty() && invalid.is_empty();
        };
        let needs = match demand {
            Demand::Required => !valid.is_empty(),
            Demand::Optional => invalid.is_empty(),
            Demand::Unchecked => invalid.is_empty() || !self.verifies(invalid),
        };
        needs && (valid.is_empty() || self.verifies(valid))
    }

    /// Returns whether one of the authorities has issued the first certificate of `chain`, and it is valid now.
    fn verifies(&self, chain: &[Vec<u8>]) -> bool {
        let Some((_, verifier)) = &self.asked else {
            return false;
        };
        let mut chain = chain.iter().map(|der| CertificateDer::from(&der[..]));
        let Some(own) = chain.next() else { return false };
        let issuers: Vec<CertificateDer<'_>> = chain.collect();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(self.clock.seconds()));
        verifier.verify_client_cert(&own, &issuers, now).is_ok()
    }
}

/// A verifier of handshakes that accepts every certificate; [`ClientPolicy::separate`] verifies it afterwards. A client must still have
/// the key of its certificate.
#[derive(Debug)]
struct AcceptsAny(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AcceptsAny {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unless_unreadable(
            certificate,
            self.0.verify_tls12_signature(message, certificate, signed),
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        unless_unreadable(
            certificate,
            self.0.verify_tls13_signature(message, certificate, signed),
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts the signature of a client whose certificate cannot be parsed (one of X.509 version 1, say): no signature can be verified by it,
/// and [`ClientPolicy::verifies`] cannot parse it either, so that it counts as invalid. Any other error is final: without a verified signature a
/// client could present the certificate of another one.
fn unless_unreadable(
    certificate: &CertificateDer<'_>,
    verified: Result<HandshakeSignatureValid, Error>,
) -> Result<HandshakeSignatureValid, Error> {
    match verified {
        Err(_) if ParsedCertificate::try_from(certificate).is_err() => {
            Ok(HandshakeSignatureValid::assertion())
        }
        verified => verified,
    }
}

#[cfg(test)]
mod tests;
