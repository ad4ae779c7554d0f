//! The histories of channels: those that this node serves have them in its own channels, the others are with the readers.

use super::*;
use crate::frame::Publish;
use crate::log::Record;
use crate::log::reader::{LoggedHistory, OlderPublication};
use crate::node::Mutation;
use crate::node::owned::{Owned, forget_floor};

impl Node {
    fn partition_of(&self, channel: &str) -> Option<Partition> {
        let log = self.log.as_ref()?;
        Some(partition_of(channel, log.options.partitions))
    }

    /// Returns whether the history of a channel can be served: its partition was read.
    pub(in crate::node) fn has_history(&self, channel: &str) -> bool {
        let followed = self
            .partition_of(channel)
            .and_then(|partition| self.followed(partition));
        followed.is_some_and(|followed| followed.reader.is_attached())
    }

    /// Returns whether a channel has a history, or can have it.
    pub(in crate::node) fn can_serve_history(&mut self, channel: &Arc<str>, partition: Partition) -> bool {
        let has_own = self
            .owned
            .get_mut(channel)
            .is_some_and(|owned| owned.log.is_some());
        has_own
            || self
                .followed(partition)
                .is_some_and(|followed| followed.reader.is_attached())
    }

    /// Gives a channel that this node serves the history of its log, or takes it back where the settings have none.
    pub(in crate::node) fn join_history(
        &mut self,
        channel: &Arc<str>,
        settings: ChannelSettings,
        now: Duration,
    ) {
        let Some(log) = &mut self.log else { return };
        let Some(owned) = self.owned.get_mut(channel) else {
            return;
        };
        let Some(options) = settings.history else {
            if owned.log.is_some()
                && let Some(mut owned) = self.owned.remove(channel)
            {
                self.put_back_history(channel, &mut owned, now);
                self.owned.insert(channel, owned);
            }
            return;
        };
        let partition = partition_of(channel, log.options.partitions);
        let Some(followed) = log.followed.get_mut(&partition) else {
            return;
        };
        if owned.log.is_some() || !followed.reader.is_attached() {
            return;
        }
        let LoggedHistory { history, mark, .. } = followed.reader.take(channel, options, settings, now);
        owned.epoch = history.position().epoch;
        owned.history = Some(history);
        owned.log = Some(mark);
        followed.idle_since = None;
    }

    /// Returns the history of a channel to the reader of its log, before this node serves it no more.
    pub(in crate::node) fn put_back_history(&mut self, channel: &Arc<str>, owned: &mut Owned, now: Duration) {
        let Some(mark) = owned.log.take() else { return };
        let Some(history) = owned.history.take() else {
            return;
        };
        let Some(partition) = self.partition_of(channel) else {
            return;
        };
        let position_ttl = owned.settings.position_ttl;
        if let Some(followed) = self.followed_mut(partition) {
            followed
                .reader
                .put_back(channel, history, mark, position_ttl, now);
        }
    }

    /// Brings the position of a channel up to that of its log.
    pub(in crate::node) fn refresh_history(&mut self, channel: &str) {
        let assumes_start = self.has_planted(Mutation::AssumedStart);
        let Some(log) = &self.log else { return };
        let partition = partition_of(channel, log.options.partitions);
        let Some(followed) = log.followed.get(&partition) else {
            return;
        };
        if followed.reader.is_attached()
            && let Some(Owned {
                history: Some(history),
                log: Some(mark),
                ..
            }) = self.owned.get_mut(channel)
        {
            followed.reader.refresh(history, mark);
            if assumes_start {
                history.set_epoch_start(history.floor());
            }
        }
    }

    /// Retains a publication, and sends it to the mirrors of its channel.
    pub(super) fn deliver_logged(
        &mut self,
        partition: Partition,
        number: u64,
        publish: Publish,
        age: Duration,
        now: Duration,
    ) {
        let drops_floor = self.has_planted(Mutation::DroppedFloor);
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        let is_attached = followed.reader.is_attached();
        if is_attached {
            self.enter_log(number, &publish, now);
        }
        let owned = self.owned.get_mut(&publish.channel);
        let owned = owned.filter(|owned| is_attached && owned.log.is_some());
        let Some(history) = owned.and_then(|owned| owned.history.as_mut()) else {
            if let Some(followed) = self.followed_mut(partition) {
                followed.reader.retain(number, publish, age, now);
            }
            return;
        };
        let bytes = publish.published.data.len();
        let published = Arc::clone(&publish.published);
        if history.publish_at(number, publish.published, bytes, now.saturating_sub(age)) {
            if drops_floor {
                forget_floor(history);
            }
            self.fan_out(&publish.channel, number, &published, false, now);
        }
    }

