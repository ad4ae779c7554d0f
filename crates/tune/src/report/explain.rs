//! One step in full: what it is, what it is worth and to whom, and what it means here.

use std::fmt::Write;

use super::lines::wrapped;
use super::{Style, found};
use crate::audit::Finding;
use crate::catalogue::Step;
use crate::limits;

/// Explains a step, with what was found of it here.
#[must_use]
pub fn explain(step: &Step, findings: &[Finding], style: Style) -> String {
    let mut out = String::new();
    let place = step
        .number
        .map_or(String::new(), |number| format!(", step {number} of nine"));
    let _ = writeln!(out, "{}: {}{place}\n", style.bold(step.name), step.title);
    let mut rows = vec![
        ("what", step.what.to_owned()),
        ("gain", format!("{} ({})", step.gain, step.source)),
        ("risk", step.risk.to_string()),
        ("found by", step.detect.to_owned()),
        ("changed by", step.apply.to_owned()),
        ("not when", step.not_when.to_owned()),
    ];
    rows.extend(step.gentler.map(|text| ("gentler", text.to_owned())));
    rows.extend(step.reboot.then(|| {
        (
            "restart",
            "the change takes effect after a restart of the host.".to_owned(),
        )
    }));
    rows.extend(
        step.accept
            .map(|accept| ("accept", format!("--accept {accept}: {}.", accept.meaning()))),
    );
    if step.optional {
        rows.push(("optional", format!("only proposed with --step {}.", step.name)));
    }
    for (name, text) in &rows {
        row(&mut out, name, text);
    }
    for finding in findings.iter().filter(|finding| finding.id == step.id) {
        out.push('\n');
        if let Some(interface) = &finding.interface {
            row(&mut out, "interface", interface);
        }
        for (name, text) in found(finding) {
            row(&mut out, &name, &text);
        }
    }
    out
}

fn row(out: &mut String, name: &str, text: &str) {
    for (at, line) in wrapped(text, limits::COLUMNS - 14).iter().enumerate() {
        let name = if at == 0 { name } else { "" };
        let _ = writeln!(out, "  {name:<10}  {line}");
    }
}
