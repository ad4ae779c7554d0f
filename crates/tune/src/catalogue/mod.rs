//! The steps: what each setting is, what it is worth and by whose measurement, what it risks, when to leave it alone.
//!
//! Text and plain facts. Knows no host: what a step means for one is for `audit`.

#[cfg(test)]
mod tests;
mod texts;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// What a host is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The most requests a second.
    Throughput,
    /// The shortest time for each.
    Latency,
    /// The least CPU time and power for each.
    Efficiency,
}

/// What weakens the host or can drop packets, and is done only to those who name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Accept {
    /// Without protection from speculative execution.
    MitigationsOff,
    /// New tasks without audit.
    AuditOff,
    /// System calls without a filter.
    SeccompOff,
    /// Without packet filter.
    NetfilterOff,
    /// Packets dropped where the card's ring is full.
    Noqueue,
    /// The link is down for a moment.
    LinkReset,
}

impl Accept {
    /// All.
    pub const ALL: [Accept; 6] = [
        Accept::MitigationsOff,
        Accept::AuditOff,
        Accept::SeccompOff,
        Accept::NetfilterOff,
        Accept::Noqueue,
        Accept::LinkReset,
    ];

    /// As it is written after `--accept`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Accept::MitigationsOff => "mitigations-off",
            Accept::AuditOff => "audit-off",
            Accept::SeccompOff => "seccomp-off",
            Accept::NetfilterOff => "netfilter-off",
            Accept::Noqueue => "noqueue",
            Accept::LinkReset => "link-reset",
        }
    }

    /// What is accepted.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Accept::MitigationsOff => "code on this host can read memory that it must not",
            Accept::AuditOff => "system calls of new tasks are not audited, whatever other rules exist",
            Accept::SeccompOff => "a compromised service can make every system call",
            Accept::NetfilterOff => "no firewall, no NAT",
            Accept::Noqueue => "packets are dropped when the NIC's ring is full",
            Accept::LinkReset => "the NIC loses packets briefly, and may lose its link for seconds",
        }
    }
}

impl fmt::Display for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Accept {
    type Err = String;

    fn from_str(text: &str) -> Result<Accept, String> {
        let all = Accept::ALL.into_iter();
        all.clone().find(|one| one.name() == text).ok_or_else(|| {
            let names: Vec<&str> = all.map(Accept::name).collect();
            format!("expected one of {}; found `{text}`", names.join(", "))
        })
    }
}

impl Serialize for Accept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Nothing is changed.
    None,
    /// Some memory, some power.
    Low,
    /// Other programs of the host may become slower.
    Medium,
    /// Packets may be lost, or traffic of another kind becomes much slower.
    High,
    /// The host is less secure.
    Critical,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Risk::None => "none",
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
            Risk::Critical => "critical",
        })
    }
}

/// A step.
#[derive(Debug)]
pub struct Step {
    /// Which it is.
    pub id: Id,
    /// As it is written after `--step`.
    pub name: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// Its place among the nine of the experiment that the catalogue began with.
    pub number: Option<u8>,
    /// What it is worth, short enough for a table.
    pub gain: &'static str,
    /// Who measured that, on what.
    pub source: &'static str,
    /// What can go wrong.
    pub risk: Risk,
    /// Whether it holds only after a restart.
    pub reboot: bool,
    /// What must be accepted by name.
    pub accept: Option<Accept>,
    /// Whether it is only proposed to those who name it.
    pub optional: bool,
    /// What it is and why it costs something.
    pub what: &'static str,
    /// How it is found out.
    pub detect: &'static str,
    /// How it is changed, and how that is taken back.
    pub apply: &'static str,
    /// When not to.
    pub not_when: &'static str,
    /// What to do before, or instead.
    pub gentler: Option<&'static str>,
}

macro_rules! ids {
    ($($id:ident = $name:literal: $doc:literal,)*) => {
        /// Which step.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Id {
            $(#[doc = $doc] $id,)*
        }

        impl Id {
            /// All, in the order in which they are shown.
            pub const ALL: &[Id] = &[$(Id::$id,)*];

            /// As it is written after `--step`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Id::$id => $name,)*
                }
            }
        }
    };
}

ids! {
    Application = "application": "The program itself.",
    Mitigations = "mitigations": "Protection from speculative execution.",
    Audit = "audit": "Audit of system calls.",
    Seccomp = "seccomp": "Filters of system calls.",
    Netfilter = "netfilter": "The packet filter and its connection tracking.",
    Irqbalance = "irqbalance": "The program that moves interrupts about.",
    Rss = "rss": "Queues of the card and how flows are spread over them.",
    IrqAffinity = "irq-affinity": "Which CPU serves which queue.",
    Rps = "rps": "Packets moved to other CPUs by software.",
    Rfs = "rfs": "Packets moved to the CPU of their reader.",
    Xps = "xps": "Which queue a CPU sends by.",
    Moderation = "moderation": "How long interrupts wait for more packets.",
    BusyPoll = "busy-poll": "Polling the card instead of waiting for interrupts.",
    DeferredIrqs = "deferred-irqs": "Interrupts put off while packets come.",
    IrqSuspension = "irq-suspension": "Interrupts off while the application polls.",
    PacketSockets = "packet-sockets": "Programs that see every packet.",
    Qdisc = "qdisc": "Queueing of leaving packets.",
    Gro = "gro": "Joining of arriving packets.",
    CongestionControl = "congestion-control": "How TCP finds its speed.",
    Governor = "governor": "How CPUs choose their frequency.",
    CStates = "c-states": "How deeply idle CPUs sleep.",
    Rings = "rings": "How many packets wait in the card.",
    CloudLimits = "cloud-limits": "What the cloud does not let through.",
    Backlogs = "backlogs": "Connections that wait to be accepted.",
    Ports = "ports": "Ports for outgoing connections.",
    Thp = "thp": "Transparent huge pages.",
    Memory = "memory": "Swapping and writing back.",
}

impl Id {
    /// Its facts.
    #[must_use]
    pub fn step(self) -> &'static Step {
        let found = texts::STEPS.iter().find(|step| step.id == self);
        found.expect("a test goes through all of them")
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Id, String> {
        Id::ALL
            .iter()
            .copied()
            .find(|id| id.name() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = Id::ALL.iter().map(|id| id.name()).collect();
                format!("expected one of {}; found `{text}`", names.join(", "))
            })
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
