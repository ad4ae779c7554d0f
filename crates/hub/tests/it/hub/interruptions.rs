//! A source that may have lost publications: new epochs, and which clients are notified.

use std::time::Duration;

use ringmain_hub::history::{Epoch, History, HistoryQuery};
use ringmain_hub::mail::{ChannelOptions, EpochFilter, RecoverFrom};
use ringmain_hub::subscribers::shard_of;

use crate::hub::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, name, number};

fn since(offset: u64) -> Option<RecoverFrom> {
    let epoch = EpochFilter::Any;
    Some(RecoverFrom { offset, epoch })
}

#[test]
fn no_position_recovers_across_an_interruption_but_the_history_stays() {
    let keep = KEPT.history.expect("a history");
    let now = Duration::ZERO;
    let (before, after) = (Epoch::new(1), Epoch::new(2));
    let mut history = History::new(before, keep);
    for item in 1..=3 {
        history.publish(item, 1, now);
    }
    history.start_epoch(after);
    history.publish(4, 1, now);
    let recovers = |history: &mut History<u64>, offset, epoch| {
        let recovered = history.recover(offset, epoch, 10, now);
        format!("{recovered:?}")
    };
    assert_eq!(recovers(&mut history, 3, Some(before)), "Gap");
    assert_eq!(
        recovers(&mut history, 2, Some(after)),
        "Gap",
        "a position of a query"
    );
    assert_eq!(recovers(&mut history, 2, None), "Gap");
    assert_eq!(recovers(&mut history, 3, Some(after)), "All([(4, 4)])");
    let query = HistoryQuery {
        since: None,
        limit: 10,
        reverse: false,
    };
    assert_eq!(history.query(query, now).len(), 4);
}

#[test]
fn an_interruption_notifies_only_clients_that_rely_on_positions() {
    let mut workers = Workers::new(2, LIMITS);
    let conflated = ChannelOptions {
        conflation_interval: Some(Duration::from_secs(1)),
        cache_recovery: true,
        ..KEPT
    };
    let channels = [
        ("n:a", KEPT),
        ("n:b", KEPT),
        ("n:plain", PLAIN),
        ("n:shown", conflated),
    ];
    let near = workers.tables[0].open(JSON, None);
    let far = workers.tables[1].open(JSON, None);
    for (channel, options) in channels {
        for (worker, conn) in [(0, near), (1, far)] {
            workers.tables[worker]
                .subscribe(conn, &name(channel), options, None)
                .expect("allowed");
        }
    }
    let other = workers.tables[1].open(JSON, None);
    workers.tables[1]
        .subscribe(other, &name("m:a"), KEPT, None)
        .expect("allowed");
    workers.tables[0].publish(&name("n:a"), KEPT, number(1), None);
    workers.deliver_all();
    workers.events(0);
    workers.events(1);
    for shard in &mut workers.shards {
        let mut after = None;
        loop {
            after = shard.interrupt_all("n:", after.as_deref(), 1);
            if after.is_none() {
                break;
            }
        }
    }
    workers.deliver_all();
    for worker in [0, 1] {
        let mut events = workers.events(worker);
        events.sort();
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(
            events[0].contains("n:a") && events[1].contains("n:b"),
            "{events:?}"
        );
    }
    // A position from before the interruption does not recover; the current one does.
    for (offset, missed) in [(0, "None"), (1, "Some([])")] {
        workers.tables[0]
            .subscribe(near, &name("n:a"), KEPT, since(offset))
            .expect("allowed");
        workers.deliver_all();
        assert_eq!(
            workers.events(0),
            [format!("subscribed n:a at Some(1) missed {missed}")]
        );
        workers.tables[0].unsubscribe_silently(near, "n:a");
        workers.deliver_all();
    }
}

#[test]
fn a_single_channel_can_be_interrupted() {
    let mut workers = Workers::new(1, LIMITS);
    let conn = workers.tables[0].open(JSON, None);
    for channel in ["a", "ab"] {
        workers.tables[0]
            .subscribe(conn, &name(channel), KEPT, None)
            .expect("allowed");
    }
    workers.deliver_all();
    workers.events(0);
    workers.shards[usize::from(shard_of("a", 1).0)].interrupt("a");
    workers.shards[0].interrupt("not there");
    workers.deliver_all();
    assert_eq!(workers.events(0).len(), 1);
}