    /// Gives a channel that this node serves without the log its history there: its retention was configured meanwhile, or not yet at the
    /// node that has subscribed.
    fn enter_log(&mut self, number: u64, publish: &Publish, now: Duration) {
        let owned = self.owned.get_mut(&publish.channel);
        if owned.is_none_or(|owned| owned.log.is_some()) {
            return;
        }
        self.join_history(&publish.channel, publish.settings, now);
        let owned = self.owned.get_mut(&publish.channel);
        if let Some(history) = owned.and_then(|owned| owned.history.as_mut()) {
            history.advance(number.saturating_sub(1));
            self.send_present_state_to_all(&publish.channel, now);
        }
    }

    pub(super) fn read_older(
        &mut self,
        partition: Partition,
        from: u64,
        records: Vec<Record>,
        is_first: bool,
        now_ms: i64,
        now: Duration,
    ) {
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        if !matches!(followed.reader.state(), ReaderState::Reading { .. }) {
            return;
        }
        let is_attached = followed.reader.is_attached();
        let older = followed.reader.read_older(from, records, is_first, now_ms);
        for older in older.into_iter().rev() {
            self.add_older(partition, is_attached, older, now);
        }
    }

    fn add_older(&mut self, partition: Partition, is_attached: bool, older: OlderPublication, now: Duration) {
        let owned = self.owned.get_mut(&older.publish.channel).filter(|_| is_attached);
        if let Some(Owned {
            history: Some(history),
            log: Some(mark),
            ..
        }) = owned
        {
            mark.add_older(history, older, now);
        } else if let Some(followed) = self.followed_mut(partition) {
            followed.reader.retain_older(older, now);
        }
    }

    fn served_channels(&self, partition: Partition) -> Vec<Arc<str>> {
        let followed = self.followed(partition);
        followed.map_or_else(Vec::new, |followed| {
            followed.reader.served().iter().cloned().collect()
        })
    }

    /// Replaces the histories of the channels that this node serves by those that were read again.
    pub(super) fn attach_histories(&mut self, partition: Partition, now: Duration) {
        for channel in self.served_channels(partition) {
            let Some(owned) = self.owned.get_mut(&channel) else {
                continue;
            };
            (owned.log, owned.history) = (None, None);
            let settings = owned.settings;
            if let Some(followed) = self.followed_mut(partition) {
                followed.reader.drop_served(&channel);
            }
            self.join_history(&channel, settings, now);
            self.send_state_to_all(&channel, now);
        }
        self.install_ready(now);
        self.release_held(now);
        self.flush_requests(now);
    }

    /// Starts the new epoch in the channels that this node serves.
    pub(super) fn restart_histories(&mut self, partition: Partition, now: Duration) {
        let Some(followed) = self.followed(partition) else {
            return;
        };
        let reader = &followed.reader;
        let (life, floor, start) = (reader.life(), reader.floor(), reader.life_start());
        for channel in self.served_channels(partition) {
            let owned = self.owned.get_mut(&channel);
            if let (Some(owned), Some(life)) = (owned, life) {
                owned.raise_log_floor(floor);
                owned.start_epoch(life.epoch());
                if let Some(history) = &mut owned.history {
                    history.set_epoch_start(start);
                }
            }
            self.send_state_to_all(&channel, now);
        }
    }

    /// Raises the floors of the channels that this node serves to that of the reader.
    pub(super) fn raise_floors(&mut self, partition: Partition, now: Duration) {
        let Some(floor) = self.followed(partition).map(|followed| followed.reader.floor()) else {
            return;
        };
        for channel in self.served_channels(partition) {
            if let Some(owned) = self.owned.get_mut(&channel) {
                owned.raise_log_floor(floor);
            }
            self.send_state_to_all(&channel, now);
        }
    }

    /// Drops unused channels and keys.
    pub(super) fn expire_logged(&mut self, now: Duration) {
        if let Some(log) = &mut self.log {
            for followed in log.followed.values_mut() {
                followed.reader.expire(now);
            }
        }
    }
}
