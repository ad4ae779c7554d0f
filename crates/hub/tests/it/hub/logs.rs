//! Channels that logs feed: their offsets are those of the log, and only valid positions recover.

mod simulation;

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{Epoch, HistoryOptions};
use ringmain_hub::limits;
use ringmain_hub::mail::{ChannelOptions, EpochFilter, RecoverFrom};
use ringmain_hub::shard::{ChannelShard, LogEvent, LogId, LogPublishOutcome, StateRecord};
use ringmain_hub::subscribers::ConnId;

use super::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, name, number};

const E: Epoch = Epoch::new(0xe);

fn id(epoch: Epoch, reader: u32) -> LogId {
    LogId { epoch, reader }
}

fn feed_by(
    workers: &mut Workers,
    id: LogId,
    channel: &str,
    options: ChannelOptions,
    offset: u64,
) -> LogPublishOutcome {
    let published = Arc::new(number(offset));
    let now = workers.now;
    workers.shards[0].publish_log_record(&name(channel), options, published, id, offset, now)
}

fn feed(workers: &mut Workers, channel: &str, offset: u64) -> LogPublishOutcome {
    feed_by(workers, id(E, 0), channel, KEPT, offset)
}

fn event(workers: &mut Workers, event: LogEvent) {
    workers.shards[0].handle_log_event(id(E, 0), event);
}

/// Returns one worker that reads the log from its start.
fn started() -> Workers {
    let mut workers = Workers::new(1, LIMITS);
    event(&mut workers, LogEvent::Started(0));
    workers
}

fn at(epoch: Epoch, offset: u64) -> Option<RecoverFrom> {
    let epoch = EpochFilter::Exact(epoch);
    Some(RecoverFrom { offset, epoch })
}

fn subscribe(
    workers: &mut Workers,
    conn: ConnId,
    channel: &str,
    options: ChannelOptions,
    since: Option<RecoverFrom>,
) -> String {
    workers.tables[0]
        .subscribe(conn, &name(channel), options, since)
        .expect("allowed");
    workers.deliver_all();
    workers.events(0).join(", ")
}

/// Returns the reply to a new client with this position.
fn recover(workers: &mut Workers, channel: &str, offset: u64) -> String {
    let conn = workers.tables[0].open(JSON, None);
    let result = subscribe(workers, conn, channel, KEPT, at(E, offset));
    workers.tables[0].close(conn);
    workers.deliver_all();
    workers.events(0);
    result
}

fn epoch_of(workers: &mut Workers, conn: ConnId, channel: &str) -> Epoch {
    use ringmain_hub::subscribers::SubscriberEvent;
    workers.tables[0]
        .subscribe(conn, &name(channel), KEPT, None)
        .expect("allowed");
    workers.deliver_all();
    match workers.tables[0].poll_event() {
        Some(SubscriberEvent::Subscribed {
            position: Some(position),
            ..
        }) => position.epoch,
        other => panic!("{other:?}"),
    }
}

/// Returns a successor with the state of a process.
fn restored(workers: &mut Workers) -> Workers {
    let now = workers.now;
    workers.shards[0].freeze();
    let saved = workers.shards[0].save(now, None);
    let sections = [saved.section, saved.logs].concat();
    let records = StateRecord::read_all(&sections).expect("records");
    let mut next = Workers::new(1, LIMITS);
    next.shards[0] = ChannelShard::new(1, 1000, 99);
    next.now = now;
    let window = Duration::from_secs(300);
    next.shards[0].restore(records, now, Duration::ZERO, window, |channel| {
        (channel != "gone").then_some(KEPT)
    });
    next
}

