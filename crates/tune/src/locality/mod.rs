//! The way of a packet as the host is set up: queue, interrupt, CPU, worker; and the assignment that makes it straight.
//!
//! From what is known of the host to rows and text. Changes nothing: the steps `irq-affinity`, `xps` and `rps` do.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde::Serialize;

use crate::cpus::Cpus;
use crate::host::{Host, Interface, Kind};
use crate::limits;
use crate::report::Style;
use crate::report::lines::wrapped;
use crate::root::{Ethtool, Key, Root};

/// The way of the packets of one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The queue's number.
    pub queue: usize,
    /// Hash values that lead to it, of all; `None` where the driver does not tell.
    pub share: Option<(usize, usize)>,
    /// Its interrupt, if it can be told.
    pub interrupt: Option<u32>,
    /// The CPUs that the interrupt goes to.
    #[serde(serialize_with = "list")]
    pub cpus: Cpus,
    /// The CPUs that software moves its packets to.
    #[serde(serialize_with = "list")]
    pub moved_to: Cpus,
    /// The CPUs that send by it.
    #[serde(serialize_with = "list")]
    pub sent_from: Cpus,
    /// The worker pinned to that CPU.
    pub worker: Option<usize>,
    /// The CPU that its interrupt should go to.
    pub proposed: Option<usize>,
}

/// A worker of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// Its thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The CPUs that it may run on.
    #[serde(serialize_with = "list")]
    pub cpus: Cpus,
    /// Connections that it has accepted; `None` if nobody told.
    pub accepted: Option<u64>,
    /// Ticks of CPU time that it has used.
    pub ticks: Option<u64>,
}

/// What is known of an interface's way to the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Locality {
    /// The interface.
    pub interface: String,
    /// Its queues.
    pub rows: Vec<Row>,
    /// The service's workers.
    pub workers: Vec<Worker>,
    /// What keeps connections from staying on one CPU, in sentences; empty if nothing does.
    pub obstacles: Vec<String>,
}

fn list<S: serde::Serializer>(cpus: &Cpus, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&cpus.to_string())
}

/// The worker that accepted most may have this many times the mean; beyond it connections are uneven.
const SKEW: u64 = 2;

/// Looks at it. `accepted` are the connections of each worker, in their order, where somebody told.
#[must_use]
pub fn look(root: &Root, host: &Host, card: &Interface, accepted: &[u64]) -> Locality {
    let workers = workers(root, host, accepted);
    let table = root.read(&Key::ethtool(&card.name, Ethtool::Indirection));
    let table: Option<Vec<usize>> = table.value().map(|text| {
        text.split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    });
    let mask = |path: String| {
        root.find(&path)
            .and_then(|text| Cpus::mask(&text))
            .unwrap_or_default()
    };
    let proposal = proposal(host, card, &workers);
    let rows = (0..card.rx_queues).map(|queue| {
        let interrupt = card.receiving().find(|one| one.queue == queue);
        let cpus = interrupt.map(|one| one.effective.clone()).unwrap_or_default();
        let on = |worker: &Worker| cpus.only().is_some() && worker.cpus.only() == cpus.only();
        Row {
            queue,
            share: table.as_ref().filter(|table| !table.is_empty()).map(|table| {
                let mine = table.iter().filter(|entry| **entry == queue);
                (mine.count(), table.len())
            }),
            interrupt: interrupt.map(|one| one.number),
            moved_to: mask(card.path(&format!("queues/rx-{queue}/rps_cpus"))),
            sent_from: mask(card.path(&format!("queues/tx-{queue}/xps_cpus"))),
            worker: workers.iter().position(on),
            proposed: proposal
                .get(queue)
                .copied()
                .filter(|cpu| cpus.only() != Some(*cpu)),
            cpus,
        }
    });
    let mut locality = Locality {
        interface: card.name.clone(),
        rows: rows.collect(),
        workers,
        obstacles: Vec::new(),
    };
    locality.obstacles = obstacles(card, &locality);
    locality
}

