//! The ladder: what each step was worth on this host, as a table, JSON and a page with a chart.
//!
//! Which rounds are run and what chance explains is the caller's; here stands what a rung is and how it is told.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde::Serialize;

use crate::catalogue::Id;
use crate::limits;
use crate::report::Style;
use crate::report::lines::{cut, wrapped};

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// It helps beyond noise, and is kept.
    Kept,
    /// It makes things worse beyond noise, and is taken back.
    Worse,
    /// Chance explains the difference, and it is taken back.
    Noise,
    /// It could not be applied.
    Failed {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// As a table has it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Worse => "worse, reverted",
            Verdict::Noise => "noise, reverted",
            Verdict::Failed { .. } => "failed",
        }
    }
}

/// One step, measured against the host without it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// Which step.
    pub step: Id,
    /// Pairs of rounds that were compared: what seems to help is measured twice.
    pub pairs: usize,
    /// What is climbed for without it, the median of its rounds.
    pub before: f64,
    /// With it.
    pub after: f64,
    /// The median of the ratios of neighbouring rounds, and the interval that it lies in.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Microseconds that 99 of 100 requests did not exceed, without and with it.
    pub p99_us: (f64, f64),
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The whole ladder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ladder {
    /// What was put under load.
    pub target: String,
    /// What the ladder climbs: `requests/s` or `p99`.
    pub goal: String,
    /// Rounds of each side of each look at a step.
    pub rounds: u32,
    /// The rungs, from the first.
    pub rungs: Vec<Rung>,
}

/// The order of a look's rounds, 0 without the step and 1 with it: pairs, and in each a coin says which side is first. With any
/// fixed order something that comes and goes by a clock of its own can fall on one side again and again; a coin has it agree
/// with the step no oftener than chance, whatever it is.
pub fn order(rounds: u32, mut coin: impl FnMut() -> bool) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |_| if coin() { [0, 1] } else { [1, 0] })
}

/// The table.
#[must_use]
pub fn text(ladder: &Ladder, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} of {}, {} pairs of rounds without and with each step\n",
        ladder.goal, ladder.target, ladder.rounds
    );
    let head = format!(
        "{:<20} {:>11} {:>11} {:>9} {:>17}  {:>9}  {}",
        "STEP", "WITHOUT", "WITH", "RATIO", "95 % INTERVAL", "P99 WITH", "VERDICT"
    );
    let _ = writeln!(out, "{}", style.bold(&head));
    for rung in &ladder.rungs {
        if let Verdict::Failed { why } = &rung.verdict {
            for (at, line) in wrapped(why, limits::COLUMNS - 30).iter().enumerate() {
                let name = if at == 0 { rung.step.name() } else { "" };
                let _ = writeln!(
                    out,
                    "{name:<20} {}{line}",
                    if at == 0 { "failed: " } else { "        " }
                );
            }
            continue;
        }
        let _ = writeln!(
            out,
            "{:<20} {:>11} {:>11} {:>9.3} {:>17}  {:>6} us  {}",
            cut(rung.step.name(), 20),
            figure(rung.before),
            figure(rung.after),
            rung.ratio,
            format!("{:.3} - {:.3}", rung.low, rung.high),
            figure(rung.p99_us.1),
            rung.verdict.word()
        );
    }
    let kept: Vec<&str> = kept(ladder).map(|rung| rung.step.name()).collect();
    out.push('\n');
    if kept.is_empty() {
        out.push_str("No step helps beyond noise here: the host is unchanged.\n")
    } else {
        let total = total(ladder);
        let _ = writeln!(
            out,
            "Kept: {} (together {:+.1} %).",
            kept.join(", "),
            (total - 1.0) * 100.0
        );
        out.push_str("ringmain tune revert reverts them; ringmain tune export keeps them across restarts.\n");
    }
    out
}

fn kept(ladder: &Ladder) -> impl Iterator<Item = &Rung> {
    ladder.rungs.iter().filter(|rung| rung.verdict == Verdict::Kept)
}

