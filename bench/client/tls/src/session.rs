//! TLS settings of one place: what is offered, and which tickets are kept.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use crate::options::Mode;

/// Tickets kept: a server sends two or so with each handshake, and each is used once.
const TICKETS: usize = 8;

pub(crate) struct Sessions(Arc<ClientConfig>);

impl Sessions {
    pub(crate) fn new(mode: Mode) -> Self {
        let provider = CryptoProvider {
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384],
            ..aws_lc_rs::default_provider()
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the suite is one of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unlooked))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = match mode {
            Mode::Resumed => Resumption::in_memory_sessions(TICKETS),
            Mode::Keep | Mode::Full => Resumption::disabled(),
        };
        Self(Arc::new(config))
    }

    pub(crate) fn start(&self) -> ClientConnection {
        let name = ServerName::try_from("localhost").expect("it is a name");
        ClientConnection::new(Arc::clone(&self.0), name).expect("the settings are right")
    }
}

/// Takes any certificate and signature: what is measured is the server.
#[derive(Debug)]
struct Unlooked;

impl ServerCertVerifier for Unlooked {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}
