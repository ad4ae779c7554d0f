//! The part of a log that a history is known to have: clients recover from offset 0 where it is all of a life.

use std::time::Duration;

use ringmain_cluster::frame::ChannelState;
use ringmain_cluster::log::{Beat, Binding, Entry, EntryId, Life, LogEvent, LogRequest, Opened, Record};
use ringmain_cluster::member::Uid;
use ringmain_cluster::node::Event;

use super::logged::{PARTITION, Rig};

/// Returns the state that the workers receive first, as (floor, offsets of the publications).
fn first_state(rig: &mut Rig) -> (u64, Vec<u64>) {
    rig.events();
    rig.subscribe();
    last_state(rig)
}

fn last_state(rig: &mut Rig) -> (u64, Vec<u64>) {
    let states = rig.events().into_iter().filter_map(|event| match event {
        Event::Synced { state, .. } => Some(state),
        _ => None,
    });
    let ChannelState {
        floor, publications, ..
    } = states.last().expect("a state");
    (
        floor,
        publications.into_iter().map(|(offset, _)| offset).collect(),
    )
}

fn publish(rig: &mut Rig, count: u64) {
    for request in 0..count {
        rig.publish(request, None);
        rig.append_all();
    }
}

/// Returns the numbers of the publications in the log.
fn published(rig: &Rig) -> Vec<u64> {
    let records = rig.records.iter().filter(|(_, bytes)| {
        let entry = Entry::decode(bytes).expect("an entry");
        matches!(entry, Entry::Publication { .. })
    });
    records.map(|(number, _)| *number).collect()
}

fn records(rig: &Rig, from: u64, to: u64) -> Vec<Record> {
    let records = rig
        .records
        .iter()
        .filter(|(number, _)| (from..to).contains(number));
    records
        .map(|(number, bytes)| Record::read(*number, 1000, bytes))
        .collect()
}

/// Returns a node that begins to read at a number: the log has the records from `first` on.
fn reader_at(written: &Rig, from: u64, first: u64) -> Rig {
    let mut rig = Rig::new();
    rig.records.clone_from(&written.records);
    rig.binding = written.binding;
    rig.run_for(Duration::from_secs(2));
    let end = rig.records.last().expect("a record").0;
    rig.receive(LogEvent::Opened(Opened {
        partition: PARTITION,
        binding: rig.binding,
        first,
        end,
        from,
    }));
    rig.receive(LogEvent::Records {
        partition: PARTITION,
        records: records(&rig, from, end + 1),
        now_ms: 1000,
    });
    rig
}

/// Replies to the request for older records with those from `first` on.
fn read_older(rig: &mut Rig, first: u64) {
    let before = rig.requests.iter().find_map(|request| match request {
        LogRequest::Tail { before, .. } => Some(*before),
        _ => None,
    });
    let records = records(rig, first, before.expect("a request for older records"));
    rig.receive(LogEvent::Older {
        partition: PARTITION,
        from: first,
        records,
        is_first: true,
        now_ms: 1000,
    });
}

/// A log with a life, three publications, and a beat that proves the life to those that begin with the second one.
fn written() -> Rig {
    let mut rig = Rig::live();
    publish(&mut rig, 3);
    let beat = Beat {
        life: life_of(&rig),
        binding: rig.binding,
        seen: rig.records.last().expect("a record").0,
    };
    rig.records
        .push((beat.seen + 1, beat_entry(beat).encode().into()));
    rig
}

fn beat_entry(beat: Beat) -> Entry {
    let id = EntryId {
        writer: Uid(9),
        append: 1,
    };
    Entry::Beat { id, beat }
}

#[test]
fn a_life_that_was_read_from_its_start_is_whole() {
    let mut rig = Rig::live();
    assert_eq!(first_state(&mut rig), (0, vec![]));
    let mut rig = Rig::live();
    publish(&mut rig, 3);
    assert_eq!(first_state(&mut rig), (0, published(&rig)));
    // Another node reads the same.
    let mut rig = reader_at(&written(), 1, 1);
    assert_eq!(first_state(&mut rig), (0, published(&rig)));
}

