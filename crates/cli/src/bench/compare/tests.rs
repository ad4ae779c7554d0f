//! Judgements in words.

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
fn differences_are_said_and_noise_is_called_noise() {
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
        "noise explains it",
        Tone::Neutral,
    );
    check(
        Metric::Throughput,
        1.2,
        noise(Some(1)),
        "no proof yet: 1 more round may show it",
        Tone::Neutral,
    );
    check(
        Metric::Throughput,
        1.2,
        noise(Some(12)),
        "no proof yet: 12 more rounds may show it",
        Tone::Neutral,
    );
}
