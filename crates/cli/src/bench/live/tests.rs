//! Lines of the live view.

use ringmain_load::figures::{Counts, Figures, Percentiles};

use super::*;

fn percentiles(ms: u64) -> Percentiles {
    Percentiles {
        p50: Duration::from_millis(ms),
        p99: Duration::from_millis(ms * 10),
        max: Duration::from_millis(ms * 20),
        ..Percentiles::default()
    }
}

fn interval(counts: Counts, response: Percentiles) -> Interval {
    Interval {
        until: Duration::from_millis(3004),
        length: Duration::from_millis(500),
        counts,
        service: percentiles(1),
        response,
    }
}

#[test]
fn an_interval_is_a_line() {
    let counts = Counts {
        answered: 1000,
        ..Counts::default()
    };
    let quiet = interval(counts, Percentiles::default());
    assert_eq!(
        during(&quiet, Extent::Time(Duration::from_secs(10))),
        "3 s of 10 s, 2,000 answers/s, p50 1.00 ms, p99 10.0 ms"
    );
    // What users wait is shown where it is known, and what goes wrong where something does.
    let counts = Counts {
        answered: 10,
        statuses: [(500, 4)].into(),
        unexpected: 3,
        timeouts: 2,
        dropped: 1,
        ..Counts::default()
    };
    assert_eq!(
        during(&interval(counts, percentiles(2)), Extent::Count(5)),
        "3 s, 20 answers/s, p50 2.00 ms, p99 20.0 ms, 4 HTTP errors, 3 wrong answers, 2 without answer, 1 not sent"
    );
}

#[test]
fn a_round_is_a_line() {
    let mut figures = Figures::default();
    figures.counts.answered = 100;
    figures.service.record(1_000_000);
    let mut round = Round {
        elapsed: Duration::from_secs(2),
        began: Duration::ZERO,
        figures,
        series: Vec::new(),
        workers: Vec::new(),
        server: None,
    };
    assert_eq!(over(&round), "50 answers/s, service time p50 1.00 ms, p99 1.00 ms");
    round.figures.response.record(5_000_000);
    assert_eq!(over(&round), "50 answers/s, response time p50 5.00 ms, p99 5.00 ms");
}
