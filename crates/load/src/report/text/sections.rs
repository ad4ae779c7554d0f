//! The figures of a run, a table for each kind.

use std::collections::BTreeMap;

use super::Style;
use super::table::{Table, labelled, printable, sentence};
use crate::figures::{Counts, Figures, Latency, Streamed};
use crate::limits;
use crate::report::rounds::{self, SHOWN, percentile};
use crate::report::{Round, Run, amount, per_second};
use crate::stats::Spread;

/// The least width of the columns, so that tables below each other line up.
const LEAST: [usize; 5] = [18, 12, 21, 12, 21];

/// A closed loop's times say less than they seem to.
const CLOSED: &str = "A closed loop has no schedule: while the server is slow nothing is sent, so the waiting that \
    users have in slow periods is not in these times. An open loop (a fixed rate) shows it.";

/// All tables.
pub(super) fn write(out: &mut String, run: &Run, style: Style) {
    let counts = rounds::merged(run).counts;
    throughput(out, run, &counts, style);
    latency(out, run, style);
    answers(out, run, &counts, style);
    if !counts.codes.is_empty() {
        calls(out, run, &counts, style);
    }
    errors(out, &counts, !rounds::has_schedule(run), style);
    if rounds::handshakes(run).next().is_some() {
        connecting(out, run, style);
    }
    if rounds::has_schedule(run) {
        schedule(out, run, &counts, style);
    }
    cost(out, run, style);
}

fn throughput(out: &mut String, run: &Run, counts: &Counts, style: Style) {
    out.push('\n');
    let mut table = Table::default();
    match run.rounds.len() {
        1 => table.head(["", "in the round"]),
        rounds => {
            let spread = format!("min – max of {rounds}");
            table.head(["", "median round", &spread]);
        }
    }
    let rate = rounds::spread(run, |round| Some(round.throughput()));
    table.main(with_spread("requests/s", rate, run, amount::number));
    if let Some(asked) = run.plan.pace.rate() {
        table.row(vec!["  scheduled".into(), amount::number(asked)]);
    }
    let wire = |part: fn(&Counts) -> u64| {
        rounds::spread(run, |round| {
            Some(per_second(part(&round.figures.counts), round.elapsed))
        })
    };
    let write = |bytes| format!("{}/s", amount::bytes(bytes));
    table.row(with_spread("received", wire(|c| c.bytes_received), run, write));
    table.row(with_spread("sent", wire(|c| c.bytes_sent), run, write));
    table.write(out, &LEAST, style);
    let totals = format!(
        "{} responses in {}; {} received, {} sent; {} opened.",
        amount::count(counts.answered),
        amount::time(rounds::elapsed(run)),
        amount::bytes(counts.bytes_received as f64),
        amount::bytes(counts.bytes_sent as f64),
        match counts.connects {
            1 => "1 connection".to_owned(),
            connects => format!("{} connections", amount::count(connects)),
        },
    );
    sentence(out, &totals, style);
}

fn latency(out: &mut String, run: &Run, style: Style) {
    let open = rounds::has_schedule(run);
    let single = run.rounds.len() == 1;
    out.push('\n');
    let mut table = Table::default();
    match (open, single) {
        (true, true) => table.head(["latency", "service", "response"]),
        (true, false) => table.head(["latency", "service", "min – max", "response", "min – max"]),
        (false, true) => table.head(["latency", "service"]),
        (false, false) => table.head(["latency", "service", "min – max"]),
    }
    let mut row = |name: &str, of: &dyn Fn(fn(&Figures) -> &Latency) -> Option<Spread>| {
        let mut cells = with_spread(name, of(|figures| &figures.service), run, amount::seconds);
        if open {
            let response = with_spread("", of(|figures| &figures.response), run, amount::seconds);
            cells.extend(response.into_iter().skip(1));
        }
        table.row(cells);
    };
    for (percent, name) in SHOWN {
        row(name, &|latency| {
            rounds::spread_of_percentile(run, percent, latency)
        });
    }
    row("longest", &|latency| rounds::spread_of_longest(run, latency));
    table.write(out, &LEAST, style);
    if open {
        let note = "service: from sending to the complete response. response: from the scheduled time, which is the wait of \
            a user.";
        sentence(out, note, style);
    } else {
        sentence(out, CLOSED, style);
    }
    let few = |round: &Round| percentile(&round.figures.service, 99.99).is_none();
    if run.rounds.iter().any(few) {
        sentence(
            out,
            "–: a round has too few responses for this percentile.",
            style,
        );
    }
}

