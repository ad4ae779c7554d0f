//! The plain summary of a fan-out, at most 100 columns wide.

use std::time::Duration;

use ringmain_tls::Trust;

use super::Run;
use crate::figures::Latency;
use crate::plan::Tls;
use crate::push::figures::{Disconnects, NodeCounts};
use crate::push::knee::Searched;
use crate::push::plan::{BrokerPlan, Format, Transport};
use crate::report::text::table::{Table, labelled, printable};
use crate::report::text::{Style, write_remarks};
use crate::report::{Remark, amount, per_second};

/// The summary of a run against a target that the user calls `name`.
#[must_use]
pub fn run(run: &Run, name: &str, remarks: &[Remark], style: Style) -> String {
    let mut out = format!("{}\n", style.bold(&printable(name)));
    setup(&mut out, run, style);
    if run.plan.has_publications() {
        latencies(&mut out, run, style);
        deliveries(&mut out, run, style);
    }
    ends(&mut out, run, style);
    costs(&mut out, run, style);
    write_remarks(&mut out, remarks, style);
    out
}

/// The summary of a search: what it has found, and the last of the runs that confirmed it.
#[must_use]
pub fn search(searched: &Searched, name: &str, remarks: &[Remark], style: Style) -> String {
    let mut out = format!("{}\n", found(searched));
    if let Some(last) = searched.confirmed.last() {
        out.push('\n');
        out.push_str(&run(last, name, remarks, style));
    }
    out
}

/// What a search has found, in a sentence.
#[must_use]
pub fn found(searched: &Searched) -> String {
    let found = &searched.found;
    let above = match &found.broke {
        Some((rate, broke)) => {
            let why: Vec<String> = broke.iter().map(ToString::to_string).collect();
            format!(
                "missed at {} publications/s: {}",
                amount::number(*rate),
                why.join("; ")
            )
        }
        None => "higher rates not measured".into(),
    };
    let Some(rate) = found.held else {
        return format!("no rate meets the objective; {above}");
    };
    let each: Vec<String> = searched.deliveries_per_second().map(amount::number).collect();
    let mut said = format!(
        "highest rate: {} publications/s, {} deliveries/s; {above}",
        amount::number(rate),
        each.join(", "),
    );
    if searched.is_clients_limit() {
        said.push_str(
            "; the server may sustain more: give the client more threads or CPUs (--threads, --cpus)",
        );
    }
    said
}

fn setup(out: &mut String, run: &Run, style: Style) {
    let plan = &run.plan;
    let transport = match plan.transport {
        Transport::WebSocket(Format::Json) => "WebSocket, JSON",
        Transport::WebSocket(Format::Protobuf) => "WebSocket, Protobuf",
        Transport::Sse => "server-sent events",
    };
    let mut clients = format!(
        "{} over {transport}, each on {} of {} channels",
        amount::count(u64::from(plan.clients)),
        amount::count(u64::from(plan.each)),
        amount::count(u64::from(plan.channels)),
    );
    if plan.common.is_some() {
        clients.push_str(" and on one common channel");
    }
    if plan.nodes.iter().any(|node| node.tls.is_some()) {
        clients = clients.replacen(transport, &format!("{transport} over TLS"), 1);
    }
    if run.totals.slow_clients > 0 {
        clients.push_str(&format!(
            "; {} of them read {} of the required rate",
            amount::count(u64::from(run.totals.slow_clients)),
            percent(plan.slow_pace),
        ));
    }
    labelled(out, "clients", &clients, style);
    let mut load = match (plan.publishes(), plan.listening) {
        (_, Some(run)) => format!(
            "publications of run {run:08x} from an external producer, of {} bytes",
            amount::count(plan.size.into())
        ),
        (false, None) => "nothing is published".to_owned(),
        (true, None) => format!(
            "{} publications/s of {} bytes",
            amount::number(plan.rate),
            amount::count(plan.size.into())
        ),
    };
    if let Some(common) = plan.common.filter(|rate| *rate > 0.0 && plan.publishes()) {
        load.push_str(&format!(
            ", and {}/s to the common channel",
            amount::number(common)
        ));
    }
    if let Some(BrokerPlan { broker, .. }) = &plan.broker {
        load.push_str(&format!(", written to {}", printable(broker.url())));
    }
    if let Some(interval) = plan.conflated {
        load.push_str(&format!("; conflated to one in {}", amount::span(interval)));
    }
    labelled(out, "load", &load, style);
    let measured = format!(
        "{}, after {} of warm-up; {} threads on {}",
        amount::span(plan.duration),
        amount::span(plan.warmup),
        plan.threads + 1,
        run.engine,
    );
    labelled(out, "measured", &measured, style);
}

