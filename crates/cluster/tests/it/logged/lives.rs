//! The lives of a partition: what starts a new one, and what belongs to none.

use ringmain_cluster::frame::PublishOutcome;
use ringmain_cluster::log::{Binding, FollowFrom, LogEvent};
use ringmain_cluster::node::SyncKind;

use super::{PARTITION, Rig, is_life, position};

/// Its last record is the same.
#[test]
fn a_log_that_was_away_continues_in_the_same_life() {
    let mut rig = Rig::live();
    rig.subscribe();
    let before = rig.states()[0].1.expect("a position");
    rig.receive(LogEvent::Closed { partition: PARTITION });
    let last = rig.records.last().expect("a record").0;
    assert_eq!(rig.open(), FollowFrom::Number(last));
    assert!(!rig.take_appends().iter().any(is_life));
    rig.publish(1, None);
    rig.append_all();
    assert_eq!(position(rig.outcomes()[0].1).epoch, before.epoch);
}

#[test]
fn another_broker_starts_a_new_life() {
    let mut rig = Rig::live();
    rig.subscribe();
    let before = rig.states()[0].1.expect("a position");
    rig.receive(LogEvent::Closed { partition: PARTITION });
    rig.binding = Binding(2);
    rig.open();
    rig.append_all();
    let states = rig.states();
    assert_eq!(
        states.last().map(|(kind, _)| *kind),
        Some(SyncKind::Gap),
        "{states:?}"
    );
    assert_ne!(
        states.last().and_then(|(_, at)| *at).expect("a position").epoch,
        before.epoch
    );
}

/// The broker is the same, but its last record is gone, and another one is in its place.
#[test]
fn a_record_that_is_another_one_starts_a_new_life() {
    let mut rig = Rig::live();
    rig.publish(1, None);
    rig.append_all();
    rig.subscribe();
    let before = rig.states().last().and_then(|(_, at)| *at).expect("a position");
    rig.receive(LogEvent::Closed { partition: PARTITION });
    let (number, _) = rig.records.pop().expect("a record");
    let first = rig.records[0].1.clone();
    rig.records.push((number, first));
    rig.open();
    assert_eq!(rig.node.log_report(rig.now).expect("a log").counts.rollbacks, 1);
    // It begins again.
    assert!(matches!(rig.open(), FollowFrom::Recent(_)));
    rig.append_all();
    let states = rig.states();
    assert_eq!(
        states.last().map(|(kind, _)| *kind),
        Some(SyncKind::Gap),
        "{states:?}"
    );
    assert_ne!(
        states.last().and_then(|(_, at)| *at).expect("a position").epoch,
        before.epoch
    );
}

/// The broker has it, but the new life begins above it: no history will have it.
#[test]
fn a_publication_between_a_rollback_and_the_new_life_is_not_acknowledged() {
    let mut rig = Rig::live();
    rig.publish(1, None);
    rig.append_all();
    rig.outcomes();
    rig.publish(2, None);
    let appends = rig.take_appends();
    rig.receive(LogEvent::Closed { partition: PARTITION });
    rig.records.pop();
    for append in &appends {
        rig.append(append);
    }
    rig.open();
    assert_eq!(rig.node.log_report(rig.now).expect("a log").counts.rollbacks, 1);
    rig.open();
    assert_eq!(rig.outcomes(), [(2, PublishOutcome::Unknown)]);
}

#[test]
fn the_end_of_a_log_that_is_lower_starts_a_new_life() {
    let mut rig = Rig::live();
    rig.publish(1, None);
    rig.append_all();
    rig.receive(LogEvent::Closed { partition: PARTITION });
    rig.records.pop();
    rig.open();
    assert_eq!(rig.node.log_report(rig.now).expect("a log").counts.rollbacks, 1);
}

#[test]
fn records_that_were_deleted_before_they_were_read_are_a_gap() {
    let mut rig = Rig::live();
    rig.subscribe();
    rig.events();
    let first = rig.records.last().expect("a record").0 + 5;
    rig.receive(LogEvent::Trimmed {
        partition: PARTITION,
        first,
    });
    let states = rig.states();
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].0, SyncKind::Gap);
    assert_eq!(states[0].1.expect("a position").offset, first - 1);
}
