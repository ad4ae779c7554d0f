//! Names of settings, as text: a path of `/proc` or `/sys`, or what a system call is asked.
//!
//! Texts are what journals, snapshots and recorded hosts hold, so that they stay the same for good.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;

/// A setting that can be read, and mostly written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Key {
    /// A file of `/proc` or `/sys`: its path is its name.
    File(String),
    /// `ethtool:IF/WHAT`: what a driver is asked.
    Ethtool {
        /// The interface.
        interface: String,
        /// What of it.
        what: Ethtool,
    },
    /// `qdisc:IF`: the queueing disciplines of an interface.
    Qdisc {
        /// The interface.
        interface: String,
    },
    /// `audit:status`: what the audit system does; only read.
    Audit,
    /// `audit:never-task`: whether new tasks go without audit, `present` or `absent`.
    AuditNeverTask,
    /// `nftables:tables`: the tables of the packet filter; only read.
    Nftables,
}

/// What a driver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ethtool {
    /// The driver's name; only read.
    Driver,
    /// `rx=N tx=N combined=N`.
    Channels,
    /// The most of them; only read.
    ChannelsMax,
    /// `rx=N tx=N`.
    Rings,
    /// The most of them; only read.
    RingsMax,
    /// `adaptive-rx=on|off adaptive-tx=on|off rx-usecs=N rx-frames=N tx-usecs=N tx-frames=N`.
    Coalesce,
    /// `on` or `off`.
    Gro,
    /// The queue for each value of the flow hash, with spaces between.
    Indirection,
    /// Counters of a cloud's limits, `NAME=N`; only read.
    Allowance,
}

impl Ethtool {
    const TABLE: [(Ethtool, &str); 9] = [
        (Ethtool::Driver, "driver"),
        (Ethtool::Channels, "channels"),
        (Ethtool::ChannelsMax, "channels-max"),
        (Ethtool::Rings, "rings"),
        (Ethtool::RingsMax, "rings-max"),
        (Ethtool::Coalesce, "coalesce"),
        (Ethtool::Gro, "gro"),
        (Ethtool::Indirection, "indirection"),
        (Ethtool::Allowance, "allowance"),
    ];
}

impl Key {
    /// A sysctl by its dotted name.
    #[must_use]
    pub fn sysctl(name: &str) -> Key {
        Key::File(format!("/proc/sys/{}", name.replace('.', "/")))
    }

    /// What a driver is asked.
    #[must_use]
    pub fn ethtool(interface: &str, what: Ethtool) -> Key {
        Key::Ethtool {
            interface: interface.to_owned(),
            what,
        }
    }

    /// The dotted name, if it is a sysctl.
    #[must_use]
    pub fn sysctl_name(&self) -> Option<String> {
        match self {
            Key::File(path) => Some(path.strip_prefix("/proc/sys/")?.replace('/', ".")),
            _ => None,
        }
    }

    /// Returns whether a step of the catalogue writes this setting. Only such keys are believed in a journal: a path of `/proc` may lead
    /// anywhere (`/proc/self/root/…`).
    #[must_use]
    pub fn is_changed_by_steps(&self) -> bool {
        let is_interface = |name: &str| {
            !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']) && name.len() < 16
        };
        match self {
            Key::File(path) => CHANGED_FILES.iter().any(|pattern| matches_path(pattern, path)),
            Key::Ethtool { interface, what } => {
                is_interface(interface)
                    && matches!(
                        what,
                        Ethtool::Channels
                            | Ethtool::Rings
                            | Ethtool::Coalesce
                            | Ethtool::Gro
                            | Ethtool::Indirection
                    )
            }
            Key::Qdisc { interface } => is_interface(interface),
            Key::AuditNeverTask => true,
            Key::Audit | Key::Nftables => false,
        }
    }

