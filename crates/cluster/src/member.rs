//! The nodes of a cluster, and the owner of a channel.
//!
//! Weighted rendezvous hashing: each server draws `weight` numbers for the channel, and the largest draw wins. A node that joins or
//! leaves changes the owner of its own share of the channels only. Draws are integers, so that all nodes agree on any platform.

use std::fmt;
use std::sync::Arc;

/// The identity of a node's process: random, so that a restarted node is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(pub u64);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The tasks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Both of the others.
    #[default]
    All,
    /// Has clients, and owns no channels.
    Gateway,
    /// Owns channels.
    Server,
}

impl Role {
    /// Returns whether clients connect to the node.
    #[must_use]
    pub const fn has_clients(self) -> bool {
        matches!(self, Role::All | Role::Gateway)
    }

    /// Returns whether the node may own channels.
    #[must_use]
    pub const fn owns_channels(self) -> bool {
        matches!(self, Role::All | Role::Server)
    }
}

/// The part of a node's life that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It has no links to all nodes yet, and owns no channels.
    Joining,
    /// It owns its share of the channels.
    #[default]
    Active,
    /// It hands its channels over, and owns channels only if no other node does.
    Leaving,
}

/// The state of a node, which changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Increases with each change of the phase.
    pub serial: u32,
    /// The part of its life.
    pub phase: Phase,
    /// The clients that are connected to it.
    pub clients: u32,
}

/// A node, as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub uid: Uid,
    /// Its configured name.
    pub name: Arc<str>,
    /// Its zone; empty for none.
    pub zone: Arc<str>,
    /// Its tasks.
    pub role: Role,
    /// Its share of channels relative to other nodes, from 1 to [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX).
    pub weight: u16,
}

/// Returns the number of clients that a node should have, by its weight among the nodes that accept clients. Nodes are given as weight and
/// clients.
#[must_use]
pub fn share_of_clients(own: (u16, u64), others: impl Iterator<Item = (u16, u64)>) -> f64 {
    let sum = |(weights, clients): (f64, f64), (weight, count): (u16, u64)| {
        (weights + f64::from(weight), clients + count as f64)
    };
    let (weights, clients) = others.fold(sum((0.0, 0.0), own), sum);
    clients * f64::from(own.0) / weights
}

/// Returns the owner of a channel among these nodes, or `None` if none may own channels.
pub fn owner<'m>(channel: &str, members: impl Iterator<Item = &'m Member>) -> Option<Uid> {
    owner_of_hash(hash(channel), members)
}

/// Returns the owner of a log's partition among these nodes: it owns all channels of the partition.
pub(crate) fn partition_owner<'m>(partition: u16, members: impl Iterator<Item = &'m Member>) -> Option<Uid> {
    owner_of_hash(mix(u64::from(partition) + 1), members)
}

fn owner_of_hash<'m>(hash: u64, members: impl Iterator<Item = &'m Member>) -> Option<Uid> {
    let servers = members.filter(|member| member.role.owns_channels());
    servers
        .map(|member| (draw(hash, member), member.uid))
        .max()
        .map(|(_, uid)| uid)
}

fn draw(hash: u64, member: &Member) -> u64 {
    let node = mix(member.uid.0);
    let draws = (0..u64::from(member.weight.max(1))).map(|number| mix(hash ^ mix(node.wrapping_add(number))));
    draws.max().unwrap_or_default()
}

/// FNV-1a with a finalizer: the result need not be secret, and all nodes must agree.
pub(crate) fn hash(channel: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in channel.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(hash)
}

/// Applies the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
