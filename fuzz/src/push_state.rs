//! HandOverState of channels that another process has left: a section as it is, since a checksum keeps mutated ones from the reader, and the whole.

use std::time::Duration;

use ringmain_hub::history::HistoryOptions;
use ringmain_hub::shard::{ChannelShard, StateRecord};
use ringmain_push::{ChannelOptions, HandOverState, Namespace};

const WINDOW: Duration = Duration::from_secs(300);
const KEEP: HistoryOptions = HistoryOptions {
    publications: 5,
    bytes: 1000,
    ttl: Duration::from_secs(60),
};

/// Laws: no panic; what is read can be taken over by a home, and what that writes is read by the next one, which writes the same.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let _ = HandOverState::read(input);
    let Ok(records) = StateRecord::read_all(input) else {
        return;
    };
    let first = taken_over(records);
    let again = StateRecord::read_all(&first).expect("a home writes what can be read");
    assert_eq!(first, taken_over(again), "state of state");
}

fn taken_over(records: Vec<StateRecord>) -> Vec<u8> {
    let (now, mut home) = (Duration::from_secs(1_000_000), ChannelShard::new(1, 100, 7));
    let rules = ChannelOptions {
        history: Some(KEEP),
        presence: true,
        ..Namespace::default().channel_options
    };
    home.restore(records, (now, Duration::ZERO), WINDOW, |channel| {
        (!channel.is_empty()).then_some(rules)
    });
    home.save(now, Some(Duration::from_secs(10))).section
}
