//! What a worker remembers for policies: secrets that it knows to be right. Nothing of it is shared, nothing outlives it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};

use aws_lc_rs::hmac;
use ringmain_engine::Cx;

use crate::limits;

/// See the module.
pub(crate) struct Local {
    /// What is remembered of secrets is told by a hash with this key: it helps nobody who reads it.
    key: hmac::Key,
    passwords: RefCell<Known>,
    /// Passwords that are checked now.
    checks: Cell<u32>,
}

/// Proofs, the oldest first.
#[derive(Default)]
struct Known {
    all: BTreeSet<Proof>,
    order: VecDeque<Proof>,
}

/// A keyed hash of a secret, and of what it was found to be right by.
pub(super) type Proof = [u8; 32];

/// One of a worker's checks.
pub(super) struct Check<'l>(&'l Local);

impl Local {
    pub(crate) fn new(cx: &Cx) -> Local {
        let mut key = [0; 32];
        for word in key.as_chunks_mut::<8>().0 {
            *word = cx.random().to_ne_bytes();
        }
        Local {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            passwords: RefCell::default(),
            checks: Cell::new(0),
        }
    }

    /// The proof that a password is right by a hash.
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

    /// `None`: there are as many as may be.
    pub(super) fn check(&self) -> Option<Check<'_>> {
        let checks = self.checks.get();
        (checks < limits::PASSWORD_CHECKS).then(|| {
            self.checks.set(checks + 1);
            Check(self)
        })
    }
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        self.0.checks.set(self.0.checks.get() - 1);
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Local")
    }
}