    /// Whether two texts of this setting say the same: masks of CPUs with or without leading zeros, lists in any form.
    #[must_use]
    pub fn same(&self, one: &str, other: &str) -> bool {
        if one == other {
            return true;
        }
        let of = |parse: fn(&str) -> Option<Cpus>| match (parse(one), parse(other)) {
            (Some(one), Some(other)) => one == other,
            _ => false,
        };
        match self {
            Key::File(path) if path.ends_with("_cpus") || path.ends_with("smp_affinity") => of(Cpus::mask),
            Key::File(path) if path.ends_with("_list") => of(Cpus::list),
            // The kernel tells columns with tabs.
            Key::File(_) => one.split_ascii_whitespace().eq(other.split_ascii_whitespace()),
            Key::Ethtool { .. } => Fields::parse(one) == Fields::parse(other) && one.contains('='),
            _ => false,
        }
    }
}

/// The files that steps write; `*` is the name of one directory or file, `#` a number.
const CHANGED_FILES: [&str; 19] = [
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/busy_read",
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/core/netdev_budget",
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/net/core/rps_sock_flow_entries",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "/proc/irq/#/smp_affinity_list",
    "/sys/class/net/*/napi_defer_hard_irqs",
    "/sys/class/net/*/gro_flush_timeout",
    "/sys/class/net/*/queues/*/rps_cpus",
    "/sys/class/net/*/queues/*/rps_flow_cnt",
    "/sys/class/net/*/queues/*/xps_cpus",
    "/sys/class/net/*/queues/*/xps_rxqs",
    "/sys/devices/system/cpu/*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/*/cpuidle/*/disable",
];

fn matches_path(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some("*"), Some(name)) if !matches!(name, "" | "." | "..") => {}
            (Some("#"), Some(name)) if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) => {
            }
            (Some(wanted), Some(name)) if wanted == name && !matches!(wanted, "*" | "#") => {}
            _ => return false,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::File(path) => f.write_str(path),
            Key::Ethtool { interface, what } => {
                let name = Ethtool::TABLE.iter().find(|(found, _)| found == what);
                write!(f, "ethtool:{interface}/{}", name.map_or("", |(_, name)| name))
            }
            Key::Qdisc { interface } => write!(f, "qdisc:{interface}"),
            Key::Audit => f.write_str("audit:status"),
            Key::AuditNeverTask => f.write_str("audit:never-task"),
            Key::Nftables => f.write_str("nftables:tables"),
        }
    }
}

/// A text that names no setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a path below /proc or /sys, ethtool:IF/WHAT, qdisc:IF, audit:… or nftables:tables; found `{0}`"
)]
pub struct WrongKey(String);

impl FromStr for Key {
    type Err = WrongKey;

    fn from_str(text: &str) -> Result<Key, WrongKey> {
        let wrong = || WrongKey(text.to_owned());
        if text.starts_with("/proc/") || text.starts_with("/sys/") {
            // A journal that somebody wrote must not lead elsewhere.
            let stays = text
                .split('/')
                .skip(1)
                .all(|part| !matches!(part, "" | "." | ".."));
            return stays.then(|| Key::File(text.to_owned())).ok_or_else(wrong);
        }
        let (group, rest) = text.split_once(':').ok_or_else(wrong)?;
        match (group, rest) {
            ("ethtool", rest) => {
                let (interface, name) = rest.rsplit_once('/').ok_or_else(wrong)?;
                let what = Ethtool::TABLE.iter().find(|(_, found)| *found == name);
                let (what, _) = what.ok_or_else(wrong)?;
                Ok(Key::ethtool(interface, *what))
            }
            ("qdisc", interface) => Ok(Key::Qdisc {
                interface: interface.to_owned(),
            }),
            ("audit", "status") => Ok(Key::Audit),
            ("audit", "never-task") => Ok(Key::AuditNeverTask),
            ("nftables", "tables") => Ok(Key::Nftables),
            _ => Err(wrong()),
        }
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.to_string()
    }
}

impl TryFrom<String> for Key {
    type Error = WrongKey;

    fn try_from(text: String) -> Result<Key, WrongKey> {
        text.parse()
    }
}

/// `name=value` with spaces between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Reads them; a word without `=` is left out.
    #[must_use]
    pub fn parse(text: &str) -> Fields {
        let words = text.split_ascii_whitespace();
        let pairs = words.filter_map(|word| word.split_once('='));
        Fields(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// The value of a name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    /// Whether the value is `on`.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name) == Some("on")
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
