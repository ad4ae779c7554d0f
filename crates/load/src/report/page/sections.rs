//! All of a page but its plots: what to doubt, the main figures, the rounds, how requests ended, what was run.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use super::html::{TO_STRING, Table, escape};
use crate::figures::Counts;
use crate::plan::Protocol;
use crate::report::comparison::Tone;
use crate::report::rounds::{self, percentile};
use crate::report::{ComparisonTable, Remark, Round, Run, Severity, amount, letter, text};
use crate::stats::Spread;

/// A line below the title: load and time.
pub(super) fn subtitle(run: &Run) -> String {
    let began = run
        .rounds
        .first()
        .map_or(String::new(), |round| format!("{} · ", utc(round.began)));
    format!("{began}{}", text::load(&run.plan))
}

/// What to doubt, the worst first and before all figures.
pub(super) fn remarks(remarks: &[Remark]) -> String {
    if remarks.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<&Remark> = remarks.iter().collect();
    sorted.sort_by_key(|remark| std::cmp::Reverse(remark.severity));
    let mut out = String::from("<section id=\"doubts\" class=\"panel\">\n<h2>Warnings</h2>\n<ul>\n");
    for remark in sorted {
        let word = remark.severity.word();
        let mark = match remark.severity {
            Severity::Note => "i",
            Severity::Warning => "!",
        };
        writeln!(
            out,
            "<li class=\"{word}\"><b><span aria-hidden=\"true\">{mark}</span> {word}</b> {}</li>",
            escape(&remark.message)
        )
        .expect(TO_STRING);
    }
    out.push_str("</ul>\n</section>\n");
    out
}

/// The figures that most readers look for.
pub(super) fn headline(run: &Run) -> String {
    let open = rounds::has_schedule(run);
    let kind = if open { "response" } else { "service" };
    let mut out = String::from("<section id=\"headline\" class=\"cards\" aria-label=\"Main figures\">\n");
    let asked = run
        .plan
        .pace
        .rate()
        .map(|rate| format!("scheduled: {}", amount::number(rate)));
    let rate = rounds::spread(run, |round| Some(round.throughput()));
    card(
        &mut out,
        "Requests/s",
        &middle(rate, amount::number),
        &notes(run, rate, amount::number, asked),
    );
    for (percent, name) in [(50.0, "p50"), (99.0, "p99"), (99.9, "p99.9")] {
        let spread =
            rounds::spread_of_percentile(run, percent, |f| if open { &f.response } else { &f.service });
        let name = format!("{name} {kind} time");
        card(
            &mut out,
            &name,
            &middle(spread, amount::seconds),
            &notes(run, spread, amount::seconds, None),
        );
    }
    let counts = rounds::merged(run).counts;
    let errors = super::samples::errors(&counts);
    let share = format!(
        "{} of {} requests",
        amount::percent(errors, counts.sent),
        amount::count(counts.sent)
    );
    card(&mut out, "Errors, all rounds", &amount::count(errors), &share);
    let server = rounds::spread(run, rounds::server_cpu);
    if server.is_some() {
        let note = notes(run, server, amount::seconds, None);
        card(
            &mut out,
            "Server CPU/request",
            &middle(server, amount::seconds),
            &note,
        );
    }
    let busiest = rounds::spread(run, rounds::busiest);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    card(
        &mut out,
        "Client's busiest thread",
        &middle(busiest, percent),
        "of one CPU",
    );
    out.push_str("</section>\n");
    out
}

fn card(out: &mut String, label: &str, figure: &str, note: &str) {
    let (label, figure, note) = (escape(label), escape(figure), escape(note));
    writeln!(
        out,
        "<div class=\"panel\"><h2>{label}</h2><p class=\"figure\">{figure}</p><p class=\"note\">{note}</p></div>"
    )
    .expect(TO_STRING);
}

fn middle(spread: Option<Spread>, write: impl Fn(f64) -> String) -> String {
    spread.map_or(amount::NONE.into(), |spread| write(spread.median))
}

/// The ends of a spread, if there is more than one round, and something more.
fn notes(run: &Run, spread: Option<Spread>, write: impl Fn(f64) -> String, more: Option<String>) -> String {
    let ends = spread.filter(|_| run.rounds.len() > 1);
    let ends = ends.map(|spread| format!("{} – {}", write(spread.min), write(spread.max)));
    ends.into_iter().chain(more).collect::<Vec<_>>().join("; ")
}

/// A row a round.
pub(super) fn rounds(run: &Run) -> String {
    let open = rounds::has_schedule(run);
    let watched = run.rounds.iter().all(|round| round.server.is_some());
    let mut columns = vec!["round", "measured", "requests/s", "service p50", "service p99"];
    if open {
        columns.extend(["response p50", "response p99", "sent late", "never sent"]);
    }
    columns.extend(["errors", "client thread"]);
    if watched {
        columns.extend(["server CPU/request", "server memory"]);
    }
    let mut table = Table::new("Rounds", &columns);
    for (at, round) in run.rounds.iter().enumerate() {
        table.row(&round_cells(at, round, open, watched));
    }
    format!(
        "<section id=\"rounds\" class=\"panel\">\n<h2>Rounds</h2>\n{}</section>\n",
        table.finish()
    )
}

