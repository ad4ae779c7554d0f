//! What is said while it runs, on standard error: one line that changes where a person looks on, else a line a round.
//!
//! Knows nothing of what comes of it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use ringmain_load::plan::{Extent, Plan};
use ringmain_load::report::{Interval, Round, amount};
use ringmain_load::run::Progress;

#[cfg(test)]
mod tests;

/// Where and how it is said.
#[derive(Debug)]
pub(super) struct Live {
    how: How,
    /// What begins each line: the target's name and the round.
    label: String,
    /// What is known of the length of a round.
    extent: Extent,
    /// Whether the last line is to be written over.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Silent,
    Lines,
    Terminal,
}

impl Live {
    pub(super) fn new(quiet: bool) -> Live {
        let how = match (quiet, io::stderr().is_terminal()) {
            (true, _) => How::Silent,
            (false, true) => How::Terminal,
            (false, false) => How::Lines,
        };
        Live {
            how,
            label: String::new(),
            extent: Extent::Count(0),
            open: false,
        }
    }

    /// A round begins: of which target, if there are several, and which, from 0.
    pub(super) fn begin(&mut self, name: Option<&str>, number: u32, plan: &Plan) {
        let name = name.map_or_else(String::new, |name| format!("{name}, "));
        self.label = format!("{name}round {} of {}", number + 1, plan.rounds);
        self.extent = plan.extent;
    }

    /// What goes on in it.
    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        let what = match progress {
            Progress::Connecting => "connecting".to_owned(),
            Progress::Warming => "warming up".to_owned(),
            Progress::Measuring => "measuring".to_owned(),
            Progress::Interval { interval, .. } => during(interval, self.extent),
        };
        if self.how == How::Terminal {
            // Back to the line's begin, and what was there is erased.
            self.write(&format!("\r\x1b[K{}: {what}", self.label));
            self.open = true;
        }
    }

    /// A round is over.
    pub(super) fn end(&mut self, round: &Round) {
        self.line(&format!("{}: {}", self.label, over(round)));
    }

    /// Something that stays to be read.
    pub(super) fn line(&mut self, text: &str) {
        let erased = if self.open { "\r\x1b[K" } else { "" };
        self.open = false;
        if self.how != How::Silent {
            self.write(&format!("{erased}{text}\n"));
        }
    }

    fn write(&self, text: &str) {
        let mut error = io::stderr().lock();
        // Nobody is left to hear of a broken standard error.
        let _ = error.write_all(text.as_bytes());
    }
}

impl Drop for Live {
    /// What follows begins on a line of its own.
    fn drop(&mut self) {
        if self.open {
            self.write("\r\x1b[K");
        }
    }
}

/// An interval in a line.
fn during(interval: &Interval, extent: Extent) -> String {
    let counts = &interval.counts;
    let rate = counts.answered as f64 / interval.length.as_secs_f64().max(1e-9);
    let shown = if interval.response.max > Duration::ZERO { &interval.response } else { &interval.service };
    let of = match extent {
        Extent::Time(time) => format!(" of {}", amount::span(time)),
        Extent::Count(_) => String::new(),
    };
    let mut line = format!(
        "{}{of}, {} answers/s, p50 {}, p99 {}",
        amount::span(Duration::from_millis(rounded_ms(interval.until))),
        amount::number(rate),
        amount::time(shown.p50),
        amount::time(shown.p99),
    );
    let failures = [
        ("HTTP errors", counts.http_errors()),
        ("wrong answers", counts.unexpected),
        ("without answer", counts.failed()),
        ("not sent", counts.dropped),
    ];
    for (name, count) in failures.into_iter().filter(|(_, count)| *count > 0) {
        line.push_str(&format!(", {} {name}", amount::count(count)));
    }
    line
}

fn rounded_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis() / 10 * 10).unwrap_or(u64::MAX)
}

/// A round in a line.
fn over(round: &Round) -> String {
    let figures = &round.figures;
    let (kind, latency) = match figures.response.count() {
        0 => ("service", &figures.service),
        _ => ("response", &figures.response),
    };
    format!(
        "{} answers/s, {kind} time p50 {}, p99 {}",
        amount::number(round.throughput()),
        amount::time(latency.percentile(50.0)),
        amount::time(latency.percentile(99.0)),
    )
}
