//! Flame graphs: a drawing as wide as the samples, a box a function, those that it called above it; user code blue, the kernel red.
//!
//! The picture is one SVG file with its style and script, which loads nothing. Knows folded stacks; knows nothing of where they come
//! from.

mod palette;
mod svg;
#[cfg(test)]
mod tests;
mod tree;

use self::palette::Colour;
pub(super) use self::palette::{changed, of_frame};
pub(super) use self::svg::{Drawing, write};
pub(super) use self::tree::Tree;
use super::folded::{Folded, Side, shown, side};
use super::limits::{DRAWN, LISTED};
use super::summary::{Function, Summary};

/// A box.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    /// From the bottom, 0 is everything.
    pub(super) depth: usize,
    /// Where it begins and how wide it is, of 1.
    pub(super) start: f64,
    pub(super) width: f64,
    /// What stands in it.
    pub(super) name: String,
    /// What is said of it.
    pub(super) about: String,
    pub(super) colour: Colour,
}

/// The graph of a profile as an SVG file. `title` says what was profiled, `subtitle` how.
#[must_use]
pub fn draw(folded: &Folded, title: &str, subtitle: &str) -> String {
    let tree = Tree::of(&[folded]);
    let total = folded.total();
    let mut cells = vec![Cell {
        depth: 0,
        start: 0.0,
        width: 1.0,
        name: "all".into(),
        about: format!("all: {} samples", count(total)),
        colour: palette::of_all(),
    }];
    let narrow = tree.walk(DRAWN, &mut |place, node| {
        let frame = shown(node.frame);
        let whose = whose(node.frame, place.depth);
        cells.push(Cell {
            depth: place.depth,
            start: place.start,
            width: place.width,
            name: frame.name.to_owned(),
            about: format!(
                "{}{whose}: {} samples, {}%",
                frame.name,
                count(node.counts[0]),
                percent(node.counts[0], total)
            ),
            colour: of_frame(node.frame, place.depth),
        });
    });
    let mut legend = vec![
        (
            palette::sample(Side::User),
            format!("user {}%", percent(sided(folded, Side::User), total)),
        ),
        (
            palette::sample(Side::Kernel),
            format!("kernel {}%", percent(sided(folded, Side::Kernel), total)),
        ),
    ];
    let other = sided(folded, Side::Other);
    if other > 0 {
        let text = format!("unknown {}%", percent(other, total));
        legend.push((palette::sample(Side::Other), text));
    }
    let summary = Summary::of(folded);
    let own = summary.functions.iter().filter(|function| function.own > 0);
    write(&Drawing {
        title,
        subtitle,
        legend,
        cells,
        narrow,
        table: "Functions with the most samples: own, and with called functions",
        rows: own
            .take(LISTED)
            .map(|function| table_row(function, total))
            .collect(),
    })
}

fn table_row(function: &Function, total: u64) -> String {
    let side = match function.side {
        Side::Kernel => " (kernel)",
        Side::User | Side::Other => "",
    };
    format!(
        "{:>6}%  {:>6}%  {}{side}",
        percent(function.own, total),
        percent(function.all, total),
        function.name
    )
}

/// Samples whose innermost function is on this side.
fn sided(folded: &Folded, wanted: Side) -> u64 {
    let counts = folded.iter().filter(|(stack, _)| side(stack) == wanted);
    counts.map(|(_, count)| count).sum()
}

/// Whose code a frame is, in words.
pub(super) fn whose(frame: &str, depth: usize) -> &'static str {
    let frame = shown(frame);
    match (depth, frame.side) {
        (0 | 1, _) => " (thread)",
        (_, Side::Kernel) => " (kernel)",
        (_, Side::User) if frame.inlined => " (inlined)",
        (_, Side::User | Side::Other) => "",
    }
}

/// A share with two decimals.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A count with its thousands set apart.
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