fn round_cells(at: usize, round: &Round, open: bool, watched: bool) -> Vec<String> {
    let figures = &round.figures;
    let seconds = |value: Option<f64>| value.map_or(amount::NONE.into(), amount::seconds);
    let mut cells = vec![
        format!("{}", at + 1),
        amount::time(round.elapsed),
        amount::number(round.throughput()),
        seconds(percentile(&figures.service, 50.0)),
        seconds(percentile(&figures.service, 99.0)),
    ];
    if open {
        cells.extend([
            seconds(percentile(&figures.response, 50.0)),
            seconds(percentile(&figures.response, 99.0)),
            amount::count(figures.counts.late),
            amount::count(figures.counts.dropped),
        ]);
    }
    cells.push(amount::count(super::samples::errors(&figures.counts)));
    cells.push(rounds::busiest(round).map_or(amount::NONE.into(), |share| format!("{:.0} %", share * 100.0)));
    if let Some(server) = round.server.filter(|_| watched) {
        cells.push(seconds(rounds::server_cpu(round)));
        cells.push(amount::memory(server.peak_memory_bytes));
    }
    cells
}

/// How requests ended: a column a run, all rounds together.
pub(super) fn outcomes(runs: &[&Run]) -> String {
    let counts: Vec<Counts> = runs.iter().map(|run| rounds::merged(run).counts).collect();
    let mut columns = vec!["all rounds together".to_owned()];
    if runs.len() == 1 {
        columns.push("count".into());
    } else {
        columns.extend(
            runs.iter()
                .enumerate()
                .map(|(at, run)| format!("{} {}", letter(at), run.name)),
        );
    }
    let mut table = Table::new("How requests ended", &columns);
    let mut row = |name: &str, error: bool, of: &dyn Fn(&Counts) -> u64| {
        let cells: Vec<(u64, String)> = counts
            .iter()
            .map(|counts| (of(counts), amount::count(of(counts))))
            .collect();
        let class = |count: u64| if error && count > 0 { "bad" } else { "" };
        let cells = cells.iter().map(|(count, cell)| (class(*count), cell.as_str()));
        table.classed_row(&std::iter::once(("", name)).chain(cells).collect::<Vec<_>>());
    };
    row("requests sent", false, &|counts| counts.sent);
    row("responses", false, &|counts| counts.answered);
    for status in kinds(&counts, |counts| counts.statuses.keys().copied()) {
        let of = |counts: &Counts| counts.statuses.get(&status).copied().unwrap_or(0);
        row(&format!("status {status}"), status >= 400, &of);
    }
    for code in kinds(&counts, |counts| counts.codes.keys().copied()) {
        let of = |counts: &Counts| counts.codes.get(code).copied().unwrap_or(0);
        row(&format!("calls: {code}"), code != "OK", &of);
    }
    row(rounds::unexpected(runs), true, &|counts| counts.unexpected);
    row("timed out", true, &|counts| counts.timeouts);
    for what in kinds(&counts, |counts| counts.broken.keys().copied()) {
        let of = |counts: &Counts| counts.broken.get(what).copied().unwrap_or(0);
        row(&format!("broken: {what}"), true, &of);
    }
    row("unfinished at the end", false, &|counts| counts.unfinished);
    for what in kinds(&counts, |counts| counts.connect_errors.keys().copied()) {
        let of = |counts: &Counts| counts.connect_errors.get(what).copied().unwrap_or(0);
        row(&format!("no connection: {what}"), true, &of);
    }
    if runs.iter().any(|run| rounds::has_schedule(run)) {
        row("sent late", true, &|counts| counts.late);
        row("never sent", true, &|counts| counts.dropped);
    }
    row("connections opened", false, &|counts| counts.connects);
    if runs
        .iter()
        .any(|run| matches!(run.plan.protocol, Protocol::WebSocket(messages) if messages.deflate))
    {
        row("  with permessage-deflate", false, &|counts| counts.deflated);
    }
    row("bytes received", false, &|counts| counts.bytes_received);
    row("bytes sent", false, &|counts| counts.bytes_sent);
    format!(
        "<section id=\"outcomes\" class=\"panel\">\n<h2>How requests ended</h2>\n{}{}</section>\n",
        table.finish(),
        first_errors(runs, &counts)
    )
}

/// What there is of a kind in any of the runs, in order.
fn kinds<'c, K: Ord, I: Iterator<Item = K>>(
    counts: &'c [Counts],
    of: impl Fn(&'c Counts) -> I,
) -> BTreeSet<K> {
    counts.iter().flat_map(of).collect()
}

/// What was said of failed handshakes.
fn first_errors(runs: &[&Run], counts: &[Counts]) -> String {
    let mut out = String::new();
    for (at, counts) in counts.iter().enumerate() {
        let target = match runs.len() {
            1 => String::new(),
            _ => format!(" of {}", letter(at)),
        };
        for (what, said) in &counts.first_errors {
            let note = escape(&format!("The first \u{201c}{what}\u{201d}{target}: {said}."));
            writeln!(out, "<p class=\"note\">{note}</p>").expect(TO_STRING);
        }
    }
    out
}

