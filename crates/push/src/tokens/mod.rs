//! Verification of tokens. Their claims: `claims.rs`.

pub(crate) mod claims;

use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_jwt::{Algorithm, KeySet, ParsedToken, TokenError};

use crate::tokens::claims::{ConnectClaims, SubscribeClaims};

/// Options of tokens (RFC 7519), by which an application identifies clients and grants permissions.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// The keys that verify signatures.
    pub keys: Keys,
    /// The allowed algorithms, at least one; `none` is not among them.
    pub algorithms: Vec<Algorithm>,
    /// The required `iss`. `None`: not checked.
    pub issuer: Option<String>,
    /// The audiences, one of which has to be (in) `aud`. Empty: not checked.
    pub audiences: Vec<String>,
    /// The tolerated difference of clocks.
    pub leeway: Duration,
}

/// Keys that can be replaced while clients connect. Clones refer to the same.
#[derive(Clone, Debug)]
pub struct Keys(KeyStore);

#[derive(Clone, Debug)]
enum KeyStore {
    Static(Arc<RwLock<Arc<KeySet>>>),
    Source(Arc<dyn KeySource>),
}

/// A source of keys that it keeps up to date. Called by workers for each token, and must not block.
pub trait KeySource: Debug + Send + Sync {
    /// Returns the keys for a signature by this algorithm, and with the key ID of the token.
    fn find_keys(&self, algorithm: Algorithm, key: Option<&str>, now: Time) -> KeyLookup;
}

/// The result of a lookup.
#[derive(Clone, Debug)]
pub enum KeyLookup {
    /// Keys, among which is a candidate.
    Keys(Arc<KeySet>),
    /// No key matches: the token is rejected.
    Unknown,
    /// The keys are not available yet: the client receives error 100 and retries.
    Unavailable,
}

/// The reason why a token was not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerifyError {
    Invalid(TokenError),
    /// The keys are not available now.
    Unavailable,
}

impl From<TokenError> for VerifyError {
    fn from(invalid: TokenError) -> VerifyError {
        VerifyError::Invalid(invalid)
    }
}

impl Tokens {
    /// Allows any algorithm for the kinds of these keys: HMAC with secrets, all others with public keys. The issuer is not checked; the
    /// leeway is 30 s.
    #[must_use]
    pub fn new(keys: KeySet) -> Tokens {
        let keys_of = |public: bool| {
            let kind = move |one: &Algorithm| one.is_asymmetric() == public;
            Algorithm::ALL.into_iter().filter(kind)
        };
        let has_keys = |public| keys_of(public).any(|one| keys.has_candidate(one, None));
        let kinds = [false, true].into_iter().filter(|public| has_keys(*public));
        Tokens {
            algorithms: kinds.flat_map(keys_of).collect(),
            keys: Keys::new(keys),
            issuer: None,
            audiences: Vec::new(),
            leeway: Duration::from_secs(30),
        }
    }

    /// Creates options with keys of a source and these algorithms, otherwise as [`Tokens::new`].
    #[must_use]
    pub fn from_source(source: Arc<dyn KeySource>, algorithms: Vec<Algorithm>) -> Tokens {
        Tokens {
            keys: Keys(KeyStore::Source(source)),
            algorithms,
            issuer: None,
            audiences: Vec::new(),
            leeway: Duration::from_secs(30),
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// A text for the operator.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.algorithms.is_empty() {
            return Err("tokens: expected at least one algorithm, found none".to_owned());
        }
        // A source may have its keys later.
        let keys = self.keys.current();
        let missing_key = keys.as_ref().and_then(|keys| {
            self.algorithms.iter().find(|one| {
                let same_family = |other: &Algorithm| {
                    other.is_asymmetric() == one.is_asymmetric() && keys.has_candidate(*other, None)
                };
                !Algorithm::ALL.iter().any(same_family)
            })
        });
        if let Some(missing_key) = missing_key {
            return Err(format!(
                "tokens: expected a key for the algorithm {}, found none of that kind",
                missing_key.name()
            ));
        }
        let empty = |text: &String| text.is_empty();
        if self.issuer.as_ref().is_some_and(empty) || self.audiences.iter().any(empty) {
            return Err("tokens: expected issuer and audiences to be texts, found an empty one".to_owned());
        }
        Ok(())
    }

