//! The order of interruptions and publications.

use std::sync::Arc;

use super::{Interruptions, Scope};
use crate::limits;

fn channel(name: &str) -> Scope {
    Scope::Channel(Arc::from(name))
}

#[test]
fn an_interruption_is_due_behind_earlier_publications() {
    let interruptions = Interruptions::default();
    interruptions.count_queued(2);
    interruptions.add_scope(channel("a"));
    interruptions.count_queued(1);
    interruptions.count_taken(1);
    assert_eq!(interruptions.take_due(false), []);
    interruptions.count_taken(1);
    assert_eq!(interruptions.take_due(false), [channel("a")]);
    assert_eq!(interruptions.take_due(true), [], "once");
}

#[test]
fn interruptions_of_a_scope_are_merged_and_the_last_is_not_lost() {
    let interruptions = Interruptions::default();
    for _ in 0..5 {
        interruptions.count_queued(1);
        interruptions.add_scope(channel("a"));
    }
    interruptions.count_taken(2);
    assert_eq!(interruptions.take_due(false), [channel("a")]);
    interruptions.count_taken(2);
    assert_eq!(interruptions.take_due(false), []);
    interruptions.count_taken(1);
    assert_eq!(interruptions.take_due(false), [channel("a")]);
    assert_eq!(interruptions.take_due(true), []);
}

#[test]
fn an_empty_queue_makes_all_due() {
    let interruptions = Interruptions::default();
    interruptions.count_queued(1);
    interruptions.add_scope(channel("a"));
    assert_eq!(interruptions.take_due(true), [channel("a")]);
}

#[test]
fn more_scopes_than_the_limit_become_all_channels() {
    let interruptions = Interruptions::default();
    for number in 0..=limits::INTERRUPTIONS {
        interruptions.add_scope(channel(&number.to_string()));
    }
    assert_eq!(interruptions.take_due(true), [Scope::Prefix("".into())]);
}
