//! Network interfaces: driver, queues, and the interrupts that serve them.

use super::field;
use crate::cpus::Cpus;
use crate::limits;
use crate::root::{Ethtool, Key, Root};

/// What kind of interface it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The host's own.
    Loopback,
    /// A card, of hardware or of a hypervisor.
    Card,
    /// Made by software in this kernel: veth, bridge, tunnel, bond.
    Software,
}

/// What an interrupt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Arriving packets, or both.
    Receive,
    /// Leaving packets only.
    Transmit,
}

/// An interrupt of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Its name in `/proc/interrupts`.
    pub name: String,
    /// The queue that it serves.
    pub queue: usize,
    /// What it is for.
    pub direction: Direction,
    /// The CPUs that it really goes to; those that it may go to where the kernel does not tell.
    pub effective: Cpus,
}

/// An interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What kind it is.
    pub kind: Kind,
    /// Its driver.
    pub driver: Option<String>,
    /// Whether it carries packets.
    pub up: bool,
    /// Queues for arriving packets.
    pub rx_queues: usize,
    /// Queues for leaving packets.
    pub tx_queues: usize,
    /// Interrupts of queues, by queue, receive before transmit; empty if they cannot be told apart.
    pub interrupts: Vec<Interrupt>,
    /// The CPUs near the card; `None` if it does not say.
    pub near: Option<Cpus>,
}

impl Interface {
    /// Where a file of it is.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        format!("/sys/class/net/{}/{file}", self.name)
    }

    /// The interrupts for arriving packets, in the order of their queues.
    pub fn receiving(&self) -> impl Iterator<Item = &Interrupt> {
        let receive = |interrupt: &&Interrupt| interrupt.direction == Direction::Receive;
        self.interrupts.iter().filter(receive)
    }
}

/// All interfaces of this network namespace, by name.
pub(super) fn all(root: &Root) -> Vec<Interface> {
    let table = root.find("/proc/interrupts").unwrap_or_default();
    let names = root.entries("/sys/class/net").into_iter();
    let is_one = |name: &String| root.exists(&format!("/sys/class/net/{name}/type"));
    names
        .filter(is_one)
        .take(limits::INTERFACES)
        .map(|name| one(root, &table, name))
        .collect()
}

fn one(root: &Root, table: &str, name: String) -> Interface {
    let path = |file: &str| format!("/sys/class/net/{name}/{file}");
    // ARPHRD_LOOPBACK
    let kind = match root.number(&path("type")) {
        Some(772) => Kind::Loopback,
        _ if root.exists(&path("device")) => Kind::Card,
        _ => Kind::Software,
    };
    let linked = root.link(&path("device/driver"));
    let linked = linked.and_then(|to| to.rsplit('/').next().map(str::to_owned));
    let asked = || {
        root.read(&Key::ethtool(&name, Ethtool::Driver))
            .value()
            .map(str::to_owned)
    };
    let queues = root.entries(&path("queues"));
    let count = |prefix: &str| {
        let found = queues.iter().filter(|queue| queue.starts_with(prefix));
        found.count().min(limits::QUEUES)
    };
    let near = root
        .find(&path("device/local_cpulist"))
        .or_else(|| root.find(&path("device/../local_cpulist")));
    // `unknown` is what drivers without a carrier say: software interfaces.
    let state = root.find(&path("operstate")).unwrap_or_default();
    Interface {
        kind,
        driver: linked.or_else(asked),
        up: matches!(state.as_str(), "up" | "unknown"),
        rx_queues: count("rx-"),
        tx_queues: count("tx-"),
        interrupts: interrupts(root, table, &name),
        near: near
            .and_then(|list| Cpus::list(&list))
            .filter(|cpus| !cpus.is_empty()),
        name,
    }
}

fn interrupts(root: &Root, table: &str, interface: &str) -> Vec<Interrupt> {
    // A virtio device has its interrupts with the PCI device above it.
    let places = ["device/msi_irqs", "device/../msi_irqs"];
    let numbers = places.map(|place| root.entries(&format!("/sys/class/net/{interface}/{place}")));
    let numbers = numbers
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    let numbers = numbers.into_iter().filter_map(|number| number.parse().ok());
    let mut all: Vec<Interrupt> = numbers
        .filter_map(|number| interrupt(root, table, number))
        .collect();
    all.sort_by_key(|one| (one.queue, one.direction == Direction::Transmit, one.number));
    all
}

fn interrupt(root: &Root, table: &str, number: u32) -> Option<Interrupt> {
    let line = field(table, &number.to_string())?;
    let name = line.split_ascii_whitespace().last()?;
    let (direction, queue) = meaning(name)?;
    let cpus = |file: &str| root.find(&format!("/proc/irq/{number}/{file}"));
    let told = cpus("effective_affinity_list").filter(|text| !text.is_empty());
    let effective = told.or_else(|| cpus("smp_affinity_list"))?;
    Some(Interrupt {
        number,
        name: name.to_owned(),
        queue,
        direction,
        effective: Cpus::list(&effective)?,
    })
}

/// What a name says: there is no common scheme. `eth0-TxRx-0` (Intel), `eth0-Tx-Rx-0` (ENA), `virtio2-input.0`,
/// `mlx5_comp0@pci:…`. What is not known is not counted.
pub(super) fn meaning(name: &str) -> Option<(Direction, usize)> {
    let name = name.split('@').next()?.to_ascii_lowercase();
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let queue = name[name.len() - digits..]
        .parse()
        .ok()
        .filter(|queue| *queue < limits::QUEUES)?;
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&["rx", "input", "comp"]) {
        Some((Direction::Receive, queue))
    } else if has(&["tx", "output"]) {
        Some((Direction::Transmit, queue))
    } else {
        None
    }
}
