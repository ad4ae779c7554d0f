//! What each step means for a host: current value, wanted value, why, and what keeps it from being changed.
//!
//! A function for each step, from what is known of the host to a [`Finding`]. Changes nothing; what cannot be told is
//! said to be unknown, never guessed.

mod card;
mod kernel;
mod queues;
mod system;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::catalogue::{Accept, Id, Profile};
use crate::host::{Host, Interface};
use crate::root::{Key, Reading, Root};

/// What is wanted of a host.
#[derive(Clone, Debug)]
pub struct Wish {
    /// What it is tuned for.
    pub profile: Profile,
    /// What the user accepts by name.
    pub accept: BTreeSet<Accept>,
    /// The steps that the user named; all that are not optional if there is none.
    pub steps: BTreeSet<Id>,
}

/// What is to be done about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It is as it should be.
    Good,
    /// `apply` changes it.
    Change,
    /// It is only changed for those who accept what that means.
    Held,
    /// Somebody has to do it; Ringmain says what.
    ByHand,
    /// It is only changed for those who name the step.
    Optional,
    /// It could be changed; on this host it is better not.
    Leave,
    /// It would be changed, but cannot be from here.
    OutOfReach,
    /// There is no such thing here.
    Absent,
    /// It cannot be told.
    Unknown,
}

impl Status {
    /// As a report has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Change => "change",
            Status::Held => "held",
            Status::ByHand => "by hand",
            Status::Optional => "optional",
            Status::Leave => "leave",
            Status::OutOfReach => "no access",
            Status::Absent => "absent",
            Status::Unknown => "unknown",
        }
    }
}

/// One setting with a value that it has and one that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Change {
    /// Which setting.
    pub key: Key,
    /// Its value.
    pub now: String,
    /// The value that is wanted.
    pub wanted: String,
}

/// What a step means for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which step.
    pub id: Id,
    /// The interface that it is about.
    pub interface: Option<String>,
    /// What is to be done.
    pub status: Status,
    /// How it is, in a few words.
    pub now: String,
    /// How it should be, in a few words; empty where there is nothing to want.
    pub wanted: String,
    /// Why this host should, or should not.
    pub why: String,
    /// What would be written, in this order.
    pub changes: Vec<Change>,
    /// What somebody has to do.
    pub by_hand: Vec<String>,
    /// What keeps it from being changed from here.
    pub obstacle: Option<String>,
}

impl Finding {
    fn new(id: Id, status: Status, now: impl Into<String>, why: impl Into<String>) -> Finding {
        Finding {
            id,
            interface: None,
            status,
            now: now.into(),
            wanted: String::new(),
            why: why.into(),
            changes: Vec::new(),
            by_hand: Vec::new(),
            obstacle: None,
        }
    }

    fn unknown(id: Id, why: impl Into<String>) -> Finding {
        Finding::new(id, Status::Unknown, "unknown", why)
    }

    fn absent(id: Id, why: impl Into<String>) -> Finding {
        Finding::new(id, Status::Absent, "none", why)
    }

    fn wanted(mut self, wanted: impl Into<String>) -> Finding {
        self.wanted = wanted.into();
        self
    }

    fn by_hand(mut self, lines: impl IntoIterator<Item = String>) -> Finding {
        self.by_hand.extend(lines);
        self
    }

    fn changes(mut self, changes: Vec<Change>) -> Finding {
        self.changes = changes;
        self
    }
}

/// Looks at all steps, or those that are named.
#[must_use]
pub fn audit(root: &Root, host: &Host, wish: &Wish) -> Vec<Finding> {
    let look = Look { root, host, wish };
    let ids = Id::ALL
        .iter()
        .filter(|id| wish.steps.is_empty() || wish.steps.contains(id));
    let mut found: Vec<Finding> = ids.flat_map(|id| look.step(*id)).collect();
    for finding in &mut found {
        settle(root, host, wish, finding);
    }
    found
}

/// What stands between a change that is wanted and doing it.
fn settle(root: &Root, host: &Host, wish: &Wish, finding: &mut Finding) {
    let step = finding.id.step();
    if !matches!(finding.status, Status::Change | Status::ByHand) {
        return;
    }
    let obstacles = finding.changes.iter();
    finding.obstacle = obstacles
        .filter_map(|change| host.place.obstacle(root, &change.key))
        .next();
    if step.optional && !wish.steps.contains(&step.id) {
        finding.status = Status::Optional;
    } else if step.accept.is_some_and(|accept| !wish.accept.contains(&accept)) {
        finding.status = Status::Held;
    } else if finding.obstacle.is_some() {
        finding.status = Status::OutOfReach;
    }
}

