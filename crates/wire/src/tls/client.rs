//! A client's settings, and what its sessions are begun from. Reads no file and no clock.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::certificate::Served;
use super::clock::Clock;
use super::fault::Fault;
use super::finding::{Finding, is_fatal};
use super::handshake::Handshake;
use super::identity::{AnyOf, Identity};
use super::key_log::KeyLog;
use super::pem::{KeyPair, Pem};
use super::pinned::Pinned;
use super::server::{check_alpn, roots, unknown_suites, unusable_suites};
use super::session::Session;
use super::suites;
use super::version::Version;

/// Servers whose sessions a client keeps to resume them; of more, the oldest are forgotten.
pub const RESUMABLE_SERVERS: usize = 256;

/// Whose certificates a client takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those issued by these authorities, and these certificates themselves.
    Authorities(Pem),
    /// Those issued by these authorities, in DER: the host's own. One that cannot be read is left out.
    Roots(Vec<Vec<u8>>),
    /// Anybody's, for any name and time: whoever sits in between reads and changes everything. For load generators alone.
    AnybodyInsecure,
}

/// What a client wants.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Whose certificates it takes.
    pub trust: Trust,
    /// Names, one of which a server's certificate has to be for, in place of the one that is asked for; none for that one.
    pub identities: Vec<Identity>,
    /// What it shows when a server asks for a certificate.
    pub certificate: Option<KeyPair>,
    /// The lowest version that it speaks.
    pub minimum_version: Version,
    /// Cipher suites by their IANA names, the preferred first; none for all of [`suite_names`](super::suite_names).
    pub suites: Vec<String>,
    /// Application protocols that it offers, the preferred first.
    pub alpn: Vec<Vec<u8>>,
    /// Whether it says which name it wants (SNI); it never does of an address.
    pub send_name: bool,
    /// Whether it resumes sessions: those of all its connections, up to [`RESUMABLE_SERVERS`] servers.
    pub resume: bool,
    /// Where the secrets of sessions are written, if anywhere.
    pub key_log: Option<KeyLog>,
}

impl ClientSettings {
    /// Settings for whom that trusts.
    #[must_use]
    pub fn new(trust: Trust) -> Self {
        Self {
            trust,
            identities: Vec::new(),
            certificate: None,
            minimum_version: Version::Tls12,
            suites: Vec::new(),
            alpn: Vec::new(),
            send_name: true,
            resume: true,
            key_log: None,
        }
    }

    /// Makes what sessions are begun from; certificates are judged by `clock`.
    ///
    /// # Errors
    /// All that is wrong, warnings included, if anything is that forbids to go on.
    pub fn build(&self, clock: &Clock) -> Result<Client, Vec<Finding>> {
        let mut findings = Vec::new();
        let config = self.config(clock, &mut findings);
        match config {
            Some(config) if !is_fatal(&findings) => Ok(Client {
                config: Arc::new(config),
                warnings: findings,
            }),
            _ => Err(findings),
        }
    }

    fn config(&self, clock: &Clock, findings: &mut Vec<Finding>) -> Option<ClientConfig> {
        let provider = suites::provider(&self.suites).unwrap_or_else(|unknown| {
            findings.push(unknown_suites(&unknown));
            Arc::new(rustls::crypto::aws_lc_rs::default_provider())
        });
        check_alpn(&self.alpn, findings);
        let pair = self.certificate.as_ref();
        let shown = pair.map(|pair| Served::read(pair, &provider, clock.seconds(), &[], findings));
        let verifier = self.verifier(&provider, findings);
        let builder = ClientConfig::builder_with_details(provider, Arc::new(clock.clone()));
        let Ok(builder) = builder.with_protocol_versions(self.minimum_version.and_later()) else {
            findings.push(unusable_suites(self.minimum_version));
            return None;
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier?);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some(shown) => {
                let key = rustls::sign::SingleCertAndKey::from(shown?.key);
                builder.with_client_cert_resolver(Arc::new(key))
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config.enable_sni = self.send_name;
        config.enable_early_data = false;
        config.resumption = if self.resume {
            Resumption::in_memory_sessions(RESUMABLE_SERVERS)
        } else {
            Resumption::disabled()
        };
        // Keys are taken out when a handshake is over: records are opened where they lie.
        config.enable_secret_extraction = true;
        if let Some(log) = &self.key_log {
            config.key_log = Arc::new(log.clone());
        }
        Some(config)
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        findings: &mut Vec<Finding>,
    ) -> Option<Arc<dyn ServerCertVerifier>> {
        let roots = match &self.trust {
            Trust::AnybodyInsecure => return Some(Arc::new(Anybody(provider.clone()))),
            Trust::Authorities(pem) => roots(pem, findings)?,
            Trust::Roots(ders) => {
                let mut roots = RootCertStore::empty();
                let ders = ders.iter().map(|der| CertificateDer::from(der.as_slice()));
                if roots.add_parsable_certificates(ders).0 == 0 {
                    let text = "expected the host's certificates of authorities; found none. \
                                Install them (ca-certificates), or name an authority";
                    findings.push(Finding::error("trust", text));
                    return None;
                }
                roots
            }
        };
        let next: Arc<dyn ServerCertVerifier> = if self.identities.is_empty() {
            let built =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
            let failed = |error| findings.push(Finding::error("trust", format!("{error}")));
            built.map_err(failed).ok()?
        } else {
            Arc::new(AnyOf {
                names: self.identities.clone(),
                roots,
                provider: provider.clone(),
            })
        };
        let Trust::Authorities(pem) = &self.trust else {
            return Some(next);
        };
        Some(Arc::new(Pinned {
            certificates: pem.certificates().unwrap_or_default(),
            names: self.identities.clone(),
            next,
        }))
    }
}

/// What a client's sessions are begun from, with the sessions that can be resumed.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    warnings: Vec<Finding>,
}

/// Whom a client wants to talk to: a name or an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName(ServerName<'static>);

/// Neither a name nor an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name or an address; found \"{0}\"")]
pub struct BadName(String);

impl PeerName {
    /// Reads a name, or an address without brackets or port.
    ///
    /// # Errors
    /// [`BadName`]: it is neither.
    pub fn new(name: &str) -> Result<Self, BadName> {
        let read = ServerName::try_from(name.to_owned());
        read.map(Self).map_err(|_| BadName(super::fault::cut(name)))
    }

    pub(super) fn name(&self) -> &ServerName<'static> {
        &self.0
    }
}

impl Client {
    /// A session with `peer`, whose certificate has to be for that name. [`Session::begin`] says hello.
    #[must_use]
    pub fn session(&self, peer: &PeerName) -> Session {
        match UnbufferedClientConnection::new(self.config.clone(), peer.0.clone()) {
            Ok(connection) => Session::new(Handshake::client(connection)),
            Err(error) => Session::failed(Fault::of(&error)),
        }
    }

    /// What is likely not meant, in the settings that this was made of.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }
}

/// Takes any certificate; that the peer has its key is checked all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