fn percent(share: f64) -> String {
    format!("{} %", amount::number(share * 100.0))
}

fn latencies(out: &mut String, run: &Run, style: Style) {
    out.push_str(&format!("\n{}\n", style.bold("From the scheduled time to")));
    let mut table = Table::default();
    table.head(["", "p50", "p90", "p99", "p99.9", "max"]);
    let (heard, totals) = (&run.heard, &run.totals);
    table.main(row("the client", &heard.fast));
    let is_recorded = run.plan.broker.is_some();
    if is_recorded {
        table.row(row("the broker's acknowledgement", &totals.acknowledged));
    }
    let rows = [
        ("a plain consumer", &totals.consumed),
        ("a client that reads slowly", &heard.slow),
        ("a reconnected client", &heard.recovered),
        ("the last of its clients", &totals.last),
        ("the last of the common channel", &totals.last_common),
    ];
    for (name, latency) in rows {
        if latency.count() > 0 {
            table.row(row(name, latency));
        }
    }
    table.write(out, &[30], style);
    if is_recorded {
        after_acknowledgement(out, run, style);
    }
    if run.plan.conflated.is_none() {
        return;
    }
    let heading = "How far clients' newest values are behind the newest published ones";
    out.push_str(&format!("\n{}\n", style.bold(heading)));
    let mut table = Table::default();
    table.head(["", "p50", "p90", "p99", "p99.9", "max"]);
    table.main(row("clients", &heard.fresh));
    if heard.fresh_slow.count() > 0 {
        table.row(row("clients that read slowly", &heard.fresh_slow));
    }
    table.write(out, &[30], style);
}

/// Times from the broker's acknowledgement.
fn after_acknowledgement(out: &mut String, run: &Run, style: Style) {
    let totals = &run.totals;
    out.push_str(&format!(
        "\n{}\n",
        style.bold("From the broker's acknowledgement to")
    ));
    let mut table = Table::default();
    table.head(["", "p50", "p90", "p99", "p99.9", "max"]);
    table.main(row("the last of its clients", &totals.last_after));
    if totals.consumed_after.count() > 0 {
        table.row(row("a plain consumer", &totals.consumed_after));
    }
    table.write(out, &[30], style);
}

