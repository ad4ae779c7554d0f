//! The publication of each position (epoch and offset of a channel), as clients have received it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits;

/// Positions of a block.
const BLOCK: u64 = 32;

/// The sequence number of a position under which different publications were received.
const CONFLICT: u32 = u32::MAX;

/// The publications of positions, as the clients of one thread, or of all threads, have received them.
#[derive(Clone, Debug, Default)]
pub(in crate::push) struct Ledger {
    blocks: BTreeMap<Key, Box<[Entry; BLOCK as usize]>>,
    /// Receipts that were not compared: there were more positions than [`limits::AUDITED_BLOCKS`] allows.
    skipped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    channel: u32,
    epoch: u32,
    block: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Sequence number of the publication; 0 for none, [`CONFLICT`] for different ones.
    sequence: u32,
    /// Nodes whose clients have received it, a bit each.
    nodes: u32,
}

const _: () = assert!(
    limits::NODES <= u32::BITS as usize,
    "an entry has a bit for each node"
);

/// A receipt of a publication by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::push) struct Receipt {
    pub(in crate::push) channel: u32,
    /// Number of the epoch.
    pub(in crate::push) epoch: u32,
    pub(in crate::push) offset: u64,
    /// Sequence number of the publication, from 1.
    pub(in crate::push) sequence: u32,
    /// Node that the client is connected to.
    pub(in crate::push) node: u16,
}

/// How many positions were compared, and how many disagree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::push) struct Agreement {
    /// Positions that clients of at least two nodes have received.
    pub(in crate::push) compared: u64,
    /// Positions with different publications, also among clients of one node.
    pub(in crate::push) conflicting: u64,
    /// Receipts that were not compared.
    pub(in crate::push) skipped: u64,
}

impl Entry {
    fn merge(&mut self, other: Entry) {
        self.nodes |= other.nodes;
        if self.sequence == 0 {
            self.sequence = other.sequence;
        } else if other.sequence != 0 && other.sequence != self.sequence {
            self.sequence = CONFLICT;
        }
    }
}

impl Ledger {
    /// Records a receipt.
    pub(super) fn record(&mut self, receipt: Receipt) {
        let Receipt {
            channel,
            epoch,
            offset,
            sequence,
            node,
        } = receipt;
        let key = Key {
            channel,
            epoch,
            block: offset / BLOCK,
        };
        let entry = Entry {
            sequence,
            nodes: 1 << node,
        };
        match self.block(key) {
            Some(block) => block[(offset % BLOCK) as usize].merge(entry),
            None => self.skipped += 1,
        }
    }

    fn block(&mut self, key: Key) -> Option<&mut [Entry; BLOCK as usize]> {
        let is_full = self.blocks.len() >= limits::AUDITED_BLOCKS && !self.blocks.contains_key(&key);
        (!is_full).then(|| &mut **self.blocks.entry(key).or_default())
    }

    /// Counts what the ledgers of all threads agree on. Each thread numbers its epochs from 1 in the order of its list.
    pub(in crate::push) fn compare(ledgers: &[(Ledger, Vec<Arc<str>>)]) -> Agreement {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let mut all: BTreeMap<Key, [Entry; BLOCK as usize]> = BTreeMap::new();
        let mut agreement = Agreement::default();
        for (ledger, epochs) in ledgers {
            agreement.skipped += ledger.skipped;
            for (key, block) in &ledger.blocks {
                let Some(name) = (key.epoch as usize).checked_sub(1).and_then(|at| epochs.get(at)) else {
                    continue;
                };
                let next = numbers.len() as u32;
                let epoch = *numbers.entry(name).or_insert(next);
                let into = all.entry(Key { epoch, ..*key }).or_default();
                for (into, from) in into.iter_mut().zip(block.iter()) {
                    into.merge(*from);
                }
            }
        }
        for entry in all.values().flatten() {
            agreement.compared += u64::from(entry.nodes.count_ones() > 1);
            agreement.conflicting += u64::from(entry.sequence == CONFLICT);
        }
        agreement
    }
}
