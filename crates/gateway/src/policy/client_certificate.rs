//! Client certificates: the requirement, and the headers that report them to the upstream (RFC 9440).

use std::fmt::Write as _;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Cleared, PolicyInput, StepResult, UsedHeaders};
use crate::fault::Fault;
use crate::limits;
use crate::model::{self, HeaderName};

/// The client certificate policy of a rule.
#[derive(Debug)]
pub(super) struct CertificateAuth {
    policy: Arc<model::ClientCertificate>,
    /// Clients without a certificate are refused.
    required: bool,
}

const OWN: &str = "Client-Cert";
const CHAIN: &str = "Client-Cert-Chain";

/// Values of the header that reports whether a certificate is valid.
const VERIFIED: &str = "verified";
const UNVERIFIED: &str = "unverified";
const NONE: &str = "none";

impl CertificateAuth {
    /// Builds the policy. `required` refuses clients without a certificate even if the policy does not.
    pub(super) fn compile(
        policy: &Arc<model::ClientCertificate>,
        required: bool,
        names: &mut UsedHeaders,
    ) -> CertificateAuth {
        names.written.extend(CertificateAuth::written_headers(policy));
        CertificateAuth {
            policy: Arc::clone(policy),
            required: required || policy.required,
        }
    }

    /// Returns the headers that it writes for upstreams.
    pub(super) fn written_headers(policy: &model::ClientCertificate) -> impl Iterator<Item = HeaderName> {
        let own_headers = [OWN, CHAIN]
            .into_iter()
            .filter_map(|name| HeaderName::parse(name).ok());
        own_headers
            .chain(policy.fingerprint.clone())
            .chain(policy.verification.clone())
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let facts = at.req.tls();
        let valid = facts.as_ref().map_or(&[][..], |facts| &facts.peer_certificates);
        if valid.is_empty() && self.required {
            return Err(Fault::NoCertificate.into());
        }
        let Some(verification) = &self.policy.verification else {
            if let Some(fingerprint) = self.add_headers(valid, cleared) {
                cleared.set_identity(&format!("sha256:{fingerprint}").into());
            }
            return Ok(());
        };
        let invalid = facts
            .as_ref()
            .map_or(&[][..], |facts| &facts.unverified_certificates);
        let outcome = match (
            self.add_headers(valid, cleared),
            self.add_headers(invalid, cleared),
        ) {
            (Some(fingerprint), _) => {
                cleared.set_identity(&format!("sha256:{fingerprint}").into());
                VERIFIED
            }
            (None, Some(_)) => UNVERIFIED,
            (None, None) => NONE,
        };
        cleared.add_upstream_header(verification.as_str(), outcome.as_bytes());
        Ok(())
    }

    /// Adds the headers of a certificate, the first of `values`. Returns its fingerprint.
    fn add_headers(&self, values: &[Vec<u8>], cleared: &mut Cleared) -> Option<String> {
        let (own_headers, chain) = values.split_first()?;
        cleared.add_upstream_header(OWN, structured_bytes(own_headers).as_bytes());
        let is_within_limit = chain.iter().map(Vec::len).sum::<usize>() <= limits::CERTIFICATE_CHAIN_BYTES;
        if self.policy.chain && is_within_limit && !chain.is_empty() {
            let list: Vec<String> = chain
                .iter()
                .map(|certificate| structured_bytes(certificate))
                .collect();
            cleared.add_upstream_header(CHAIN, list.join(", ").as_bytes());
        }
        let fingerprint = to_hex(digest(&SHA256, own_headers).as_ref());
        if let Some(name) = &self.policy.fingerprint {
            cleared.add_upstream_header(name.as_str(), fingerprint.as_bytes());
        }
        Some(fingerprint)
    }
}

/// Returns a byte sequence of structured fields (RFC 8941 §3.3.5).
fn structured_bytes(der: &[u8]) -> String {
    let mut text = String::with_capacity(der.len() * 4 / 3 + 6);
    text.push(':');
    STANDARD.encode_string(der, &mut text);
    text.push(':');
    text
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to memory does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
