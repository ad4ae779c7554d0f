//! API keys: stored as SHA-256 digests only, so that a leaked file of digests gives no access.

use std::borrow::Cow;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use super::basic_auth::credentials_after_scheme;
use super::{Cleared, PolicyInput, Refusal, StepResult, UsedHeaders};
use crate::fault::Fault;
use crate::limits;
use crate::model::{ApiKey, ApiKeys, CredentialSource, HeaderName};

/// The API keys of a rule.
#[derive(Debug)]
pub(super) struct ApiKeyAuth {
    policy: Arc<ApiKeys>,
    /// Keys, sorted by digest.
    keys: Box<[ApiKey]>,
}

const CHALLENGE: &str = "ApiKey";

impl ApiKeyAuth {
    pub(super) fn compile(policy: &Arc<ApiKeys>, names: &mut UsedHeaders) -> ApiKeyAuth {
        names.written.extend(ApiKeyAuth::written_headers(policy));
        if policy.hide {
            names
                .hidden
                .extend(policy.from.iter().filter_map(|source| match source {
                    CredentialSource::Header(name) => Some(name.clone()),
                    CredentialSource::Query(_) | CredentialSource::Cookie(_) => None,
                }));
        }
        let mut keys = policy.keys.to_vec();
        keys.sort_by_key(|key| key.digest);
        ApiKeyAuth {
            policy: Arc::clone(policy),
            keys: keys.into(),
        }
    }

    /// Returns the headers that it writes for upstreams.
    pub(super) fn written_headers(policy: &ApiKeys) -> impl Iterator<Item = HeaderName> {
        policy.consumer_header.clone().into_iter()
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let refuse = |fault| Refusal::with_challenge(fault, CHALLENGE);
        let mut credentials = self
            .policy
            .from
            .iter()
            .filter_map(|source| credential(source, at));
        let credentials = credentials
            .next()
            .ok_or_else(|| refuse(Fault::CredentialsMissing))?;
        if credentials.len() > limits::CREDENTIAL_BYTES {
            return Err(refuse(Fault::CredentialsWrong));
        }
        let credentials = digest(&SHA256, &credentials);
        // The time of the search depends on digests, which clients cannot choose.
        let entry = self
            .keys
            .binary_search_by(|key| key.digest[..].cmp(credentials.as_ref()));
        let key = entry.ok().map(|index| &self.keys[index]);
        let matches = |key: &&ApiKey| verify_slices_are_equal(&key.digest, credentials.as_ref()).is_ok();
        let Some(key) = key.filter(matches) else {
            return Err(refuse(Fault::CredentialsWrong));
        };
        cleared.set_identity(&key.consumer);
        if let Some(header) = &self.policy.consumer_header {
            cleared.add_upstream_header(header.as_str(), key.consumer.as_bytes());
        }
        Ok(())
    }
}

/// Returns a request's value at a place, if it has exactly one there.
pub(super) fn credential<'r>(source: &CredentialSource, at: &PolicyInput<'_, 'r>) -> Option<Cow<'r, [u8]>> {
    match source {
        CredentialSource::Header(name) => {
            let mut values = at.req.head().fields.all(name.as_str());
            let value = values.next().filter(|_| values.next().is_none())?;
            let value = if name.as_str().eq_ignore_ascii_case("authorization") {
                credentials_after_scheme(value, b"bearer")?
            } else {
                value
            };
            Some(Cow::Borrowed(value))
        }
        CredentialSource::Query(name) => {
            let query = at.req.query().ok()?;
            let mut values = query.all(name);
            let value = values.next().filter(|_| values.next().is_none())?;
            Some(Cow::Owned(value.into_owned().into_bytes()))
        }
        CredentialSource::Cookie(name) => at
            .req
            .cookies()
            .get(name)
            .map(|value| Cow::Borrowed(value.as_bytes())),
    }
}
