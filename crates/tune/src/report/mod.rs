//! What was found, for people and for programs: a table with what to do, one step explained, JSON.
//!
//! Plain functions from findings to text, at most [`limits::COLUMNS`] wide. Decides nothing.

mod explain;
pub mod json;
pub mod lines;

use std::fmt::Write;

pub use self::explain::explain;
use self::lines::{cut, wrapped};
use crate::audit::{Finding, Status, Wish};
use crate::catalogue::Risk;
use crate::host::{Host, Interface};
use crate::limits;

/// How text is dressed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Not at all: for files and pipes.
    #[default]
    Plain,
    /// With the colours and weights of a terminal (ANSI).
    Terminal,
}

impl Style {
    /// Bold.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.dressed("1", text)
    }

    fn dressed(self, code: &str, text: &str) -> String {
        match self {
            Style::Plain => text.to_owned(),
            Style::Terminal => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    /// In the colour of what is to be done.
    #[must_use]
    pub fn status(self, status: Status, text: &str) -> String {
        let code = match status {
            Status::Good => "32",
            Status::Change => "1;33",
            Status::Held | Status::ByHand => "33",
            Status::Optional | Status::Leave | Status::Absent => "2",
            Status::OutOfReach | Status::Unknown => "35",
        };
        self.dressed(code, text)
    }
}

/// The whole report.
#[must_use]
pub fn audit(host: &Host, wish: &Wish, findings: &[Finding], style: Style) -> String {
    let mut out = head(host, wish, style);
    table(&mut out, findings, style);
    notes(&mut out, findings, style);
    next(&mut out, findings, style);
    out
}

/// The host in a few lines.
#[must_use]
pub fn head(host: &Host, wish: &Wish, style: Style) -> String {
    let unknown = "unknown";
    let mut facts = vec![format!("Linux {}", host.release.as_deref().unwrap_or(unknown))];
    facts.push(match host.online.len() {
        0 => "CPUs unknown".to_owned(),
        1 => "1 CPU".to_owned(),
        count => format!("{count} CPUs"),
    });
    facts.extend(host.model.clone());
    facts.extend(host.machine.clone());
    if host.virtual_machine == Some(true) {
        facts.push("virtual machine".into());
    }
    if let Some(kind) = &host.place.container {
        facts.push(format!("container ({kind})"));
    }
    if host.place.initial_network == Some(false) {
        facts.push("a network namespace of its own".into());
    }
    if host.place.user.is_some_and(|user| user != 0) {
        facts.push("unprivileged user".into());
    }
    let cards: Vec<String> = host.cards().map(card).collect();
    let cards = if !cards.is_empty() {
        cards.join("; ")
    } else if host.service.is_local() {
        "none: the service listens on the loopback interface".to_owned()
    } else {
        unknown.to_owned()
    };
    let profile = format!("{:?}", wish.profile).to_lowercase();
    let mut out = String::new();
    for (name, text) in [
        ("host", facts.join(", ")),
        ("interface", cards),
        ("service", service(host)),
        ("profile", profile),
    ] {
        for (at, line) in wrapped(&text, limits::COLUMNS - 11).iter().enumerate() {
            let name = if at == 0 {
                style.bold(&format!("{name:<9}"))
            } else {
                " ".repeat(9)
            };
            let _ = writeln!(out, "{name}  {line}");
        }
    }
    out
}

fn card(card: &Interface) -> String {
    let driver = card.driver.as_deref().unwrap_or("driver unknown");
    format!(
        "{} ({driver}, {} rx and {} tx)",
        card.name, card.rx_queues, card.tx_queues
    )
}

fn service(host: &Host) -> String {
    let service = &host.service;
    let mut parts = Vec::new();
    parts.extend(service.name.as_ref().map(|name| name.to_owned()));
    parts.extend(service.pid.map(|pid| format!("process {pid}")));
    parts.extend(service.port.map(|port| format!("port {port}")));
    if parts.is_empty() {
        return "not named (--port, --pid)".into();
    }
    parts.push(format!("CPUs {}", host.usable));
    parts.join(", ")
}

const NAME: usize = 18;
const NOW: usize = 23;
const WANTED: usize = 22;

fn table(out: &mut String, findings: &[Finding], style: Style) {
    let head = format!(
        "\n{:<9} {:<NAME$} {:<NOW$} {:<WANTED$} {:<14} {}",
        "", "STEP", "NOW", "WANTED", "GAIN", "RISK"
    );
    let _ = writeln!(out, "{}", style.bold(head.trim_end()));
    for finding in findings {
        let step = finding.id.step();
        let word = style.status(finding.status, &format!("{:<9}", finding.status.word()));
        let open = !matches!(finding.status, Status::Good | Status::Absent);
        let risk = match step.risk {
            Risk::None => String::new(),
            risk => risk.to_string(),
        };
        let line = format!(
            "{:<NAME$} {:<NOW$} {:<WANTED$} {:<14} {}",
            step.name,
            cut(&finding.now, NOW),
            cut(&finding.wanted, WANTED),
            if open { cut(step.gain, 14) } else { String::new() },
            if open { risk } else { String::new() }
        );
        let _ = writeln!(out, "{word} {}", line.trim_end());
    }
}

/// Why, in the order of what is to be done; what is good needs no words.
fn notes(out: &mut String, findings: &[Finding], style: Style) {
    for (status, title) in [
        (Status::Change, "Apply changes"),
        (Status::ByHand, "By hand"),
        (Status::Held, "Held: only with --accept"),
        (Status::OutOfReach, "Not accessible from here"),
        (Status::Optional, "Optional: only with --step"),
        (Status::Leave, "Better left unchanged"),
        (Status::Unknown, "Not known"),
    ] {
        let some: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.status == status)
            .collect();
        if some.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}", style.bold(title));
        for finding in some {
            note(out, finding);
        }
    }
}

