//! The progress that owners report for the partitions of a log: the positions of mirrors whose channels are quiet.

use std::collections::BTreeMap;

use ringmain_hub::history::Epoch;

use super::{Mirror, MirrorState, Mirrors};
use crate::log::partition_of;
use crate::member::Uid;

impl Mirrors {
    pub(in crate::node) fn note_progress(&mut self, owner: Uid, partition: u16, epoch: Epoch, number: u64) {
        if partition < self.partitions {
            self.progress.insert((owner, partition), (epoch, number));
        }
    }

    /// Forgets the reports of a node that is gone.
    pub(in crate::node) fn forget_progress(&mut self, owner: Uid) {
        self.progress.retain(|(uid, _), _| *uid != owner);
    }

    /// Raises the position of a mirror that is live to the one that its owner has reported, before it is live no more.
    pub(super) fn settle(
        progress: &BTreeMap<(Uid, u16), (Epoch, u64)>,
        partitions: u16,
        name: &str,
        mirror: &mut Mirror,
    ) {
        if let MirrorState::Live { owner } = mirror.state
            && partitions > 0
            && let Some((epoch, number)) = progress.get(&(owner, partition_of(name, partitions).0))
            && let Some(position) = mirror
                .position
                .as_mut()
                .filter(|position| position.epoch == *epoch)
        {
            position.offset = position.offset.max(*number);
        }
    }

    pub(super) fn settle_name(&mut self, name: &str) {
        let Mirrors {
            by_name,
            progress,
            partitions,
            ..
        } = self;
        if let Some(mirror) = by_name.get_mut(name) {
            Mirrors::settle(progress, *partitions, name, mirror);
        }
    }

    /// Lets the next state of a channel be a gap.
    pub(in crate::node) fn forget_position(&mut self, channel: &str) {
        if let Some(mirror) = self.by_name.get_mut(channel) {
            mirror.position = None;
        }
    }
}
