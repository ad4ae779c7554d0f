//! The parts in which a channel moves to another owner.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{Epoch, StreamPosition};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::{ChannelSettings, cost};
use crate::limits;
use crate::member::Uid;

/// A part of a channel. The first one is the head, and the last one is marked; the others may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum HandoverPart {
    /// The state without its contents.
    Head(HandoverHead),
    /// Retained publications: offset, time since publication, publication; the oldest first.
    Publications(Vec<(u64, Duration, Arc<Published>)>),
    /// Members with their nodes.
    Members(Vec<(Uid, Arc<ClientInfo>)>),
    /// Idempotency keys: key, time that remains, position after the publication.
    Keys(Vec<(Box<str>, Duration, Option<StreamPosition>)>),
}

/// The state of a channel without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverHead {
    /// The options of the channel.
    pub settings: ChannelSettings,
    /// The epoch.
    pub epoch: Epoch,
    /// Earlier epochs.
    pub replaced: Vec<Epoch>,
    /// The offset of the last publication, and the floor. `None`: publications have no offsets.
    pub offsets: Option<(u64, u64)>,
    /// The time since the last use.
    pub idle: Duration,
    /// The nodes with mirrors, which will subscribe.
    pub mirrors: Vec<Uid>,
}

impl HandoverPart {
    /// Returns the part of the window that this part uses, in bytes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        match self {
            HandoverPart::Head(_) => limits::HANDOVER_OVERHEAD,
            HandoverPart::Publications(publications) => {
                publications.iter().map(|(.., published)| cost(published)).sum()
            }
            HandoverPart::Members(members) => {
                let bytes = |info: &ClientInfo| {
                    info.user.len() + info.client.len() + info.conn_info.len() + info.chan_info.len()
                };
                let costs = members
                    .iter()
                    .map(|(_, info)| bytes(info) as u64 + limits::PUBLICATION_OVERHEAD);
                costs.sum()
            }
            HandoverPart::Keys(keys) => {
                let costs = keys.iter().map(|(key, ..)| key.len() as u64);
                costs.map(|bytes| bytes + limits::PUBLICATION_OVERHEAD).sum()
            }
        }
    }
}
