//! How many connections each user has, of all workers.
//!
//! Behind a lock, which is taken when a connection of somebody whom we know begins and ends, and at no other time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// See the module. As many entries as there are users connected.
#[derive(Debug, Default)]
pub(crate) struct UserConnections(Mutex<BTreeMap<Box<str>, u32>>);

impl UserConnections {
    /// WorkerMetrics one more. `false`: it has as many as it may, and this is not one of them.
    pub(crate) fn try_acquire(&self, user: &str, most: u32) -> bool {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match users.get_mut(user) {
            Some(count) if *count >= most => return false,
            Some(count) => *count += 1,
            None if most == 0 => return false,
            None => drop(users.insert(user.into(), 1)),
        }
        true
    }

    /// How many users there are.
    pub(crate) fn user_count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// One is over.
    pub(crate) fn release(&self, user: &str) {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = users.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                users.remove(user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UserConnections;

    #[test]
    fn each_user_has_as_many_as_may_be() {
        let users = UserConnections::default();
        assert!(users.try_acquire("a", 2) && users.try_acquire("a", 2) && !users.try_acquire("a", 2));
        assert!(users.try_acquire("b", 2));
        assert_eq!(users.user_count(), 2);
        users.release("a");
        assert!(users.try_acquire("a", 2) && !users.try_acquire("a", 2));
        for user in ["a", "a", "b"] {
            users.release(user);
        }
        assert!(users.0.lock().expect("nobody has it").is_empty());
        assert!(!users.try_acquire("a", 0));
    }
}
