//! The state as lines: the same state, time and width always give the same lines.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_load::figures::{Counts, Percentiles};
use ringmain_load::report::{Round, amount};

use super::state::{Last, Phase, State};

/// Columns before what a line is about.
const LABEL: usize = 12;
/// Columns of the figure that stands before the sparkline.
const FIGURE: usize = 10;
/// Columns of the bar at most.
const BAR: usize = 40;
/// From nothing to the most.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How a piece of a line looks (ANSI).
#[derive(Clone, Copy)]
enum Look {
    Plain,
    Bold,
    Quiet,
    Good,
    Bad,
    Busy,
}

/// A line in pieces.
struct Line(Vec<(Look, String)>);

/// The view, no line wider than `width` columns.
pub(super) fn render(state: &State, now: Duration, width: usize, colour: bool) -> Vec<String> {
    let mut lines = vec![progress(state, now, width)];
    if let Some(last) = &state.last {
        lines.push(rate(state, last, width));
        lines.push(latency(state, last));
        lines.push(trouble(state));
        lines.push(client(state, last));
    }
    lines.into_iter().map(|line| line.finish(width, colour)).collect()
}

/// All of the moment in one line, for a file or a pipe.
pub(super) fn line(state: &State) -> String {
    let Some(last) = &state.last else {
        return label(state);
    };
    let errors = match problems(&state.counts) {
        problems if problems.is_empty() => String::new(),
        problems => format!(", {}", problems.join(", ")),
    };
    let latency = match last.latency {
        // A time without a single response would be a made-up one.
        latency if latency == Percentiles::default() => "no response".to_owned(),
        latency => format!(
            "p50 {}, p99 {}, longest {}",
            amount::time(latency.p50),
            amount::time(latency.p99),
            amount::time(latency.max),
        ),
    };
    format!(
        "{}: {} requests/s, {latency}{errors}",
        label(state),
        amount::number(last.rate),
    )
}

/// What came of a round.
pub(super) fn over(state: &State, round: &Round) -> String {
    let figures = &round.figures;
    let (kind, latency) = match state.pace.rate() {
        None => ("service", &figures.service),
        Some(_) => ("response", &figures.response),
    };
    let errors = match problems(&figures.counts) {
        problems if problems.is_empty() => String::new(),
        problems => format!(", {}", problems.join(", ")),
    };
    let times = match latency.count() {
        0 => "no response".to_owned(),
        _ => format!(
            "{kind} time p50 {}, p99 {}",
            amount::time(latency.percentile(50.0)),
            amount::time(latency.percentile(99.0)),
        ),
    };
    format!(
        "{}: {} requests/s, {times}{errors}",
        label(state),
        amount::number(round.throughput()),
    )
}

fn label(state: &State) -> String {
    let round = format!("round {} of {}", state.number + 1, state.rounds);
    match &state.name {
        Some(name) => format!("{}, {round}", printable(name)),
        None => round,
    }
}

fn progress(state: &State, now: Duration, width: usize) -> Line {
    let passed = now.saturating_sub(state.since);
    let (look, phase) = match state.phase {
        Phase::Connecting => {
            let many = amount::count(u64::from(state.connections));
            return Line(vec![
                (Look::Bold, label(state)),
                (
                    Look::Plain,
                    format!("  connecting {many}, {} s", passed.as_secs()),
                ),
            ]);
        }
        Phase::Warming => (
            Look::Busy,
            format!(
                "warming up, {} s of {}",
                passed.as_secs(),
                amount::span(state.warmup)
            ),
        ),
        Phase::Measuring => (Look::Good, measured(state, passed)),
    };
    let left = state.left(now).map_or(String::new(), |left| {
        let seconds = left.as_secs_f64().ceil() as u64;
        format!("  {} left", amount::span(Duration::from_secs(seconds)))
    });
    let label = label(state);
    let taken = label.chars().count() + phase.chars().count() + left.chars().count() + 4;
    let columns = width.saturating_sub(taken).min(BAR);
    let full = (state.done(now) * columns as f64).round() as usize;
    let full = full.min(columns);
    Line(vec![
        (Look::Bold, format!("{label}  ")),
        (look, "━".repeat(full)),
        (Look::Quiet, "─".repeat(columns - full)),
        (Look::Plain, format!("  {phase}")),
        (Look::Quiet, left),
    ])
}

fn measured(state: &State, passed: Duration) -> String {
    let time = state.extent.time().map(|time| {
        let passed = passed.min(time).as_secs();
        format!("{passed} s of {}", amount::span(time))
    });
    let count = state.extent.count().map(|count| {
        let ended = state.counts.answered + state.counts.failed();
        format!("{} of {}", amount::count(ended.min(count)), amount::count(count))
    });
    let parts: Vec<String> = count.into_iter().chain(time).collect();
    format!("measuring, {}", parts.join(" or "))
}