fn note(out: &mut String, finding: &Finding) {
    let step = finding.id.step();
    let mut text = finding.why.clone();
    if let Some(obstacle) = &finding.obstacle
        && *obstacle != finding.why
    {
        text = format!("{obstacle}; {text}");
    }
    if let Some(accept) = step.accept.filter(|_| finding.status == Status::Held) {
        text = format!("{text}. --accept {accept}: {}", accept.meaning());
    }
    if step.reboot && matches!(finding.status, Status::Held | Status::ByHand) {
        text.push_str(" (needs a restart of the host)");
    }
    entry(out, &label(finding), &text);
    // What is gentler is for those too who do not accept the rest.
    if let Some(gentler) = step.gentler.filter(|_| finding.status == Status::Held) {
        entry(out, "", &format!("gentler: {gentler}"));
    }
    let shown = matches!(finding.status, Status::ByHand | Status::Change | Status::Optional);
    let first = finding.status == Status::Held
        && finding
            .by_hand
            .first()
            .is_some_and(|line| line.starts_with("first"));
    let lines = finding
        .by_hand
        .iter()
        .take(if shown { usize::MAX } else { usize::from(first) });
    for line in lines {
        entry(out, "", &format!("- {line}"));
    }
}

/// The step, with the interface where there is one.
fn label(finding: &Finding) -> String {
    match &finding.interface {
        Some(interface) => format!("{} {interface}", finding.id),
        None => finding.id.to_string(),
    }
}

fn entry(out: &mut String, name: &str, text: &str) {
    const INDENT: usize = 24;
    for (at, line) in wrapped(text, limits::COLUMNS - INDENT).iter().enumerate() {
        let name = if at == 0 { name } else { "" };
        let _ = writeln!(out, "{}", format!("  {name:<21} {line}").trim_end());
    }
}

fn next(out: &mut String, findings: &[Finding], style: Style) {
    let _ = writeln!(out, "\n{}", style.bold("Next"));
    if findings.iter().any(|finding| finding.status == Status::Change) {
        entry(out, "ringmain tune plan", "lists the writes of these changes");
        entry(
            out,
            "ringmain tune apply",
            "applies them; ringmain tune revert reverts them",
        );
    }
    let step = findings
        .iter()
        .find(|finding| !matches!(finding.status, Status::Good | Status::Absent));
    let name = step.map_or("irq-affinity", |finding| finding.id.name());
    entry(
        out,
        "--explain STEP",
        &format!("describes a step and the source of its figures, such as --explain {name}"),
    );
    entry(
        out,
        "",
        "Gains were measured by others on other hosts: ringmain tune measure measures this one.",
    );
}

/// A step's findings as `explain` shows them.
pub(crate) fn found(finding: &Finding) -> Vec<(String, String)> {
    let mut rows = vec![
        (
            "here".to_owned(),
            format!("{}: {}", finding.status.word(), finding.now),
        ),
        ("why".to_owned(), finding.why.clone()),
    ];
    rows.extend(finding.obstacle.clone().map(|text| ("obstacle".to_owned(), text)));
    for change in &finding.changes {
        rows.push((
            "change".to_owned(),
            format!("{}: {} -> {}", change.key, change.now, change.wanted),
        ));
    }
    rows.extend(
        finding
            .by_hand
            .iter()
            .map(|line| ("by hand".to_owned(), line.clone())),
    );
    rows
}
