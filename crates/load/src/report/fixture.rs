//! Made-up runs that look like real ones, for the tests of what is shown: the same figures each time. Those for
//! judgements, with figures that can be reckoned by hand, are in `fixtures`.

use std::time::Duration;

use fastrand::Rng;

use super::{
    Against, ComparisonTable, Effort, Interval, Remark, Round, Row, Run, ServerUse, Severity, Tone, Unit,
};
use crate::figures::Figures;
use crate::fixtures;
use crate::plan::{Pace, Plan};

/// A run of `rounds` rounds of 10 s. In an open loop the server stands still for 200 ms in each fourth second.
pub(crate) fn run(name: &str, pace: Pace, rounds: u32, slowness: f64) -> Run {
    let mut rng = Rng::with_seed(7 + u64::from(rounds));
    let plan = Plan {
        connections: 256,
        pace,
        warmup: Duration::from_secs(2),
        rounds,
        timeout: Duration::from_secs(8),
        interval: Duration::from_millis(250),
        cpus: vec![2, 3],
        ..fixtures::plan()
    };
    Run {
        name: name.into(),
        rounds: (0..rounds)
            .map(|at| round(&plan, at, slowness, &mut rng))
            .collect(),
        plan,
        engine: "io_uring (multishot receive, provided buffers)".into(),
    }
}

fn round(plan: &Plan, number: u32, slowness: f64, rng: &mut Rng) -> Round {
    const INTERVALS: u32 = 40;
    let mut figures = Figures::default();
    let mut series = vec![];
    let open = plan.pace.rate().is_some();
    for at in 0..INTERVALS {
        let mut part = Figures::default();
        for _ in 0..1_000 + rng.u32(0..60) {
            let service = 180_000.0 * slowness * (0.35 * normal(rng)).exp() + 20_000.0 * rng.f64();
            let stalled = open && at % 16 == 0 && rng.u8(0..4) == 0;
            let waited = if stalled { 2e8 * rng.f64() } else { 0.0 };
            part.service.record(service as u64);
            if open {
                part.response.record((service + waited) as u64);
                part.lag.record(rng.u64(500..9_000));
                part.counts.late += u64::from(waited > 1e6);
            }
            part.counts.sent += 1;
            part.counts.answered += 1;
            *part.counts.statuses.entry(200).or_default() += 1;
        }
        if at % 20 == 7 {
            *part.counts.statuses.entry(200).or_default() -= 3;
            *part.counts.statuses.entry(503).or_default() += 2;
            *part.counts.statuses.entry(500).or_default() += 1;
            part.counts.timeouts += 2;
            *part.counts.broken.entry("reset").or_default() += 1;
            part.counts.sent += 3;
        }
        part.counts.bytes_received = part.counts.answered * 167;
        part.counts.bytes_sent = part.counts.sent * 61;
        figures.merge(&part);
        series.push(Interval {
            until: plan.interval * (at + 1),
            length: plan.interval,
            counts: part.counts,
            service: part.service.percentiles(),
            response: part.response.percentiles(),
        });
    }
    figures.counts.connects = 259;
    figures.counts.unfinished = 12;
    figures.counts.sent += 12;
    *figures.counts.connect_errors.entry("refused").or_default() += 4;
    Round {
        elapsed: Duration::from_millis(10_000 + u64::from(number)),
        began: Duration::from_secs(1_700_000_000 + 12 * u64::from(number)),
        figures,
        series,
        workers: vec![effort(2, 3_100 + number), effort(3, 2_900)],
        server: Some(ServerUse {
            cpu: Duration::from_millis(9_000 + 150 * u64::from(number)),
            peak_memory_bytes: (12 << 20) + u64::from(number) * 4096,
            processes: 1,
        }),
    }
}

fn effort(cpu: usize, milliseconds: u32) -> Effort {
    Effort {
        cpu: Duration::from_millis(u64::from(milliseconds)),
        waited: Some(Duration::from_millis(3)),
        pinned: Some(cpu),
    }
}

/// Close to a normal deviate: good enough to look at.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

/// One remark of each severity.
pub(crate) fn remarks() -> Vec<Remark> {
    let remark = |severity, message: &str| Remark {
        severity,
        message: message.into(),
    };
    vec![
        remark(Severity::Note, "3 connections were reopened after errors."),
        remark(
            Severity::Warning,
            "The client was the limit: its busiest thread computed 99 % of the time. Give it more threads or CPUs of \
             its own, or ask for less; until then these figures are of the client, not of the server.",
        ),
        remark(
            Severity::Warning,
            "Round 2 differs from the others by 14 % in requests/s.",
        ),
    ]
}

/// Three targets, with differences that are clear, unclear and missing.
pub(crate) fn comparison() -> ComparisonTable {
    let against = |ratio: f64, width: f64, verdict: &str, tone| {
        Some(Against {
            ratio,
            low: ratio - width,
            high: ratio + width,
            verdict: verdict.into(),
            tone,
        })
    };
    let row = |metric: &str, unit, values: [Option<f64>; 3], against| Row {
        metric: metric.into(),
        unit,
        values: values.to_vec(),
        against,
    };
    let noise = || against(1.004, 0.021, "within noise", Tone::Neutral);
    let rows = vec![
        row(
            "requests/s",
            Unit::Number,
            [Some(412_345.0), Some(398_120.0), Some(413_990.0)],
            vec![against(0.9655, 0.012, "3 % fewer", Tone::Worse), noise()],
        ),
        row(
            "p99 service",
            Unit::Seconds,
            [Some(612e-6), Some(498e-6), Some(615e-6)],
            vec![against(0.8137, 0.05, "19 % shorter", Tone::Better), noise()],
        ),
        row(
            "server CPU/request",
            Unit::Seconds,
            [Some(2.31e-6), Some(2.52e-6), None],
            vec![against(1.0909, 0.008, "9 % more", Tone::Worse), None],
        ),
        row(
            "server peak memory",
            Unit::Memory,
            [Some(12_582_912.0), Some(48_100_000.0), Some(12_600_000.0)],
            vec![against(3.8227, 0.001, "3.8 times as much", Tone::Worse), noise()],
        ),
    ];
    ComparisonTable {
        targets: vec!["ringmain".into(), "net/http".into(), "ringmain, epoll".into()],
        places: vec![":8080/json".into(), ":8081/json".into(), ":8082/json".into()],
        rounds: 10,
        confidence: 0.95,
        rows,
    }
}
