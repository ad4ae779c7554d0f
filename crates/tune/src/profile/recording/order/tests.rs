//! Rounds of readings by tables: nothing is handed on before something older.

use super::Order;

fn check(rounds: &[&[u64]], expected: &[&[u64]]) {
    let mut order = Order::default();
    let time = |record: &[u8]| u64::from_ne_bytes(record.try_into().unwrap());
    let mut found = Vec::new();
    for round in rounds {
        for at in *round {
            order.push(*at, &at.to_ne_bytes());
        }
        let mut handed = Vec::new();
        order.round(|record| handed.push(time(record)));
        found.push(handed);
    }
    let mut handed = Vec::new();
    order.finish(|record| handed.push(time(record)));
    found.push(handed);
    assert_eq!(found, expected);
}

#[test]
fn what_is_handed_on_is_in_order() {
    check(&[&[3, 1], &[2, 5], &[]], &[&[], &[1, 2, 3], &[5], &[]]);
    check(&[&[], &[7]], &[&[], &[], &[7]]);
    // Equal times stay in the order in which they were read.
    check(&[&[4, 4], &[4]], &[&[], &[4, 4, 4], &[]]);
}
