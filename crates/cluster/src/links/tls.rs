//! Mutual TLS between nodes: each presents a certificate of the cluster's authority.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The certificate of a node, in PEM.
#[derive(Clone)]
pub struct TlsFiles {
    /// Its chain.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// The authorities that issue the nodes' certificates. Every holder of such a certificate is a node: they must issue no others.
    pub authority: Vec<u8>,
    /// The name that other nodes' certificates are verified for. `None`: the host of [`LinkOptions::membership`](super::LinkOptions::membership).
    pub server_name: Option<String>,
}

impl std::fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsFiles")
    }
}

/// The reason why a certificate is unusable.
#[derive(Debug, thiserror::Error)]
#[error("the {file} is unusable: {reason}")]
pub struct TlsError {
    file: &'static str,
    reason: String,
}

/// Both directions.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    pub(super) connector: TlsConnector,
    pub(super) server_name: Option<String>,
}

fn unusable(file: &'static str) -> impl Fn(String) -> TlsError {
    move |reason| TlsError { file, reason }
}

impl TlsFiles {
    pub(super) fn load(&self) -> Result<Tls, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.map_err(|error| unusable("certificate")(error.to_string()))?;
        let key =
            PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| unusable("key")(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&self.authority) {
            let authority = authority.map_err(|error| unusable("authority")(error.to_string()))?;
            roots
                .add(authority)
                .map_err(|error| unusable("authority")(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("authority")("it contains no certificate".into()));
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| unusable("authority")(error.to_string()))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable("key")(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| unusable("certificate")(error.to_string()))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| unusable("key")(error.to_string()))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable("certificate")(error.to_string()))?;
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            server_name: self.server_name.clone(),
        })
    }
}