fn row(name: &str, latency: &Latency) -> Vec<String> {
    let all = latency.percentiles();
    let cell = |time: Duration| match latency.count() {
        0 => amount::NONE.to_owned(),
        _ => amount::time(time),
    };
    let cells = [all.p50, all.p90, all.p99, all.p999, all.max].map(cell);
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn deliveries(out: &mut String, run: &Run, style: Style) {
    out.push_str(&format!("\n{}\n", style.bold("Deliveries")));
    let (counts, totals) = (&run.heard.counts, &run.totals);
    let expected = totals.expected + totals.expected_slow;
    let mut table = Table::default();
    let cell = |count: u64| vec![amount::count(count)];
    let line =
        |name: &str, cells: Vec<String>| std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>();
    table.row(line("expected", cell(expected)));
    let share = amount::percent(run.delivered(), expected);
    let mut delivered = vec![amount::count(run.delivered()), share];
    // Publications of an external producer are counted while clients connect, too: they have no rate.
    if run.plan.listening.is_none() {
        let pace = per_second(run.delivered(), run.plan.duration);
        delivered.push(format!("{}/s", amount::number(pace)));
    }
    table.main(line("delivered", delivered));
    if counts.by_recovery > 0 {
        let recovered = counts.by_recovery;
        let share = amount::percent(recovered, expected);
        table.row(line("  by recovery", vec![amount::count(recovered), share]));
    }
    if run.plan.conflated.is_some() {
        let conflated = run.missing() + run.missing_slow();
        table.row(line(
            "conflated",
            vec![amount::count(conflated), amount::percent(conflated, expected)],
        ));
    } else {
        let lost = vec![amount::count(run.lost()), amount::percent(run.lost(), expected)];
        if run.lost() > 0 {
            table.bad(line("lost", lost));
        } else {
            table.row(line("lost", lost));
        }
        if totals.expected_slow > 0 {
            table.row(line("  of clients that read slowly", cell(run.missing_slow())));
        }
    }
    // Elsewhere those are among the lost.
    let without_last = run.plan.conflated.map_or(0, |_| counts.behind_at_end);
    let is_audited = run.plan.is_audited();
    let faults = [
        ("doubled", counts.doubled, true),
        ("reordered", counts.reordered, true),
        ("falsely recovered", counts.falsely_recovered, is_audited),
        ("conflicting", counts.conflicting, is_audited),
        ("too old to tell which", counts.old, false),
        ("to clients not subscribed", counts.misdelivered, false),
        ("not as published", counts.changed, false),
        ("without the last value at the end", without_last, false),
    ];
    for (name, count, always) in faults {
        match count {
            0 if always => table.row(line(name, cell(0))),
            0 => {}
            _ => table.bad(line(name, cell(count))),
        }
    }
    table.write(out, &[30], style);
    if run.plan.publishes() {
        publications(out, run, style);
    }
    if run.plan.nodes.len() > 1 {
        labelled(out, "compared", &compared(run), style);
    }
}

/// How many positions more than one node has delivered.
fn compared(run: &Run) -> String {
    let counts = &run.heard.counts;
    let mut text = format!(
        "{} positions (epoch and offset) that clients of several nodes received",
        amount::count(counts.compared)
    );
    if counts.not_compared > 0 {
        let skipped = amount::count(counts.not_compared);
        text.push_str(&format!("; {skipped} deliveries beyond the limit were not"));
    }
    text
}

/// The clients of each node.
fn nodes(run: &Run) -> String {
    let default = NodeCounts::default();
    let each = run.plan.nodes.iter().enumerate().map(|(number, node)| {
        let counts = run.heard.nodes.get(number).unwrap_or(&default);
        let mut text = format!(
            "{}: {} clients, {} at the end",
            printable(&node.name),
            amount::count(counts.joined),
            amount::count(counts.at_end)
        );
        if counts.ended > 0 {
            text.push_str(&format!(", {} sessions ended", amount::count(counts.ended)));
        }
        text
    });
    each.collect::<Vec<_>>().join("; ")
}

fn publications(out: &mut String, run: &Run, style: Style) {
    let published = &run.published;
    let mut said = format!(
        "{} of {} accepted; responses in {} (p99), sent {} late (p99)",
        amount::count(published.accepted),
        amount::count(published.due),
        amount::time(published.answer.percentile(99.0)),
        amount::time(published.lag.percentile(99.0)),
    );
    for (what, count) in [
        ("without a response", published.unanswered),
        ("never sent", published.unsent),
    ] {
        if count > 0 {
            said.push_str(&format!("; {} {what}", amount::count(count)));
        }
    }
    if published.refused.total() > 0 {
        said.push_str(&format!("; refused: {}", list(&published.refused)));
    }
    labelled(out, "published", &said, style);
}

fn list(ends: &Disconnects) -> String {
    let each = ends
        .iter()
        .map(|(how, count)| format!("{} × {}", amount::count(count), printable(how)));
    each.collect::<Vec<_>>().join(", ")
}

fn ends(out: &mut String, run: &Run, style: Style) {
    out.push_str(&format!("\n{}\n", style.bold("Clients")));
    let (joined, heard) = (&run.joined, &run.heard);
    let stood = format!(
        "all in {}, {} a second; one in {} (p50), {} (p99)",
        amount::time(joined.took),
        amount::number(run.joins_per_second()),
        amount::time(heard.ready.percentile(50.0)),
        amount::time(heard.ready.percentile(99.0)),
    );
    labelled(out, "joined", &stood, style);
    let counts = &heard.counts;
    if let Some(tls) = run.plan.nodes.iter().find_map(|node| node.tls.as_ref()) {
        labelled(out, "TLS", &secured(run, tls), style);
    }
    let received = format!(
        "{} in {} messages, {} of them pings",
        amount::bytes(counts.bytes_received as f64),
        amount::count(counts.messages),
        amount::count(counts.pings),
    );
    labelled(out, "received", &received, style);
    if run.plan.nodes.len() > 1 {
        labelled(out, "nodes", &nodes(run), style);
    }
    if run.plan.kill.is_some() || run.plan.kill_server.is_some() {
        labelled(out, "killed", &killed(run), style);
    }
    if run.plan.kill.is_some() || run.recovery_attempts() > 0 {
        labelled(out, "recovered", &recovered(run), style);
    }
    let mut cut = match counts.disconnects.total() {
        0 => "none".to_owned(),
        _ => list(&counts.disconnects),
    };
    if counts.reconnects > 0 {
        cut.push_str(&format!("; {} reconnected", amount::count(counts.reconnects)));
    }
    if counts.gone > 0 {
        cut.push_str(&format!("; {} were not permitted to", amount::count(counts.gone)));
    }
    labelled(out, "cut off", &cut, style);
    if counts.unsubscribes.total() > 0 {
        labelled(out, "ended", &list(&counts.unsubscribes), style);
    }
    if !counts.connect_errors.is_empty() {
        let each = counts.connect_errors.iter();
        let each = each.map(|(what, count)| format!("{} × {}", amount::count(*count), printable(what)));
        labelled(out, "failed", &each.collect::<Vec<_>>().join(", "), style);
    }
}

/// What connections agreed on, and what that took.
fn secured(run: &Run, tls: &Tls) -> String {
    let (counts, took) = (&run.heard.counts, &run.heard.handshake);
    let each = counts.tls.iter();
    let each = each.map(|(agreed, count)| format!("{} × {}", amount::count(*count), printable(agreed)));
    let mut said = format!(
        "{}; {} resumed; handshakes took {} (p50), {} (p99)",
        each.collect::<Vec<_>>().join(", "),
        amount::count(counts.tls_resumed),
        amount::time(took.percentile(50.0)),
        amount::time(took.percentile(99.0)),
    );
    if tls.settings.trust == Trust::AnybodyInsecure {
        said.push_str("; certificates not verified");
    }
    said
}

/// How clients came back that were cut off on purpose.
fn killed(run: &Run) -> String {
    let (cut, back) = run.cut_and_back();
    let mut said = match (run.plan.kill_server, run.heard.outages.len()) {
        (Some(kill), _) => {
            let sent = run.killed_after.unwrap_or(kill.after);
            let (pid, sent) = (kill.pid, amount::time(sent));
            format!(
                "process {pid} at {sent}; {} clients lost their sessions, ",
                amount::count(cut)
            )
        }
        (None, 1) => format!("{} clients at once; ", amount::count(cut)),
        (None, times) => format!("{} clients in {times} times; ", amount::count(cut)),
    };
    if cut == 0 {
        return said.trim_end_matches([' ', ',', ';']).to_owned();
    }
    match run.all_back() {
        Some(took) => said.push_str(&format!("all reconnected in {}", amount::time(took))),
        None => said.push_str(&format!("{} reconnected", amount::count(back))),
    }
    if back > 0 {
        let took = &run.heard.back;
        said.push_str(&format!(
            ", one in {} (p50), {} (p99), {} (max)",
            amount::time(took.percentile(50.0)),
            amount::time(took.percentile(99.0)),
            amount::time(took.max()),
        ));
    }
    said
}

/// What became of the subscriptions of clients that came back.
fn recovered(run: &Run) -> String {
    let counts = &run.heard.counts;
    let mut said = format!(
        "{} of {} subscriptions, with {} publications",
        amount::count(counts.recoveries),
        amount::count(run.recovery_attempts()),
        amount::count(counts.by_recovery),
    );
    if counts.falsely_recovered > 0 {
        let falsely = amount::count(counts.falsely_recovered);
        said.push_str(&format!(
            "; {falsely} of them (recovered: true) lack a publication nevertheless"
        ));
    }
    let others = [
        (
            counts.unrecovered,
            "not recovered: the server no longer has the missed publications",
        ),
        (counts.unplaced, "without a position"),
    ];
    for (count, what) in others {
        if count > 0 {
            said.push_str(&format!("; {} {what}", amount::count(count)));
        }
    }
    said
}

fn costs(out: &mut String, run: &Run, style: Style) {
    out.push_str(&format!("\n{}\n", style.bold("Costs")));
    let seconds = run.plan.duration.as_secs_f64();
    if let Some(server) = run.server {
        let mut said = format!("{} of a CPU", percent(server.cpu.as_secs_f64() / seconds));
        match run.server_cpu_per_million() {
            Some(cpu) => said.push_str(&format!(", {} for a million deliveries", amount::time(cpu))),
            None => {
                let each = server.cpu.as_secs_f64() / seconds / f64::from(run.plan.clients);
                said.push_str(&format!(", {} a client and second", amount::seconds(each)));
            }
        }
        if let Some(cpu) = run.joined.server_cpu {
            let each = cpu.as_secs_f64() / f64::from(run.plan.clients);
            said.push_str(&format!(", {} for a client that joins", amount::seconds(each)));
        }
        if let Some(cpu) = run.server_cpu_a_return() {
            said.push_str(&format!(
                ", {} for one that reconnects, with its recovery",
                amount::seconds(cpu.as_secs_f64())
            ));
        }
        if let Some(bytes) = run.server_bytes_a_client() {
            said.push_str(&format!("; {} a client", amount::memory(bytes)));
        }
        said.push_str(&format!(
            ", {} at most in all",
            amount::memory(server.peak_memory_bytes)
        ));
        labelled(out, "server", &said, style);
    }
    let (publisher, listeners) = run.efforts.split_last().unwrap_or((
        &super::Effort {
            cpu: Duration::ZERO,
            waited: None,
        },
        &[],
    ));
    let busiest = listeners
        .iter()
        .map(|effort| effort.cpu)
        .max()
        .unwrap_or_default();
    let share = |cpu: Duration| percent(cpu.as_secs_f64() / seconds);
    let mut said = format!(
        "{} of a CPU for all clients, {} on its busiest thread, {} to publish",
        share(listeners.iter().map(|effort| effort.cpu).sum()),
        share(busiest),
        share(publisher.cpu),
    );
    if let Some(bytes) = run.own_bytes_a_client() {
        said.push_str(&format!("; {} a client", amount::memory(bytes)));
    }
    said.push_str(&format!(
        "; read bytes {} after their arrival (p99)",
        amount::time(run.heard.behind.percentile(99.0))
    ));
    labelled(out, "client", &said, style);
}