#[test]
fn a_life_is_whole_once_its_start_was_read_later() {
    let mut rig = reader_at(&written(), 3, 1);
    read_older(&mut rig, 1);
    assert_eq!(first_state(&mut rig), (0, published(&rig)));
}

#[test]
fn a_life_whose_start_the_log_has_deleted_is_not_whole() {
    let log = written();
    let all = published(&log);
    let mut rig = reader_at(&log, 3, 3);
    assert_eq!(first_state(&mut rig), (2, all[1..].to_vec()));
    let mut rig = reader_at(&log, 4, 2);
    read_older(&mut rig, 2);
    assert_eq!(first_state(&mut rig), (1, all));
}

#[test]
fn a_history_that_has_dropped_publications_is_not_whole() {
    let mut rig = Rig::live();
    publish(&mut rig, 11);
    let all = published(&rig);
    assert_eq!(first_state(&mut rig), (all[0], all[1..].to_vec()));
}

#[test]
fn records_that_were_deleted_before_they_were_read_end_a_whole_life() {
    let mut rig = Rig::live();
    publish(&mut rig, 1);
    let first = rig.records.last().expect("a record").0 + 5;
    rig.receive(LogEvent::Trimmed {
        partition: PARTITION,
        first,
    });
    let life = life_of(&rig);
    receive_beat(&mut rig, life, first);
    assert_eq!(first_state(&mut rig), (first - 1, vec![]));
    assert_eq!(
        rig.epoch(),
        Some(life.epoch()),
        "a beat proves that it is the same life"
    );
}

/// Nodes that have read its first entry are in it already.
#[test]
fn records_that_were_deleted_before_they_were_read_may_begin_a_life() {
    let mut rig = Rig::live();
    publish(&mut rig, 1);
    rig.subscribe();
    let first = rig.records.last().expect("a record").0 + 5;
    rig.receive(LogEvent::Trimmed {
        partition: PARTITION,
        first,
    });
    receive_beat(&mut rig, Life(99), first);
    assert_eq!(rig.epoch(), Some(Life(99).epoch()));
}

fn life_of(rig: &Rig) -> Life {
    match Entry::decode(&rig.records[0].1) {
        Ok(Entry::Life { life, .. }) => life.life,
        other => panic!("expected a life, found {other:?}"),
    }
}

/// A beat of another node, which has read up to there.
fn receive_beat(rig: &mut Rig, life: Life, number: u64) {
    let beat = Beat {
        life,
        binding: rig.binding,
        seen: number - 1,
    };
    let entry = beat_entry(beat).encode();
    rig.receive(LogEvent::Records {
        partition: PARTITION,
        records: vec![Record::read(number, 1000, &entry)],
        now_ms: 1000,
    });
}

/// The publications of the life before are in the history, too.
#[test]
fn a_new_life_is_whole_without_the_publications_before() {
    let mut rig = Rig::live();
    publish(&mut rig, 2);
    rig.subscribe();
    rig.receive(LogEvent::Closed { partition: PARTITION });
    rig.binding = Binding(2);
    rig.open();
    rig.append_all();
    assert_eq!(last_state(&mut rig), (0, vec![]));
    publish(&mut rig, 1);
    let last = published(&rig).split_off(2);
    let mut reader = reader_at(&rig, 1, 1);
    assert_eq!(first_state(&mut reader), (0, last));
}

/// Readers cannot know the publications between the two: a broker that has repeated an append.
#[test]
fn a_life_that_begins_twice_is_not_whole() {
    let mut rig = Rig::live();
    publish(&mut rig, 2);
    let life = rig.records[0].1.clone();
    assert!(matches!(
        Entry::decode(&life),
        Ok(Entry::Life { life, .. }) if life.life != Life(0)
    ));
    let number = rig.records.last().expect("a record").0 + 1;
    rig.records.push((number, life));
    let again = records(&rig, number, number + 1);
    rig.receive(LogEvent::Records {
        partition: PARTITION,
        records: again,
        now_ms: 1000,
    });
    let (floor, _) = first_state(&mut rig);
    assert_eq!(floor, number);
}
