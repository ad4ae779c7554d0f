//! An expensive request: percentiles of ten thousand measurements (or `?measurements=`), computed for each request.
//! `bench/overload.py` measures such a service at three times its saturation point.
//!
//! `cargo run --release --example report`, then `curl '127.0.0.1:8080/report?sensor=7'`.

use ringmain::engine::{Choice, Config};
use ringmain::{App, Error, Exit, Reply, Request, Result};
use serde::Serialize;

/// Default and maximum of `?measurements=`; more is 400.
const MEASUREMENTS: u64 = 10_000;
const MEASUREMENTS_MOST: u64 = 100_000;

#[derive(Serialize)]
struct Report {
    sensor: u64,
    measurements: usize,
    median: u64,
    p99: u64,
}

/// Returns the measurements of a sensor: here a sequence seeded by its number.
fn measurements(sensor: u64, count: u64) -> Vec<u64> {
    let mut state = sensor;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % 10_000
    };
    (0..count).map(|_| next()).collect()
}

/// A plain handler, since it computes without waiting. Work of more than some milliseconds belongs in `cx().blocking`.
fn report(req: &Request, reply: &mut Reply) -> Result {
    let query = req.query()?;
    let sensor = query.parse("sensor")?.unwrap_or(1);
    let count = query.parse("measurements")?.unwrap_or(MEASUREMENTS);
    if !(1..=MEASUREMENTS_MOST).contains(&count) {
        return Err(Error::bad_request(format!(
            "expected 1 to {MEASUREMENTS_MOST} measurements, found {count}"
        )));
    }
    let mut measured = measurements(sensor, count);
    measured.sort_unstable();
    reply.json(&Report {
        sensor,
        measurements: measured.len(),
        median: measured[measured.len() / 2],
        p99: measured[measured.len() * 99 / 100],
    })
}

/// `report [ADDR [uring|epoll]]`, with one worker, so that benchmarks measure a single worker.
fn main() -> Exit {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let engine = match args.next().as_deref() {
        None => Choice::Auto,
        Some("uring") => Choice::Uring,
        Some("epoll") => Choice::Epoll,
        Some(other) => return Exit::Failure(format!("expected uring or epoll, found {other}")),
    };
    let config = Config {
        engine,
        workers: Some(1),
        ..Config::default()
    };
    App::new().get("/report", report).health().run_with(&addr, config)
}
