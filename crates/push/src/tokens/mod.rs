//! Who signs tokens, and what is asked of one before anything in it counts. What a token claims: `claims.rs`.

pub(crate) mod claims;

use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_jwt::{Algorithm, KeySet, ParsedToken, TokenError};

use crate::tokens::claims::{ConnectClaims, SubscribeClaims};

/// By what clients show who they are, and what they may listen to: tokens (RFC 7519) of an application that the owner trusts.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// By what signatures are checked.
    pub keys: Keys,
    /// Others are refused; `none` is none of them. At least one.
    pub algorithms: Vec<Algorithm>,
    /// What `iss` must be. `None`: it is not looked at.
    pub issuer: Option<String>,
    /// One of these must be `aud`, or be among it. None: it is not looked at.
    pub audiences: Vec<String>,
    /// By how much clocks may differ.
    pub leeway: Duration,
}

/// Keys that may change while clients connect; clones are the same.
#[derive(Clone, Debug)]
pub struct Keys(KeyStore);

#[derive(Clone, Debug)]
enum KeyStore {
    Static(Arc<RwLock<Arc<KeySet>>>),
    Source(Arc<dyn KeySource>),
}

/// Who keeps keys up to date that somebody else serves. Workers ask it about each token, so it must not wait.
pub trait KeySource: Debug + Send + Sync {
    /// By what a signature by this algorithm, and by the key that the token names, can be checked.
    fn find_keys(&self, algorithm: Algorithm, key: Option<&str>, now: Time) -> KeyLookup;
}

/// What a signature can be checked by.
#[derive(Clone, Debug)]
pub enum KeyLookup {
    /// Such keys, among which is one that it may be by.
    Keys(Arc<KeySet>),
    /// There is no such key: the token is refused.
    Unknown,
    /// Nobody knows yet: the client is told to try again (error 100).
    Unavailable,
}

/// Why a token claims nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerifyError {
    Invalid(TokenError),
    /// By what it could be proved is not there now.
    Unavailable,
}

impl From<TokenError> for VerifyError {
    fn from(wrong: TokenError) -> VerifyError {
        VerifyError::Invalid(wrong)
    }
}

impl Tokens {
    /// Signed by one of these keys, by any algorithm that is for keys of their kinds: those of HMAC if there are secrets, all
    /// others if there are public keys. Whoever issues them is not looked at; clocks may differ by 30 s.
    #[must_use]
    pub fn new(keys: KeySet) -> Tokens {
        let is_of = |public: bool| {
            let kind = move |one: &Algorithm| one.is_asymmetric() == public;
            Algorithm::ALL.into_iter().filter(kind)
        };
        let has = |public| is_of(public).any(|one| keys.has_candidate(one, None));
        let kinds = [false, true].into_iter().filter(|public| has(*public));
        Tokens {
            algorithms: kinds.flat_map(is_of).collect(),
            keys: Keys::new(keys),
            issuer: None,
            audiences: Vec::new(),
            leeway: Duration::from_secs(30),
        }
    }

    /// Signed by a key that somebody keeps up to date, by one of these algorithms. Else as [`Tokens::new`].
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

    /// What is wrong with them, for whoever has set them up.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.algorithms.is_empty() {
            return Err("tokens: expected at least one algorithm, found none".to_owned());
        }
        // What is kept elsewhere may come later.
        let keys = self.keys.current();
        let lacks = keys.as_ref().and_then(|keys| {
            self.algorithms.iter().find(|one| {
                let kin = |other: &Algorithm| {
                    other.is_asymmetric() == one.is_asymmetric() && keys.has_candidate(*other, None)
                };
                !Algorithm::ALL.iter().any(kin)
            })
        });
        if let Some(lacks) = lacks {
            return Err(format!(
                "tokens: expected a key for the algorithm {}, found none of that kind",
                lacks.name()
            ));
        }
        let empty = |text: &String| text.is_empty();
        if self.issuer.as_ref().is_some_and(empty) || self.audiences.iter().any(empty) {
            return Err("tokens: expected issuer and audiences to be texts, found an empty one".to_owned());
        }
        Ok(())
    }

    /// What a token claims that a client shows when it connects, or to stay connected.
    pub(crate) fn verify_connect(&self, token: &str, cx: &Cx) -> Result<ConnectClaims, VerifyError> {
        Ok(ConnectClaims::from_token(&self.verify(token, cx)?, self.leeway)?)
    }

    /// The same of one that it shows to listen to a channel, or to go on with that.
    pub(crate) fn verify_subscribe(&self, token: &str, cx: &Cx) -> Result<SubscribeClaims, VerifyError> {
        Ok(SubscribeClaims::from_token(
            &self.verify(token, cx)?,
            self.leeway,
        )?)
    }

    /// A token that is of whom it says to be, for us, and holds now.
    fn verify<'t>(&self, token: &'t str, cx: &Cx) -> Result<ParsedToken<'t>, VerifyError> {
        let parsed = ParsedToken::parse(token.as_bytes())?;
        let wrong = |why| VerifyError::Invalid(TokenError::Invalid(why));
        if !self.algorithms.contains(&parsed.algorithm) {
            return Err(wrong("the token's algorithm is not allowed"));
        }
        // Before the signature: no key need be fetched for a token that is somebody else's.
        if self.issuer.is_some() && parsed.claims.issuer() != self.issuer.as_deref() {
            return Err(wrong("the token is of another issuer"));
        }
        if !parsed.claims.has_audience(&self.audiences) {
            return Err(wrong("the token is for another audience"));
        }
        let key = parsed.key_id.as_deref();
        let keys = match self.keys.find_keys(parsed.algorithm, key, cx.now()) {
            KeyLookup::Keys(keys) => keys,
            KeyLookup::Unknown => return Err(wrong("the token's key is not known")),
            KeyLookup::Unavailable => return Err(VerifyError::Unavailable),
        };
        if !keys.verify(parsed.algorithm, key, parsed.signing_input, &parsed.signature) {
            return Err(wrong("the token's signature is wrong"));
        }
        // Last: whoever is told that its token has expired gets another one, which must not be said of a forged one.
        parsed.claims.check_validity(cx.wall(), self.leeway)?;
        Ok(parsed)
    }
}

impl Keys {
    /// These.
    #[must_use]
    pub fn new(keys: KeySet) -> Keys {
        Keys(KeyStore::Static(Arc::new(RwLock::new(Arc::new(keys)))))
    }

    /// Other ones from the next token on, on all workers. Who is connected stays so; [algorithms](Tokens::algorithms) stay what
    /// they are. Those of a [`KeySource`] are its own: nothing changes.
    pub fn replace(&self, keys: KeySet) {
        if let KeyStore::Static(here) = &self.0 {
            *here.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        }
    }

    /// `None`: they are kept elsewhere.
    fn current(&self) -> Option<Arc<KeySet>> {
        match &self.0 {
            KeyStore::Static(here) => Some(Arc::clone(&here.read().unwrap_or_else(PoisonError::into_inner))),
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
