//! Lists in one table, against as many deques.

use std::collections::VecDeque;

use super::*;

fn waiting(topic: u32, number: u8) -> Waiting {
    Waiting {
        topic,
        is_state: false,
        slow: Slow::Disconnect,
        frame: Bytes::copy_from_slice(&[number]),
    }
}

fn said(waiting: &Waiting) -> (u32, u8) {
    (waiting.topic, waiting.frame[0])
}

#[test]
fn many_lists_are_as_many_deques() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut table = Table::new();
        let mut lists: Vec<(List, VecDeque<(u32, u8)>)> =
            (0..4).map(|_| (List::EMPTY, VecDeque::new())).collect();
        for _ in 0..300 {
            let (list, naive) = &mut lists[random.usize(..4)];
            let topic = random.u32(..3);
            match random.u8(..8) {
                0..4 => {
                    let number = random.u8(..);
                    table.push(list, waiting(topic, number));
                    naive.push_back((topic, number));
                }
                4..6 => assert_eq!(
                    table.pop(list).as_ref().map(said),
                    naive.pop_front(),
                    "seed {seed}"
                ),
                6 => {
                    table.retain(list, |waiting| waiting.topic != topic);
                    naive.retain(|(other, _)| *other != topic);
                }
                _ => {
                    let found = table.last_of(list, topic).map(|waiting| said(waiting));
                    let expected = naive.iter().rfind(|(other, _)| *other == topic);
                    assert_eq!(found.as_ref(), expected, "seed {seed}");
                }
            }
            let used: usize = lists.iter().map(|(_, naive)| naive.len()).sum();
            assert_eq!(table.used, used, "seed {seed}");
        }
        for (list, naive) in &mut lists {
            while let Some(waiting) = table.pop(list) {
                assert_eq!(Some(said(&waiting)), naive.pop_front(), "seed {seed}");
            }
            assert!(naive.is_empty(), "seed {seed}");
        }
    }
}

#[test]
fn places_are_used_again_and_given_back_when_they_were_very_many() {
    let mut table = Table::new();
    let mut list = List::EMPTY;
    for round in 0..100 {
        for number in 0..10 {
            table.push(&mut list, waiting(0, number));
        }
        table.retain(&mut list, |_| round % 2 == 0);
        while table.pop(&mut list).is_some() {}
    }
    assert_eq!(table.places.len(), 10);
    for _ in 0..=PLACES_KEPT {
        table.push(&mut list, waiting(0, 0));
    }
    table.retain(&mut list, |_| false);
    assert_eq!(table.places.capacity(), 0);
    table.push(&mut list, waiting(1, 1));
    assert_eq!(table.pop(&mut list).as_ref().map(said), Some((1, 1)));
}
