//! The plots of a report and the tables that say the same.
//!
//! Decides what is drawn with which colour: of one run service and response time differ in colour, of several runs
//! the targets do.

use super::axis::Axis;
use super::html::{Table, details};
use super::plot::{Curve, Plot, Weight, legend};
use super::{samples, time};
use crate::figures::{Figures, Latency};
use crate::report::rounds::{self, SHOWN, percentile};
use crate::report::{Run, amount, letter};

/// Rounds drawn as thin lines; of more every n-th.
const THIN: usize = 24;

/// One latency of one run, with its look.
struct Kind<'a> {
    run: &'a Run,
    name: String,
    of: fn(&Figures) -> &Latency,
    whole: Latency,
    tone: usize,
    dashed: bool,
}

/// All plots.
pub(super) fn all(runs: &[&Run]) -> String {
    let kinds = kinds(runs);
    let mut out = by_percentile(&kinds);
    out.push_str(&time::all(runs));
    out.push_str(&histogram(&kinds));
    out
}

/// What is compared: both latencies of one run, one of each of several.
fn kinds<'a>(runs: &[&'a Run]) -> Vec<Kind<'a>> {
    let kind = |run: &'a Run, name: String, of: fn(&Figures) -> &Latency, tone: usize, dashed| Kind {
        run,
        name,
        of,
        whole: of(&rounds::merged(run)).clone(),
        tone,
        dashed,
    };
    if let [run] = runs {
        let mut kinds = vec![kind(run, "service time".into(), |f| &f.service, 0, false)];
        if rounds::has_schedule(run) {
            kinds.push(kind(run, "response time".into(), |f| &f.response, 1, true));
        }
        return kinds;
    }
    let open = runs.iter().all(|run| rounds::has_schedule(run));
    let of: fn(&Figures) -> &Latency = if open { |f| &f.response } else { |f| &f.service };
    let runs = runs.iter().enumerate();
    runs.map(|(at, run)| kind(run, target(at, run), of, at, at % 2 == 1))
        .collect()
}

/// A target's letter and name.
pub(super) fn target(at: usize, run: &Run) -> String {
    format!("{} {}", letter(at), run.name)
}