#[test]
fn offsets_are_those_of_the_log_and_repeats_are_not_published() {
    let mut workers = started();
    assert_eq!(feed(&mut workers, "a", 3), LogPublishOutcome::Published);
    assert_eq!(feed(&mut workers, "b", 4), LogPublishOutcome::Published);
    assert_eq!(feed(&mut workers, "a", 7), LogPublishOutcome::Published);
    for (channel, offset) in [("a", 3), ("b", 4), ("a", 7)] {
        assert_eq!(feed(&mut workers, channel, offset), LogPublishOutcome::Duplicate);
    }
    assert_eq!(
        recover(&mut workers, "a", 0),
        "subscribed a at Some(7) missed Some([3, 7])"
    );
    assert_eq!(
        recover(&mut workers, "a", 4),
        "subscribed a at Some(7) missed Some([7])"
    );
    assert_eq!(
        recover(&mut workers, "b", 4),
        "subscribed b at Some(4) missed Some([])"
    );
}

#[test]
fn a_client_from_another_node_recovers_or_retries() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    assert_eq!(recover(&mut workers, "a", 9), "rejected a: 100");
    assert_eq!(recover(&mut workers, "none", 9), "rejected none: 100");
    event(&mut workers, LogEvent::Reached(9));
    // There is no record of its channel in between.
    assert_eq!(
        recover(&mut workers, "a", 9),
        "subscribed a at Some(9) missed Some([])"
    );
    assert_eq!(
        recover(&mut workers, "none", 9),
        "subscribed none at Some(9) missed Some([])"
    );
    // A client with a lower position has missed nothing either.
    assert_eq!(
        recover(&mut workers, "none", 5),
        "subscribed none at Some(9) missed Some([])"
    );
    feed(&mut workers, "none", 12);
    assert_eq!(
        recover(&mut workers, "none", 5),
        "subscribed none at Some(12) missed Some([12])"
    );
    let conn = workers.tables[0].open(JSON, None);
    let result = subscribe(&mut workers, conn, "plain", PLAIN, at(E, 99));
    assert_eq!(
        result, "subscribed plain at None missed None",
        "it has no positions"
    );
}

#[test]
fn clients_that_subscribed_before_the_first_record_recover_it() {
    let mut workers = started();
    let conn = workers.tables[0].open(JSON, None);
    let before = epoch_of(&mut workers, conn, "a");
    feed(&mut workers, "a", 5);
    workers.deliver_all();
    assert_eq!(workers.events(0), ["unsubscribed a: 2500"]);
    let result = subscribe(&mut workers, conn, "a", KEPT, at(before, 0));
    assert_eq!(result, "subscribed a at Some(5) missed Some([5])");
}

#[test]
fn missing_records_are_reported_in_channels_without_records() {
    for gap in [LogEvent::Started(20), LogEvent::Reached(20)] {
        let is_hole = gap == LogEvent::Started(20);
        let mut workers = started();
        feed(&mut workers, "a", 3);
        let conn = workers.tables[0].open(JSON, None);
        subscribe(&mut workers, conn, "a", KEPT, at(E, 3));
        let before = epoch_of(&mut workers, conn, "b");
        event(&mut workers, gap);
        workers.deliver_all();
        let notified = workers.events(0).len();
        assert_eq!(notified, if is_hole { 2 } else { 0 });
        feed(&mut workers, "b", 21);
        workers.deliver_all();
        workers.events(0);
        let result = subscribe(&mut workers, conn, "b", KEPT, at(before, 0));
        let expected = if is_hole { "None" } else { "Some([21])" };
        assert_eq!(result, format!("subscribed b at Some(21) missed {expected}"));
        let expected = if is_hole { "None" } else { "Some([])" };
        let result = recover(&mut workers, "a", 3);
        assert!(result.ends_with(&format!("missed {expected}")), "{result}");
    }
}

#[test]
fn an_ended_epoch_is_reported_and_its_positions_are_void() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    let conn = workers.tables[0].open(JSON, None);
    subscribe(&mut workers, conn, "a", KEPT, at(E, 3));
    subscribe(&mut workers, conn, "b", KEPT, None);
    workers.shards[0].end_log(E);
    workers.deliver_all();
    assert_eq!(workers.events(0).len(), 2);
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(3) missed None"
    );
    let other = id(Epoch::new(2), 0);
    workers.shards[0].handle_log_event(other, LogEvent::Started(2));
    feed_by(&mut workers, other, "a", KEPT, 3);
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(3) missed None"
    );
    let result = subscribe(&mut workers, conn, "a", KEPT, at(other.epoch, 2));
    assert_eq!(
        result, "subscribed a at Some(3) missed None",
        "nothing recovers across"
    );
}

