//! Entries of a log: round trip, versions, invalid bytes.

use std::time::Duration;

use bytes::Bytes;
use ringmain_cluster::frame::{ChannelSettings, Publish};
use ringmain_cluster::log::{
    Beat, Binding, Entry, EntryError, EntryId, Life, LifeEntry, Record, partition_of,
};
use ringmain_cluster::member::Uid;
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::{Idempotency, PublishOptions};
use ringmain_hub::protocol::{ClientInfo, Published};

fn publication() -> Publish {
    let info = ClientInfo {
        user: "u".into(),
        client: "c-1".into(),
        conn_info: Bytes::from_static(b"{\"a\":1}"),
        chan_info: Bytes::new(),
    };
    Publish {
        channel: "news:1".into(),
        settings: ChannelSettings {
            history: Some(HistoryOptions {
                publications: 10,
                bytes: 1000,
                ttl: Duration::from_secs(60),
            }),
            position_ttl: Duration::from_secs(600),
            members: true,
        },
        published: Published {
            data: Bytes::from_static(b"{\"x\":[1,2]}"),
            info: Some(info),
            tags: [("k".to_owned(), "v".to_owned())].into(),
            time: 3,
            ..Published::default()
        }
        .into(),
        options: PublishOptions {
            transient: false,
            idempotency: Some(Idempotency {
                key: "order-7".into(),
                window: Duration::from_secs(300),
            }),
        },
    }
}

fn all_entries() -> Vec<Entry> {
    let id = EntryId {
        writer: Uid(7),
        append: 9,
    };
    let (life, binding) = (Life(5), Binding(6));
    let publish = publication();
    let without_key = Publish {
        options: PublishOptions::default(),
        ..publication()
    };
    vec![
        Entry::Publication { id, publish },
        Entry::Publication {
            id,
            publish: without_key,
        },
        Entry::Beat {
            id,
            beat: Beat {
                life,
                binding,
                seen: 77,
            },
        },
        Entry::Life {
            id,
            life: LifeEntry { life, binding },
        },
    ]
}

#[test]
fn entries_are_decoded_as_they_were_encoded() {
    for entry in all_entries() {
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }
}

/// Entries outlive the program that wrote them.
#[test]
fn the_encoding_of_version_1_does_not_change() {
    let id = EntryId {
        writer: Uid(0x0102),
        append: 3,
    };
    let life = LifeEntry {
        life: Life(4),
        binding: Binding(5),
    };
    let expected = [
        1, 2, 2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(Entry::Life { id, life }.encode(), expected);
}

#[test]
fn incomplete_and_longer_entries_are_invalid() {
    for entry in all_entries() {
        let bytes = entry.encode();
        for length in 0..bytes.len() {
            assert_eq!(
                Entry::decode(&bytes[..length]),
                Err(EntryError::Invalid),
                "{length} of {entry:?}"
            );
        }
        let longer = [bytes, vec![0]].concat();
        assert_eq!(Entry::decode(&longer), Err(EntryError::Invalid));
    }
}

#[test]
fn entries_of_other_versions_are_left_out() {
    let mut bytes = all_entries()[0].encode();
    bytes[0] = 2;
    assert_eq!(Entry::decode(&bytes), Err(EntryError::UnknownVersion(2)));
    let record = Record::read(8, 1000, &bytes);
    assert_eq!(record.entry, Err(EntryError::UnknownVersion(2)));
}

#[test]
fn a_publication_without_offset_is_no_entry() {
    let id = EntryId {
        writer: Uid(7),
        append: 9,
    };
    let mut publish = publication();
    publish.options.transient = true;
    let bytes = Entry::Publication { id, publish }.encode();
    assert_eq!(Entry::decode(&bytes), Err(EntryError::Invalid));
}

#[test]
fn records_are_recognized_by_their_bytes() {
    let [first, second] = [b"a", b"b"].map(|bytes| Record::read(1, 0, bytes).digest);
    assert_ne!(first, second);
    assert_eq!(first, Record::read(2, 5, b"a").digest);
}

/// All nodes must agree.
#[test]
fn channels_are_spread_over_partitions() {
    let mut counts = [0; 64];
    for number in 0..6400 {
        let partition = partition_of(&format!("prices:{number}"), 64);
        counts[usize::from(partition.0)] += 1;
    }
    assert!(counts.iter().all(|count| (50..200).contains(count)), "{counts:?}");
    assert_eq!(partition_of("news", 64).0, partition_of("news", 64).0);
    assert_eq!(partition_of("news", 1).0, 0);
}
