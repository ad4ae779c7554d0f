//! Tests of ejection by outlier detection and of active health checks.

use std::time::Duration;

use ringmain_engine::backend::Time;

use super::outlier::may_eject;
use super::{Health, Meeting, Reason, Verdict};
use crate::limits;
use crate::model::OutlierDetection;
use crate::stats::upstreams::Ejection;

const SECOND: u64 = 1_000_000_000;

/// The time since the Unix epoch.
const WALL: Duration = Duration::from_secs(1_000);

const ROW: Reason = Reason::InARow(3);

fn rules() -> OutlierDetection {
    OutlierDetection {
        consecutive: 3,
        ejected: Duration::from_secs(10),
        ejected_most: Duration::from_secs(30),
        ..OutlierDetection::default()
    }
}

#[test]
fn consecutive_failures_eject() {
    let (health, rules) = (Health::default(), rules());
    let note = |meeting| health.record.note(meeting, SECOND, &rules);
    let none = |meetings: &[Meeting]| meetings.iter().all(|meeting| note(*meeting).is_none());
    assert!(none(&[Meeting::Bad, Meeting::Bad, Meeting::Good]));
    assert!(none(&[Meeting::Bad, Meeting::Bad]));
    assert_eq!(note(Meeting::Bad), Some(ROW));
    assert_eq!(health.record.ejection(), None);
    assert!(health.record.eject(SECOND, WALL, &rules, ROW));
    assert!(
        !health.record.eject(SECOND, WALL, &rules, Reason::InARow(9)),
        "another worker's call is too late"
    );
    let ejection = Ejection {
        until: WALL + Duration::from_secs(10),
        why: ROW,
        times: 1,
    };
    assert_eq!(health.record.ejection(), Some(ejection));
    assert_eq!(ROW.to_string(), "3 failures in a row");
    assert_eq!(health.is_well(2 * SECOND), (false, 11 * SECOND));
    assert_eq!(health.is_well(11 * SECOND), (true, u64::MAX));
}

#[test]
fn ejections_double() {
    let (health, rules) = (Health::default(), rules());
    let mut now = SECOND;
    for seconds in [10, 20, 30, 30] {
        assert!(health.record.eject(now, WALL, &rules, ROW));
        now += seconds * SECOND;
        assert!(!health.is_well(now - 1).0 && health.is_well(now).0, "{seconds}");
    }
}

#[test]
fn a_share_of_failures_ejects() {
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
        let noted = health.record.note(meeting, SECOND, &rules);
        assert_eq!(noted, None, "too few say nothing");
    }
    let why = Reason::Share { failed: 6, of: 10 };
    assert_eq!(health.record.note(Meeting::Bad, SECOND, &rules), Some(why));
    assert!(health.record.eject(SECOND, WALL, &rules, why));
    assert_eq!(health.record.ejection().map(|it| it.why), Some(why));
    assert_eq!(why.to_string(), "6 of 10 requests failed");
    // Counts are reset with each interval.
    assert_eq!(health.record.note(Meeting::Bad, 100 * SECOND, &rules), None);
}

#[test]
fn ejections_are_limited() {
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
fn active_checks_set_the_verdict() {
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
    assert_eq!(health.unreachable_until(), None);
    health.shun(Time(5), WALL);
    let end = Time(5).after(limits::PASSED_OVER).0;
    assert_eq!(
        (health.is_well(end - 1), health.is_well(end).0),
        ((false, end), true)
    );
    assert_eq!(health.unreachable_until(), Some(WALL + limits::PASSED_OVER));
}