#[test]
fn a_channel_of_several_publishers_counts_for_itself() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    let conn = workers.tables[0].open(JSON, None);
    subscribe(&mut workers, conn, "a", KEPT, at(E, 3));
    workers.tables[0].publish(&name("a"), KEPT, number(0), None);
    workers.deliver_all();
    assert_eq!(workers.events(0), ["unsubscribed a: 2500"]);
    assert_eq!(
        feed(&mut workers, "a", 4),
        LogPublishOutcome::Published,
        "under another offset"
    );
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(5) missed None"
    );
    // Its subscribers are not notified again for each record.
    let own = epoch_of(&mut workers, conn, "a");
    feed(&mut workers, "a", 8);
    workers.tables[0].publish(&name("a"), KEPT, number(0), None);
    feed_by(&mut workers, id(Epoch::new(2), 0), "a", KEPT, 1);
    workers.deliver_all();
    assert!(workers.events(0).is_empty());
    let other = workers.tables[0].open(JSON, None);
    let result = subscribe(&mut workers, other, "a", KEPT, at(own, 5));
    assert_eq!(result, "subscribed a at Some(8) missed Some([6, 7, 8])");
}

#[test]
fn positions_do_not_recover_across_an_interruption_or_another_log() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    workers.shards[0].interrupt("a");
    feed(&mut workers, "a", 4);
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(4) missed None"
    );
    assert_eq!(
        recover(&mut workers, "a", 4),
        "subscribed a at Some(4) missed Some([])"
    );
}

#[test]
fn removed_and_rejected_channels_raise_the_base() {
    let brief = ChannelOptions {
        history: Some(HistoryOptions {
            ttl: Duration::from_secs(1),
            ..KEPT.history.expect("a history")
        }),
        position_ttl: Duration::from_secs(1),
        ..KEPT
    };
    let mut workers = started();
    workers.shards[0].set_channel_limit(1);
    feed_by(&mut workers, id(E, 0), "a", brief, 5);
    assert_eq!(feed(&mut workers, "b", 7), LogPublishOutcome::NoRoom);
    assert_eq!(
        feed(&mut workers, "b", 7),
        LogPublishOutcome::Duplicate,
        "it is not retained"
    );
    workers.now += Duration::from_secs(9);
    let now = workers.now;
    workers.shards[0].sweep(now);
    assert!(workers.shards[0].is_empty());
    workers.shards[0].set_channel_limit(9);
    event(&mut workers, LogEvent::Reached(9));
    for channel in ["a", "b"] {
        let result = recover(&mut workers, channel, 6);
        assert_eq!(result, format!("subscribed {channel} at Some(0) missed None"));
    }
    assert_eq!(
        recover(&mut workers, "c", 7),
        "subscribed c at Some(7) missed Some([])"
    );
}

#[test]
fn an_interrupted_channel_raises_the_base() {
    let mut workers = started();
    let brief = ChannelOptions {
        position_ttl: Duration::ZERO,
        history: Some(HistoryOptions {
            ttl: Duration::from_secs(1),
            ..KEPT.history.expect("a history")
        }),
        ..KEPT
    };
    feed_by(&mut workers, id(E, 0), "a", brief, 6);
    workers.shards[0].interrupt("a");
    workers.now += Duration::from_secs(9);
    let now = workers.now;
    workers.shards[0].sweep(now);
    assert!(workers.shards[0].is_empty());
    assert_eq!(
        recover(&mut workers, "a", 5),
        "subscribed a at Some(0) missed None"
    );
}

