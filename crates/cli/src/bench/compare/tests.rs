//! Descriptions of ratios.

use ringmain_load::stats::Estimate;

use super::*;

fn check(metric: Metric, ratio: f64, verdict: compare::Verdict, expect: &str, tone: Tone) {
    let ratio = Ratio {
        metric,
        first: 1.0,
        other: ratio,
        pairs: 5,
        ratio: Estimate {
            median: ratio,
            low: ratio * 0.9,
            high: ratio * 1.1,
        },
        verdict,
    };
    let found = describe_ratio(&ratio);
    assert_eq!((found.verdict.as_str(), found.tone), (expect, tone));
}

#[test]
fn significant_differences_are_described_and_others_are_noise() {
    let (better, worse) = (
        compare::Verdict::Different { better: true },
        compare::Verdict::Different { better: false },
    );
    check(Metric::Throughput, 1.034, better, "3.4 % more", Tone::Better);
    check(Metric::Throughput, 0.8, worse, "20 % fewer", Tone::Worse);
    check(Metric::ServerCpu, 0.5, better, "50 % less", Tone::Better);
    check(Metric::ServiceP99, 2.46, worse, "2.5 times as long", Tone::Worse);
    check(Metric::ResponseP50, 1.2, worse, "20 % longer", Tone::Worse);
    let noise = |more_rounds| compare::Verdict::Noise { more_rounds };
    check(
        Metric::Throughput,
        1.2,
        noise(None),
        "within noise",
        Tone::Neutral,
    );
    check(
        Metric::Throughput,
        1.2,
        noise(Some(1)),
        "not significant: 1 more round may be enough",
        Tone::Neutral,
    );
    check(
        Metric::Throughput,
        1.2,
        noise(Some(12)),
        "not significant: 12 more rounds may be enough",
        Tone::Neutral,
    );
}