fn rate(state: &State, last: &Last, width: usize) -> Line {
    let asked = state.pace.rate().map_or(String::new(), |rate| {
        format!("  asked for {}", amount::number(rate))
    });
    let taken = LABEL + FIGURE + 2 + asked.chars().count();
    let columns = width.saturating_sub(taken).min(crate::limits::LIVE_RATES);
    Line(vec![
        (Look::Quiet, format!("{:<LABEL$}", "requests/s")),
        (Look::Bold, format!("{:<FIGURE$}  ", amount::number(last.rate))),
        (Look::Good, sparkline(&state.rates, columns)),
        (Look::Quiet, asked),
    ])
}

fn latency(state: &State, last: &Last) -> Line {
    let kind = if state.pace.rate().is_some() {
        "response"
    } else {
        "service"
    };
    let latency = &last.latency;
    let mut line = Line(vec![(Look::Quiet, format!("{kind:<LABEL$}"))]);
    for (name, time) in [
        ("p50", latency.p50),
        ("p99", latency.p99),
        ("longest", latency.max),
    ] {
        line.0.push((Look::Quiet, format!("{name} ")));
        let shown = if *latency == Percentiles::default() {
            amount::NONE.to_owned()
        } else {
            amount::time(time)
        };
        line.0.push((Look::Plain, format!("{shown:<FIGURE$}")));
    }
    line.0.push((
        Look::Quiet,
        format!("in the last {}", amount::span(tidy(last.length))),
    ));
    line
}

fn trouble(state: &State) -> Line {
    let problems = problems(&state.counts);
    let (look, text) = if problems.is_empty() {
        (Look::Plain, "none".to_owned())
    } else {
        (Look::Bad, problems.join(", "))
    };
    Line(vec![
        (Look::Quiet, format!("{:<LABEL$}", "problems")),
        (look, text),
    ])
}

fn client(state: &State, last: &Last) -> Line {
    let plural = |count: u64, noun: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{} {noun}{plural}", amount::count(count))
    };
    let threads = state.threads as f64;
    // Workers that compute all the time are the limit themselves.
    let look = if last.cpus > 0.9 * threads {
        Look::Bad
    } else {
        Look::Plain
    };
    let mut connections = plural(u64::from(state.connections), "connection");
    // The first ones are counted too.
    let anew = state.counts.connects.saturating_sub(u64::from(state.connections));
    if anew > 0 {
        connections.push_str(&format!(", {} opened anew", amount::count(anew)));
    }
    Line(vec![
        (Look::Quiet, format!("{:<LABEL$}", "client")),
        (Look::Plain, format!("{connections}; ")),
        (look, format!("{:.2} CPUs", last.cpus)),
        (
            Look::Plain,
            format!(" for {}", plural(state.threads as u64, "thread")),
        ),
    ])
}

/// What went wrong in the round so far.
fn problems(counts: &Counts) -> Vec<String> {
    let kinds = [
        ("HTTP errors", counts.http_errors()),
        ("wrong answers", counts.unexpected),
        ("timed out", counts.timeouts),
        ("broken", counts.broken.values().sum()),
        ("not connected", counts.connect_errors.values().sum()),
        ("sent late", counts.late),
        ("never sent", counts.dropped),
    ];
    let some = kinds.into_iter().filter(|(_, count)| *count > 0);
    some.map(|(name, count)| format!("{} {name}", amount::count(count)))
        .collect()
}

/// The newest values as bars, the most of them the highest.
fn sparkline(values: &VecDeque<f64>, columns: usize) -> String {
    let shown = values.iter().skip(values.len().saturating_sub(columns));
    let most = shown.clone().copied().fold(0.0, f64::max);
    let level = |value: &f64| {
        let share = if most > 0.0 { value / most } else { 0.0 };
        LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    shown.map(level).collect()
}

/// An interval is never exactly as long as was wanted.
fn tidy(length: Duration) -> Duration {
    const TENTH: u64 = 100;
    let tenths = (length.as_millis() as u64 + TENTH / 2) / TENTH;
    if tenths == 0 {
        length
    } else {
        Duration::from_millis(tenths * TENTH)
    }
}

/// Without what would move the cursor.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

impl Line {
    /// Cut to `width` columns, and painted.
    fn finish(self, width: usize, colour: bool) -> String {
        let mut out = String::new();
        let mut left = width;
        for (look, text) in self.0 {
            let cut: String = text.chars().take(left).collect();
            left -= cut.chars().count();
            let code = look.code();
            if colour && !code.is_empty() && !cut.is_empty() {
                out.push_str(&format!("\x1b[{code}m{cut}\x1b[0m"));
            } else {
                out.push_str(&cut);
            }
        }
        out.trim_end().to_owned()
    }
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Look::Plain => "",
            Look::Bold => "1",
            Look::Quiet => "2",
            Look::Good => "32",
            Look::Bad => "31",
            Look::Busy => "33",
        }
    }
}
