//! Who signs tokens, and what is asked of one before anything in it counts. What a token gives: `claims.rs`.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ringmain_jwt::{Algorithm, KeySet, Parsed, Wrong};

use crate::claims::{Connecting, Subscribing};

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

/// Keys that may be replaced while clients connect; clones are the same.
#[derive(Clone, Debug)]
pub struct Keys(Arc<RwLock<Arc<KeySet>>>);

impl Tokens {
    /// Signed by one of these keys, by any algorithm that is for keys of their kinds: those of HMAC if there are secrets, all
    /// others if there are public keys. Whoever issues them is not looked at; clocks may differ by 30 s.
    #[must_use]
    pub fn new(keys: KeySet) -> Tokens {
        let is_of = |public: bool| {
            let kind = move |one: &Algorithm| one.is_public() == public;
            Algorithm::ALL.into_iter().filter(kind)
        };
        let has = |public| is_of(public).any(|one| keys.may_have(one, None));
        let kinds = [false, true].into_iter().filter(|public| has(*public));
        Tokens {
            algorithms: kinds.flat_map(is_of).collect(),
            keys: Keys::new(keys),
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
        let keys = self.keys.current();
        if let Some(lacks) = self.algorithms.iter().find(|one| {
            let kin = |other: &Algorithm| other.is_public() == one.is_public() && keys.may_have(*other, None);
            !Algorithm::ALL.iter().any(kin)
        }) {
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

    /// What a token gives that a client shows when it connects, or to stay connected.
    pub(crate) fn connecting(&self, token: &str, now: Duration) -> Result<Connecting, Wrong> {
        Connecting::of(&self.verified(token, now)?, self.leeway)
    }

    /// The same of one that it shows to listen to a channel, or to go on with that.
    pub(crate) fn subscribing(&self, token: &str, now: Duration) -> Result<Subscribing, Wrong> {
        Subscribing::of(&self.verified(token, now)?, self.leeway)
    }

    /// A token that is of whom it says to be, for us, and holds now.
    fn verified<'t>(&self, token: &'t str, now: Duration) -> Result<Parsed<'t>, Wrong> {
        let parsed = Parsed::of(token.as_bytes())?;
        if !self.algorithms.contains(&parsed.algorithm) {
            return Err(Wrong::Invalid("the token's algorithm is not allowed"));
        }
        let key = parsed.key.as_deref();
        let keys = self.keys.current();
        if !keys.may_have(parsed.algorithm, key) {
            return Err(Wrong::Invalid("the token's key is not known"));
        }
        if !keys.verify(parsed.algorithm, key, parsed.message, &parsed.signature) {
            return Err(Wrong::Invalid("the token's signature is wrong"));
        }
        if self.issuer.is_some() && parsed.claims.issuer() != self.issuer.as_deref() {
            return Err(Wrong::Invalid("the token is of another issuer"));
        }
        if !parsed.claims.are_for(&self.audiences) {
            return Err(Wrong::Invalid("the token is for another audience"));
        }
        // Last: whoever is told that its token has expired gets another one, which must not be said of a forged one.
        parsed.claims.hold(now, self.leeway)?;
        Ok(parsed)
    }
}

impl Keys {
    /// These.
    #[must_use]
    pub fn new(keys: KeySet) -> Keys {
        Keys(Arc::new(RwLock::new(Arc::new(keys))))
    }

    /// Other ones from the next token on, on all workers. Who is connected stays so; [algorithms](Tokens::algorithms) stay what
    /// they are.
    pub fn replace(&self, keys: KeySet) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    fn current(&self) -> Arc<KeySet> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