#[test]
fn publications_made_without_retention_are_not_recovered() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    feed_by(&mut workers, id(E, 0), "a", PLAIN, 4);
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(3) missed None"
    );
    feed_by(&mut workers, id(E, 0), "b", PLAIN, 6);
    event(&mut workers, LogEvent::Reached(9));
    assert_eq!(
        recover(&mut workers, "b", 5),
        "subscribed b at Some(0) missed None"
    );
    // The same for a channel that assigns its own offsets.
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0].publish(&name("c"), KEPT, number(1), None);
    let own = epoch_of(&mut workers, conn, "c");
    workers.tables[0].publish(&name("c"), PLAIN, number(2), None);
    workers.deliver_all();
    let other = workers.tables[0].open(JSON, None);
    let result = subscribe(&mut workers, other, "c", KEPT, at(own, 1));
    assert!(result.contains("subscribed c at Some(1) missed None"), "{result}");
}

#[test]
fn two_readers_of_a_log_publish_each_record_once() {
    let mut workers = started();
    workers.shards[0].handle_log_event(id(E, 1), LogEvent::Started(0));
    for options in [KEPT, PLAIN] {
        let channel = if options == KEPT { "a" } else { "plain" };
        let offset = if options == KEPT { 3 } else { 4 };
        let outcomes = [0, 1].map(|reader| feed_by(&mut workers, id(E, reader), channel, options, offset));
        assert_eq!(
            outcomes,
            [LogPublishOutcome::Published, LogPublishOutcome::Duplicate]
        );
    }
    // A reader that joins later skips nothing in channels that the other one feeds.
    workers.shards[0].handle_log_event(id(E, 2), LogEvent::Started(50));
    assert_eq!(feed(&mut workers, "a", 8), LogPublishOutcome::Published);
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(8) missed Some([8])"
    );
    // Its records must not precede those that the other reader has not delivered.
    feed_by(&mut workers, id(E, 2), "a", KEPT, 60);
    assert_eq!(
        recover(&mut workers, "b", 55),
        "rejected b: 100",
        "one of them lags behind"
    );
    for reader in 0..3 {
        workers.shards[0].handle_log_event(id(E, reader), LogEvent::Reached(60));
    }
    assert_eq!(
        recover(&mut workers, "a", 8),
        "subscribed a at Some(60) missed None"
    );
}

#[test]
fn earlier_records_are_retained_but_not_sent() {
    let mut workers = started();
    let conn = workers.tables[0].open(JSON, None);
    subscribe(&mut workers, conn, "a", KEPT, at(E, 0));
    event(&mut workers, LogEvent::Live(10));
    assert_eq!(
        recover(&mut workers, "a", 0),
        "rejected a: 100",
        "earlier records are still awaited"
    );
    feed(&mut workers, "a", 6);
    workers.deliver_all();
    assert!(workers.pushes(0, conn).is_empty());
    assert_eq!(
        workers.events(0),
        ["unsubscribed a: 2500"],
        "or it would miss the record"
    );
    let other = workers.tables[0].open(JSON, None);
    let result = subscribe(&mut workers, other, "a", KEPT, None);
    assert_eq!(
        result, "rejected a: 100",
        "older records would follow its position"
    );
    feed(&mut workers, "a", 12);
    let result = subscribe(&mut workers, conn, "a", KEPT, at(E, 0));
    assert_eq!(result, "subscribed a at Some(12) missed Some([6, 12])");
}

#[test]
fn retained_records_are_awaited_for_a_limited_time() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    event(&mut workers, LogEvent::Live(10));
    for _ in 0..2 {
        let now = workers.now;
        workers.shards[0].sweep(now);
        assert_eq!(recover(&mut workers, "a", 3), "rejected a: 100");
        workers.now += limits::LOG_REPLAY_TIMEOUT / 2;
    }
    let now = workers.now;
    workers.shards[0].sweep(now);
    assert_eq!(
        recover(&mut workers, "a", 3),
        "subscribed a at Some(3) missed Some([])"
    );
}

