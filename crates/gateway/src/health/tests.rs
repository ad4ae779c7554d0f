//! Tests of ejection by outlier detection and of active health checks.

use std::time::Duration;

use ringmain_engine::backend::Time;

use super::outlier::may_eject;
use super::{CheckVerdict, EjectionReason, EndpointHealth, RequestOutcome};
use crate::fault::Fault;
use crate::limits;
use crate::model::OutlierDetection;
use crate::stats::upstreams::Ejection;

const SECOND: u64 = 1_000_000_000;

/// The time since the Unix epoch.
const WALL: Duration = Duration::from_secs(1_000);

const ROW: EjectionReason = EjectionReason::Consecutive(3);

fn rules() -> OutlierDetection {
    OutlierDetection {
        consecutive: 3,
        ejected: Duration::from_secs(10),
        max_ejected_time: Duration::from_secs(30),
        ..OutlierDetection::default()
    }
}

#[test]
fn consecutive_failures_eject() {
    let (health, rules) = (EndpointHealth::default(), rules());
    let note = |meeting| health.outliers.record_outcome(meeting, SECOND, &rules);
    let none = |meetings: &[RequestOutcome]| meetings.iter().all(|meeting| note(*meeting).is_none());
    assert!(none(&[
        RequestOutcome::Failure,
        RequestOutcome::Failure,
        RequestOutcome::Success
    ]));
    assert!(none(&[RequestOutcome::Failure, RequestOutcome::Failure]));
    assert_eq!(note(RequestOutcome::Failure), Some(ROW));
    assert_eq!(health.outliers.ejection(), None);
    assert!(health.outliers.eject(SECOND, WALL, &rules, ROW));
    assert!(
        !health
            .outliers
            .eject(SECOND, WALL, &rules, EjectionReason::Consecutive(9)),
        "another worker's call is too late"
    );
    let ejection = Ejection {
        until: WALL + Duration::from_secs(10),
        reason: ROW,
        times: 1,
    };
    assert_eq!(health.outliers.ejection(), Some(ejection));
    assert_eq!(ROW.to_string(), "3 consecutive failures");
    assert_eq!(health.is_healthy(2 * SECOND), (false, 11 * SECOND));
    assert_eq!(health.is_healthy(11 * SECOND), (true, u64::MAX));
}

