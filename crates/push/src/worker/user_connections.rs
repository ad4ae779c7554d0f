//! The number of connections of each user, across all workers.
//!
//! Behind a lock, which is taken when a connection of a known user opens and closes, and at no other time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Numbers of connections: one entry for each connected user.
#[derive(Debug, Default)]
pub(crate) struct UserConnections(Mutex<BTreeMap<Box<str>, u32>>);

impl UserConnections {
    /// Counts one more connection. Returns `false` at the limit, without counting it.
    pub(crate) fn try_acquire(&self, user: &str, limit: u32) -> bool {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match users.get_mut(user) {
            Some(count) if *count >= limit => return false,
            Some(count) => *count += 1,
            None if limit == 0 => return false,
            None => drop(users.insert(user.into(), 1)),
        }
        true
    }

    /// Returns the number of connected users.
    pub(crate) fn user_count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Removes one connection from the count.
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
    fn connections_of_a_user_are_limited() {
        let users = UserConnections::default();
        assert!(users.try_acquire("a", 2) && users.try_acquire("a", 2) && !users.try_acquire("a", 2));
        assert!(users.try_acquire("b", 2));
        assert_eq!(users.user_count(), 2);
        users.release("a");
        assert!(users.try_acquire("a", 2) && !users.try_acquire("a", 2));
        for user in ["a", "a", "b"] {
            users.release(user);
        }
        assert!(users.0.lock().expect("the lock is not poisoned").is_empty());
        assert!(!users.try_acquire("a", 0));
    }
}
