//! When an endpoint is passed over, and when it is back.

use std::time::Duration;

use super::outlier::may_eject;
use super::{Health, Meeting, Verdict};
use crate::model::OutlierDetection;

const SECOND: u64 = 1_000_000_000;

fn rules() -> OutlierDetection {
    OutlierDetection {
        consecutive: 3,
        ejected: Duration::from_secs(10),
        ejected_most: Duration::from_secs(30),
        ..OutlierDetection::default()
    }
}

#[test]
fn so_many_in_a_row() {
    let (health, rules) = (Health::default(), rules());
    let note = |meeting| health.record.note(meeting, SECOND, &rules);
    assert!(!note(Meeting::Bad) && !note(Meeting::Bad) && !note(Meeting::Good));
    assert!(!note(Meeting::Bad) && !note(Meeting::Bad) && note(Meeting::Bad));
    assert!(health.record.eject(SECOND, &rules));
    assert!(
        !health.record.eject(SECOND, &rules),
        "another worker's call is too late"
    );
    assert_eq!(health.is_well(2 * SECOND), (false, 11 * SECOND));
    assert_eq!(health.is_well(11 * SECOND), (true, u64::MAX));
}

#[test]
fn twice_as_long_each_time() {
    let (health, rules) = (Health::default(), rules());
    let mut now = SECOND;
    for seconds in [10, 20, 30, 30] {
        assert!(health.record.eject(now, &rules));
        now += seconds * SECOND;
        assert!(!health.is_well(now - 1).0 && health.is_well(now).0, "{seconds}");
    }
}

#[test]
fn so_many_of_a_hundred() {
    let rules = OutlierDetection {
        consecutive: 0,
        failure_percent: Some(50),
        least_requests: 10,
        ..rules()
    };
    let health = Health::default();
    for turn in 0..9 {
        let meeting = if turn % 2 == 0 {
            Meeting::Bad
        } else {
            Meeting::Good
        };
        assert!(
            !health.record.note(meeting, SECOND, &rules),
            "too few say nothing"
        );
    }
    assert!(health.record.note(Meeting::Bad, SECOND, &rules));
    // The next interval knows nothing of the last.
    assert!(!health.record.note(Meeting::Bad, 100 * SECOND, &rules));
}

#[test]
fn not_all_at_once() {
    let rules = rules();
    assert!(!may_eject(0, 1, &rules));
    assert!(may_eject(0, 2, &rules) && !may_eject(1, 2, &rules));
    assert!(may_eject(4, 10, &rules) && !may_eject(5, 10, &rules));
    let rules = OutlierDetection {
        most_percent: 0,
        ..rules
    };
    assert!(may_eject(0, 10, &rules) && !may_eject(1, 10, &rules));
}

#[test]
fn what_asking_shows() {
    let health = Health::default();
    assert_eq!(
        (health.verdict(), health.is_well(0)),
        (Verdict::Unknown, (true, u64::MAX))
    );
    assert_eq!(health.age(5 * SECOND), 0);
    assert_eq!(health.age(7 * SECOND), 2 * SECOND);
    health.tell(Verdict::Ill);
    assert_eq!(health.is_well(0), (false, u64::MAX));
    health.tell(Verdict::Well);
    assert!(health.is_well(0).0);
    assert_eq!(health.age(9 * SECOND), 0, "well again is new again");
    health.shun_until(9);
    assert_eq!((health.is_well(8), health.is_well(9).0), ((false, 9), true));
}
