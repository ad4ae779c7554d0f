//! Renders the state as lines: a pure function of state, time and width.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_load::figures::{Counts, Percentiles};
use ringmain_load::report::{Round, amount};

use super::state::{LastInterval, Phase, State};

/// Columns of a line's label.
const LABEL: usize = 12;
/// Columns of a value.
const FIGURE: usize = 10;
/// Maximum columns of the progress bar.
const BAR: usize = 40;
/// Levels of the sparkline, from lowest to highest.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Text styles (ANSI).
#[derive(Clone, Copy)]
enum TextStyle {
    Plain,
    Bold,
    Quiet,
    Good,
    Bad,
    Busy,
}

/// A line of styled parts.
struct StyledLine(Vec<(TextStyle, String)>);

/// Renders the view; no line is wider than `width` columns.
pub(super) fn render_view(state: &State, now: Duration, width: usize, colour: bool) -> Vec<String> {
    let mut lines = vec![progress_line(state, now, width)];
    if let Some(last) = &state.last {
        lines.push(rate_line(state, last, width));
        lines.push(latency_line(state, last));
        lines.push(problems_line(state));
        lines.push(client_line(state, last));
    }
    lines
        .into_iter()
        .map(|line| line.paint_line(width, colour))
        .collect()
}

/// Renders the current state as one line, for a file or a pipe.
pub(super) fn status_line(state: &State) -> String {
    let Some(last) = &state.last else {
        return round_label(state);
    };
    let errors = match list_problems(&state.counts) {
        problems if problems.is_empty() => String::new(),
        problems => format!(", {}", problems.join(", ")),
    };
    let latency = match last.latency {
        // Without a response there is no latency.
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
        round_label(state),
        amount::number(last.rate),
    )
}

/// Renders the result of a round as one line.
pub(super) fn round_summary(state: &State, round: &Round) -> String {
    let figures = &round.figures;
    let (kind, latency) = match state.pace.rate() {
        None => ("service", &figures.service),
        Some(_) => ("response", &figures.response),
    };
    let errors = match list_problems(&figures.counts) {
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
        round_label(state),
        amount::number(round.throughput()),
    )
}

fn round_label(state: &State) -> String {
    let round = format!("round {} of {}", state.number + 1, state.rounds);
    match &state.name {
        Some(name) => format!("{}, {round}", replace_controls(name)),
        None => round,
    }
}

fn progress_line(state: &State, now: Duration, width: usize) -> StyledLine {
    let passed = now.saturating_sub(state.since);
    let (style, phase) = match state.phase {
        Phase::Connecting => {
            let many = amount::count(u64::from(state.connections));
            return StyledLine(vec![
                (TextStyle::Bold, round_label(state)),
                (
                    TextStyle::Plain,
                    format!("  connecting {many}, {} s", passed.as_secs()),
                ),
            ]);
        }
        Phase::Warming => (
            TextStyle::Busy,
            format!(
                "warming up, {} s of {}",
                passed.as_secs(),
                amount::span(state.warmup)
            ),
        ),
        Phase::Measuring => (TextStyle::Good, measured_text(state, passed)),
    };
    let left = state.remaining_time(now).map_or(String::new(), |left| {
        let seconds = left.as_secs_f64().ceil() as u64;
        format!("  {} left", amount::span(Duration::from_secs(seconds)))
    });
    let label = round_label(state);
    let taken = label.chars().count() + phase.chars().count() + left.chars().count() + 4;
    let columns = width.saturating_sub(taken).min(BAR);
    let full = (state.completed_share(now) * columns as f64).round() as usize;
    let full = full.min(columns);
    StyledLine(vec![
        (TextStyle::Bold, format!("{label}  ")),
        (style, "━".repeat(full)),
        (TextStyle::Quiet, "─".repeat(columns - full)),
        (TextStyle::Plain, format!("  {phase}")),
        (TextStyle::Quiet, left),
    ])
}

