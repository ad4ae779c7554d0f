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
