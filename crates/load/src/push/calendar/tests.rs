//! Numbers, marks and moments against a list of all publications.

use std::time::Duration;

use super::{Calendar, Mark, Number};
use crate::push::fixtures::plan;
use crate::push::plan::Plan;

/// All publications of a plan.
fn all(calendar: &Calendar) -> Vec<(Number, Mark, Duration)> {
    let of = |stream: u8| {
        (0..)
            .map(move |number| Number { stream, number })
            .map_while(|number| Some((number, calendar.due(number)?)))
            .map(|(number, due)| (number, calendar.mark(number), due))
            .collect::<Vec<_>>()
    };
    [of(0), of(1)].concat()
}

fn plans() -> Vec<Plan> {
    let seconds = Duration::from_secs;
    let of = |channels, rate, common, warmup, duration| Plan {
        channels,
        rate,
        common,
        warmup,
        duration,
        ..plan()
    };
    vec![
        of(3, 10.0, None, seconds(1), seconds(2)),
        of(7, 333.0, Some(2.0), seconds(0), seconds(1)),
        of(1, 0.0, Some(1.0), seconds(1), seconds(3)),
        of(1000, 100.0, Some(0.3), seconds(2), seconds(5)),
    ]
}

#[test]
fn what_counts_has_places_of_its_own_one_after_the_other() {
    for plan in plans() {
        let calendar = Calendar::new(&plan);
        let (mut places, mut early) = (Vec::new(), 0);
        for (number, mark, due) in all(&calendar) {
            match calendar.place(mark) {
                Some(place) => {
                    assert!(
                        due >= plan.warmup && due < plan.warmup + plan.duration,
                        "{number:?} at {due:?}"
                    );
                    assert_eq!(calendar.channel_of(place), mark.channel);
                    places.push(place);
                }
                None => {
                    assert!(due < plan.warmup, "{number:?} at {due:?}");
                    early += 1;
                }
            }
        }
        assert_eq!(places, (0..calendar.counted()).collect::<Vec<_>>());
        assert_eq!(early + calendar.counted(), all(&calendar).len());
        // Neither before the first nor behind the last, nor in a channel that is none.
        for channel in 0..plan.channels + 3 {
            assert_eq!(calendar.place(Mark { channel, sequence: 0 }), None);
            assert_eq!(
                calendar.place(Mark {
                    channel,
                    sequence: u32::MAX
                }),
                None
            );
        }
    }
}

#[test]
fn the_newest_and_the_last_of_a_channel_are_those_of_the_list() {
    for plan in plans() {
        let calendar = Calendar::new(&plan);
        let list = all(&calendar);
        let highest = |channel: u32, by: Duration| {
            let of = list
                .iter()
                .filter(|(_, mark, due)| mark.channel == channel && *due <= by);
            of.map(|(_, mark, _)| mark.sequence).max().unwrap_or(0)
        };
        for channel in [0, 1, 2, plan.channels - 1, plan.channels] {
            let channel = channel.min(plan.channels);
            for ms in (0..8000).step_by(37) {
                let by = Duration::from_millis(ms);
                assert_eq!(
                    calendar.newest(channel, by),
                    highest(channel, by),
                    "{channel} by {by:?}"
                );
            }
            assert_eq!(
                calendar.last(channel),
                highest(channel, Duration::MAX),
                "{channel}"
            );
        }
    }
}

#[test]
fn how_far_a_value_is_behind_follows_from_its_channel_s_pace() {
    let calendar = Calendar::new(&Plan {
        channels: 5,
        rate: 50.0,
        ..plan()
    });
    assert_eq!(calendar.behind(3, 1, 4), Duration::from_millis(300));
    // Nothing yet is as far behind as the first would be.
    assert_eq!(calendar.behind(3, 0, 4), Duration::from_millis(300));
    assert_eq!(calendar.behind(3, 4, 4), Duration::ZERO);
}

#[test]
fn without_a_publisher_nothing_is_due() {
    let calendar = Calendar::new(&Plan {
        publishing: None,
        common: Some(5.0),
        ..plan()
    });
    assert_eq!((calendar.counted(), all(&calendar).len()), (0, 0));
    assert_eq!(calendar.newest(0, Duration::from_secs(5)), 0);
}
