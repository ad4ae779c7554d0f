//! What is counted, and how much of it there can be.

use super::*;

#[test]
fn numbers_belong_to_names_and_are_bounded() {
    let metrics = Metrics::default();
    let first = metrics.number(&"first".into());
    let second = metrics.number(&"second".into());
    assert!(first > OTHERS && second > first);
    assert_eq!(metrics.number(&"first".into()), first);
    for number in 2..limits::COUNTED_ROUTES {
        assert_ne!(metrics.number(&format!("{number}").into()), OTHERS);
    }
    assert_eq!(metrics.number(&"one too many".into()), OTHERS);
    assert_eq!(metrics.number(&"second".into()), second);
}

#[test]
fn all_workers_are_counted_together() {
    let metrics = Metrics::default();
    let number = metrics.number(&"shop".into());
    for worker in [metrics.worker(), metrics.worker()] {
        let counts = worker.route(number);
        bump(&counts.classes[1], 1);
        counts.took(Duration::from_micros(1_000));
        counts.took(Duration::from_micros(1_001));
        counts.took(Duration::from_secs(11));
        worker.fault(Fault::NoRoute);
    }
    let reports = metrics.routes();
    let [report] = &reports[..] else {
        panic!("one route was asked for: {reports:?}");
    };
    assert_eq!((&*report.name, report.classes), ("shop", [0, 2, 0, 0, 0]));
    assert_eq!(
        (report.buckets[0], report.buckets[1], report.buckets[13]),
        (2, 2, 2)
    );
    assert_eq!(report.micros, 2 * 11_002_001);
    let found: Vec<_> = metrics
        .faults()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, [(Fault::NoRoute, 2)]);
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
