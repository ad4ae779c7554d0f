//! Which writes a wish comes to, step by step, in the order in which they are done.
//!
//! Pure: from findings to writes and text.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::audit::{Change, Finding, Status, Wish};
use crate::catalogue::Id;
use crate::host::Host;
use crate::journal::Entry;
use crate::limits;
use crate::report::lines::{cut, wrapped};
use crate::report::{Style, head, json as documents};

/// The writes of a step. They are done together: if one fails, all are taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// Which step.
    pub step: Id,
    /// The interface that it is about.
    pub interface: Option<String>,
    /// The writes, in this order.
    pub changes: Vec<Change>,
    /// Whether they are done already.
    #[serde(skip)]
    pub applied: bool,
}

/// What `apply` would write.
#[must_use]
pub fn plan(findings: &[Finding]) -> Vec<Planned> {
    let open = findings
        .iter()
        .filter(|finding| finding.status == Status::Change && !finding.changes.is_empty());
    open.map(|finding| Planned {
        step: finding.id,
        interface: finding.interface.clone(),
        changes: finding.changes.clone(),
        applied: false,
    })
    .collect()
}

/// A plan with what a journal says is applied, so that all of it can be kept: a host that has it plans it no more.
#[must_use]
pub fn with_applied(mut plan: Vec<Planned>, entries: &[Entry]) -> Vec<Planned> {
    let mut applied: Vec<Planned> = Vec::new();
    let open = entries.iter().filter(|entry| !entry.undone);
    for intent in open.map(|entry| &entry.intent) {
        let mut planned = plan.iter().flat_map(|planned| &planned.changes);
        let is_planned = planned.any(|change| change.key == intent.key);
        // A step that is not known is of another version.
        let Some(step) = intent.step.parse().ok().filter(|_| !is_planned) else {
            continue;
        };
        let mut known = applied.iter_mut().flat_map(|planned| &mut planned.changes);
        if let Some(change) = known.find(|change| change.key == intent.key) {
            change.wanted.clone_from(&intent.wanted);
            continue;
        }
        let change = Change {
            key: intent.key.clone(),
            now: intent.before.clone(),
            wanted: intent.wanted.clone(),
        };
        match applied.iter_mut().find(|planned| planned.step == step) {
            Some(planned) => planned.changes.push(change),
            None => applied.push(Planned {
                step,
                interface: None,
                changes: vec![change],
                applied: true,
            }),
        }
    }
    plan.extend(applied);
    plan.sort_by_key(|planned| planned.step);
    plan
}

/// The plan for people.
#[must_use]
pub fn text(host: &Host, wish: &Wish, findings: &[Finding], style: Style) -> String {
    let plan = plan(findings);
    let mut out = head(host, wish, style);
    if plan.is_empty() {
        out.push_str("\nNothing to write.\n");
    }
    for planned in &plan {
        let step = planned.step.step();
        let interface = planned.interface.as_deref().unwrap_or_default();
        let title = format!("{} {interface}", planned.step);
        let _ = writeln!(
            out,
            "\n{}: {}, {} (gain {}, risk {})",
            style.bold(title.trim_end()),
            step.title,
            if step.reboot { "after a restart" } else { "at once" },
            step.gain,
            step.risk
        );
        for change in &planned.changes {
            let _ = writeln!(out, "  {}", change.key);
            let _ = writeln!(
                out,
                "      {} -> {}",
                cut(&change.now, 40),
                cut(&change.wanted, limits::COLUMNS - 52)
            );
        }
    }
    others(&mut out, findings, style);
    out
}

/// Steps that are not in the plan although something could be done.
fn others(out: &mut String, findings: &[Finding], style: Style) {
    let others = findings.iter().filter(|finding| {
        matches!(
            finding.status,
            Status::Held | Status::ByHand | Status::OutOfReach | Status::Optional
        )
    });
    let mut title = Some("\nNot in this plan");
    for finding in others {
        if let Some(title) = title.take() {
            let _ = writeln!(out, "{}", style.bold(title));
        }
        for (at, line) in wrapped(&why_not(finding), limits::COLUMNS - 24)
            .iter()
            .enumerate()
        {
            let name = if at == 0 { finding.id.name() } else { "" };
            let _ = writeln!(out, "  {name:<20}  {line}");
        }
    }
}

/// Why a step is in no plan.
#[must_use]
pub fn why_not(finding: &Finding) -> String {
    match (finding.status, finding.id.step().accept, &finding.obstacle) {
        (Status::Held, Some(accept), _) => format!("--accept {accept}: {}", accept.meaning()),
        (Status::OutOfReach, _, Some(obstacle)) => obstacle.clone(),
        (Status::Optional, _, _) => format!("--step {} if you want it: {}", finding.id, finding.why),
        (Status::Held | Status::ByHand, _, _) => {
            format!("by hand: {}", finding.by_hand.first().unwrap_or(&finding.why))
        }
        (status, _, _) => format!("{}: {}", status.word(), finding.why),
    }
}

/// The plan as JSON.
#[must_use]
pub fn json(host: &Host, wish: &Wish, findings: &[Finding]) -> Value {
    json!({
        "version": documents::VERSION,
        "host": documents::host(host),
        "profile": wish.profile,
        "accept": wish.accept,
        "plan": plan(findings),
    })
}
