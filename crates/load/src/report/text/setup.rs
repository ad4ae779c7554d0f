//! What was run, in words: the same for the terminal and the page.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_tls::Trust;

use super::Style;
use super::table::{labelled, printable};
use crate::limits;
use crate::plan::{Extent, Grpc, Pace, Plan, Protocol};
use crate::report::{Run, amount, rounds};

/// The target's name and a few lines about the run.
pub(super) fn write(out: &mut String, run: &Run, style: Style) {
    let name = printable(&run.name);
    out.push_str(&style.bold(&name));
    let mut address = run.plan.target.to_string();
    if !run.plan.others.is_empty() {
        address.push_str(&format!(
            " and {}",
            many(run.plan.others.len() as u64, "other address")
        ));
    }
    if !name.contains(&address) {
        out.push_str(&format!("  {}", style.quiet(&address)));
    }
    out.push('\n');
    lines(out, run, style);
}

/// The lines about the run.
pub(super) fn lines(out: &mut String, run: &Run, style: Style) {
    labelled(out, "load", &load(&run.plan), style);
    if let Some(tls) = tls(run) {
        labelled(out, "TLS", &tls, style);
    }
    labelled(out, "client", &client(run), style);
    labelled(out, "measured", &measured(run), style);
}

/// When requests were sent, and over what.
pub(crate) fn load(plan: &Plan) -> String {
    let pace = match plan.pace {
        Pace::Closed if plan.protocol.is_http2() => {
            "closed loop: each stream sends the next request after the response".to_owned()
        }
        Pace::Closed => "closed loop: each connection sends the next request after the response".to_owned(),
        Pace::Constant(rate) => format!("open loop: {} requests/s, evenly spaced", amount::number(rate)),
        Pace::Poisson(rate) => format!(
            "open loop: {} requests/s on average, Poisson arrivals",
            amount::number(rate)
        ),
    };
    let mut load = format!("{pace}; {}", many(u64::from(plan.connections), "connection"));
    if plan.protocol.is_http2() {
        load.push_str(&format!(
            ", up to {} on each",
            many(u64::from(plan.pipeline), "stream")
        ));
    } else if plan.pipeline > 1 {
        load.push_str(&format!(", up to {} requests in flight on each", plan.pipeline));
    }
    if let Some(answers) = plan.reconnect_after {
        load.push_str(&format!(", a new one after {}", many(answers, "response")));
    }
    let protocol = match plan.protocol {
        Protocol::Http1 => "HTTP/1.1".to_owned(),
        Protocol::Http2 => format!("HTTP/2, {}", windows()),
        Protocol::Grpc(Grpc::Unary) => format!("gRPC, unary calls over HTTP/2, {}", windows()),
        Protocol::Grpc(Grpc::ServerStreaming) => {
            format!("gRPC, server streaming over HTTP/2, {}", windows())
        }
        Protocol::Echo { bytes } => format!("TCP echo of {}", many(u64::from(bytes), "byte")),
        Protocol::WebSocket(messages) => format!(
            "WebSocket echo of {}, {}{}",
            many(u64::from(messages.bytes), "byte"),
            if messages.text { "text" } else { "binary" },
            if messages.deflate {
                ", permessage-deflate"
            } else {
                ""
            },
        ),
    };
    format!("{load}; {protocol}")
}

/// How much of answers may come before it is asked for.
fn windows() -> String {
    format!("windows of {}", amount::memory(u64::from(limits::HTTP2_WINDOW)))
}

/// What was agreed on, how much of it anew, and whom the client believed.
pub(crate) fn tls(run: &Run) -> Option<String> {
    let settings = &run.plan.tls.as_ref()?.settings;
    let counts = rounds::merged(run).counts;
    let handshakes = counts.tls_handshakes();
    let names =
        |counts: &BTreeMap<&'static str, u64>| counts.keys().copied().collect::<Vec<_>>().join(" and ");
    let agreed = match handshakes {
        0 => "no handshake completed".to_owned(),
        _ => format!("{}, {}", names(&counts.tls_versions), names(&counts.tls_suites)),
    };
    let resumed = match (settings.resume, handshakes) {
        (_, 0) => String::new(),
        (false, _) => format!("; {}, each in full", many(handshakes, "handshake")),
        (true, _) => format!(
            "; {}, {} resumed",
            many(handshakes, "handshake"),
            amount::percent(counts.tls_resumed, handshakes)
        ),
    };
    let trust = match settings.trust {
        Trust::AnybodyInsecure => "; certificates not verified",
        Trust::Authorities(_) | Trust::Roots(_) => "",
    };
    Some(format!("{agreed}{resumed}{trust}"))
}

/// What the load came from.
pub(crate) fn client(run: &Run) -> String {
    let mut client = many(run.plan.threads as u64, "thread");
    if !run.plan.cpus.is_empty() {
        let cpus: Vec<String> = run.plan.cpus.iter().map(usize::to_string).collect();
        let noun = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        client.push_str(&format!(" on {noun} {}", cpus.join(", ")));
    }
    // A list without blanks could not be put on several lines.
    let engine = printable(&run.engine).replace(", ", ",").replace(',', ", ");
    format!("{client}; {engine}")
}

/// For how long and how often.
pub(crate) fn measured(run: &Run) -> String {
    let plan = &run.plan;
    let rounds = many(run.rounds.len() as u64, "round");
    let mut measured = match plan.extent {
        Extent::Time(time) => format!("{rounds} of {}", amount::span(time)),
        Extent::Count(count) => format!("{rounds} of {}", many(count, "request")),
        Extent::Either { count, time } => {
            format!("{rounds} of {} or {}", many(count, "request"), amount::span(time))
        }
    };
    if plan.warmup > Duration::ZERO {
        measured.push_str(&format!(", {} of warm-up before each", amount::span(plan.warmup)));
    }
    if run.rounds.len() < plan.rounds as usize {
        measured.push_str(&format!("; {} were requested", plan.rounds));
    }
    format!("{measured}; timeout {}", amount::span(plan.timeout))
}

/// `1 thread`, `2,000 connections`.
fn many(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", amount::count(count))
}
