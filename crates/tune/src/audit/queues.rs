//! Steps of locality: which queue, which interrupt, which CPU.

use super::{Change, Finding, Look, Status, count};
use crate::catalogue::{Id, Profile};
use crate::cpus::Cpus;
use crate::host::{Interface, Kind};
use crate::root::{Ethtool, Fields, Key, Reading};

/// Flows that are remembered for [`Id::Rfs`]; what scaling.rst proposes for a busy server.
const FLOWS: usize = 32_768;

impl Look<'_> {
    /// The CPU for each queue, in their order: near the card where there are enough, one thread of a core where there are
    /// enough, else all that the service may use.
    pub(super) fn places(self, card: &Interface, queues: usize) -> Vec<usize> {
        let usable = &self.host.usable;
        let near = card.near.as_ref().map(|near| near.and(usable));
        let near = near
            .filter(|near| near.len() >= queues)
            .unwrap_or_else(|| usable.clone());
        let cores = near.and(&self.host.cores);
        let chosen = if cores.len() >= queues { cores } else { near };
        let cpus: Vec<usize> = chosen.iter().collect();
        if cpus.is_empty() {
            Vec::new()
        } else {
            (0..queues).map(|queue| cpus[queue % cpus.len()]).collect()
        }
    }

    pub(super) fn rss(self, card: &Interface) -> Finding {
        let id = Id::Rss;
        let key = Key::ethtool(&card.name, Ethtool::Channels);
        let most = self.root.read(&Key::ethtool(&card.name, Ethtool::ChannelsMax));
        let (now, most) = match (self.root.read(&key), most) {
            (Reading::Value(now), Reading::Value(most)) => (now, Fields::parse(&most)),
            (Reading::Unknown(why), _) | (_, Reading::Unknown(why)) => {
                return Finding::unknown(
                    id,
                    format!("{} queues, but the driver was not queried: {why}", card.rx_queues),
                );
            }
            _ => {
                let why = "the driver has no channels to set";
                return Finding::new(id, Status::Absent, count(card.rx_queues, "queue"), why);
            }
        };
        let cpus = self.host.usable.len();
        let fields = Fields::parse(&now);
        let target = |name: &str| {
            let most = most.number(name).unwrap_or(0) as usize;
            most.min(cpus)
        };
        let wanted = format!(
            "rx={} tx={} combined={}",
            target("rx"),
            target("tx"),
            target("combined")
        );
        // A driver with combined channels has no use for single ones beside them.
        let wanted = match target("combined") {
            0 => wanted,
            both => format!(
                "rx={} tx={} combined={both}",
                fields.number("rx").unwrap_or(0),
                fields.number("tx").unwrap_or(0)
            ),
        };
        let queues = target("combined").max(target("rx"));
        let have = count(card.rx_queues, "queue");
        if cpus == 0 {
            return Finding::unknown(id, "the online CPUs are not known");
        }
        if key.same(&now, &wanted) {
            return self.spread(card, have, queues, cpus);
        }
        let why = format!(
            "{have} for {} that the service may use; the driver can have {}",
            count(cpus, "CPU"),
            most.number("combined")
                .unwrap_or(0)
                .max(most.number("rx").unwrap_or(0))
        );
        if self.profile() == Profile::Efficiency && card.rx_queues < cpus {
            let why = format!("{why}. Fewer queues cost less CPU as long as none overflows");
            return Finding::new(id, Status::Leave, have, why);
        }
        let change = Change { key, now, wanted };
        Finding::new(id, Status::Change, have, why)
            .wanted(count(queues, "queue"))
            .changes(vec![change])
    }

    /// The number of queues is right: is every one of them used alike?
    fn spread(self, card: &Interface, have: String, queues: usize, cpus: usize) -> Finding {
        let id = Id::Rss;
        let key = Key::ethtool(&card.name, Ethtool::Indirection);
        let few = queues < cpus;
        let good = if few {
            format!("as many as the driver can have, for {cpus} CPUs")
        } else {
            "a queue for each CPU".to_owned()
        };
        let Reading::Value(now) = self.root.read(&key) else {
            return Finding::new(id, Status::Good, have, good);
        };
        let table: Vec<usize> = now
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let uses = |queue: usize| table.iter().filter(|entry| **entry == queue).count();
        let all: Vec<usize> = (0..queues).map(uses).collect();
        let (least, most) = (all.iter().min().unwrap_or(&0), all.iter().max().unwrap_or(&0));
        if table.is_empty() || most - least <= 1 {
            return Finding::new(id, Status::Good, have, format!("{good}, flows spread evenly"));
        }
        let even: Vec<String> = (0..table.len())
            .map(|entry| (entry % queues).to_string())
            .collect();
        let wanted = even.join(" ");
        let why = format!(
            "flows are spread unevenly: of {} hash values a queue has {least} to {most}",
            table.len()
        );
        Finding::new(id, Status::Change, format!("{have}, uneven"), why)
            .wanted("spread evenly")
            .changes(vec![Change { key, now, wanted }])
    }

    pub(super) fn irq_affinity(self, card: &Interface) -> Finding {
        let id = Id::IrqAffinity;
        if card.kind != Kind::Card {
            return Finding::absent(id, "a software interface has no interrupts");
        }
        let receiving: Vec<&Cpus> = card.receiving().map(|one| &one.effective).collect();
        if receiving.is_empty() {
            let why = "the names of the interrupts do not show which queues they serve";
            return Finding::unknown(id, why);
        }
        if receiving.len() != card.rx_queues {
            return Finding::unknown(
                id,
                format!(
                    "{} found for {}",
                    count(receiving.len(), "interrupt"),
                    count(card.rx_queues, "queue")
                ),
            );
        }
        let used: Cpus = receiving.iter().flat_map(|cpus| cpus.iter()).collect();
        let cpus = if used.only().is_some() { "CPU" } else { "CPUs" };
        let now = format!("{} on {cpus} {used}", count(receiving.len(), "queue"));
        let places = self.places(card, card.rx_queues);
        let fair = places.len().min(self.host.usable.len()).max(1);
        let single: Cpus = receiving.iter().filter_map(|cpus| cpus.only()).collect();
        let all_single = receiving.iter().all(|cpus| cpus.only().is_some());
        if all_single && single.len() == fair && single.without(&self.host.usable).is_empty() {
            let why = "each queue is served by one CPU, spread evenly";
            return Finding::new(id, Status::Good, now, why);
        }
        let files = card.interrupts.iter().filter_map(|one| {
            let cpu = places.get(one.queue % places.len().max(1))?;
            let key = Key::File(format!("/proc/irq/{}/smp_affinity_list", one.number));
            Some((key, cpu.to_string()))
        });
        match self.changes_to(files) {
            Ok(changes) => {
                let why = "packets of one connection are handled by CPUs other than its worker's";
                let targets: Cpus = places.iter().copied().collect();
                Finding::new(id, Status::Change, now, why)
                    .wanted(format!("one CPU each, of {targets}"))
                    .changes(changes)
            }
            Err(reading) => self.without_value(id, "/proc/irq", reading),
        }
    }

    pub(super) fn rps(self, card: &Interface) -> Finding {
        let id = Id::Rps;
        let files: Vec<String> = (0..card.rx_queues)
            .map(|queue| card.path(&format!("queues/rx-{queue}/rps_cpus")))
            .collect();
        let masks: Vec<Cpus> = files
            .iter()
            .filter_map(|path| Cpus::mask(&self.root.find(path)?))
            .collect();
        if masks.len() < files.len() || files.is_empty() {
            return Finding::absent(id, "this kernel does not move packets to other CPUs");
        }
        let on = masks.iter().filter(|mask| !mask.is_empty()).count();
        let now = match on {
            0 => "off".to_owned(),
            _ => format!("on for {}", count(on, "queue")),
        };
        let cpus = self.host.usable.len();
        let (wanted, why): (Vec<Cpus>, &str) = if card.rx_queues >= cpus {
            let none = vec![Cpus::default(); masks.len()];
            (
                none,
                "the card has a queue for each CPU: moving packets only adds cost",
            )
        } else if card.kind != Kind::Card {
            let why = "packets of a software interface arrive on the sender's CPU, and the kernel does not know which is busy";
            return Finding::new(id, Status::Leave, now, why);
        } else if self.profile() == Profile::Throughput {
            let masks = (0..card.rx_queues).map(|queue| self.others(card, queue));
            (
                masks.collect(),
                "fewer queues than CPUs: the others can share the work",
            )
        } else {
            let why = "fewer queues than CPUs; moving packets costs an interrupt between CPUs for each batch";
            let status = if on == 0 { Status::Good } else { Status::Leave };
            return Finding::new(id, status, now, why);
        };
        let some = wanted.iter().any(|mask| !mask.is_empty());
        let pairs = files
            .into_iter()
            .map(Key::File)
            .zip(wanted.iter().map(Cpus::to_mask));
        match self.changes_to(pairs) {
            Ok(changes) if changes.is_empty() => Finding::new(id, Status::Good, now, why),
            Ok(changes) => Finding::new(id, Status::Change, now, why)
                .wanted(if some {
                    "on, without the interrupt's CPU"
                } else {
                    "off"
                })
                .changes(changes),
            Err(reading) => self.without_value(id, "", reading),
        }
    }

    /// The CPUs that may take packets of a queue: all but the one that its interrupt keeps busy.
    fn others(self, card: &Interface, queue: usize) -> Cpus {
        let usable = match &card.near {
            Some(near) if near.and(&self.host.usable).len() > 1 => near.and(&self.host.usable),
            _ => self.host.usable.clone(),
        };
        let busy = card.receiving().find(|one| one.queue == queue);
        let busy = busy
            .map(|one| one.effective.clone())
            .filter(|cpus| cpus.len() == 1);
        let others = usable.without(&busy.unwrap_or_default());
        if others.is_empty() { usable } else { others }
    }

    pub(super) fn rfs(self, card: &Interface) -> Finding {
        let id = Id::Rfs;
        const PATH: &str = "/proc/sys/net/core/rps_sock_flow_entries";
        let total = match self.root.text(PATH) {
            Reading::Value(total) => total,
            reading => return self.without_value(id, PATH, reading),
        };
        let now = if total == "0" {
            "off".to_owned()
        } else {
            format!("{total} flows")
        };
        if card.rx_queues >= self.host.usable.len() {
            let why = "the card has a queue for each CPU: steering by CPU does it without a table";
            return Finding::new(
                id,
                if total == "0" { Status::Good } else { Status::Leave },
                now,
                why,
            );
        }
        let each = (FLOWS / card.rx_queues.max(1)).to_string();
        let queues = (0..card.rx_queues).map(|queue| {
            let path = card.path(&format!("queues/rx-{queue}/rps_flow_cnt"));
            (Key::File(path), each.clone())
        });
        let all = [(Key::File(PATH.into()), FLOWS.to_string())]
            .into_iter()
            .chain(queues);
        match self.changes_to(all) {
            Ok(changes) if changes.is_empty() => {
                Finding::new(id, Status::Good, now, "flows follow their readers")
            }
            Ok(changes) => Finding::new(
                id,
                Status::Change,
                now,
                "of use where RPS is on and readers are not pinned",
            )
            .wanted(format!("{FLOWS} flows"))
            .changes(changes),
            Err(reading) => self.without_value(id, PATH, reading),
        }
    }

    pub(super) fn xps(self, card: &Interface) -> Finding {
        let id = Id::Xps;
        if card.tx_queues < 2 {
            return Finding::absent(
                id,
                "the interface has a single transmit queue: there is nothing to choose",
            );
        }
        let cpus: Vec<usize> = self.host.usable.iter().collect();
        if cpus.is_empty() {
            return Finding::unknown(id, "the online CPUs are not known");
        }
        let served = |queue: usize| {
            let irq = card.receiving().find(|one| one.queue == queue);
            irq.and_then(|one| one.effective.only())
        };
        let queues = card.tx_queues;
        let mask = |queue: usize| -> Cpus {
            if queues < cpus.len() {
                let mine = cpus
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| place % queues == queue);
                return mine.map(|(_, cpu)| *cpu).collect();
            }
            // Where interrupts are assigned already, their CPU; else the one that the assignment will give.
            let one = (queues == cpus.len() && self.is_permutation(card))
                .then(|| served(queue))
                .flatten();
            [one.unwrap_or(cpus[queue % cpus.len()])].into_iter().collect()
        };
        let files = (0..queues).map(|queue| {
            let path = card.path(&format!("queues/tx-{queue}/xps_cpus"));
            (Key::File(path), mask(queue).to_mask())
        });
        let files: Vec<(Key, String)> = files.collect();
        let set = files.iter().filter(|(key, _)| {
            let now = self.root.read(key);
            now.value()
                .and_then(Cpus::mask)
                .is_some_and(|mask| !mask.is_empty())
        });
        let now = match set.count() {
            0 => "not set".to_owned(),
            n => format!("set for {n} of {queues}"),
        };
        match self.changes_to(files) {
            Ok(changes) if changes.is_empty() => {
                Finding::new(id, Status::Good, now, "each CPU sends through its own queue")
            }
            Ok(changes) => Finding::new(
                id,
                Status::Change,
                now,
                "CPUs share queues, and their locks, by chance",
            )
            .wanted(match queues.cmp(&cpus.len()) {
                std::cmp::Ordering::Less => format!("{} CPUs share {queues}", cpus.len()),
                _ => "a queue for each CPU".to_owned(),
            })
            .changes(changes),
            Err(reading) => self.without_value(id, "", reading),
        }
    }

    /// Whether the interrupts for arriving packets go to different CPUs of the service, one each.
    pub(super) fn is_permutation(self, card: &Interface) -> bool {
        let single: Vec<usize> = card.receiving().filter_map(|one| one.effective.only()).collect();
        let set: Cpus = single.iter().copied().collect();
        !single.is_empty() && set.len() == single.len() && set.without(&self.host.usable).is_empty()
    }
}
