//! Basic authentication (RFC 7617). Checking a password is slow by design: it is done off the worker, and once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{At, Cleared, Names, Outcome, Refusal};
use crate::fault::Fault;
use crate::limits;
use crate::model::{self, BasicAuth, HeaderName, User};

/// See the module.
#[derive(Debug)]
pub(super) struct Basic {
    policy: Arc<BasicAuth>,
    /// Users in the order of their names.
    users: Box<[User]>,
    challenge: Box<str>,
}

/// What a request has shown.
struct Shown<'b> {
    /// `None`: nobody has that name.
    user: Option<&'b User>,
    password: Vec<u8>,
}

impl Basic {
    pub(super) fn of(policy: &Arc<BasicAuth>, names: &mut Names) -> Basic {
        names.written.extend(Basic::written(policy));
        if policy.hide {
            names.hidden.extend(HeaderName::parse("Authorization").ok());
        }
        let mut users = policy.users.to_vec();
        users.sort_by(|one, two| one.name.cmp(&two.name));
        Basic {
            policy: Arc::clone(policy),
            users: users.into(),
            challenge: format!("Basic realm=\"{}\", charset=\"UTF-8\"", policy.realm).into(),
        }
    }

    /// Headers that it writes for upstreams.
    pub(super) fn written(policy: &BasicAuth) -> impl Iterator<Item = HeaderName> {
        policy.user_header.clone().into_iter()
    }

    pub(super) fn waits(&self, at: &At<'_, '_>) -> bool {
        match self.shown(at) {
            Ok(shown) => !self.is_known(at, &shown),
            Err(_) => false,
        }
    }

    pub(super) fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let shown = self.shown(at).map_err(|fault| self.refuse(fault))?;
        if !self.is_known(at, &shown) {
            return Err(self.refuse(Fault::CredentialsWrong));
        }
        self.clear(&shown, cleared)
    }

    pub(super) async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let shown = self.shown(at).map_err(|fault| self.refuse(fault))?;
        let local = &at.worker.policies;
        let check = local.check().ok_or(Fault::PasswordsBusy)?;
        // A name that nobody has takes as long as one that somebody has.
        let by = shown.user.or(self.users.first());
        let Some(hash) = by.map(|user| user.password.clone()) else {
            return Err(self.refuse(Fault::CredentialsWrong));
        };
        let password = shown.password.clone();
        let checked = at.worker.cx.blocking(move || hash.verify(&password)).await;
        drop(check);
        let right = checked.map_err(|_full| Fault::PasswordsBusy)?;
        let Some(user) = shown.user.filter(|_| right) else {
            return Err(self.refuse(Fault::CredentialsWrong));
        };
        local.learn(local.proof(user.password.expose(), &shown.password));
        self.clear(&shown, cleared)
    }

    fn refuse(&self, fault: Fault) -> Box<Refusal> {
        Refusal::challenge(fault, &self.challenge)
    }

    fn clear(&self, shown: &Shown<'_>, cleared: &mut Cleared) -> Outcome {
        if let Some(user) = shown.user {
            cleared.identify(&user.name);
            if let Some(header) = &self.policy.user_header {
                cleared.tell_upstream(header.as_str(), user.name.as_bytes());
            }
        }
        Ok(())
    }

    /// What a request shows, whether it is right or not.
    fn shown(&self, at: &At<'_, '_>) -> Result<Shown<'_>, Fault> {
        let mut fields = at.req.head().fields.all("Authorization");
        let value = fields.next().ok_or(Fault::CredentialsMissing)?;
        // Of two nobody knows which one the upstream reads.
        if fields.next().is_some() {
            return Err(Fault::CredentialsWrong);
        }
        let encoded = scheme(value, b"basic").ok_or(Fault::CredentialsMissing)?;
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
        Ok(Shown {
            user: found.map(|index| &self.users[index]),
            password: password[1..].to_vec(),
        })
    }

    fn is_known(&self, at: &At<'_, '_>, shown: &Shown<'_>) -> bool {
        let local = &at.worker.policies;
        let proof = |user: &model::User| local.proof(user.password.expose(), &shown.password);
        shown.user.is_some_and(|user| local.knows(&proof(user)))
    }
}

/// What is behind a scheme of `Authorization` (RFC 9110 §11.4). The scheme is in lower case.
pub(super) fn scheme<'v>(value: &'v [u8], scheme: &[u8]) -> Option<&'v [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let is_scheme = found.eq_ignore_ascii_case(scheme) && rest.first() == Some(&b' ');
    is_scheme.then(|| rest.trim_ascii())
}
