//! The weights of queued replies.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::{Published, Reply};

use super::{Missed, Queued, ReplyQueue, publication_weight, split_recovered};

fn missed(count: u64, bytes: usize) -> Missed {
    let published = Arc::new(Published {
        data: Bytes::from(vec![b'1'; bytes]),
        ..Published::default()
    });
    (1..=count)
        .map(|offset| (offset, Arc::clone(&published)))
        .collect()
}

/// Returns the offsets in a queue, in order.
fn offsets(queue: &mut ReplyQueue) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop())
        .map(|queued| match queued {
            Queued::Publication(_, offset, ..) => offset,
            _ => 0,
        })
        .collect()
}

#[test]
fn the_first_publications_that_fit_remain_in_the_reply() {
    let channel: Arc<str> = Arc::from("a");
    let weight = publication_weight(&missed(1, 100)[0].1);
    for (capacity, retained) in [
        (0, 0),
        (weight - 1, 0),
        (weight, 1),
        (3 * weight, 3),
        (usize::MAX, 5),
    ] {
        let mut all = missed(5, 100);
        let (bytes, mut rest) = split_recovered(&channel, Some(&mut all), capacity, false);
        assert_eq!((all.len(), bytes), (retained, retained * weight), "{capacity}");
        assert_eq!(rest.bytes(), (5 - retained) * weight, "{capacity}");
        let followed: Vec<u64> = (retained as u64 + 1..=5).collect();
        assert_eq!(offsets(&mut rest), followed, "{capacity}");
        assert_eq!(rest.bytes(), 0);
    }
    assert!(split_recovered(&channel, None, 1, true).1.is_empty());
}

#[test]
fn a_queue_counts_the_bytes_of_its_entries() {
    let mut queue = ReplyQueue::default();
    queue.push(Queued::Message(vec![0; 1000]));
    queue.push(Queued::Reply(Box::new(Reply {
        id: 7,
        ..Reply::default()
    })));
    for channel in ["a", "b"] {
        let mut all = missed(3, 500);
        let (_, mut rest) = split_recovered(&Arc::from(channel), Some(&mut all), 0, true);
        queue.append(&mut rest);
        assert!(rest.is_empty() && rest.bytes() == 0);
    }
    let all = queue.bytes();
    assert!(all > 4000, "{all}");
    queue.remove("a");
    assert_eq!(all - queue.bytes(), 3 * publication_weight(&missed(1, 500)[0].1));
    assert_eq!(offsets(&mut queue), [0, 0, 1, 2, 3]);
    assert_eq!(queue.bytes(), 0);
}
