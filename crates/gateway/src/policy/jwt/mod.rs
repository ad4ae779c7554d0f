//! JWT authentication (RFC 7519): signatures, validity and claims; refusals as in RFC 6750.
//!
//! `ringmain-jwt` parses and verifies tokens; this module obtains keys and evaluates rules. A verified token is cached by its bytes;
//! its times, and the requirements of the rule, are checked for each request.

mod claims;
pub(crate) mod jwks_fetch;
mod provider;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_jwt::{KeySet, ParsedToken, TokenError};
use ringmain_wire::h1::FieldBlock;

pub(super) use self::claims::TokenClaims;
use self::claims::has_audience;
pub(crate) use self::provider::KeyProvider;
use self::provider::{KeyLookup, WaitPermission};
use super::api_keys::credential;
use super::{Cleared, PolicyInput, PolicyRegistry, Refusal, StepResult, UsedHeaders, add_header};
use crate::fault::Fault;
use crate::limits;
use crate::model::{self, CredentialSource, HeaderName, JwtKeys, Target};
use crate::upstream::registry::UpstreamRegistry as Upstreams;

/// JWT authentication for a rule.
#[derive(Debug)]
pub(super) struct JwtAuth {
    /// Unique over the life of the process.
    id: u64,
    policy: Arc<model::Jwt>,
    providers: Box<[Arc<KeyProvider>]>,
    realm: Box<str>,
}

/// A verified token in a worker's cache. Its times are checked for each use.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    provider: u64,
    generation: u64,
    claims: Rc<TokenClaims>,
    grants: RefCell<Vec<CachedGrant>>,
}

/// A cached decision that a token satisfies a policy, with the resulting headers: both depend on the token and the policy alone.
#[derive(Debug)]
struct CachedGrant {
    policy: u64,
    upstream: FieldBlock,
}

impl VerifiedToken {
    fn cache_grant(&self, policy: u64, upstream: FieldBlock) {
        let grants = &mut *self.grants.borrow_mut();
        if upstream.capacity() > limits::TOKEN_GRANT_BYTES {
            return;
        }
        if grants.len() == limits::TOKEN_GRANTS {
            grants.remove(0);
        }
        grants.push(CachedGrant { policy, upstream });
    }
}

/// The reason that a token is not verified.
enum TokenRejection {
    Refused(Box<Refusal>),
    /// Not yet: a provider's keys must be fetched first.
    KeysMissing(Arc<KeyProvider>),
}

impl From<Box<Refusal>> for TokenRejection {
    fn from(refusal: Box<Refusal>) -> TokenRejection {
        TokenRejection::Refused(refusal)
    }
}

/// Checks that a text is a usable set of keys.
///
/// # Errors
/// The expected and the actual content.
pub(crate) fn check_key_set(json: &[u8]) -> Result<(), String> {
    KeySet::parse(json).map(|_| ())
}

impl JwtAuth {
    pub(super) fn compile(
        policy: &Arc<model::Jwt>,
        names: &mut UsedHeaders,
        registry: &mut PolicyRegistry,
        upstreams: &Upstreams,
    ) -> Result<JwtAuth, String> {
        names.written.extend(JwtAuth::written_headers(policy));
        let providers = policy
            .providers
            .iter()
            .map(|provider| registry.provider(provider, upstreams));
        let providers: Box<[_]> = providers.collect::<Result<_, _>>()?;
        if policy.hide {
            let sources = policy.providers.iter().flat_map(|provider| &provider.from);
            names.hidden.extend(sources.filter_map(header_of));
        }
        let first = policy.providers.first().ok_or("no provider of tokens")?;
        registry.last_id += 1;
        Ok(JwtAuth {
            id: registry.last_id,
            realm: first.issuer.replace(['"', '\\'], "").into(),
            policy: Arc::clone(policy),
            providers,
        })
    }

    /// Returns the headers that it writes for upstreams.
    pub(super) fn written_headers(policy: &model::Jwt) -> impl Iterator<Item = HeaderName> {
        policy.headers.iter().map(|header| header.name.clone())
    }

    pub(super) fn providers(&self) -> &[Arc<KeyProvider>] {
        &self.providers
    }