/// A host with what is wanted of it.
#[derive(Clone, Copy)]
struct Look<'a> {
    root: &'a Root,
    host: &'a Host,
    wish: &'a Wish,
}

impl<'a> Look<'a> {
    fn step(self, id: Id) -> Vec<Finding> {
        match id {
            Id::Application => vec![self.application()],
            Id::Mitigations => vec![self.mitigations()],
            Id::Audit => vec![self.audit_system()],
            Id::Seccomp => vec![self.seccomp()],
            Id::Netfilter => vec![self.netfilter()],
            Id::Irqbalance => vec![self.irqbalance()],
            Id::Rss => self.each(id, Look::rss),
            Id::IrqAffinity => self.each(id, Look::irq_affinity),
            Id::Rps => self.each(id, Look::rps),
            Id::Rfs => self.each(id, Look::rfs),
            Id::Xps => self.each(id, Look::xps),
            Id::Moderation => self.each(id, Look::moderation),
            Id::BusyPoll => vec![self.busy_poll()],
            Id::DeferredIrqs => self.each(id, Look::deferred_irqs),
            Id::IrqSuspension => vec![self.irq_suspension()],
            Id::PacketSockets => vec![self.packet_sockets()],
            Id::Qdisc => self.each(id, Look::qdisc),
            Id::Gro => self.each(id, Look::gro),
            Id::CongestionControl => vec![self.congestion_control()],
            Id::Governor => vec![self.governor()],
            Id::CStates => vec![self.c_states()],
            Id::Rings => self.each(id, Look::rings),
            Id::CloudLimits => self.each(id, Look::cloud_limits),
            Id::Backlogs => vec![self.backlogs()],
            Id::Ports => vec![self.ports()],
            Id::Thp => vec![self.thp()],
            Id::Memory => vec![self.memory()],
        }
    }

    /// A finding for each interface of the service.
    fn each(self, id: Id, look: fn(Look<'a>, &Interface) -> Finding) -> Vec<Finding> {
        let of = |card: &Interface| {
            let mut finding = look(self, card);
            finding.interface = Some(card.name.clone());
            finding
        };
        let found: Vec<Finding> = self.host.cards().map(of).collect();
        if !found.is_empty() {
            return found;
        }
        let why = if self.host.service.is_local() {
            "the service listens on loopback addresses only: no card receives its packets"
        } else {
            "no network interface of the service is known: select it with --interface"
        };
        vec![Finding::absent(id, why)]
    }

    fn profile(self) -> Profile {
        self.wish.profile
    }

    /// The change that has a setting as wanted; nothing if it is so already.
    ///
    /// # Errors
    /// Where its value cannot be told.
    fn change(self, key: Key, wanted: impl Into<String>) -> Result<Option<Change>, Reading> {
        let wanted = wanted.into();
        match self.root.read(&key) {
            Reading::Value(now) if key.same(&now, &wanted) => Ok(None),
            Reading::Value(now) => Ok(Some(Change { key, now, wanted })),
            other => Err(other),
        }
    }

    /// The same for several; the first that cannot be told counts for all.
    fn changes_to(self, all: impl IntoIterator<Item = (Key, String)>) -> Result<Vec<Change>, Reading> {
        let mut changes = Vec::new();
        for (key, wanted) in all {
            changes.extend(self.change(key, wanted)?);
        }
        Ok(changes)
    }

    /// What to say of a setting that has no value.
    fn without_value(self, id: Id, path: &str, reading: Reading) -> Finding {
        match reading {
            Reading::Unknown(why) => Finding::unknown(id, format!("it cannot be read: {why}")),
            _ if path.starts_with("/proc/sys/net/") && self.host.place.initial_network.is_none() => {
                Finding::unknown(id, "network settings are not visible from here")
            }
            _ => {
                let why = self.host.place.missing(path);
                if why.starts_with("not reachable") {
                    let mut finding = Finding::new(id, Status::OutOfReach, "not seen", why.clone());
                    finding.obstacle = Some(why);
                    return finding;
                }
                Finding::absent(id, why)
            }
        }
    }
}

/// `1 queue`, `4 queues`.
fn count(number: usize, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}
