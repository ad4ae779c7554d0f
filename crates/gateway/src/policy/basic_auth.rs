//! Basic authentication (RFC 7617). Password hashing is slow by design: it runs off the worker, limited by
//! [`super::passwords`], and once per password.
//!
//! For an unknown name the hash of one of the users is checked, selected by a hash of the name with a key that only the process knows.
//! So response times reveal no more about a name if users have hashes of different costs.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_sys::memory;
use ringmain_web::limits::client_network;

use super::passwords::PasswordChecks;
use super::{Cleared, PolicyInput, Refusal, StepResult, UsedHeaders};
use crate::fault::Fault;
use crate::limits;
use crate::model::{self, BasicAuth, HeaderName, User};
use crate::proxy::client_address;

/// From this many bytes of a check's memory on, the memory is returned to the system before the next check begins.
const RETURNED_BYTES: u64 = 1 << 20;

/// Basic authentication for a rule.
#[derive(Debug)]
pub(super) struct PasswordAuth {
    policy: Arc<BasicAuth>,
    /// Users, sorted by name.
    users: Box<[User]>,
    /// The key that selects the hash to check for an unknown name: derived from all hashes, so it is the same for all workers and after
    /// a restart.
    decoy: hmac::Key,
    checks: Arc<PasswordChecks>,
    challenge: Box<str>,
}

/// The credentials of a request.
struct Credentials<'b> {
    /// `None`: no user has that name.
    user: Option<&'b User>,
    /// The user whose hash is checked.
    checked: Option<&'b User>,
    password: Vec<u8>,
}

impl PasswordAuth {
    pub(super) fn compile(
        policy: &Arc<BasicAuth>,
        names: &mut UsedHeaders,
        checks: &Arc<PasswordChecks>,
    ) -> PasswordAuth {
        names.written.extend(PasswordAuth::written_headers(policy));
        if policy.hide {
            names.hidden.extend(HeaderName::parse("Authorization").ok());
        }
        let mut users = policy.users.to_vec();
        users.sort_by(|one, two| one.name.cmp(&two.name));
        let hashes: Vec<&str> = users.iter().map(|user| user.password.expose()).collect();
        PasswordAuth {
            policy: Arc::clone(policy),
            decoy: hmac::Key::new(hmac::HMAC_SHA256, hashes.join("\n").as_bytes()),
            checks: Arc::clone(checks),
            users: users.into(),
            challenge: format!("Basic realm=\"{}\", charset=\"UTF-8\"", policy.realm).into(),
        }
    }

    /// Returns the headers that it writes for upstreams.
    pub(super) fn written_headers(policy: &BasicAuth) -> impl Iterator<Item = HeaderName> {
        policy.user_header.clone().into_iter()
    }

    pub(super) fn must_wait(&self, at: &PolicyInput<'_, '_>) -> bool {
        match self.credentials(at) {
            Ok(credentials) => !self.is_cached(at, &credentials),
            Err(_) => false,
        }
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let credentials = self.credentials(at).map_err(|fault| self.refusal(fault))?;
        if !self.is_cached(at, &credentials) {
            return Err(self.refusal(Fault::CredentialsWrong));
        }
        self.admit(&credentials, cleared)
    }

    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let credentials = self.credentials(at).map_err(|fault| self.refusal(fault))?;
        let cache = &at.worker.credentials;
        let Some(hash) = credentials.checked.map(|user| user.password.clone()) else {
            return Err(self.refusal(Fault::CredentialsWrong));
        };
        let client = client_address(at.route.listener, at.req).map(client_network);
        let permit = self.checks.acquire(&at.worker.cx, client, hash.memory()).await;
        let permit = permit.ok_or(Fault::PasswordsBusy)?;
        let password = credentials.password.clone();
        let checked = at.worker.cx.blocking(move || {
            let is_valid = hash.verify(&password);
            // The allocator may retain this memory during the next check: the limit is for both.
            if hash.memory() >= RETURNED_BYTES {
                memory::give_back();
            }
            // Here, since the check runs to its end even if its client leaves.
            drop(permit);
            is_valid
        });
        let is_valid = checked.await.map_err(|_full| Fault::PasswordsBusy)?;
        let Some(user) = credentials.user.filter(|_| is_valid) else {
            return Err(self.refusal(Fault::CredentialsWrong));
        };
        cache.add_proof(cache.password_proof(user.password.expose(), &credentials.password));
        self.admit(&credentials, cleared)
    }

    fn refusal(&self, fault: Fault) -> Box<Refusal> {
        Refusal::with_challenge(fault, &self.challenge)
    }

    fn admit(&self, credentials: &Credentials<'_>, cleared: &mut Cleared) -> StepResult {
        if let Some(user) = credentials.user {
            cleared.set_identity(&user.name);
            if let Some(header) = &self.policy.user_header {
                cleared.add_upstream_header(header.as_str(), user.name.as_bytes());
            }
        }
        Ok(())
    }

    /// Parses the credentials of a request, valid or not.
    fn credentials(&self, at: &PolicyInput<'_, '_>) -> Result<Credentials<'_>, Fault> {
        let mut fields = at.req.head().fields.all("Authorization");
        let value = fields.next().ok_or(Fault::CredentialsMissing)?;
        // With two fields, the upstream might read the other one.
        if fields.next().is_some() {
            return Err(Fault::CredentialsWrong);
        }
        let encoded = credentials_after_scheme(value, b"basic").ok_or(Fault::CredentialsMissing)?;
        if encoded.len() > limits::CREDENTIAL_BYTES * 4 / 3 + 4 {
            return Err(Fault::CredentialsWrong);
        }
        let pair = STANDARD.decode(encoded).map_err(|_| Fault::CredentialsWrong)?;
        let colon = pair.iter().position(|&byte| byte == b':');
        let (name, password) = pair.split_at(colon.ok_or(Fault::CredentialsWrong)?);
        let found = self
            .users
            .binary_search_by(|user| user.name.as_bytes().cmp(name))
            .ok();
        let user = found.map(|index| &self.users[index]);
        Ok(Credentials {
            user,
            checked: user.or_else(|| self.decoy_user(name)),
            password: password[1..].to_vec(),
        })
    }

    /// Returns the user whose hash is checked for an unknown name.
    fn decoy_user(&self, name: &[u8]) -> Option<&User> {
        let tag = hmac::sign(&self.decoy, name);
        let number = tag
            .as_ref()
            .first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes));
        self.users.get((number % self.users.len().max(1) as u64) as usize)
    }

    fn is_cached(&self, at: &PolicyInput<'_, '_>, credentials: &Credentials<'_>) -> bool {
        let cache = &at.worker.credentials;
        let proof = |user: &model::User| cache.password_proof(user.password.expose(), &credentials.password);
        credentials.user.is_some_and(|user| cache.has_proof(&proof(user)))
    }
}

/// Returns the credentials after a scheme in `Authorization` (RFC 9110 §11.4). `scheme` is in lower case.
pub(super) fn credentials_after_scheme<'v>(value: &'v [u8], scheme: &[u8]) -> Option<&'v [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let is_scheme = found.eq_ignore_ascii_case(scheme) && rest.first() == Some(&b' ');
    is_scheme.then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests;
