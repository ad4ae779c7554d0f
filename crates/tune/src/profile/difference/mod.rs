//! Two profiles side by side: how shares of functions and suspects have changed, and a graph of it.
//!
//! Shares are compared, not samples: two runs need not be equally long. What chance explains is told apart. Knows folded stacks only.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::flame::{self, Cell, Drawing, Tree, changed};
use super::folded::{Folded, Side, frames, shown};
use super::limits::{DRAWN, LISTED};
use super::suspects;

/// How a share has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The function's name, or a suspect's key.
    pub name: String,
    /// Whose code it is.
    pub side: Side,
    /// Samples before and after.
    pub samples: [u64; 2],
    /// Their shares, of 1.
    pub shares: [f64; 2],
    /// Whether chance does not explain it, given how many are compared.
    pub beyond_chance: bool,
}

impl Change {
    fn of((name, side): (&str, Side), samples: [u64; 2], totals: [u64; 2], compared: usize) -> Change {
        let name = name.to_owned();
        Change {
            name,
            side,
            samples,
            shares: shares(samples, totals),
            beyond_chance: beyond_chance(samples, totals, compared),
        }
    }

    /// By how much the share has risen.
    #[must_use]
    pub fn rise(&self) -> f64 {
        self.shares[1] - self.shares[0]
    }
}

fn shares(samples: [u64; 2], totals: [u64; 2]) -> [f64; 2] {
    let share = |which: usize| samples[which] as f64 / totals[which].max(1) as f64;
    [share(0), share(1)]
}

/// Whether two shares differ by more than samples do by chance. Of many that are compared some differ much: the more there are, the
/// more a difference has to be, so that in nineteen of twenty comparisons of the same thing none is called one (Bonferroni, by the
/// bound 2·exp(-z²/2) of the normal distribution's tails).
fn beyond_chance(samples: [u64; 2], totals: [u64; 2], compared: usize) -> bool {
    let shares = shares(samples, totals);
    let variance = |which: usize| {
        let share: f64 = shares[which];
        share * (1.0 - share) / totals[which].max(1) as f64
    };
    let errors = (2.0 * (2.0 * compared.max(1) as f64 / 0.05).ln()).sqrt();
    (shares[1] - shares[0]).abs() > errors * (variance(0) + variance(1)).sqrt()
}

/// What differs between two profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Samples of each.
    pub totals: [u64; 2],
    /// Functions by the samples in which they themselves run, the largest change first.
    pub functions: Vec<Change>,
    /// Suspects, the largest change first.
    pub suspects: Vec<Change>,
}

/// Compares two profiles.
#[must_use]
pub fn compare(before: &Folded, after: &Folded) -> Difference {
    let totals = [before.total(), after.total()];
    let mut functions: BTreeMap<(&str, Side), [u64; 2]> = BTreeMap::new();
    for (which, folded) in [before, after].into_iter().enumerate() {
        for (stack, count) in folded.iter() {
            // A thread's name alone is no function.
            if let Some(frame) = frames(stack).skip(1).last() {
                // A function is one, inlined or not.
                let frame = shown(frame);
                functions.entry((frame.name, frame.side)).or_default()[which] += count;
            }
        }
    }
    let compared = functions.len();
    let functions = functions
        .into_iter()
        .map(|(function, samples)| Change::of(function, samples, totals, compared));
    let found = [suspects::find(before), suspects::find(after)];
    let compared = suspects::SUSPECTS.len();
    let suspects = suspects::SUSPECTS.iter().filter_map(|suspect| {
        let samples = found.each_ref().map(|found| {
            let same = found.iter().find(|found| found.suspect.key == suspect.key);
            same.map_or(0, |found| found.samples)
        });
        (samples != [0, 0]).then(|| Change::of((suspect.key, Side::Other), samples, totals, compared))
    });
    Difference {
        totals,
        functions: sorted(functions.collect()),
        suspects: sorted(suspects.collect()),
    }
}

fn sorted(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by(|a, b| {
        let by_change = b.rise().abs().total_cmp(&a.rise().abs());
        by_change.then_with(|| a.name.cmp(&b.name))
    });
    changes
}

/// The graph of both as an SVG file: a box is as wide as the mean of its two shares, so that what has gone is still seen; its colour
/// says whether it takes more or less of the time than before.
#[must_use]
pub fn draw([before, after]: [&Folded; 2], names: [&str; 2]) -> String {
    let tree = Tree::of(&[before, after]);
    let totals = [before.total(), after.total()];
    let compared = tree.functions();
    let mut cells = vec![Cell {
        depth: 0,
        start: 0.0,
        width: 1.0,
        name: "all".into(),
        about: format!(
            "all: {} samples before, {} after",
            flame::count(totals[0]),
            flame::count(totals[1])
        ),
        colour: changed(0.0),
    }];
    let narrow = tree.walk(DRAWN, &mut |place, node| {
        let [was, is] = shares(node.counts, totals);
        let change = is - was;
        let chance = !beyond_chance(node.counts, totals, compared);
        let frame = shown(node.frame);
        cells.push(Cell {
            depth: place.depth,
            start: place.start,
            width: place.width,
            name: frame.name.to_owned(),
            about: format!(
                "{}{}: {}% before, {}% after, {:+.2} points",
                frame.name,
                flame::whose(node.frame, place.depth),
                flame::percent(node.counts[0], totals[0]),
                flame::percent(node.counts[1], totals[1]),
                change * 100.0
            ),
            colour: changed(if chance { 0.0 } else { change }),
        });
    });
    let legend = vec![
        (changed(0.1), "larger share than before".to_owned()),
        (changed(-0.1), "smaller share than before".to_owned()),
        (changed(0.0), "no change beyond chance".to_owned()),
    ];
    let subtitle = format!(
        "before: {} ({} samples), after: {} ({} samples); a box is as wide as the mean of both shares",
        names[0],
        flame::count(totals[0]),
        names[1],
        flame::count(totals[1])
    );
    let difference = compare(before, after);
    let rows = difference.functions.iter().filter(|change| change.beyond_chance);
    flame::write(&Drawing {
        title: "Difference of two profiles",
        subtitle: &subtitle,
        legend,
        cells,
        narrow,
        table: "Functions whose share of samples has changed most, beyond chance: before, after, change in points",
        rows: rows.take(LISTED).map(table_row).collect(),
    })
}

fn table_row(change: &Change) -> String {
    let side = match change.side {
        Side::Kernel => " (kernel)",
        Side::User | Side::Other => "",
    };
    let [before, after] = change.shares.map(|share| share * 100.0);
    let rise = change.rise() * 100.0;
    format!(
        "{before:>6.2}%  {after:>6.2}%  {rise:>+6.2}  {}{side}",
        change.name
    )
}
