//! The figures as text for a terminal, at most 100 columns wide but for long names.

use std::fmt::Write;

use ringmain_sys::perf::Clock;

use super::Summary;
use crate::profile::difference::{Change, Difference};
use crate::profile::flame::count;
use crate::profile::folded::Side;
use crate::profile::limits::LISTED;
use crate::profile::{Facts, KernelView, StackKind};

/// Columns of a line.
const WIDTH: usize = 100;

/// A suspect with a smaller share is not listed: it would not be seen if it were gone.
const LEAST: f64 = 0.005;

/// Threads that are listed.
const THREADS: usize = 8;

/// What a profile says.
#[must_use]
pub fn profile(summary: &Summary, facts: Option<&Facts>) -> String {
    let mut out = String::new();
    if let Some(facts) = facts {
        taken(&mut out, facts);
    }
    sides(&mut out, summary);
    if let Some(facts) = facts {
        threads(&mut out, facts);
    }
    suspects(
        &mut out,
        summary,
        facts.map_or(KernelView::Named, |facts| facts.kernel),
    );
    for (side, title) in [(Side::User, "user code"), (Side::Kernel, "the kernel")] {
        functions(&mut out, summary, side, title);
    }
    for remark in facts.iter().flat_map(|facts| &facts.remarks) {
        out.push('\n');
        wrapped(&mut out, "note: ", remark);
    }
    out
}

fn taken(out: &mut String, facts: &Facts) {
    let clock = match facts.clock {
        Clock::Cycles => "CPU cycles",
        Clock::Timer => {
            "the kernel's timer (no hardware counter here; time with interrupts off is attributed to the code that enables them)"
        }
    };
    let stacks = match facts.stacks {
        StackKind::FramePointers => "by frame pointers".to_owned(),
        StackKind::Copied(bytes) => format!("copied ({} KiB) and unwound by .eh_frame", bytes / 1024),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}", facts.who);
    let line = format!(
        "{} samples in {:.1} s, {} lost; {} a second of CPU time by {clock}; stacks {stacks}",
        count(facts.samples),
        facts.lasted.as_secs_f64(),
        count(facts.lost),
        facts.frequency,
    );
    wrapped(out, "", &line);
    out.push('\n');
}

fn sides(out: &mut String, summary: &Summary) {
    let share = |part| percent(part, summary.total);
    let _ = writeln!(
        out,
        "user {}   kernel {}   unknown {}",
        share(summary.user),
        share(summary.kernel),
        share(summary.other)
    );
    if summary.unknown.1 > 0 {
        let _ = writeln!(
            out,
            "stacks with a function without a name anywhere: {}",
            share(summary.unknown.1)
        );
    }
}

fn threads(out: &mut String, facts: &Facts) {
    if facts.threads.len() < 2 {
        return;
    }
    let shown = facts.threads.iter().take(THREADS);
    let mut parts: Vec<String> = shown
        .map(|(name, samples)| format!("{name} {}", percent(*samples, facts.samples)))
        .collect();
    if facts.threads.len() > THREADS {
        parts.push(format!("{} more", facts.threads.len() - THREADS));
    }
    wrapped(out, "threads: ", &parts.join(", "));
}

fn suspects(out: &mut String, summary: &Summary, kernel: KernelView) {
    let listed = summary
        .suspects
        .iter()
        .filter(|found| found.samples as f64 >= LEAST * summary.total as f64);
    let listed: Vec<_> = listed.collect();
    out.push_str("\nKnown costs (shares overlap)\n");
    match kernel {
        KernelView::Named => {}
        KernelView::Nameless => {
            out.push_str("  those in the kernel are not known: its functions have no names (see the note)\n")
        }
        KernelView::Nothing => {
            out.push_str("  those in the kernel are not known: it is not visible (see the note)\n")
        }
    }
    if listed.is_empty() && kernel == KernelView::Named {
        let _ = writeln!(out, "  none has as much as {} %", LEAST * 100.0);
    }
    for found in listed {
        let _ = writeln!(
            out,
            "  {:>7}  {}",
            percent(found.samples, summary.total),
            found.suspect.title
        );
        wrapped(out, "           ", found.suspect.remedy);
        if let Some((first, more)) = found.suspect.steps.split_first() {
            let more: String = more.iter().map(|id| format!(", also {id}")).collect();
            wrapped(
                out,
                "           ",
                &format!("ringmain tune --explain {first}{more}"),
            );
        }
    }
}

fn functions(out: &mut String, summary: &Summary, side: Side, title: &str) {
    let mut top = summary.top(side, LISTED).peekable();
    if top.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "\nFunctions of {title}\n     own     all  function");
    for function in top {
        let _ = writeln!(
            out,
            "  {:>6}  {:>6}  {}",
            bare(function.own, summary.total),
            bare(function.all.min(summary.total), summary.total),
            function.name
        );
    }
}

/// How two profiles differ.
#[must_use]
pub fn difference(difference: &Difference, names: [&str; 2]) -> String {
    let mut out = String::new();
    let [before, after] = difference.totals;
    let _ = writeln!(
        out,
        "before: {} ({} samples)\nafter:  {} ({} samples)",
        names[0],
        count(before),
        names[1],
        count(after)
    );
    for (title, changes) in [
        ("Functions (shares of their own time)", &difference.functions),
        ("Known costs", &difference.suspects),
    ] {
        let real: Vec<&Change> = changes.iter().filter(|change| change.beyond_chance).collect();
        if real.is_empty() {
            let all = count(changes.len() as u64);
            let _ = writeln!(
                out,
                "\n{title}\n  none of {all} has changed by more than chance explains"
            );
            continue;
        }
        let _ = writeln!(out, "\n{title}\n  before   after  change");
        for change in real.iter().take(2 * LISTED) {
            let _ = writeln!(
                out,
                "  {:>6}  {:>6}  {:>+6.2}  {}{}",
                bare(change.samples[0], before),
                bare(change.samples[1], after),
                change.rise() * 100.0,
                change.name,
                if change.side == Side::Kernel {
                    " (kernel)"
                } else {
                    ""
                }
            );
        }
        let rest = real.len().saturating_sub(2 * LISTED);
        if rest > 0 {
            let _ = writeln!(out, "  {} more", count(rest as u64));
        }
        let chance = changes.len() - real.len();
        if chance > 0 {
            let _ = writeln!(
                out,
                "  {} others have not changed, or by no more than chance explains",
                count(chance as u64)
            );
        }
    }
    out
}

fn percent(part: u64, whole: u64) -> String {
    format!("{} %", bare(part, whole))
}

/// A share in percent: one decimal, two where it would be nothing.
fn bare(part: u64, whole: u64) -> String {
    let share = part as f64 * 100.0 / whole.max(1) as f64;
    if share > 0.0 && share < 0.05 {
        format!("{share:.2}")
    } else {
        format!("{share:.1}")
    }
}

/// Appends text behind a label, wrapped, further lines beneath its beginning.
fn wrapped(out: &mut String, label: &str, text: &str) {
    let indent = label.chars().count();
    let mut line = label.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