#[test]
fn ejections_double() {
    let (health, rules) = (EndpointHealth::default(), rules());
    let mut now = SECOND;
    for seconds in [10, 20, 30, 30] {
        assert!(health.outliers.eject(now, WALL, &rules, ROW));
        now += seconds * SECOND;
        assert!(
            !health.is_healthy(now - 1).0 && health.is_healthy(now).0,
            "{seconds}"
        );
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
    let health = EndpointHealth::default();
    for turn in 0..9 {
        let meeting = if turn % 2 == 0 {
            RequestOutcome::Failure
        } else {
            RequestOutcome::Success
        };
        let noted = health.outliers.record_outcome(meeting, SECOND, &rules);
        assert_eq!(noted, None, "too few say nothing");
    }
    let why = EjectionReason::FailureRate { failed: 6, of: 10 };
    assert_eq!(
        health
            .outliers
            .record_outcome(RequestOutcome::Failure, SECOND, &rules),
        Some(why)
    );
    assert!(health.outliers.eject(SECOND, WALL, &rules, why));
    assert_eq!(health.outliers.ejection().map(|it| it.reason), Some(why));
    assert_eq!(why.to_string(), "6 of 10 requests failed");
    // Counts are reset with each interval.
    assert_eq!(
        health
            .outliers
            .record_outcome(RequestOutcome::Failure, 100 * SECOND, &rules),
        None
    );
}

#[test]
fn ejections_are_limited() {
    let rules = rules();
    assert!(!may_eject(0, 1, &rules));
    assert!(may_eject(0, 2, &rules) && !may_eject(1, 2, &rules));
    assert!(may_eject(4, 10, &rules) && !may_eject(5, 10, &rules));
    let rules = OutlierDetection {
        max_ejected_percent: 0,
        ..rules
    };
    assert!(may_eject(0, 10, &rules) && !may_eject(1, 10, &rules));
}

#[test]
fn active_checks_set_the_verdict() {
    let health = EndpointHealth::default();
    assert_eq!(
        (health.verdict(), health.is_healthy(0)),
        (CheckVerdict::Unknown, (true, u64::MAX))
    );
    assert_eq!(health.healthy_for(5 * SECOND), 0);
    assert_eq!(health.healthy_for(7 * SECOND), 2 * SECOND);
    health.set_verdict(CheckVerdict::Unhealthy);
    assert_eq!(health.is_healthy(0), (false, u64::MAX));
    health.set_verdict(CheckVerdict::Healthy);
    assert!(health.is_healthy(0).0);
    assert_eq!(health.healthy_for(9 * SECOND), 0, "well again is new again");
    assert_eq!(health.unreachable_until(), None);
    health.mark_unreachable(Fault::ConnectRefused, Time(5), WALL);
    let end = Time(5).after(limits::PASSED_OVER).0;
    assert_eq!(
        (health.is_healthy(end - 1), health.is_healthy(end).0),
        ((false, end), true)
    );
    assert_eq!(health.unreachable_until(), Some(WALL + limits::PASSED_OVER));
}

#[test]
fn failures_have_the_time_of_the_first_and_the_reason_of_the_last() {
    let health = EndpointHealth::default();
    assert_eq!((health.connect_failure(), health.check_error()), (None, None));
    health.mark_unreachable(Fault::ConnectRefused, Time(5), WALL);
    health.mark_unreachable(Fault::ConnectTimeout, Time(9), 2 * WALL);
    health.record_check(Some("expected a status from 200 to 399, found 503"), WALL);
    health.record_check(Some("connection refused"), 2 * WALL);
    let (connect, check) = (health.connect_failure().unwrap(), health.check_error().unwrap());
    assert_eq!((connect.fault, connect.since), (Fault::ConnectTimeout, WALL));
    assert_eq!((&*check.reason, check.since), ("connection refused", WALL));
    health.record_connect_success();
    health.record_check(None, 3 * WALL);
    assert_eq!((health.connect_failure(), health.check_error()), (None, None));
}

#[test]
fn a_check_that_connects_replaces_older_connection_failures() {
    let health = EndpointHealth::default();
    let failed_at = Time(5 * SECOND);
    health.mark_unreachable(Fault::ConnectRefused, failed_at, WALL);
    // This check may have connected before the endpoint closed its listener.
    health.record_check_connected(Time(4 * SECOND));
    let failure = health
        .connect_failure()
        .expect("the failure is newer than the check");
    assert_eq!((failure.fault, failure.since), (Fault::ConnectRefused, WALL));
    health.record_check_connected(Time(6 * SECOND));
    assert_eq!(health.connect_failure(), None);
    health.mark_unreachable(Fault::ConnectTimeout, Time(7 * SECOND), 2 * WALL);
    let failure = health.connect_failure().expect("a new failure");
    assert_eq!((failure.fault, failure.since), (Fault::ConnectTimeout, 2 * WALL));
}

#[test]
fn results_are_forgotten_with_the_last_check() {
    let health = EndpointHealth::default();
    health.record_check(Some("connection refused"), WALL);
    health.record_response(false);
    health.set_verdict(CheckVerdict::Unhealthy);
    assert!(!health.responds(0));
    health.clear_checks();
    assert_eq!(
        (health.verdict(), health.check_error()),
        (CheckVerdict::Unknown, None)
    );
    // The first result of a new check does not depend on those before.
    health.set_verdict(CheckVerdict::Unhealthy);
    assert!(health.responds(0));
}