    pub(super) fn must_wait(&self, at: &PolicyInput<'_, '_>) -> bool {
        let remote = |provider: &Arc<KeyProvider>| matches!(provider.config.keys, JwtKeys::Remote(_));
        if !self.providers.iter().any(remote) {
            return false;
        }
        let Some(token) = self.presented_token(at) else {
            return false;
        };
        if self.cached_token(at, &token).is_some() {
            return false;
        }
        let Ok(parsed) = parse_token(&token) else {
            return false;
        };
        let Ok(provider) = self.provider_of(&parsed) else {
            return false;
        };
        let lookup = provider.find_keys(
            parsed.algorithm,
            parsed.key_id.as_deref(),
            at.worker.cx.now(),
            WaitPermission::Allowed,
        );
        matches!(lookup, KeyLookup::Wait)
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        self.authenticate(at, WaitPermission::Denied, cleared)
    }

    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let token = self.presented_token(at).ok_or_else(|| self.missing_token())?;
        let Err(TokenRejection::KeysMissing(provider)) =
            self.verify_token(at, &token, WaitPermission::Allowed)
        else {
            return self.authenticate(at, WaitPermission::Denied, cleared);
        };
        if !provider.wait_for_attempt(&at.worker.cx).await {
            return Err(Fault::KeysUnavailable.into());
        }
        self.authenticate(at, WaitPermission::Waited, cleared)
    }

    fn authenticate(
        &self,
        at: &PolicyInput<'_, '_>,
        permission: WaitPermission,
        cleared: &mut Cleared,
    ) -> StepResult {
        let token = self.presented_token(at).ok_or_else(|| self.missing_token())?;
        match self.verify_token(at, &token, permission) {
            Ok(verified) => self.admit(&verified, cleared),
            Err(TokenRejection::Refused(refusal)) => Err(refusal),
            Err(TokenRejection::KeysMissing(_)) => Err(Fault::KeysUnavailable.into()),
        }
    }

    /// Returns a request's token, from the first place that has one.
    fn presented_token<'r>(&self, at: &PolicyInput<'_, 'r>) -> Option<Cow<'r, [u8]>> {
        let sources = self.providers.iter().flat_map(|provider| &provider.config.from);
        let mut tokens = sources.filter_map(|source| credential(source, at));
        tokens.next()
    }

    /// Returns the worker's cached result for a token.
    fn cached_token(
        &self,
        at: &PolicyInput<'_, '_>,
        token: &[u8],
    ) -> Option<(&Arc<KeyProvider>, Rc<VerifiedToken>)> {
        let verified = at.worker.credentials.find_token(token)?;
        let provider = self
            .providers
            .iter()
            .find(|provider| provider.id == verified.provider)?;
        (provider.generation() == verified.generation).then_some((provider, verified))
    }

    /// Returns the provider that a token claims as its issuer.
    fn provider_of(&self, parsed: &ParsedToken<'_>) -> Result<&Arc<KeyProvider>, TokenError> {
        let issuer = parsed.claims.issuer();
        let of = |provider: &&Arc<KeyProvider>| issuer == Some(&*provider.config.issuer);
        let provider = self.providers.iter().find(of);
        let provider = provider.ok_or(TokenError::Invalid("the token is of another issuer"))?;
        if !provider.config.algorithms.contains(&parsed.algorithm) {
            return Err(TokenError::Invalid("the token's algorithm is not allowed"));
        }
        Ok(provider)
    }

    /// Verifies a token and its times.
    fn verify_token(
        &self,
        at: &PolicyInput<'_, '_>,
        token: &[u8],
        permission: WaitPermission,
    ) -> Result<Rc<VerifiedToken>, TokenRejection> {
        let wall = at.worker.cx.wall();
        let refuse = |error| self.invalid_token(error);
        if let Some((provider, verified)) = self.cached_token(at, token) {
            verified
                .claims
                .check_validity(wall, provider.config.leeway)
                .map_err(refuse)?;
            return Ok(verified);
        }
        let parsed = parse_token(token).map_err(refuse)?;
        let provider = self.provider_of(&parsed).map_err(refuse)?;
        has_audience(&parsed.claims, &provider.config).map_err(refuse)?;
        parsed
            .claims
            .check_validity(wall, provider.config.leeway)
            .map_err(refuse)?;
        let (algorithm, key) = (parsed.algorithm, parsed.key_id.as_deref());
        let (keys, generation) = match provider.find_keys(algorithm, key, at.worker.cx.now(), permission) {
            KeyLookup::Keys(keys, generation) => (keys, generation),
            KeyLookup::Wait => return Err(TokenRejection::KeysMissing(Arc::clone(provider))),
            KeyLookup::Unknown => {
                return Err(refuse(TokenError::Invalid("the token's key is not known")).into());
            }
            KeyLookup::Unavailable => return Err(TokenRejection::Refused(Fault::KeysUnavailable.into())),
        };
        if !keys.verify(algorithm, key, parsed.signing_input, &parsed.signature) {
            return Err(refuse(TokenError::Invalid("the token's signature is wrong")).into());
        }
        let verified = Rc::new(VerifiedToken {
            provider: provider.id,
            generation,
            claims: Rc::new(TokenClaims::from_parsed(parsed.claims)),
            grants: RefCell::default(),
        });
        at.worker.credentials.add_token(token, Rc::clone(&verified));
        Ok(verified)
    }

    /// Checks the rule's requirements on a verified token, and writes the resulting headers.
    fn admit(&self, verified: &VerifiedToken, cleared: &mut Cleared) -> StepResult {
        let findings = cleared.context_mut();
        let is_same_policy = |grant: &&CachedGrant| grant.policy == self.id;
        if let Some(grant) = verified.grants.borrow().iter().find(is_same_policy) {
            findings.upstream.append(&grant.upstream);
        } else {
            let upstream = self.check_claims(&verified.claims)?;
            findings.upstream.append(&upstream);
            verified.cache_grant(self.id, upstream);
        }
        findings.claims.get_or_insert_with(|| Rc::clone(&verified.claims));
        if let Some(subject) = verified.claims.subject() {
            cleared.set_identity(subject);
        }
        Ok(())
    }

    /// Checks the rule's requirements. Returns the headers for the upstream.
    fn check_claims(&self, claims: &TokenClaims) -> Result<FieldBlock, Box<Refusal>> {
        if !self.policy.scopes.iter().all(|scope| claims.has_scope(scope)) {
            let scopes = self.policy.scopes.join(" ");
            let more = format!(", error=\"insufficient_scope\", scope=\"{scopes}\"");
            return Err(self.challenge(Fault::ScopeMissing, &more));
        }
        if let Some(rule) = self.policy.claims.iter().find(|rule| !claims.satisfies(rule)) {
            log::debug!("a token's claim `{}` does not satisfy the rule", rule.claim.0);
            let more = ", error=\"insufficient_scope\", error_description=\"a claim of the token does not give access\"";
            return Err(self.challenge(Fault::ClaimRefused, more));
        }
        let (mut upstream, mut text) = (FieldBlock::new(), String::new());
        for header in &self.policy.headers {
            if let Some(value) = claims.header_value(&header.claim, &mut text) {
                add_header(&mut upstream, header.name.as_str(), value.as_bytes());
            }
        }
        Ok(upstream)
    }

    /// Returns the refusal of a request without a token, which has no error code (RFC 6750 §3.1).
    fn missing_token(&self) -> Box<Refusal> {
        self.challenge(Fault::TokenMissing, "")
    }

    fn invalid_token(&self, error: TokenError) -> Box<Refusal> {
        let (fault, description) = match error {
            TokenError::Invalid(description) => (Fault::TokenInvalid, description),
            TokenError::Expired => (Fault::TokenExpired, "the token has expired"),
            TokenError::NotYetValid => (Fault::TokenExpired, "the token does not hold yet"),
        };
        let more = format!(", error=\"invalid_token\", error_description=\"{description}\"");
        self.challenge(fault, &more)
    }

    fn challenge(&self, fault: Fault, more: &str) -> Box<Refusal> {
        let mut challenge = String::new();
        // Writing to memory does not fail.
        let _ = write!(challenge, "Bearer realm=\"{}\"{more}", self.realm);
        Refusal::with_challenge(fault, &challenge)
    }
}

