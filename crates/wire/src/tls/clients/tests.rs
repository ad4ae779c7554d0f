//! Signatures of handshakes in which certificates are not verified.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error, OtherError};

use super::unless_unreadable;

fn certificate() -> CertificateDer<'static> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["client.example".to_owned()]).expect("a name");
    params.self_signed(&key).expect("a certificate").der().clone()
}

fn accepts(certificate: &CertificateDer<'_>, verified: Result<HandshakeSignatureValid, Error>) -> bool {
    unless_unreadable(certificate, verified).is_ok()
}

#[test]
fn signatures_are_exempt_only_where_the_certificate_cannot_be_parsed() {
    let (readable, unreadable) = (certificate(), CertificateDer::from(&b"no certificate"[..]));
    assert!(accepts(&readable, Ok(HandshakeSignatureValid::assertion())));
    let other = CertificateError::Other(OtherError(Arc::new(std::fmt::Error)));
    for error in [
        CertificateError::BadSignature,
        CertificateError::BadEncoding,
        other,
    ] {
        let failed = || Err(Error::InvalidCertificate(error.clone()));
        assert!(!accepts(&readable, failed()), "{error:?}");
        assert!(accepts(&unreadable, failed()), "{error:?}");
    }
}
