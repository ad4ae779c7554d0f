//! Channels that are not used make room for others: the longest unused first, and never one with subscribers or with publications that
//! are retained.

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

/// Subscribes a new connection, which leaves at once. Returns what it was told.
fn visit(workers: &mut Workers, channel: &str, options: ChannelOptions) -> Vec<String> {
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(conn, &name(channel), options, None)
        .expect("it may");
    workers.settle();
    workers.tables[0].close(conn);
    workers.settle();
    workers.events(0)
}

fn publish(workers: &mut Workers, channel: &str, options: ChannelOptions) -> String {
    let conn = workers.tables[0].open(JSON, None);
    workers.tables[0].publish(&name(channel), options, number(1), Some((conn, 1)));
    workers.settle();
    let result = workers.events(0).join(", ");
    workers.tables[0].close(conn);
    result
}

/// Where a channel stands; a new one for one that was removed.
fn stands(workers: &mut Workers, channel: &str, options: ChannelOptions) -> String {
    let conn = workers.tables[0].open(JSON, None);
    let query = HistoryQuery {
        since: None,
        limit: 0,
        reverse: false,
    };
    let epoch = EpochFilter::Any;
    let query = ChannelQuery::History { query, epoch };
    workers.tables[0].query(&name(channel), options, query, (conn, 1));
    workers.settle();
    let result = workers.events(0).join(", ");
    workers.tables[0].close(conn);
    result
}

#[test]
fn names_that_are_only_visited_fill_nothing() {
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
fn the_longest_unused_goes_and_what_is_retained_stays() {
    let mut workers = small();
    let listener = workers.tables[0].open(JSON, None);
    workers.tables[0]
        .subscribe(listener, &name("heard"), SHORT, None)
        .expect("it may");
    workers.settle();
    workers.events(0);
    for channel in ["a", "b", "c", "d"] {
        workers.now += Duration::from_secs(1);
        assert_eq!(publish(&mut workers, channel, SHORT), "published 1 at Some(1)");
    }
    // All retain a publication, or have a subscriber.
    assert_eq!(visit(&mut workers, "e", SHORT), ["refused e: 106"]);
    assert_eq!(publish(&mut workers, "e", SHORT), "told 1 full");
    workers.now += Duration::from_secs(5);
    assert_eq!(publish(&mut workers, "a", SHORT), "published 1 at Some(2)");
    // `a` was used again, so `b` and `c` have been unused for longer.
    workers.now += Duration::from_secs(8);
    for channel in ["e", "f"] {
        assert_eq!(publish(&mut workers, channel, SHORT), "published 1 at Some(1)");
    }
    assert_eq!(stands(&mut workers, "a", SHORT), "told 1 [] at 2");
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

/// Whoever comes back within the time in which publications are retained finds the channel as it was, whatever others do.
#[test]
fn by_chance_only_unused_channels_are_removed() {
    for seed in 0..100 {
        let mut random = Rng::with_seed(seed);
        let mut workers = small();
        // Of channels with a listener, or with a publication that is retained: where they stand, and until when that is sure.
        let mut sure: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
        for _ in 0..300 {
            workers.now += Duration::from_millis(random.u64(0..3000));
            let channel = format!("c{}", random.u8(0..12));
            sure.retain(|_, (_, until)| *until > workers.now);
            let known = sure.get(&channel).map(|(offset, _)| *offset);
            match random.u8(0..4) {
                0 => {
                    let result = visit(&mut workers, &channel, SHORT);
                    let is_full = sure.len() == MOST && known.is_none();
                    assert_eq!(
                        result[0].starts_with("refused"),
                        is_full,
                        "seed {seed}: {result:?}"
                    );
                }
                1 => {
                    let result = publish(&mut workers, &channel, SHORT);
                    let Some(offset) = result.strip_prefix("published 1 at Some(") else {
                        assert!(sure.len() == MOST && known.is_none(), "seed {seed}: {result}");
                        continue;
                    };
                    let offset: u64 = offset.trim_end_matches(')').parse().expect("an offset");
                    if let Some(before) = known {
                        assert_eq!(offset, before + 1, "seed {seed}: {channel}");
                    }
                    let until = workers.now + Duration::from_secs(10);
                    sure.insert(channel, (offset, until));
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
                        .expect("it may");
                    workers.settle();
                    workers.tables[0].close(conn);
                    workers.settle();
                    let expected = format!("subscribed {channel} at Some({offset}) missed Some([{offset}])");
                    assert_eq!(workers.events(0), [expected], "seed {seed}");
                }
            }
            assert!(workers.shards[0].len() <= MOST, "seed {seed}");
        }
    }
}