/// Parses a token, which must have an expiry time.
fn parse_token(token: &[u8]) -> Result<ParsedToken<'_>, TokenError> {
    let parsed = ParsedToken::parse(token)?;
    match parsed.claims.expires_at() {
        Some(_) => Ok(parsed),
        None => Err(TokenError::Invalid("the token does not say when it expires")),
    }
}

fn header_of(source: &CredentialSource) -> Option<HeaderName> {
    match source {
        CredentialSource::Header(name) => Some(name.clone()),
        CredentialSource::Query(_) | CredentialSource::Cookie(_) => None,
    }
}

impl PolicyRegistry {
    /// Returns the provider of this configuration, with its keys if it existed before.
    pub(super) fn provider(
        &mut self,
        config: &Arc<model::JwtProvider>,
        upstreams: &Upstreams,
    ) -> Result<Arc<KeyProvider>, String> {
        let upstream = match &config.keys {
            JwtKeys::Set(_) => None,
            JwtKeys::Remote(remote) => Some(match &remote.upstream {
                Target::Upstream(name) => upstreams.find(name).cloned().ok_or_else(|| {
                    format!(
                        "keys of `{}` from the upstream `{name}`, which is not configured",
                        config.name
                    )
                })?,
                Target::Broken { reason } => return Err(reason.to_string()),
            }),
        };
        let mut same = self.providers.iter();
        if let Some(found) = same.find(|provider| provider.has_same_config(config, upstream.as_ref())) {
            return Ok(Arc::clone(found));
        }
        self.last_id += 1;
        let mut named = self.providers.iter().rev();
        let last = named.find(|provider| provider.config.name == config.name);
        let last = last.map(|provider| &**provider);
        let provider = Arc::new(KeyProvider::new(self.last_id, config, upstream, last)?);
        self.providers.push(Arc::clone(&provider));
        Ok(provider)
    }
}