/// What it took to have connections: a column a run. Nothing where connections need no handshake.
pub(super) fn connecting(runs: &[&Run]) -> String {
    let mut steps = vec![("connection", (|figures| &figures.connect) as rounds::Of)];
    for step in runs.iter().flat_map(|run| rounds::handshakes(run)) {
        if !steps.iter().any(|(name, _)| *name == step.0) {
            steps.push(step);
        }
    }
    if steps.len() == 1 {
        return String::new();
    }
    let mut columns = vec!["connecting, median round".to_owned()];
    columns.extend(runs.iter().enumerate().map(|(at, run)| match runs.len() {
        1 => "time".to_owned(),
        _ => format!("{} {}", letter(at), run.name),
    }));
    let mut table = Table::new("Connecting", &columns);
    for (name, of) in steps {
        let seconds = |spread: Option<Spread>| middle(spread, amount::seconds);
        let row = |name: String, of: &dyn Fn(&Run) -> String| {
            std::iter::once(name)
                .chain(runs.iter().map(|run| of(run)))
                .collect::<Vec<_>>()
        };
        table.row(&row(format!("{name}, p50"), &|run| {
            seconds(rounds::spread_of_percentile(run, 50.0, of))
        }));
        table.row(&row(format!("{name}, longest"), &|run| {
            seconds(rounds::spread_of_longest(run, of))
        }));
    }
    format!(
        "<section id=\"connecting\" class=\"panel\">\n<h2>Connecting</h2>\n{}</section>\n",
        table.finish()
    )
}

/// What was run.
pub(super) fn setup(runs: &[&Run]) -> String {
    let mut out = String::from("<section id=\"setup\" class=\"panel\">\n<h2>Setup</h2>\n");
    for (at, run) in runs.iter().enumerate() {
        if runs.len() > 1 {
            writeln!(out, "<h3>{} {}</h3>", letter(at), escape(&run.name)).expect(TO_STRING);
        }
        let plan = &run.plan;
        let mut facts = vec![
            ("target", plan.target.to_string()),
            ("load", text::load(plan)),
            ("client", text::client(run)),
            ("measured", text::measured(run)),
            ("seed", plan.seed.to_string()),
        ];
        facts.extend(text::tls(run).map(|tls| ("TLS", tls)));
        if let Some(round) = run.rounds.first() {
            facts.push(("began", utc(round.began)));
        }
        out.push_str("<dl>\n");
        for (name, fact) in facts {
            writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&fact)).expect(TO_STRING);
        }
        out.push_str("</dl>\n");
    }
    out.push_str("</section>\n");
    out
}

/// How each target but the first stands to the first.
pub(super) fn ratios(comparison: &ComparisonTable) -> String {
    let confidence = format!("{:.0} % interval", comparison.confidence * 100.0);
    let mut out = format!(
        "<section id=\"ratios\" class=\"panel\">\n<h2>Ratios</h2>\n<p class=\"note\">Medians over {} rounds of each, taken \
         in turn. Intervals contain the true ratio with {:.0} % confidence; one that contains 1 shows no \
         difference.</p>\n",
        comparison.rounds,
        comparison.confidence * 100.0,
    );
    for (other, name) in comparison.targets.iter().enumerate().skip(1) {
        let (first, second) = (letter(0), letter(other));
        let columns = [
            "figure".to_owned(),
            format!("{first} {}", comparison.targets[0]),
            format!("{second} {name}"),
            format!("{second}/{first}"),
            confidence.clone(),
            "verdict".to_owned(),
        ];
        let mut table = Table::new(&format!("{second} {name} against {first}"), &columns);
        for row in &comparison.rows {
            let value = |target: usize| {
                let value = row.values.get(target).copied().flatten();
                value.map_or(amount::NONE.into(), |value| row.unit.write(value))
            };
            let against = row.against.get(other - 1).and_then(Option::as_ref);
            let ratio = against.map_or(amount::NONE.into(), |against| amount::ratio(against.ratio));
            let ends = against.map_or(String::new(), |against| {
                format!("{} – {}", amount::ratio(against.low), amount::ratio(against.high))
            });
            let (class, verdict) = against.map_or(("", ""), |against| {
                let class = match against.tone {
                    Tone::Better => "verdict good",
                    Tone::Worse => "verdict bad",
                    Tone::Neutral => "verdict quiet",
                };
                (class, against.verdict.as_str())
            });
            let (own, others) = (value(0), value(other));
            table.classed_row(&[
                ("", &row.metric),
                ("", &own),
                ("", &others),
                ("", &ratio),
                ("", &ends),
                (class, verdict),
            ]);
        }
        out.push_str(&table.finish());
    }
    out.push_str("</section>\n");
    out
}

/// A moment since the Unix epoch, to the second: `2023-11-14 22:13:20 UTC`.
pub(super) fn utc(since_epoch: Duration) -> String {
    const DAY: u64 = 86_400;
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / DAY, seconds % DAY);
    // Years begin in March here, so that a leap day is a year's last: no month but the last one varies.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (
        day - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}
