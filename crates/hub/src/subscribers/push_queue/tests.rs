//! Queues in one arena, compared with deques.

use std::collections::VecDeque;

use super::*;

fn queued_push(topic: u32, number: u8) -> QueuedPush {
    QueuedPush {
        topic,
        is_state: false,
        slow: SlowConsumerPolicy::Disconnect,
        frame: QueuedFrame::Whole(Bytes::copy_from_slice(&[number])),
    }
}

fn contents(push: &QueuedPush) -> (u32, u8) {
    match &push.frame {
        QueuedFrame::Whole(whole) => (push.topic, whole[0]),
        QueuedFrame::Delta(_) => panic!("no push of this test has a delta"),
    }
}

#[test]
fn queues_behave_like_deques() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut arena = QueueArena::new();
        let mut queues: Vec<(PushQueue, VecDeque<(u32, u8)>)> =
            (0..4).map(|_| (PushQueue::EMPTY, VecDeque::new())).collect();
        for _ in 0..300 {
            let (queue, naive) = &mut queues[random.usize(..4)];
            let topic = random.u32(..3);
            match random.u8(..8) {
                0..4 => {
                    let number = random.u8(..);
                    arena.push(queue, queued_push(topic, number));
                    naive.push_back((topic, number));
                }
                4..6 => assert_eq!(
                    arena.pop(queue).as_ref().map(contents),
                    naive.pop_front(),
                    "seed {seed}"
                ),
                6 => {
                    arena.retain(queue, |push| push.topic != topic);
                    naive.retain(|(other, _)| *other != topic);
                }
                _ => {
                    let found = arena.last_of(queue, topic).map(|push| contents(push));
                    let expected = naive.iter().rfind(|(other, _)| *other == topic);
                    assert_eq!(found.as_ref(), expected, "seed {seed}");
                }
            }
            let used: usize = queues.iter().map(|(_, naive)| naive.len()).sum();
            assert_eq!(arena.used, used, "seed {seed}");
        }
        for (queue, naive) in &mut queues {
            while let Some(push) = arena.pop(queue) {
                assert_eq!(Some(contents(&push)), naive.pop_front(), "seed {seed}");
            }
            assert!(naive.is_empty(), "seed {seed}");
        }
    }
}

#[test]
fn nodes_are_reused_and_released_above_the_retained_number() {
    let mut arena = QueueArena::new();
    let mut queue = PushQueue::EMPTY;
    for round in 0..100 {
        for number in 0..10 {
            arena.push(&mut queue, queued_push(0, number));
        }
        arena.retain(&mut queue, |_| round % 2 == 0);
        while arena.pop(&mut queue).is_some() {}
    }
    assert_eq!(arena.nodes.len(), 10);
    for _ in 0..=QUEUE_NODES_RETAINED {
        arena.push(&mut queue, queued_push(0, 0));
    }
    arena.retain(&mut queue, |_| false);
    assert_eq!(arena.nodes.capacity(), 0);
    arena.push(&mut queue, queued_push(1, 1));
    assert_eq!(arena.pop(&mut queue).as_ref().map(contents), Some((1, 1)));
}
