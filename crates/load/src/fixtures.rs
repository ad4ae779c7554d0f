//! Runs made up for tests: nothing about them is doubtful until a test makes it so.

use std::time::Duration;

use ringmain_engine::{Addr, Choice};

use crate::figures::{Counts, Figures, Latency};
use crate::plan::{Extent, Pace, Plan, Protocol};
use crate::report::{Effort, Interval, Round, Run, ServerUse};

/// What each round was asked to take.
pub(crate) const SPAN: Duration = Duration::from_secs(10);

/// Answers of a round of [`run`], spread evenly over service times from 4 to 6 ms.
pub(crate) const ANSWERS: u64 = 20_000;

/// Ten connections in a closed loop by two workers, three rounds.
pub(crate) fn plan() -> Plan {
    Plan {
        target: Addr::Inet(([127, 0, 0, 1], 8080).into()),
        others: Vec::new(),
        sources: Vec::new(),
        protocol: Protocol::Http1,
        tls: None,
        connections: 10,
        pipeline: 1,
        reconnect_after: None,
        pace: Pace::Closed,
        extent: Extent::Time(SPAN),
        warmup: Duration::from_secs(1),
        rounds: 3,
        timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(5),
        interval: Duration::from_secs(1),
        threads: 2,
        cpus: vec![0, 1],
        engine: Choice::Auto,
        seed: 7,
    }
}

/// So many answers with status 200, in evenly spread times around `mean` by a fifth.
pub(crate) fn latency(answers: u64, mean: Duration) -> Latency {
    let mean = mean.as_nanos() as u64;
    let mut latency = Latency::default();
    for answer in 0..answers {
        latency.record(mean * 4 / 5 + mean * 2 / 5 * answer / answers);
    }
    latency
}

/// A round of so many answers, of the mean service time that ten connections then have.
pub(crate) fn round(answers: u64) -> Round {
    let mean = SPAN * 10 / u32::try_from(answers).expect("tests have few answers");
    let service = latency(answers, mean);
    let counts = Counts {
        sent: answers,
        answered: answers,
        statuses: [(200, answers)].into(),
        connects: 10,
        bytes_sent: answers * 50,
        bytes_received: answers * 150,
        ..Counts::default()
    };
    let interval = Interval {
        until: SPAN,
        length: SPAN,
        counts: counts.clone(),
        service: service.percentiles(),
        response: Latency::default().percentiles(),
    };
    Round {
        elapsed: SPAN,
        began: Duration::from_secs(1_700_000_000),
        figures: Figures {
            counts,
            service,
            connect: latency(10, Duration::from_micros(100)),
            ..Figures::default()
        },
        series: vec![interval],
        workers: [0, 1]
            .map(|cpu| Effort {
                cpu: SPAN * 2 / 5,
                waited: Some(SPAN / 100),
                pinned: Some(cpu),
            })
            .into(),
        server: Some(ServerUse {
            cpu: SPAN,
            peak_memory_bytes: 50 << 20,
            processes: 1,
        }),
    }
}

/// Three equal rounds in a closed loop.
pub(crate) fn run() -> Run {
    Run {
        name: "target".to_owned(),
        plan: plan(),
        engine: "io_uring".to_owned(),
        rounds: vec![round(ANSWERS); 3],
    }
}

/// The same in an open loop that kept its schedule: response times are a tenth longer, nothing was sent late.
pub(crate) fn open() -> Run {
    let mut run = run();
    run.plan.pace = Pace::Constant(ANSWERS as f64 / SPAN.as_secs_f64());
    for round in &mut run.rounds {
        round.figures.response = latency(ANSWERS, Duration::from_micros(5_500));
        round.figures.lag = latency(ANSWERS, Duration::from_micros(20));
    }
    run
}