/// What the latencies are.
fn meaning(kinds: &[Kind<'_>]) -> &'static str {
    let open = kinds.iter().all(|kind| rounds::has_schedule(kind.run));
    let one_run = kinds
        .windows(2)
        .all(|pair| std::ptr::eq(pair[0].run, pair[1].run));
    match (open, one_run) {
        (true, true) => {
            "Service time starts with the sending, response time at the scheduled time: the second is the wait of \
             a user."
        }
        (true, false) => {
            "Response time, from the scheduled time to the complete response: the wait of a user."
        }
        (false, _) => {
            "Service time, from sending to the complete response. A closed loop has no schedule: while the server is \
             slow nothing is sent, so the waiting that users have in slow periods is not in these times."
        }
    }
}

/// A part of the page with a heading.
pub(super) fn section(id: &str, title: &str, note: &str, content: &str) -> String {
    let note = super::html::escape(note);
    format!(
        "<section id=\"{id}\" class=\"panel\">\n<h2>{title}</h2>\n<p class=\"note\">{note}</p>\n{content}</section>\n"
    )
}

fn by_percentile(kinds: &[Kind<'_>]) -> String {
    let mut curves = vec![];
    for kind in kinds {
        let rounds = &kind.run.rounds;
        let every = rounds.len().div_ceil(THIN).max(1);
        let thin = rounds.iter().step_by(every).filter(|_| rounds.len() > 1);
        curves.extend(thin.map(|round| Curve {
            points: samples::percentiles((kind.of)(&round.figures)),
            tone: kind.tone,
            weight: Weight::Thin,
            dashed: false,
        }));
    }
    curves.extend(kinds.iter().map(|kind| Curve {
        points: samples::percentiles(&kind.whole),
        tone: kind.tone,
        weight: Weight::Bold,
        dashed: kind.dashed,
    }));
    let nines = curves
        .iter()
        .filter_map(|curve| curve.points.last())
        .map(|(x, _)| *x);
    let nines = nines.fold(1.0, f64::max);
    let (low, high) = ends(
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(_, y)| *y)),
    );
    let worst = kinds.iter().map(|kind| {
        let p99 = percentile(&kind.whole, 99.0).map_or(amount::NONE.into(), amount::seconds);
        format!(
            "{}: p99 {p99}, longest {}.",
            kind.name,
            amount::time(kind.whole.max())
        )
    });
    let plot = Plot {
        id: "plot-percentiles",
        title: "Latency by percentile".into(),
        description: worst.collect::<Vec<_>>().join(" "),
        axes: Box::new(move |across, up| {
            let name = if across > 5 {
                "percent of responses that took no longer"
            } else {
                "percent that took no longer"
            };
            let mut x = Axis::nines(name, nines);
            if across <= 5 {
                x.thin(across);
            }
            (x, Axis::logarithmic("latency", low, high, up, amount::seconds))
        }),
        curves,
        rules: vec![],
    };
    let legend = legend(&entries(kinds));
    let table = details("As a table", &percentile_table(kinds));
    let bold = match kinds.iter().map(|kind| kind.run.rounds.len()).max() {
        Some(0 | 1) | None => "",
        Some(_) => " Bold: all rounds together; thin: each round.",
    };
    let note = format!("{}{bold} Both axes are logarithmic.", meaning(kinds));
    section(
        "percentiles",
        "Latency by percentile",
        &note,
        &format!("{legend}{}{table}", plot.svg()),
    )
}

fn entries(kinds: &[Kind<'_>]) -> Vec<(usize, bool, String)> {
    let entry = |kind: &Kind<'_>| (kind.tone, kind.dashed, kind.name.clone());
    kinds.iter().map(entry).collect()
}

fn percentile_table(kinds: &[Kind<'_>]) -> String {
    let mut columns = vec!["percentile".to_owned()];
    for kind in kinds {
        columns.push(format!("{}, median round", kind.name));
        columns.push("min – max".into());
        columns.push("all rounds".into());
    }
    let mut table = Table::new("Latency by percentile", &columns);
    let shown = SHOWN.iter().map(|(percent, name)| (*name, Some(*percent)));
    for (name, percent) in shown.chain([("longest", None)]) {
        let mut cells = vec![name.to_owned()];
        for kind in kinds {
            let (spread, whole) = match percent {
                Some(percent) => (
                    rounds::spread_of_percentile(kind.run, percent, kind.of),
                    percentile(&kind.whole, percent),
                ),
                None => (
                    rounds::spread_of_longest(kind.run, kind.of),
                    Some(kind.whole.max().as_secs_f64()),
                ),
            };
            let none = || amount::NONE.to_owned();
            cells.push(spread.map_or_else(none, |spread| amount::seconds(spread.median)));
            cells.push(spread.map_or_else(none, |spread| {
                format!(
                    "{} – {}",
                    amount::seconds(spread.min),
                    amount::seconds(spread.max)
                )
            }));
            cells.push(whole.map_or_else(none, amount::seconds));
        }
        table.row(&cells);
    }
    table.finish()
}

fn histogram(kinds: &[Kind<'_>]) -> String {
    let shares: Vec<_> = kinds.iter().map(|kind| samples::shares(&kind.whole)).collect();
    let curves = kinds.iter().zip(&shares).enumerate().map(|(at, (kind, bars))| {
        let mut points = vec![];
        for (from, to, share) in bars {
            points.extend([(*from, *share), (*to, *share)]);
        }
        if let (Some((first, _)), Some((last, _))) = (points.first().copied(), points.last().copied()) {
            points.insert(0, (first, 0.0));
            points.push((last, 0.0));
        }
        Curve {
            points,
            tone: kind.tone,
            weight: if at == 0 { Weight::Filled } else { Weight::Bold },
            dashed: kind.dashed,
        }
    });
    let curves: Vec<Curve> = curves.collect();
    let (low, high) = ends(
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(x, _)| *x)),
    );
    let most = shares
        .iter()
        .flatten()
        .map(|(_, _, share)| *share)
        .fold(0.0, f64::max);
    let plot = Plot {
        id: "plot-histogram",
        title: "How often each latency occurred".into(),
        description: format!(
            "Shares of responses by latency, between {} and {}.",
            amount::seconds(low),
            amount::seconds(high)
        ),
        axes: Box::new(move |across, up| {
            let percent = |share| format!("{} %", amount::number(share));
            (
                Axis::logarithmic("latency", low, high, across, amount::seconds),
                Axis::linear("share of responses", most, up / 2, percent),
            )
        }),
        curves,
        rules: vec![],
    };
    let mut tables = String::new();
    for (kind, bars) in kinds.iter().zip(&shares) {
        let mut table = Table::new(&kind.name, &["from", "to", "share of responses"]);
        for (from, to, share) in bars.iter().filter(|(_, _, share)| *share > 0.0) {
            table.row(&[
                amount::seconds(*from),
                amount::seconds(*to),
                format!("{} %", amount::number(*share)),
            ]);
        }
        tables.push_str(&table.finish());
    }
    let note =
        "Share of responses, in percent, in bars of equal width on a logarithmic axis. All rounds together.";
    let content = format!(
        "{}{}{}",
        legend(&entries(kinds)),
        plot.svg(),
        details("As a table", &tables)
    );
    section("histogram", "How often each latency occurred", note, &content)
}

/// The least and the most of what is above nothing.
pub(super) fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let above = values.filter(|value| *value > 0.0);
    above.fold((f64::INFINITY, 0.0), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}
