//! Targets side by side: their figures, and for each but the first its ratios with what they are worth.

use super::table::{WIDTH, printable, sentence, wrap};
use super::{Style, setup};
use crate::report::comparison::{Against, ComparisonTable, Tone, letter};
use crate::report::{Run, amount};

/// The list of targets and what was done to each, then a table for each but the first.
pub(super) fn write(out: &mut String, comparison: &ComparisonTable, load: Option<&Run>, style: Style) {
    for (at, target) in comparison.targets.iter().enumerate() {
        let place = comparison.places.get(at).map_or("", String::as_str);
        let lines = wrap(printable(&format!("{target}  {place}")).trim_end(), WIDTH - 5);
        for (line, text) in lines.iter().enumerate() {
            let label = if line == 0 { letter(at) } else { String::new() };
            out.push_str(&format!("{}  {text}\n", style.bold(&format!("{label:<3}"))));
        }
    }
    if let Some(load) = load {
        setup::lines(out, load, style);
    }
    for other in 1..comparison.targets.len() {
        out.push('\n');
        against_first(out, comparison, other, style);
    }
    let confidence = comparison.confidence * 100.0;
    let note = format!(
        "Medians over {} rounds of each, taken in turn. Intervals contain the true ratio with {confidence:.0} % \
         confidence; one that contains 1 shows no difference.",
        comparison.rounds,
    );
    sentence(out, &note, style);
}

/// One target beside the first.
fn against_first(out: &mut String, comparison: &ComparisonTable, other: usize, style: Style) {
    let (first, second) = (letter(0), letter(other));
    let ratio = format!("{second}/{first}");
    let interval = format!("{:.0} % interval", comparison.confidence * 100.0);
    let head = format!("  {:<20} {first:>10} {second:>10} {ratio:>8} {interval:>17}", "");
    out.push_str(&format!("{}\n", style.quiet(&head)));
    for row in &comparison.rows {
        let value = |target: usize| {
            let value = row.values.get(target).copied().flatten();
            value.map_or(amount::NONE.into(), |value| row.unit.write(value))
        };
        let metric = printable(&row.metric);
        let line = format!("  {metric:<20} {:>10} {:>10}", value(0), value(other));
        let Some(against) = row.against.get(other - 1).and_then(Option::as_ref) else {
            out.push_str(&format!("{line} {:>8}\n", amount::NONE));
            continue;
        };
        let ends = format!("{} – {}", amount::ratio(against.low), amount::ratio(against.high));
        let ratio = amount::ratio(against.ratio);
        let verdict = printable(&against.verdict);
        let room = WIDTH.saturating_sub(line.chars().count() + 9 + 18 + 2).max(8);
        let mut lines = wrap(&verdict, room).into_iter();
        let first = lines.next().unwrap_or_default();
        out.push_str(&format!(
            "{line} {ratio:>8} {ends:>17}  {}\n",
            toned(against, &first, style)
        ));
        for more in lines {
            out.push_str(&format!("{:73}{}\n", "", toned(against, &more, style)));
        }
    }
}

fn toned(against: &Against, text: &str, style: Style) -> String {
    match against.tone {
        Tone::Better => style.good(text),
        Tone::Worse => style.bad(text),
        Tone::Neutral => style.quiet(text),
    }
    .into_owned()
}