/// The product of what was kept: each was measured with those before it in place.
fn total(ladder: &Ladder) -> f64 {
    kept(ladder).map(|rung| rung.ratio).product()
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 170.0;
const BAR: f64 = 30.0;

/// The chart: a page that needs nothing else. Bars without and with each step, whiskers for the interval.
#[must_use]
pub fn page(ladder: &Ladder) -> String {
    let rungs: Vec<&Rung> = ladder
        .rungs
        .iter()
        .filter(|rung| !matches!(rung.verdict, Verdict::Failed { .. }))
        .collect();
    let most = rungs
        .iter()
        .flat_map(|rung| [rung.before, rung.after, rung.before * rung.high]);
    let most = most.fold(1.0_f64, f64::max);
    let scale = |value: f64| LEFT + value / most * (WIDTH - LEFT - 150.0);
    let mut bars = String::new();
    for (place, rung) in rungs.iter().enumerate() {
        let top = place as f64 * (BAR * 2.0 + 14.0) + 10.0;
        // In numbers only what is no noise: of noise the medians and the ratio may even point different ways.
        let change = format!("{:+.1} %", (rung.ratio - 1.0) * 100.0);
        let (class, said) = match rung.verdict {
            Verdict::Kept => ("kept", change),
            Verdict::Worse => ("worse", change),
            _ => ("noise", "noise".into()),
        };
        let [low, dot, high] = [rung.low, rung.ratio, rung.high].map(|ratio| scale(rung.before * ratio));
        let middle = top + BAR * 1.5;
        let _ = writeln!(
            bars,
            "<text x='{:.0}' y='{:.0}' text-anchor='end'>{}</text>\
             <rect class='before' x='{LEFT}' y='{top:.0}' width='{:.1}' height='{BAR}'/>\
             <rect class='{class}' x='{LEFT}' y='{:.0}' width='{:.1}' height='{BAR}'/>\
             <path class='whisker' d='M{low:.1} {middle:.0}H{high:.1}M{low:.1} {:.0}v12M{high:.1} {:.0}v12'/>\
             <circle cx='{dot:.1}' cy='{middle:.0}' r='4'/>\
             <text x='{:.1}' y='{:.0}'>{}</text><text x='{:.1}' y='{:.0}'>{}, {said}</text>",
            LEFT - 10.0,
            top + BAR + 5.0,
            rung.step,
            scale(rung.before) - LEFT,
            top + BAR,
            scale(rung.after) - LEFT,
            middle - 6.0,
            middle - 6.0,
            scale(rung.before) + 6.0,
            top + BAR * 0.65,
            figure(rung.before),
            scale(rung.after).max(high) + 6.0,
            top + BAR * 1.65,
            figure(rung.after),
        );
    }
    let height = rungs.len() as f64 * (BAR * 2.0 + 14.0) + 20.0;
    let summary = escaped(&text(ladder, Style::Plain));
    format!(
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>ringmain tune measure</title>\n\
         <style>\n\
         :root{{color-scheme:light dark;--fg:#1c2430;--bg:#fff;--mute:#8a94a3;--kept:#2f9e6e;--worse:#d0495a;--noise:#dfe3e8}}\n\
         @media(prefers-color-scheme:dark){{:root{{--fg:#e6eaf0;--bg:#12161c;--mute:#77818f;--noise:#333b47}}}}\n\
         body{{font:15px/1.45 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:60rem;margin:2rem auto;padding:0 1rem}}\n\
         svg{{width:100%;height:auto}}svg text{{font-size:13px;fill:var(--fg)}}\n\
         .before{{fill:var(--mute)}}circle{{fill:var(--fg)}}.kept{{fill:var(--kept)}}.worse{{fill:var(--worse)}}.noise{{fill:var(--noise)}}\n\
         .whisker{{stroke:var(--fg);stroke-width:1.5;fill:none}}pre{{overflow-x:auto}}\n\
         </style></head>\n<body><h1>What each step is worth here</h1>\n\
         <p>{} of {}: above without the step, below with it (green kept, red worse, pale noise), the medians of all rounds. \
         The dot is the median ratio of neighbouring rounds, the line its 95 % interval.</p>\n\
         <svg viewBox='0 0 {WIDTH:.0} {height:.0}' role='img' aria-label='{} without and with each step'>\n{bars}</svg>\n\
         <pre>{summary}</pre></body></html>\n",
        escaped(&ladder.goal),
        escaped(&ladder.target),
        escaped(&ladder.goal)
    )
}

/// A whole number, its digits in threes; with decimals if it is small, such as microseconds of CPU time.
fn figure(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
}
