//! An unknown name costs as much as one of the users, always the same one.

use std::collections::BTreeSet;

use super::*;
use crate::model::PasswordHash;

/// Builds a user with a bcrypt hash of this cost, which is not computed here.
fn user(name: &str, cost: u32) -> User {
    let hash = format!("$2y${cost:02}$abcdefghijklmnopqrstuuPNJ2LWAoGgXkbW3ZlG7gb3Yw4RPl4Ga");
    User {
        name: name.into(),
        password: PasswordHash::parse(&hash).expect("a hash"),
    }
}

fn basic(users: Vec<User>) -> PasswordAuth {
    let policy = BasicAuth {
        realm: "r".into(),
        users: users.into(),
        user_header: None,
        hide: false,
    };
    PasswordAuth::compile(&Arc::new(policy), &mut UsedHeaders::default(), &Arc::default())
}

#[test]
fn unknown_names_cost_what_users_cost() {
    let users = || vec![user("ada", 4), user("ben", 10), user("eve", 12)];
    let (one, other) = (basic(users()), basic(users()));
    let mut drawn = BTreeSet::new();
    for number in 0..100 {
        let name = format!("nobody{number}");
        let found = one.decoy_user(name.as_bytes()).expect("a user");
        let again = other.decoy_user(name.as_bytes()).expect("a user");
        assert_eq!(found.name, again.name, "the same in every process");
        drawn.insert(found.name.clone());
    }
    assert_eq!(drawn.len(), 3, "each cost may be that of an unknown name");
    assert!(basic(Vec::new()).decoy_user(b"ada").is_none());
}
