//! Unused channels are evicted at the limit, the longest unused first, but never one with subscribers or retained publications.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use ringmain_hub::history::{HistoryOptions, HistoryQuery};
use ringmain_hub::mail::{ChannelOptions, ChannelQuery, EpochFilter, RecoverFrom};
use ringmain_hub::shard::ChannelShard;

use crate::hub::workers::{JSON, KEPT, LIMITS, PLAIN, Workers, name, number};

const MOST: usize = 5;

/// Retains one publication for ten seconds, and offsets for an hour.
const SHORT: ChannelOptions = ChannelOptions {
    history: Some(HistoryOptions {
        publications: 1,
        bytes: 1000,
        ttl: Duration::from_secs(10),
    }),
    ..KEPT
};

fn small() -> Workers {
    let mut workers = Workers::new(1, LIMITS);
    workers.shards[0] = ChannelShard::new(1, MOST, 7);
    workers
}

/// Subscribes a new connection and closes it. Returns its events.
fn visit(workers: &mut Workers, channel: &str, options: ChannelOptions) -> Vec<String> {
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(conn, &name(channel), options, None)
        .expect("allowed");
    workers.deliver_all();
    workers.tables[0].close(conn);
    workers.deliver_all();
    workers.events(0)
}

fn publish(workers: &mut Workers, channel: &str, options: ChannelOptions) -> String {
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0].publish(&name(channel), options, number(1), Some((conn, 1)));
    workers.deliver_all();
    let result = workers.events(0).join(", ");
    workers.tables[0].close(conn);
    result
}

/// Returns the position of a channel; an evicted one starts again.
fn stands(workers: &mut Workers, channel: &str, options: ChannelOptions) -> String {
    let conn = workers.tables[0].open(JSON, None);
    let query = HistoryQuery {
        since: None,
        limit: 0,
        reverse: false,
    };
    let epoch = EpochFilter::Any;
    let query = ChannelQuery::History { query, epoch };
    workers.tables[0].query(&name(channel), options, query, conn, 1);
    workers.deliver_all();
    let result = workers.events(0).join(", ");
    workers.tables[0].close(conn);
    result
}

#[test]
fn visited_names_do_not_fill_the_shard() {
    for options in [PLAIN, KEPT] {
        let mut workers = small();
        for visitor in 0..200 {
            workers.now += Duration::from_millis(1);
            let result = visit(&mut workers, &format!("v{visitor}"), options);
            assert!(result[0].starts_with("subscribed"), "{result:?}");
        }
        assert_eq!(workers.shards[0].len(), MOST);
        assert_eq!(workers.shards[0].counts().evicted, 200 - MOST as u64);
        assert!(publish(&mut workers, "new", options).starts_with("published"));
    }
}

#[test]
fn the_longest_unused_channel_is_evicted_and_retained_ones_stay() {
    let mut workers = small();
    let subscriber = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(subscriber, &name("heard"), SHORT, None)
        .expect("allowed");
    workers.deliver_all();
    workers.events(0);
    for channel in ["a", "b", "c", "d"] {
        workers.now += Duration::from_secs(1);
        assert_eq!(publish(&mut workers, channel, SHORT), "published 1 at Some(1)");
    }
    // Every channel retains a publication or has a subscriber.
    assert_eq!(visit(&mut workers, "e", SHORT), ["rejected e: 106"]);
    assert_eq!(publish(&mut workers, "e", SHORT), "result 1 channel limit");
    workers.now += Duration::from_secs(5);
    assert_eq!(publish(&mut workers, "a", SHORT), "published 1 at Some(2)");
    // `a` was used again, so `b` and `c` have been unused for longer.
    workers.now += Duration::from_secs(8);
    for channel in ["e", "f"] {
        assert_eq!(publish(&mut workers, channel, SHORT), "published 1 at Some(1)");
    }
    assert_eq!(stands(&mut workers, "a", SHORT), "result 1 [] at 2");
    assert_eq!(workers.shards[0].counts().evicted, 2);
    assert_eq!(workers.shards[0].len(), MOST);
}

#[test]
fn a_channel_that_never_published_is_removed_when_nothing_could_be_retained() {
    let mut workers = small();
    visit(&mut workers, "empty", SHORT);
    publish(&mut workers, "used", SHORT);
    let sweep = |workers: &mut Workers, seconds| {
        workers.now = Duration::from_secs(seconds);
        let now = workers.now;
        workers.shards[0].sweep(now);
        workers.shards[0].len()
    };
    assert_eq!(sweep(&mut workers, 9), 2);
    assert_eq!(sweep(&mut workers, 10), 1, "the empty one");
    assert_eq!(sweep(&mut workers, 3599), 1, "offsets are retained for an hour");
    assert_eq!(sweep(&mut workers, 3601), 0);
}

/// A client that reconnects within the retention time finds its channel unchanged, whatever other clients do.
#[test]
fn only_unused_channels_are_evicted_in_random_runs() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let mut workers = small();
        // The positions of channels with a subscriber or a retained publication, and the time until which they must not be evicted.
        let mut protected: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
        for _ in 0..300 {
            workers.now += Duration::from_millis(random.u64(0..3000));
            let channel = format!("c{}", random.u8(0..12));
            protected.retain(|_, (_, until)| *until > workers.now);
            let known = protected.get(&channel).map(|(offset, _)| *offset);
            match random.u8(0..4) {
                0 => {
                    let result = visit(&mut workers, &channel, SHORT);
                    let is_full = protected.len() == MOST && known.is_none();
                    assert_eq!(
                        result[0].starts_with("rejected"),
                        is_full,
                        "seed {seed}: {result:?}"
                    );
                }
                1 => {
                    let result = publish(&mut workers, &channel, SHORT);
                    let Some(offset) = result.strip_prefix("published 1 at Some(") else {
                        assert!(
                            protected.len() == MOST && known.is_none(),
                            "seed {seed}: {result}"
                        );
                        continue;
                    };
                    let offset: u64 = offset.trim_end_matches(')').parse().expect("an offset");
                    if let Some(before) = known {
                        assert_eq!(offset, before + 1, "seed {seed}: {channel}");
                    }
                    let until = workers.now + Duration::from_secs(10);
                    protected.insert(channel, (offset, until));
                }
                2 => {
                    let now = workers.now;
                    workers.shards[0].sweep(now);
                }
                _ => {
                    let Some(offset) = known else { continue };
                    let conn = workers.tables[0].open(JSON, None);
                    let epoch = EpochFilter::Any;
                    let since = Some(RecoverFrom {
                        offset: offset - 1,
                        epoch,
                    });
                    workers.tables[0]
                        .subscribe(conn, &name(&channel), SHORT, since)
                        .expect("allowed");
                    workers.deliver_all();
                    workers.tables[0].close(conn);
                    workers.deliver_all();
                    let expected = format!("subscribed {channel} at Some({offset}) missed Some([{offset}])");
                    assert_eq!(workers.events(0), [expected], "seed {seed}");
                }
            }
            assert!(workers.shards[0].len() <= MOST, "seed {seed}");
        }
    }
}
