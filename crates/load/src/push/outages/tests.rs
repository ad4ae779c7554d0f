//! What is taken when, of whatever is asked.

use std::convert::Infallible;
use std::time::Duration;

use super::{Outage, Outages};

#[test]
fn from_the_first_thread_that_cuts_to_the_last_that_has_all_back() {
    let at = |seconds| move || Ok::<_, Infallible>(Some(Duration::from_secs(seconds)));
    let mut outages = Outages::default();
    for (number, cut) in [(0, 10), (0, 11), (1, 20), (1, 20)] {
        outages.cut(number, at(cut)).unwrap();
    }
    for (number, back) in [(0, 13), (1, 21), (0, 14), (7, 30)] {
        outages.back(number, 2, at(back)).unwrap();
    }
    let mut told = [Outage::default(); 2];
    outages.tell(&mut told);
    let used = told.map(|outage| outage.server_cpu);
    // Of the second time one thread lacks some.
    assert_eq!(used, [Some(Duration::from_secs(4)), None]);
}
