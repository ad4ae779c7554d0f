//! What becomes of a queue that is full.

use bytes::Bytes;
use ringmain_hub::protocol::Format;

use super::*;
use crate::worker::user_commands::What;

fn slots(workers: usize) -> Arc<[Slot]> {
    (0..workers).map(|_| Slot::new()).collect()
}

#[test]
fn a_full_queue_of_commands_says_so_until_there_is_room() {
    let ends = make(&slots(2), "node", Time(0), &Arc::default())
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mut ends = ends.into_iter().flatten();
    let (mut one, mut two) = (ends.next().expect("ends"), ends.next().expect("ends"));
    let emulated = |secret| Emulated {
        secret,
        format: Format::Json,
        data: Bytes::new(),
    };
    for number in 0..limits::EMULATED {
        assert!(one.emulate(1, emulated(number as u128)), "{number}");
    }
    assert!(!one.emulate(1, emulated(7)), "it is full");
    assert!(two.emulate(0, emulated(7)), "the other way is another queue");
    assert_eq!(two.as_sessions[0].pop().map(|first| first.secret), Ok(0));
    assert!(one.emulate(1, emulated(7)), "there is room again");
    assert!(one.emulate(2, emulated(7)), "nobody is there, so nobody hears it");
}

#[test]
fn an_order_reaches_all_others_or_nobody() {
    let ends = make(&slots(3), "node", Time(0), &Arc::default())
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mut ends: Vec<Ends> = ends.into_iter().flatten().collect();
    let order = |user: &str| Order {
        user: user.into(),
        client: None,
        what: What::Disconnect(Arc::default()),
        reached: None,
    };
    for number in 0..limits::ORDERS {
        assert!(ends[0].order(0, &order("7")), "{number}");
    }
    let mut taken = |worker: usize| ends[worker].as_orders[0].pop().map(|order| order.user);
    assert_eq!(
        (taken(1).as_deref(), taken(0)),
        (Ok("7"), Err(rtrb::PopError::Empty))
    );
    // One has room again, the other has none.
    assert!(!ends[0].order(0, &order("8")), "it is full");
    assert!(ends[1].order(1, &order("9")), "those of others are other queues");
    let left: Vec<_> = std::iter::from_fn(|| ends[1].as_orders[0].pop().ok()).collect();
    assert_eq!(left.len(), limits::ORDERS - 1);
    assert!(
        left.iter().all(|order| &*order.user == "7"),
        "nobody was told of 8"
    );
    assert_eq!(
        ends[2].as_orders[1].pop().map(|order| order.user).as_deref(),
        Ok("9")
    );
    assert!(ends[2].as_orders[0].pop().is_ok());
    assert!(ends[0].order(0, &order("8")), "there is room again");
}