fn measured_text(state: &State, passed: Duration) -> String {
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

fn rate_line(state: &State, last: &LastInterval, width: usize) -> StyledLine {
    let asked = state
        .pace
        .rate()
        .map_or(String::new(), |rate| format!("  target {}", amount::number(rate)));
    let taken = LABEL + FIGURE + 2 + asked.chars().count();
    let columns = width.saturating_sub(taken).min(crate::limits::LIVE_RATES);
    StyledLine(vec![
        (TextStyle::Quiet, format!("{:<LABEL$}", "requests/s")),
        (
            TextStyle::Bold,
            format!("{:<FIGURE$}  ", amount::number(last.rate)),
        ),
        (TextStyle::Good, sparkline(&state.rates, columns)),
        (TextStyle::Quiet, asked),
    ])
}

fn latency_line(state: &State, last: &LastInterval) -> StyledLine {
    let kind = if state.pace.rate().is_some() {
        "response"
    } else {
        "service"
    };
    let latency = &last.latency;
    let mut line = StyledLine(vec![(TextStyle::Quiet, format!("{kind:<LABEL$}"))]);
    for (name, time) in [
        ("p50", latency.p50),
        ("p99", latency.p99),
        ("longest", latency.max),
    ] {
        line.0.push((TextStyle::Quiet, format!("{name} ")));
        let shown = if *latency == Percentiles::default() {
            amount::NONE.to_owned()
        } else {
            amount::time(time)
        };
        line.0.push((TextStyle::Plain, format!("{shown:<FIGURE$}")));
    }
    line.0.push((
        TextStyle::Quiet,
        format!("in the last {}", amount::span(round_to_tenths(last.length))),
    ));
    line
}

fn problems_line(state: &State) -> StyledLine {
    let problems = list_problems(&state.counts);
    let (style, text) = if problems.is_empty() {
        (TextStyle::Plain, "none".to_owned())
    } else {
        (TextStyle::Bad, problems.join(", "))
    };
    StyledLine(vec![
        (TextStyle::Quiet, format!("{:<LABEL$}", "problems")),
        (style, text),
    ])
}

fn client_line(state: &State, last: &LastInterval) -> StyledLine {
    let plural = |count: u64, noun: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{} {noun}{plural}", amount::count(count))
    };
    let threads = state.threads as f64;
    // With saturated threads the client is the bottleneck.
    let style = if last.cpus > 0.9 * threads {
        TextStyle::Bad
    } else {
        TextStyle::Plain
    };
    let mut connections = plural(u64::from(state.connections), "connection");
    // The counter includes the initial connections.
    let reopened = state.counts.connects.saturating_sub(u64::from(state.connections));
    if reopened > 0 {
        connections.push_str(&format!(", {} reopened", amount::count(reopened)));
    }
    StyledLine(vec![
        (TextStyle::Quiet, format!("{:<LABEL$}", "client")),
        (TextStyle::Plain, format!("{connections}; ")),
        (style, format!("{:.2} CPUs", last.cpus)),
        (
            TextStyle::Plain,
            format!(" for {}", plural(state.threads as u64, "thread")),
        ),
    ])
}

/// Returns the problems of the round so far.
fn list_problems(counts: &Counts) -> Vec<String> {
    let kinds = [
        ("HTTP errors", counts.http_errors()),
        ("unexpected responses", counts.unexpected),
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

/// Renders the newest values as bars, scaled to the maximum.
fn sparkline(values: &VecDeque<f64>, columns: usize) -> String {
    let shown = values.iter().skip(values.len().saturating_sub(columns));
    let most = shown.clone().copied().fold(0.0, f64::max);
    let level = |value: &f64| {
        let share = if most > 0.0 { value / most } else { 0.0 };
        LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    shown.map(level).collect()
}

/// Rounds the length of an interval, which is never exact, to tenths of a second.
fn round_to_tenths(length: Duration) -> Duration {
    const TENTH: u64 = 100;
    let tenths = (length.as_millis() as u64 + TENTH / 2) / TENTH;
    if tenths == 0 {
        length
    } else {
        Duration::from_millis(tenths * TENTH)
    }
}

/// Replaces control characters, which could move the cursor.
fn replace_controls(text: &str) -> String {
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

impl StyledLine {
    /// Renders the line, truncated to `width` columns.
    fn paint_line(self, width: usize, colour: bool) -> String {
        let mut out = String::new();
        let mut left = width;
        for (style, text) in self.0 {
            let cut: String = text.chars().take(left).collect();
            left -= cut.chars().count();
            let code = style.ansi_code();
            if colour && !code.is_empty() && !cut.is_empty() {
                out.push_str(&format!("\x1b[{code}m{cut}\x1b[0m"));
            } else {
                out.push_str(&cut);
            }
        }
        out.trim_end().to_owned()
    }
}

impl TextStyle {
    fn ansi_code(self) -> &'static str {
        match self {
            TextStyle::Plain => "",
            TextStyle::Bold => "1",
            TextStyle::Quiet => "2",
            TextStyle::Good => "32",
            TextStyle::Bad => "31",
            TextStyle::Busy => "33",
        }
    }
}
