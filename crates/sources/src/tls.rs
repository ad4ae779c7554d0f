//! TLS to brokers, for clients that take a configuration of rustls.

use std::sync::Arc;

use ringmain_gateway::model::Certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::failure::Failure;

/// The configuration of a client. Without authorities the system's are trusted.
pub(crate) fn client_config(
    authorities: Option<&[u8]>,
    certificate: Option<&Certificate>,
) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| unusable("authorities", &error))?;
                roots
                    .add(certificate)
                    .map_err(|error| unusable("authorities", &error))?;
            }
        }
        // Certificates that cannot be used are skipped, as by other programs of the system.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("versions", &error))?
        .with_root_certificates(roots);
    let Some(certificate) = certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
    let chain = chain.map_err(|error| unusable("certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.expose());
    let key = key.map_err(|error| unusable("key", &error))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable("certificate", &error))
}

fn unusable(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Settings(format!("the TLS {what} of the broker cannot be used: {error}"))
}