fn workers(root: &Root, host: &Host, accepted: &[u64]) -> Vec<Worker> {
    let Some(pid) = host.service.pid else {
        return Vec::new();
    };
    let ticks = |tid: u32| {
        let line = root.find(&format!("/proc/{pid}/task/{tid}/stat"))?;
        // User and system time, behind the name, which may hold anything.
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    let workers = host.service.workers().into_iter().enumerate();
    workers
        .map(|(place, thread)| Worker {
            tid: thread.tid,
            name: thread.name.clone(),
            cpus: thread.cpus.clone(),
            accepted: accepted.get(place).copied(),
            ticks: ticks(thread.tid),
        })
        .collect()
}

/// The CPU for each queue: those of the pinned workers in their order, else those that the service may use. Interrupts
/// that go to one of these already keep it, so that as few as possible move.
fn proposal(host: &Host, card: &Interface, workers: &[Worker]) -> Vec<usize> {
    let pinned: Vec<usize> = workers.iter().filter_map(|worker| worker.cpus.only()).collect();
    let cpus: Vec<usize> = if pinned.is_empty() {
        host.usable.iter().collect()
    } else {
        pinned
    };
    let interrupts = card.receiving().count();
    if cpus.is_empty() || interrupts != card.rx_queues {
        return Vec::new();
    }
    let most = card.rx_queues.div_ceil(cpus.len());
    let mut given: Vec<Option<usize>> = Vec::new();
    for interrupt in card.receiving() {
        let now = interrupt.effective.only().filter(|cpu| cpus.contains(cpu));
        let taken = |cpu: usize| given.iter().filter(|one| **one == Some(cpu)).count();
        given.push(now.filter(|cpu| taken(*cpu) < most));
    }
    for place in 0..given.len() {
        if given[place].is_none() {
            let taken = |cpu: usize| given.iter().filter(|one| **one == Some(cpu)).count();
            given[place] = cpus.iter().copied().min_by_key(|cpu| taken(*cpu));
        }
    }
    given.into_iter().flatten().collect()
}

fn obstacles(card: &Interface, found: &Locality) -> Vec<String> {
    let mut out = Vec::new();
    let rows = &found.rows;
    if card.kind != Kind::Card {
        out.push(format!(
            "{} is a software interface: its packets arrive on their senders' CPUs",
            card.name
        ));
        return out;
    }
    if rows.iter().any(|row| row.interrupt.is_none()) {
        out.push("the interrupts of the queues are not known".into());
    }
    if !found.workers.is_empty() && rows.len() != found.workers.len() {
        out.push(format!(
            "{} for {}: connections cannot be steered by CPU (step rss, or --workers)",
            counted(rows.len(), "queue"),
            counted(found.workers.len(), "worker")
        ));
    }
    let several = rows.iter().filter(|row| row.cpus.len() > 1).count();
    if several > 0 {
        out.push(format!(
            "{} may go to several CPUs (step irq-affinity)",
            counted(several, "interrupt")
        ));
    }
    let used: Cpus = rows.iter().filter_map(|row| row.cpus.only()).collect();
    if several == 0 && !used.is_empty() && used.len() < rows.len().min(found.workers.len().max(1)) {
        out.push(format!(
            "{} share {} (step irq-affinity)",
            counted(rows.len(), "queue"),
            counted(used.len(), "CPU")
        ));
    }
    if rows.iter().any(|row| !row.moved_to.is_empty()) {
        out.push("packets are moved to other CPUs by software (step rps)".into());
    }
    if found.workers.iter().any(|worker| worker.cpus.only().is_none()) {
        out.push("not every worker is pinned to a CPU".into());
    }
    let accepted: Vec<u64> = found
        .workers
        .iter()
        .filter_map(|worker| worker.accepted)
        .collect();
    let total: u64 = accepted.iter().sum();
    let most = accepted.iter().max().copied().unwrap_or(0);
    if total > 0 && most * accepted.len() as u64 > total * SKEW {
        let mean = total / accepted.len() as u64;
        out.push(format!(
            "connections are uneven: a worker has accepted {most}, the mean is {mean}"
        ));
    }
    out
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Drawn for people.
#[must_use]
pub fn text(locality: &Locality, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", style.bold(&locality.interface));
    let head = format!(
        "  {:<7} {:<8}     {:<11} {:<13}     {}",
        "queue", "hashes", "interrupt", "CPU", "worker"
    );
    let _ = writeln!(out, "{}", style.bold(&head));
    for row in &locality.rows {
        let _ = writeln!(out, "{}", drawn(locality, row));
    }
    let reached: Vec<usize> = locality.rows.iter().filter_map(|row| row.worker).collect();
    for (_, worker) in locality
        .workers
        .iter()
        .enumerate()
        .filter(|(place, _)| !reached.contains(place))
    {
        let _ = writeln!(
            out,
            "  {:<31} {:<13} ─── {}",
            "no queue",
            format!("CPU {}", worker.cpus),
            told(worker)
        );
    }
    let _ = writeln!(out);
    for obstacle in &locality.obstacles {
        for (at, line) in wrapped(obstacle, limits::COLUMNS - 4).iter().enumerate() {
            let _ = writeln!(out, "{}{line}", if at == 0 { "- " } else { "  " });
        }
    }
    let moves: Vec<String> = locality
        .rows
        .iter()
        .filter_map(|row| Some(format!("interrupt {} to CPU {}", row.interrupt?, row.proposed?)))
        .collect();
    if !moves.is_empty() {
        let _ = writeln!(out, "\n{}", style.bold("Proposed"));
        for line in wrapped(&moves.join(", "), limits::COLUMNS - 2) {
            let _ = writeln!(out, "  {line}");
        }
        let _ = writeln!(
            out,
            "  ringmain tune apply --step irq-affinity --step xps --step rps"
        );
    } else if locality.obstacles.is_empty() && !locality.workers.is_empty() {
        let _ = writeln!(
            out,
            "Every connection stays on one CPU from the card to its worker."
        );
    }
    out
}

fn drawn(locality: &Locality, row: &Row) -> String {
    let share = row
        .share
        .map_or("?".to_owned(), |(mine, all)| format!("{mine}/{all}"));
    let interrupt = row.interrupt.map_or("?".to_owned(), |number| number.to_string());
    let mut cpu = if row.cpus.is_empty() {
        "CPU ?".to_owned()
    } else {
        format!("CPU {}", row.cpus)
    };
    if let Some(proposed) = row.proposed {
        let _ = write!(cpu, " => {proposed}");
    }
    let worker = row.worker.and_then(|place| locality.workers.get(place));
    let end = match worker {
        Some(worker) => format!("──▶ {}", told(worker)),
        None if locality.workers.is_empty() => "──▶ (name the service: --pid, --port)".to_owned(),
        None => "─╳  no worker".to_owned(),
    };
    let mut line = format!(
        "  rx-{:<4} {share:<8} ──▶ {interrupt:<11} {cpu:<13} {end}",
        row.queue
    );
    if !row.moved_to.is_empty() {
        let _ = write!(line, "  (RPS to {})", row.moved_to);
    }
    line
}

fn told(worker: &Worker) -> String {
    let mut text = worker.name.clone();
    if let Some(accepted) = worker.accepted {
        let _ = write!(text, ", {accepted} accepted");
    } else if let Some(ticks) = worker.ticks {
        let _ = write!(text, ", {ticks} ticks");
    }
    text
}
