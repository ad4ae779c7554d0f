//! Places and channels are each other's inverse, and audiences are what clients add up to.

use super::{Audience, Layout, named, write_name};

fn layout(clients: u32, channels: u32, each: u32, common: bool) -> Layout {
    Layout {
        clients,
        channels,
        each,
        common,
        slow: 0.0,
    }
}

#[test]
fn clients_of_all_and_of_each_channel_are_spread_evenly_over_nodes() {
    for (clients, channels, each) in [
        (12, 1, 1),
        (12, 2, 1),
        (30, 3, 1),
        (24, 4, 2),
        (90, 6, 4),
        (60, 10, 3),
    ] {
        let layout = layout(clients, channels, each, false);
        for nodes in [1, 2, 3] {
            let count = |channel: Option<u32>| {
                let mut counts = vec![0u32; nodes];
                for client in 0..clients {
                    let has = channel.is_none_or(|channel| layout.place(client, channel).is_some());
                    counts[usize::from(layout.node(client, nodes))] += u32::from(has);
                }
                counts.iter().max().unwrap() - counts.iter().min().unwrap()
            };
            let context = (clients, channels, each, nodes);
            assert!(count(None) <= 1, "{context:?}");
            for channel in 0..channels {
                assert!(count(Some(channel)) <= 2, "{context:?} {channel}");
            }
        }
    }
}

#[test]
fn a_channel_is_at_the_place_that_has_it_and_at_no_other() {
    for layout in [
        layout(7, 3, 2, false),
        layout(7, 3, 3, true),
        layout(50, 10, 4, true),
        layout(5, 1, 1, false),
        layout(9, 100, 7, true),
    ] {
        for client in 0..layout.clients {
            let channels: Vec<u32> = (0..layout.places())
                .map(|place| layout.channel(client, place))
                .collect();
            for channel in 0..layout.channels + 2 {
                let expect = channels.iter().position(|other| *other == channel);
                let found = layout.place(client, channel).map(|place| place as usize);
                assert_eq!(found, expect, "{layout:?}: client {client}, channel {channel}");
            }
        }
    }
}

#[test]
fn audiences_are_even_and_complete() {
    let audiences = layout(80, 10, 2, true).audiences();
    assert_eq!(audiences[..10], [Audience { fast: 16, slow: 0 }; 10]);
    assert_eq!(audiences[10], Audience { fast: 80, slow: 0 });
    assert_eq!(layout(80, 10, 2, false).audiences()[10], Audience::default());
}

#[test]
fn slow_clients_are_as_many_as_asked_for_and_in_all_channels() {
    let layout = Layout {
        slow: 0.05,
        ..layout(20_000, 100, 1, false)
    };
    let slow = layout.slow_clients();
    assert!((800..1200).contains(&slow), "{slow}");
    let audiences = layout.audiences();
    assert!(
        audiences[..100]
            .iter()
            .all(|audience| audience.fast > 150 && audience.slow < 40),
        "{audiences:?}"
    );
    assert_eq!(audiences.iter().map(|audience| audience.slow).sum::<u32>(), slow);
    assert_eq!(Layout { slow: 1.0, ..layout }.slow_clients(), layout.clients);
}

#[test]
fn a_name_is_read_as_it_was_written() {
    for channel in [0, 9, 10, 41, 42] {
        let mut name = Vec::new();
        write_name(&mut name, "a:b", 42, channel);
        assert_eq!(named("a:b", 42, str::from_utf8(&name).unwrap()), Some(channel));
    }
    assert_eq!(named("a:b", 42, "a:b43"), None);
    assert_eq!(named("a:b", 42, "a:bx"), None);
    assert_eq!(named("a:b", 42, "c1"), None);
}