#[test]
fn conflated_channels_send_the_newest_record() {
    let conflated = ChannelOptions {
        cache_recovery: true,
        conflation_interval: Some(Duration::from_secs(1)),
        ..KEPT
    };
    let mut workers = started();
    let conn = workers.tables[0].open(JSON, None);
    subscribe(&mut workers, conn, "a", conflated, Some(RecoverFrom::BEGINNING));
    event(&mut workers, LogEvent::Live(10));
    feed_by(&mut workers, id(E, 0), "a", conflated, 6);
    workers.deliver_all();
    assert_eq!(workers.pushes(0, conn).len(), 1, "also those from before");
    feed_by(&mut workers, id(E, 0), "a", conflated, 11);
    let cached = ChannelOptions {
        conflation_interval: None,
        ..conflated
    };
    for channel in ["a", "b"] {
        let other = workers.tables[0].open(JSON, None);
        let result = subscribe(&mut workers, other, channel, cached, at(E, 99));
        assert_eq!(result, format!("rejected {channel}: 100"));
    }
}

#[test]
fn a_successor_continues_in_the_log() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    feed(&mut workers, "gone", 5);
    event(&mut workers, LogEvent::Reached(8));
    let mut next = restored(&mut workers);
    assert_eq!(
        recover(&mut next, "a", 0),
        "subscribed a at Some(3) missed Some([3])"
    );
    assert_eq!(recover(&mut next, "a", 9), "rejected a: 100");
    event(&mut next, LogEvent::Started(4));
    assert_eq!(feed(&mut next, "b", 7), LogPublishOutcome::Duplicate);
    assert_eq!(feed(&mut next, "a", 9), LogPublishOutcome::Published);
    assert_eq!(
        recover(&mut next, "a", 3),
        "subscribed a at Some(9) missed Some([9])"
    );
    let result = recover(&mut next, "gone", 4);
    assert_eq!(result, "subscribed gone at Some(0) missed None", "it was omitted");
    assert_eq!(
        recover(&mut next, "c", 5),
        "subscribed c at Some(5) missed Some([])"
    );
}

#[test]
fn a_successor_reports_skipped_records() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    let mut next = restored(&mut workers);
    let conn = next.tables[0].open(JSON, None);
    subscribe(&mut next, conn, "a", KEPT, at(E, 3));
    event(&mut next, LogEvent::Started(20));
    next.deliver_all();
    assert_eq!(next.events(0), ["unsubscribed a: 2500"]);
    assert_eq!(recover(&mut next, "a", 3), "subscribed a at Some(20) missed None");
}

#[test]
fn clients_ahead_of_an_unread_log_stop_retrying() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    let mut next = restored(&mut workers);
    assert_eq!(recover(&mut next, "a", 9), "rejected a: 100");
    next.now += limits::LOG_READER_TIMEOUT;
    let now = next.now;
    next.shards[0].sweep(now);
    assert_eq!(recover(&mut next, "a", 9), "subscribed a at Some(3) missed None");
    event(&mut next, LogEvent::Started(3));
    assert_eq!(
        recover(&mut next, "a", 9),
        "rejected a: 100",
        "the log is read again"
    );
}

#[test]
fn at_the_limit_of_logs_one_is_removed() {
    let mut workers = started();
    feed(&mut workers, "a", 3);
    for epoch in 100..100 + limits::LOGS as u64 {
        workers.shards[0].handle_log_event(id(Epoch::new(epoch), 0), LogEvent::Started(0));
    }
    // The log with the lowest epoch is removed: its channels recover their retained publications, but no positions of other nodes.
    assert_eq!(
        recover(&mut workers, "a", 0),
        "subscribed a at Some(3) missed Some([3])"
    );
    assert_eq!(
        recover(&mut workers, "a", 9),
        "subscribed a at Some(3) missed None"
    );
    assert_eq!(
        recover(&mut workers, "b", 3),
        "subscribed b at Some(0) missed None"
    );
}