fn answers(out: &mut String, run: &Run, counts: &Counts, style: Style) {
    let mut table = Table::default();
    table.head([&format!("outcome{}", of_all(run)), "", "of responses"]);
    let mut classes: BTreeMap<u16, (u64, Vec<String>)> = BTreeMap::new();
    for (status, count) in &counts.statuses {
        let class = classes.entry(status / 100).or_default();
        class.0 += count;
        class.1.push(format!("{status}: {}", amount::count(*count)));
    }
    let answered = counts.answered;
    if classes.is_empty() {
        table.row(vec!["whole".into(), amount::count(answered)]);
    }
    for (class, (count, codes)) in &classes {
        let codes = match codes.len() {
            1..=2 => codes.join("  "),
            many => format!("{}  and {} more", codes[0], many - 1),
        };
        let (count, share) = (amount::count(*count), amount::percent(*count, answered));
        let cells = vec![format!("{class}xx"), count, share, codes];
        if *class < 4 {
            table.row(cells)
        } else {
            table.bad(cells)
        }
    }
    share_row(
        &mut table,
        rounds::unexpected(&[run]),
        counts.unexpected,
        answered,
    );
    out.push('\n');
    table.write(out, &LEAST[..3], style);
    let many_codes = classes.iter().filter(|(_, (_, codes))| codes.len() > 2);
    for (class, (_, codes)) in many_codes {
        labelled(out, &format!("{class}xx"), &codes.join("  "), style);
    }
}

/// How calls of gRPC ended, and their messages.
fn calls(out: &mut String, run: &Run, counts: &Counts, style: Style) {
    let mut table = Table::default();
    table.head([&format!("calls{}", of_all(run)), "", "of responses"]);
    for (code, count) in &counts.codes {
        let share = amount::percent(*count, counts.answered);
        let cells = vec![(*code).to_owned(), amount::count(*count), share];
        if *code == "OK" {
            table.row(cells);
        } else {
            table.bad(cells);
        }
    }
    let each = counts.messages as f64 / counts.answered.max(1) as f64;
    let each = format!("{} a call", amount::number(each));
    table.row(vec!["messages".into(), amount::count(counts.messages), each]);
    out.push('\n');
    table.write(out, &LEAST[..3], style);
    if run.rounds.iter().all(|round| round.figures.streamed.is_some()) {
        streamed(out, run, style);
    }
}

/// When messages of streams came.
fn streamed(out: &mut String, run: &Run, style: Style) {
    let mut table = Table::default();
    match run.rounds.len() {
        1 => table.head(["messages", "in the round"]),
        _ => table.head(["messages", "median round", "min – max"]),
    }
    let rate = rounds::spread(run, |round| {
        Some(per_second(round.figures.counts.messages, round.elapsed))
    });
    table.row(with_spread("messages/s", rate, run, amount::number));
    type Of = fn(&Streamed) -> &Latency;
    let kinds: [(&str, Of); 2] = [
        ("first message", |streamed| &streamed.first),
        ("between messages", |streamed| &streamed.between),
    ];
    for (name, of) in kinds {
        for (percent, written) in [(50.0, "p50"), (99.0, "p99")] {
            let spread = rounds::spread(run, |round| {
                percentile(of(round.figures.streamed.as_deref()?), percent)
            });
            table.row(with_spread(
                &format!("{written} {name}"),
                spread,
                run,
                amount::seconds,
            ));
        }
    }
    out.push('\n');
    table.write(out, &LEAST[..3], style);
}

fn errors(out: &mut String, counts: &Counts, is_closed: bool, style: Style) {
    let mut table = Table::default();
    table.head(["no response", "", "of requests"]);
    share_row(&mut table, "timed out", counts.timeouts, counts.sent);
    share_row(&mut table, "broken", counts.broken.values().sum(), counts.sent);
    for (what, count) in &counts.broken {
        share_row(&mut table, &format!("  {}", printable(what)), *count, counts.sent);
    }
    if counts.unprocessed > 0 {
        share_row(&mut table, "sent again", counts.unprocessed, counts.sent);
    }
    let share = amount::percent(counts.unfinished, counts.sent);
    table.row(vec!["unfinished".into(), amount::count(counts.unfinished), share]);
    if is_closed && counts.dropped > 0 {
        let all = counts.sent + counts.dropped;
        share_row(&mut table, "never sent", counts.dropped, all);
    }
    share_row(
        &mut table,
        "no connection",
        counts.connect_errors.values().sum(),
        0,
    );
    for (what, count) in &counts.connect_errors {
        share_row(&mut table, &format!("  {}", printable(what)), *count, 0);
    }
    out.push('\n');
    table.write(out, &LEAST[..3], style);
    if !counts.unconnected.is_zero() {
        let time = amount::time(counts.unconnected);
        let note = format!(
            "Connections could not be established for {time}, summed over connections. The requests that they would have \
             carried count as errors in thresholds."
        );
        sentence(out, &note, style);
    }
    for (what, said) in &counts.first_errors {
        let first = format!("the first \u{201c}{what}\u{201d}: {}.", printable(said));
        sentence(out, &first, style);
    }
    if counts.unprocessed > 0 {
        sentence(
            out,
            "sent again: the server declared the request unprocessed (GOAWAY, REFUSED_STREAM); no error.",
            style,
        );
    }
    if counts.unfinished > 0 {
        sentence(
            out,
            "unfinished: in flight at the end of the measurement; no error.",
            style,
        );
    }
}

