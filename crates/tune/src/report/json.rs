//! The report as JSON. Fields are added, never changed, while `version` stays the same.

use serde::Serialize;
use serde_json::{Value, json};

use crate::audit::{Finding, Wish};
use crate::catalogue::Id;
use crate::host::{Host, Interface};

/// The version of the documents' form.
pub const VERSION: u32 = 1;

/// The audit.
#[must_use]
pub fn audit(host: &Host, wish: &Wish, findings: &[Finding]) -> Value {
    json!({
        "version": VERSION,
        "host": self::host(host),
        "service": host.service,
        "profile": wish.profile,
        "accept": wish.accept,
        "steps": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// What is known of the host.
#[must_use]
pub fn host(host: &Host) -> Value {
    json!({
        "kernel": host.release,
        "cpus": host.online.to_string(),
        "usable_cpus": host.usable.to_string(),
        "model": host.model,
        "machine": host.machine,
        "virtual_machine": host.virtual_machine,
        "place": host.place,
        "interfaces": host.cards().map(interface).collect::<Vec<_>>(),
    })
}

fn interface(card: &Interface) -> Value {
    json!({
        "name": card.name,
        "driver": card.driver,
        "rx_queues": card.rx_queues,
        "tx_queues": card.tx_queues,
    })
}

fn finding(finding: &Finding) -> Value {
    let step = finding.id.step();
    json!({
        "step": finding.id,
        "number": step.number,
        "interface": finding.interface,
        "status": finding.status,
        "now": finding.now,
        "wanted": some(&finding.wanted),
        "why": finding.why,
        "gain": { "text": step.gain, "source": step.source },
        "risk": step.risk,
        "restart": step.reboot,
        "accept": step.accept,
        "optional": step.optional,
        "reachable": finding.obstacle.is_none(),
        "obstacle": finding.obstacle,
        "changes": finding.changes,
        "gentler": step.gentler,
        "by_hand": finding.by_hand,
    })
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// A document as text, with a line's end.
#[must_use]
pub fn text(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document);
    // Our documents hold no map without text as its keys, which is all that could fail.
    text.map_or_else(
        |error| format!("{{\"error\": \"{error}\"}}\n"),
        |text| text + "\n",
    )
}

/// One step's facts.
#[must_use]
pub fn step(id: Id) -> Value {
    let step = id.step();
    json!({
        "version": VERSION,
        "step": id,
        "title": step.title,
        "number": step.number,
        "gain": { "text": step.gain, "source": step.source },
        "risk": step.risk,
        "restart": step.reboot,
        "accept": step.accept,
        "optional": step.optional,
        "what": step.what,
        "detect": step.detect,
        "apply": step.apply,
        "not_when": step.not_when,
        "gentler": step.gentler,
    })
}
