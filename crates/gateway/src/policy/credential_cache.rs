//! A worker's cache of verified passwords and tokens. Not shared, and not persisted.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use aws_lc_rs::hmac;
use ringmain_engine::Cx;

use super::ContextPool;
use super::jwt::VerifiedToken;
use crate::balance::seeded_hash;
use crate::limits;

/// A worker's cache of verified credentials.
pub(crate) struct CredentialCache {
    /// The key of the hashes that secrets are stored as: the hashes are useless without it.
    key: hmac::Key,
    passwords: RefCell<PasswordProofs>,
    tokens: RefCell<TokenCache>,
    contexts: Rc<ContextPool>,
}

/// Proofs, the oldest first.
#[derive(Default)]
struct PasswordProofs {
    all: BTreeSet<PasswordProof>,
    order: VecDeque<PasswordProof>,
}

/// Verified tokens by hash, the oldest first.
#[derive(Default)]
struct TokenCache {
    all: BTreeMap<u64, (Box<[u8]>, Rc<VerifiedToken>)>,
    order: VecDeque<u64>,
    bytes: usize,
    /// The seed of the hash.
    seed: u64,
}

/// Bytes of a token's end that are hashed: they belong to its signature, and lookups compare whole tokens.
const HASHED: usize = 64;

impl TokenCache {
    fn hash_token(&self, token: &[u8]) -> u64 {
        seeded_hash(self.seed, &token[token.len().saturating_sub(HASHED)..])
    }

    fn evict_oldest(&mut self) {
        if let Some(oldest) = self.order.pop_front()
            && let Some((token, _)) = self.all.remove(&oldest)
        {
            self.bytes -= token.len();
        }
    }
}

/// A keyed hash of a secret together with the hash that it was verified against.
pub(super) type PasswordProof = [u8; 32];

impl CredentialCache {
    pub(crate) fn new(cx: &Cx) -> CredentialCache {
        let mut key = [0; 32];
        for word in key.as_chunks_mut::<8>().0 {
            *word = cx.random().to_ne_bytes();
        }
        CredentialCache {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            passwords: RefCell::default(),
            tokens: RefCell::new(TokenCache {
                seed: cx.random(),
                ..TokenCache::default()
            }),
            contexts: Rc::default(),
        }
    }

    /// Returns the pool of memory for policies' results.
    pub(super) fn context_pool(&self) -> Rc<ContextPool> {
        Rc::clone(&self.contexts)
    }

    /// Returns the proof that a password matches a hash.
    pub(super) fn password_proof(&self, hash: &str, password: &[u8]) -> PasswordProof {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(hash.len() as u64).to_le_bytes());
        context.update(hash.as_bytes());
        context.update(password);
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    pub(super) fn has_proof(&self, proof: &PasswordProof) -> bool {
        self.passwords.borrow().all.contains(proof)
    }

    pub(super) fn add_proof(&self, proof: PasswordProof) {
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
    pub(super) fn find_token(&self, token: &[u8]) -> Option<Rc<VerifiedToken>> {
        let tokens = self.tokens.borrow();
        let (known, verified) = tokens.all.get(&tokens.hash_token(token))?;
        (**known == *token).then(|| Rc::clone(verified))
    }

    pub(super) fn add_token(&self, token: &[u8], verified: Rc<VerifiedToken>) {
        let tokens = &mut *self.tokens.borrow_mut();
        let hash = tokens.hash_token(token);
        tokens.bytes += token.len();
        match tokens.all.insert(hash, (token.into(), verified)) {
            Some((last, _)) => tokens.bytes -= last.len(),
            None => tokens.order.push_back(hash),
        }
        while tokens.order.len() > limits::TOKENS_KNOWN || tokens.bytes > limits::TOKENS_KNOWN_BYTES {
            tokens.evict_oldest();
        }
    }
}

impl std::fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Local")
    }
}