    /// Verifies the token of a connection. Returns its claims.
    pub(crate) fn verify_connect(&self, token: &str, cx: &Cx) -> Result<ConnectClaims, VerifyError> {
        Ok(ConnectClaims::from_token(&self.verify(token, cx)?, self.leeway)?)
    }

    /// Verifies the token of a subscription. Returns its claims.
    pub(crate) fn verify_subscribe(&self, token: &str, cx: &Cx) -> Result<SubscribeClaims, VerifyError> {
        Ok(SubscribeClaims::from_token(
            &self.verify(token, cx)?,
            self.leeway,
        )?)
    }

    /// Verifies signature, issuer, audience and validity of a token.
    fn verify<'t>(&self, token: &'t str, cx: &Cx) -> Result<ParsedToken<'t>, VerifyError> {
        let parsed = ParsedToken::parse(token.as_bytes())?;
        let invalid = |reason| VerifyError::Invalid(TokenError::Invalid(reason));
        if !self.algorithms.contains(&parsed.algorithm) {
            return Err(invalid("the token's algorithm is not allowed"));
        }
        // Before the signature: no key has to be fetched for a token of another issuer.
        if self.issuer.is_some() && parsed.claims.issuer() != self.issuer.as_deref() {
            return Err(invalid("the token is from another issuer"));
        }
        if !parsed.claims.has_audience(&self.audiences) {
            return Err(invalid("the token is for another audience"));
        }
        let key = parsed.key_id.as_deref();
        let keys = match self.keys.find_keys(parsed.algorithm, key, cx.now()) {
            KeyLookup::Keys(keys) => keys,
            KeyLookup::Unknown => return Err(invalid("the token's key is not known")),
            KeyLookup::Unavailable => return Err(VerifyError::Unavailable),
        };
        if !keys.verify(parsed.algorithm, key, parsed.signing_input, &parsed.signature) {
            return Err(invalid("the token's signature is invalid"));
        }
        // Last: a client whose token has expired requests another one, and must not do so for a forged one.
        parsed.claims.check_validity(cx.wall(), self.leeway)?;
        Ok(parsed)
    }
}

impl Keys {
    /// Creates a fixed set of keys.
    #[must_use]
    pub fn new(keys: KeySet) -> Keys {
        Keys(KeyStore::Static(Arc::new(RwLock::new(Arc::new(keys)))))
    }

    /// Replaces the keys from the next token on, on all workers. Connected clients remain, and the [algorithms](Tokens::algorithms) do not
    /// change. Has no effect on the keys of a [`KeySource`].
    pub fn replace(&self, keys: KeySet) {
        if let KeyStore::Static(current) = &self.0 {
            *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        }
    }

    /// Returns the keys. `None`: they belong to a source.
    fn current(&self) -> Option<Arc<KeySet>> {
        match &self.0 {
            KeyStore::Static(current) => Some(Arc::clone(
                &current.read().unwrap_or_else(PoisonError::into_inner),
            )),
            KeyStore::Source(_) => None,
        }
    }

    fn find_keys(&self, algorithm: Algorithm, key: Option<&str>, now: Time) -> KeyLookup {
        match &self.0 {
            KeyStore::Source(source) => source.find_keys(algorithm, key, now),
            KeyStore::Static(_) => match self.current().filter(|keys| keys.has_candidate(algorithm, key)) {
                Some(keys) => KeyLookup::Keys(keys),
                None => KeyLookup::Unknown,
            },
        }
    }
}
