//! Tests of counters and their limits.

use super::*;

#[test]
fn numbers_belong_to_names_and_are_bounded() {
    let metrics = Metrics::default();
    let number = |route: &str, upstream: &str| {
        metrics.series_number(
            &route.into(),
            Some(&upstream.into()).filter(|it: &&Name| !it.is_empty()),
        )
    };
    let first = number("first", "");
    let second = number("first", "one");
    assert!(first > OTHERS && second > first);
    assert_eq!(number("first", ""), first);
    for count in 2..limits::COUNTED_SERIES {
        assert_ne!(number(&count.to_string(), "one"), OTHERS);
    }
    assert_eq!(number("one", "too many"), OTHERS);
    assert_eq!(number("first", "one"), second);
}

#[test]
fn all_workers_are_counted_together() {
    let metrics = Metrics::default();
    let canary = metrics.series_number(&"shop".into(), Some(&"canary".into()));
    let stable = metrics.series_number(&"shop".into(), Some(&"stable".into()));
    for worker in [metrics.add_worker(), metrics.add_worker()] {
        worker.count_response(canary, 200, Duration::from_micros(1_000));
        worker.count_response(canary, 204, Duration::from_micros(1_001));
        worker.count_response(canary, 503, Duration::from_secs(11));
        worker.count_response(canary, 101, Duration::from_secs(11));
        worker.count_response(stable, 499, Duration::from_secs(1));
        worker.count_fault(Fault::NoRoute);
    }
    let series = metrics.series();
    let [report, other] = &series[..] else {
        panic!("two series had requests: {series:?}");
    };
    assert_eq!((&*report.route, &*report.upstream), ("shop", "canary"));
    assert_eq!(report.codes, [(101, 2), (200, 2), (204, 2), (503, 2)]);
    assert_eq!(
        (report.durations[1].buckets[0], report.durations[1].buckets[1]),
        (2, 2)
    );
    assert_eq!(report.durations[4].buckets[13], 2);
    assert_eq!(
        (report.durations[0].micros, report.durations[1].micros),
        (0, 2 * 2_001)
    );
    assert_eq!((&*other.upstream, &other.codes[..]), ("stable", &[(499, 2)][..]));
    let routes = metrics.routes();
    let [route] = &routes[..] else {
        panic!("one route had requests: {routes:?}");
    };
    assert_eq!((&*route.name, route.classes), ("shop", [2, 4, 0, 2, 2]));
    let found: Vec<_> = metrics
        .faults()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, [(Fault::NoRoute, 2)]);
}

#[test]
fn status_codes_are_bounded() {
    let metrics = Metrics::default();
    let number = metrics.series_number(&"shop".into(), None);
    let worker = metrics.add_worker();
    let codes = 200..200 + limits::COUNTED_CODES as u16;
    for code in codes.clone().chain([598, 599, 200, 999]) {
        worker.count_response(number, code, Duration::ZERO);
    }
    let report = &metrics.series()[0];
    assert_eq!(report.codes.len(), limits::COUNTED_CODES);
    assert_eq!(report.codes[0], (200, 2));
    assert_eq!(report.other_codes, [0, 0, 0, 0, 3]);
    assert_eq!(report.classes().iter().sum::<u64>(), codes.len() as u64 + 4);
}

#[test]
fn buckets_are_the_same_in_both_units() {
    for (seconds, micros) in BUCKETS.iter().zip(BUCKETS_US) {
        assert_eq!((seconds * 1e6).round() as u64, micros);
    }
}

#[test]
fn faults_are_in_the_order_of_their_table() {
    for (index, fault) in Fault::ALL.iter().enumerate() {
        assert_eq!(*fault as usize, index);
    }
}
