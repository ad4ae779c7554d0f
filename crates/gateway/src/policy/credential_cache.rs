//! A worker's cache of verified passwords and tokens. Not shared, and not persisted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use aws_lc_rs::hmac;
use ringmain_engine::Cx;

use super::Spare;
use super::jwt::Good;
use crate::balance::hash_with;
use crate::limits;

/// A worker's cache of verified credentials.
pub(crate) struct Local {
    /// The key of the hashes that secrets are stored as: the hashes are useless without it.
    key: hmac::Key,
    passwords: RefCell<Known>,
    tokens: RefCell<Tokens>,
    spare: Rc<Spare>,
}

/// Proofs, the oldest first.
#[derive(Default)]
struct Known {
    all: BTreeSet<Proof>,
    order: VecDeque<Proof>,
}

/// Verified tokens by hash, the oldest first.
#[derive(Default)]
struct Tokens {
    all: BTreeMap<u64, (Box<[u8]>, Rc<Good>)>,
    order: VecDeque<u64>,
    bytes: usize,
    /// The seed of the hash.
    seed: u64,
}

/// Bytes of a token's end that are hashed: they belong to its signature, and lookups compare whole tokens.
const HASHED: usize = 64;

impl Tokens {
    fn hash(&self, token: &[u8]) -> u64 {
        hash_with(self.seed, &token[token.len().saturating_sub(HASHED)..])
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front()
            && let Some((token, _)) = self.all.remove(&oldest)
        {
            self.bytes -= token.len();
        }
    }
}

/// A keyed hash of a secret together with the hash that it was verified against.
pub(super) type Proof = [u8; 32];

impl Local {
    pub(crate) fn new(cx: &Cx) -> Local {
        let mut key = [0; 32];
        for word in key.as_chunks_mut::<8>().0 {
            *word = cx.random().to_ne_bytes();
        }
        Local {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            passwords: RefCell::default(),
            tokens: RefCell::new(Tokens {
                seed: cx.random(),
                ..Tokens::default()
            }),
            spare: Rc::default(),
        }
    }

    /// Returns the pool of memory for policies' results.
    pub(super) fn spare(&self) -> Rc<Spare> {
        Rc::clone(&self.spare)
    }

    /// Returns the proof that a password matches a hash.
    pub(super) fn proof(&self, hash: &str, password: &[u8]) -> Proof {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(hash.len() as u64).to_le_bytes());
        context.update(hash.as_bytes());
        context.update(password);
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    pub(super) fn knows(&self, proof: &Proof) -> bool {
        self.passwords.borrow().all.contains(proof)
    }

    pub(super) fn learn(&self, proof: Proof) {
        let known = &mut *self.passwords.borrow_mut();
        if !known.all.insert(proof) {
            return;
        }
        known.order.push_back(proof);
        if known.order.len() > limits::PASSWORDS_KNOWN
            && let Some(oldest) = known.order.pop_front()
        {
            known.all.remove(&oldest);
        }
    }

    /// Returns a token that was verified before.
    pub(super) fn token(&self, token: &[u8]) -> Option<Rc<Good>> {
        let tokens = self.tokens.borrow();
        let (known, good) = tokens.all.get(&tokens.hash(token))?;
        (**known == *token).then(|| Rc::clone(good))
    }

    pub(super) fn learn_token(&self, token: &[u8], good: Rc<Good>) {
        let tokens = &mut *self.tokens.borrow_mut();
        let hash = tokens.hash(token);
        tokens.bytes += token.len();
        match tokens.all.insert(hash, (token.into(), good)) {
            Some((last, _)) => tokens.bytes -= last.len(),
            None => tokens.order.push_back(hash),
        }
        while tokens.order.len() > limits::TOKENS_KNOWN || tokens.bytes > limits::TOKENS_KNOWN_BYTES {
            tokens.forget_oldest();
        }
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Local")
    }
}
