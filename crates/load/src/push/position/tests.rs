//! Where subscriptions stand.

use super::Positions;
use crate::limits;

#[test]
fn a_subscription_stands_where_it_was_told_and_goes_on_from_there() {
    let mut positions = Positions::new(2);
    assert_eq!((positions.at(0), positions.at(1)), (None, None));
    positions.stand(0, 7, "a");
    assert_eq!((positions.at(0), positions.at(1)), (Some((7, "a")), None));
    positions.advance(0, 9);
    // One that comes late takes nobody back, or what is recovered would come twice.
    positions.advance(0, 8);
    assert_eq!(positions.at(0), Some((9, "a")));
    // What is told counts, also in another life of the channel.
    positions.stand(0, 2, "b");
    assert_eq!(positions.at(0), Some((2, "b")));
    positions.forget(0);
    assert_eq!(positions.at(0), None);
}

#[test]
fn an_epoch_is_kept_once_and_each_keeps_its_own() {
    let mut positions = Positions::new(1000);
    for number in 0..1000 {
        positions.stand(number, 1, ["old", "new"][number % 2]);
    }
    assert_eq!(positions.epochs.len(), 2);
    assert_eq!(positions.at(10), Some((1, "old")));
    assert_eq!(positions.at(11), Some((1, "new")));
}

#[test]
fn what_is_no_epoch_or_one_too_many_is_none() {
    let mut positions = Positions::new(1);
    positions.stand(0, 1, "");
    assert_eq!(positions.at(0), None);
    positions.stand(0, 1, &"x".repeat(limits::EPOCH_BYTES));
    assert!(positions.at(0).is_some());
    positions.stand(0, 1, &"x".repeat(limits::EPOCH_BYTES + 1));
    assert_eq!(positions.at(0), None);
    positions.epochs = vec!["y".into(); limits::EPOCHS];
    positions.stand(0, 1, "z");
    assert_eq!(positions.at(0), None);
    assert_eq!(positions.epochs.len(), limits::EPOCHS);
}
