//! Certificates and keys out of PEM (RFC 7468), with messages for whoever mixed files up.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::Certificate;
use super::finding::Finding;

/// A text in PEM, and where it is from.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// Where it is from: the path of a file, or what else a message is to name.
    pub source: String,
    /// What it says.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // There may be a key in it.
        f.debug_struct("Pem")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// A certificate with those that issued it, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate first, then the one that issued it, and so on; the root may be left out.
    pub chain: Pem,
    /// The key of the first certificate: PKCS#8, PKCS#1 or SEC1. The same text may hold both.
    pub key: Pem,
}

impl Pem {
    /// Returns what the first certificate says of itself.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn first_certificate(&self) -> Result<Certificate, Finding> {
        let all = self.certificates()?;
        Certificate::read(&self.source, &all[0])
    }

    /// The certificates, in their order.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Finding> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certificates = read.map_err(|error| {
            Finding::error(
                &self.source,
                format!("expected certificates in PEM; found a broken one: {error}"),
            )
        })?;
        if certificates.is_empty() {
            let text = format!(
                "expected certificates in PEM (BEGIN CERTIFICATE); found {}",
                self.what()
            );
            return Err(Finding::error(&self.source, text));
        }
        Ok(certificates)
    }

    /// The first private key.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, Finding> {
        if self.has(b"BEGIN ENCRYPTED PRIVATE KEY") || self.has(b"Proc-Type: 4,ENCRYPTED") {
            let text = "expected a private key without a passphrase; found an encrypted one. \
                        Decrypt it: openssl pkey -in KEY -out KEY.plain";
            return Err(Finding::error(&self.source, text));
        }
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| {
            let found = if self.has(b"PRIVATE KEY-----") {
                format!("a broken one: {error}")
            } else {
                self.what().to_owned()
            };
            let text = format!("expected a private key in PEM (BEGIN PRIVATE KEY); found {found}");
            Finding::error(&self.source, text)
        })
    }

    /// What it holds, where something else was expected.
    fn what(&self) -> &'static str {
        if self.bytes.is_empty() {
            "nothing: it is empty"
        } else if self.has(b"PRIVATE KEY-----") {
            "a private key"
        } else if self.has(b"BEGIN CERTIFICATE REQUEST") {
            "a certificate request, which an authority turns into a certificate"
        } else if self.has(b"BEGIN CERTIFICATE") {
            "a certificate"
        } else if self.bytes.starts_with(&[0x30]) {
            "something like DER. Convert it: openssl x509 (or pkey) -inform DER"
        } else {
            "no PEM"
        }
    }

    fn has(&self, text: &[u8]) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text)
    }
}