/// What it takes to have a connection, step by step.
fn connecting(out: &mut String, run: &Run, style: Style) {
    let mut table = Table::default();
    match run.rounds.len() {
        1 => table.head(["connecting", "in the round"]),
        _ => table.head(["connecting", "median round", "min – max"]),
    }
    let connection = ("connection", (|figures| &figures.connect) as rounds::Of);
    for (name, of) in std::iter::once(connection).chain(rounds::handshakes(run)) {
        let p50 = rounds::spread_of_percentile(run, 50.0, of);
        let longest = rounds::spread_of_longest(run, of);
        table.row(with_spread(&format!("p50 {name}"), p50, run, amount::seconds));
        table.row(with_spread("  longest", longest, run, amount::seconds));
    }
    out.push('\n');
    table.write(out, &LEAST[..3], style);
}

fn cost(out: &mut String, run: &Run, style: Style) {
    let mut table = Table::default();
    if run.rounds.len() == 1 {
        table.head(["cost", "in the round"]);
    } else {
        table.head(["cost", "median round", "min – max"]);
    }
    let server = rounds::spread(run, rounds::server_cpu);
    if run.rounds.iter().all(|round| round.server.is_some()) {
        table.row(with_spread("server CPU/request", server, run, amount::seconds));
        let memory = rounds::spread(run, |round| Some(round.server?.peak_memory_bytes as f64));
        let write = |bytes: f64| amount::memory(bytes as u64);
        table.row(with_spread("server peak memory", memory, run, write));
    }
    let client = rounds::spread(run, rounds::client_cpu);
    table.row(with_spread("client CPU/request", client, run, amount::seconds));
    let busiest = rounds::spread(run, rounds::busiest);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    table.row(with_spread("client's busiest thread", busiest, run, percent));
    out.push('\n');
    table.write(out, &LEAST, style);
    if server.is_some() {
        sentence(
            out,
            "1 µs of CPU per request is 1 s of CPU per million requests.",
            style,
        );
    }
}

/// How well the schedule was kept.
fn schedule(out: &mut String, run: &Run, counts: &Counts, style: Style) {
    let mut table = Table::default();
    table.head([&format!("schedule{}", of_all(run)), "", "of requests"]);
    let arrivals = counts.sent + counts.dropped;
    share_row(&mut table, "sent late", counts.late, arrivals);
    share_row(&mut table, "never sent", counts.dropped, arrivals);
    let lag = rounds::spread_of_percentile(run, 99.0, |figures| &figures.lag);
    let lag = lag.map_or(amount::NONE.into(), |lag| amount::seconds(lag.median));
    table.row(vec!["p99 own lag".into(), lag]);
    out.push('\n');
    table.write(out, &LEAST[..3], style);
    let note = format!(
        "sent late: more than {} after the scheduled time. never sent: no connection became free. own lag: how late \
         this program was with a connection free.",
        amount::span(limits::LATE),
    );
    sentence(out, &note, style);
}

/// Latencies of several records.
pub(super) fn write_merged(
    out: &mut String,
    sources: &[String],
    latencies: &[(&str, &Latency)],
    style: Style,
) {
    let title = match sources.len() {
        1 => "1 record".to_owned(),
        many => format!("{many} records as one"),
    };
    out.push_str(&style.bold(&title));
    out.push('\n');
    for source in sources {
        sentence(out, &printable(source), style);
    }
    out.push('\n');
    let mut table = Table::default();
    let names = latencies.iter().map(|(name, _)| printable(name));
    table.row(std::iter::once("latency".into()).chain(names).collect());
    let mut row = |name: &str, cell: &dyn Fn(&Latency) -> String| {
        let cells = latencies.iter().map(|(_, latency)| cell(latency));
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    };
    row("responses", &|latency| amount::count(latency.count()));
    row("shortest", &|latency| amount::time(latency.min()));
    row("mean", &|latency| amount::time(latency.mean()));
    row("deviation", &|latency| amount::time(latency.deviation()));
    for (percent, name) in SHOWN {
        let cell =
            |latency: &Latency| percentile(latency, percent).map_or(amount::NONE.into(), amount::seconds);
        row(name, &cell);
    }
    row("longest", &|latency| amount::time(latency.max()));
    table.write(out, &LEAST[..1], style);
}

/// A count of what should not have happened, with its share of `whole` unless that is nothing.
fn share_row(table: &mut Table, name: &str, count: u64, whole: u64) {
    let mut cells = vec![name.to_owned(), amount::count(count)];
    if whole > 0 {
        cells.push(amount::percent(count, whole));
    }
    if count > 0 {
        table.bad(cells)
    } else {
        table.row(cells)
    }
}

/// The name, the median and, of several rounds, the ends.
fn with_spread(name: &str, spread: Option<Spread>, run: &Run, write: impl Fn(f64) -> String) -> Vec<String> {
    let (median, ends) = match spread {
        Some(spread) => (
            write(spread.median),
            format!("{} – {}", write(spread.min), write(spread.max)),
        ),
        None => (amount::NONE.into(), String::new()),
    };
    let mut cells = vec![name.to_owned(), median];
    if run.rounds.len() > 1 {
        cells.push(ends);
    }
    cells
}

fn of_all(run: &Run) -> String {
    match run.rounds.len() {
        1 => String::new(),
        many => format!(", {many} rounds"),
    }
}
