//! The appends of this node to the log.

use super::*;
use crate::frame::{Publish, PublishOutcome, cost};
use crate::log::{AppendKey, AppendOutcome};
use crate::node::Reply;
use ringmain_hub::history::StreamPosition;

impl Node {
    /// Returns whether this node may append a publication: there is room, and it will read the entry. With an idempotency key it must have
    /// read as much as may have the first publication with the key.
    pub(in crate::node) fn can_append(&self, partition: Partition, publish: &Publish) -> bool {
        let (Some(log), Some(followed)) = (&self.log, self.followed(partition)) else {
            return false;
        };
        let bytes = log.append_bytes + cost(&publish.published) as usize;
        let has_room = log.appends.len() < limits::LOG_APPENDS && bytes <= limits::LOG_APPEND_BYTES;
        let idempotency = publish.options.idempotency.as_ref();
        let knows_key = idempotency.is_none_or(|idempotency| followed.reader.covers(idempotency.window));
        has_room && knows_key && followed.reader.is_live()
    }

    /// Appends a publication. The outcome follows when it is read.
    pub(in crate::node) fn publish_logged(
        &mut self,
        origin: Origin,
        partition: Partition,
        publish: Publish,
        now: Duration,
    ) {
        if !self.can_append(partition, &publish) {
            return self.finish_publication(&[origin], PublishOutcome::Refused);
        }
        let channel = Arc::clone(&publish.channel);
        let idempotency = publish.options.idempotency.as_ref();
        let key = idempotency.map(|idempotency| idempotency.key.clone());
        if let Some(idempotency) = idempotency {
            if self.join_append(&channel, &idempotency.key, origin) {
                return;
            }
            // The first publication was read, but perhaps not acknowledged: an entry behind it is acknowledged after it.
            let first = self.followed(partition).map(|followed| &followed.reader);
            if let Some((first, beat)) =
                first.and_then(|reader| Some((reader.find_key(&channel, idempotency)?, reader.beat()?)))
            {
                let kind = AppendKind::Repetition { origin, first };
                return self.append(partition, kind, now, |id| Entry::Beat { id, beat });
            }
        }
        let kind = AppendKind::Publication {
            channel,
            key,
            origins: vec![origin],
        };
        self.append(partition, kind, now, |id| Entry::Publication { id, publish });
    }

    /// Lets a publication wait for the outcome of one with the same key.
    fn join_append(&mut self, channel: &Arc<str>, key: &str, origin: Origin) -> bool {
        let Some(log) = &mut self.log else { return false };
        let id = log.keys_in_flight.get(&(Arc::clone(channel), key.into()));
        let append = id.and_then(|id| log.appends.get_mut(id));
        let Some(PendingAppend {
            kind: AppendKind::Publication { origins, .. },
            ..
        }) = append
        else {
            return false;
        };
        origins.push(origin);
        true
    }

    pub(super) fn append(
        &mut self,
        partition: Partition,
        kind: AppendKind,
        now: Duration,
        entry: impl FnOnce(EntryId) -> Entry,
    ) {
        let writer = self.member.uid;
        let Some(log) = &mut self.log else { return };
        log.last_append += 1;
        let id = log.last_append;
        let entry = entry(EntryId { writer, append: id });
        let followed = log.followed.get(&partition);
        let life = followed.and_then(|followed| followed.reader.life());
        let append_key = match &entry {
            Entry::Publication { publish, .. } => {
                // A publication of an earlier life is in no history: its key is not that of a repetition.
                let life = life.map_or(0, |life| life.0);
                publish.options.idempotency.as_ref().map(|idempotency| AppendKey {
                    channel: Arc::clone(&publish.channel),
                    key: format!("{life:016x}:{}", idempotency.key).into(),
                    window: idempotency.window,
                })
            }
            Entry::Beat { .. } | Entry::Life { .. } => None,
        };
        let bytes = entry.encode();
        if let AppendKind::Publication {
            channel,
            key: Some(key),
            ..
        } = &kind
        {
            log.keys_in_flight.insert((Arc::clone(channel), key.clone()), id);
        }
        log.append_bytes += bytes.len();
        let pending = PendingAppend {
            partition,
            kind,
            life,
            bytes: bytes.len(),
            at: now,
            is_acknowledged: false,
            read: None,
        };
        log.appends.insert(id, pending);
        log.requests.push(LogRequest::Append(Append {
            id,
            partition,
            entry: bytes.into(),
            decoded: Box::new(entry),
            key: append_key,
        }));
    }

    fn remove_append(&mut self, id: u64) -> Option<PendingAppend> {
        let log = self.log.as_mut()?;
        let append = log.appends.remove(&id)?;
        log.append_bytes -= append.bytes;
        if let AppendKind::Publication {
            channel,
            key: Some(key),
            ..
        } = &append.kind
        {
            log.keys_in_flight.remove(&(Arc::clone(channel), key.clone()));
        }
        Some(append)
    }

    /// Handles the outcome of an append. An acknowledged publication is reported once it is read, too.
    pub(super) fn appended(&mut self, id: u64, outcome: AppendOutcome) {
        let Some(log) = &mut self.log else { return };
        let Some(append) = log.appends.get_mut(&id) else {
            // A beat or a life that was read, or an append that has expired.
            return;
        };
        let partition = append.partition;
        match outcome {
            AppendOutcome::Appended(_) => {
                append.is_acknowledged = true;
                self.finish_if_certain(id);
            }
            AppendOutcome::Repeated(number) => {
                log.repeats.insert((partition, number, id));
                self.finish_repeats(partition);
            }
            // It was read: it is in the log in spite of the outcome.
            AppendOutcome::Refused if append.read.is_some() => {
                self.finish_append(id, PublishOutcome::Unknown);
            }
            AppendOutcome::Refused => {
                if matches!(append.kind, AppendKind::Life) {
                    self.retry_life(partition);
                }
                self.finish_append(id, PublishOutcome::Refused);
            }
            AppendOutcome::Unknown => self.finish_append(id, PublishOutcome::Unknown),
        }
    }

    fn retry_life(&mut self, partition: Partition) {
        if let Some(followed) = self.followed_mut(partition) {
            followed.life_sent = None;
        }
    }

    /// Finishes the appends whose key was appended before, once the first one was read.
    pub(super) fn finish_repeats(&mut self, partition: Partition) {
        loop {
            let Some(log) = &mut self.log else { return };
            let Some(followed) = log.followed.get(&partition) else {
                return;
            };
            let from = (partition, 0, 0);
            let first = log.repeats.range(from..).next().copied();
            let Some((_, number, id)) =
                first.filter(|(of, number, _)| *of == partition && *number <= followed.reader.position())
            else {
                return;
            };
            let life = log.appends.get(&id).and_then(|append| append.life);
            let is_current = followed.reader.life() == life && followed.rollback.is_none();
            let position = followed.reader.position_in_life(number).filter(|_| is_current);
            log.repeats.remove(&(partition, number, id));
            log.counts.repeated += 1;
            self.finish_append(id, published_at(position));
        }
    }

    /// Handles the reading of an entry of this node. `position`: that of the publication, or of the first one with its key.
    pub(super) fn finish_read(&mut self, id: EntryId, position: Option<StreamPosition>) {
        let log = self.log.as_mut().filter(|_| id.writer == self.member.uid);
        if let Some(append) = log.and_then(|log| log.appends.get_mut(&id.append)) {
            append.read = Some(position);
            // Otherwise the outcome decides: the broker may still wait for its replicas.
            self.finish_if_certain(id.append);
        }
    }

    /// Finishes an append that is acknowledged and read.
    fn finish_if_certain(&mut self, id: u64) {
        let append = self.log.as_ref().and_then(|log| log.appends.get(&id));
        let certain = append.filter(|append| append.is_acknowledged);
        if let Some(position) = certain.and_then(|append| append.read) {
            self.finish_append(id, published_at(position));
        }
    }

    fn finish_append(&mut self, id: u64, outcome: PublishOutcome) {
        match self.remove_append(id).map(|append| append.kind) {
            Some(AppendKind::Publication { origins, .. }) => self.finish_publication(&origins, outcome),
            Some(AppendKind::Repetition { origin, .. }) => self.finish_publication(&[origin], outcome),
            Some(AppendKind::Beat | AppendKind::Life) | None => {}
        }
    }

    fn finish_publication(&mut self, origins: &[Origin], outcome: PublishOutcome) {
        if let Some(log) = &mut self.log {
            let counts = &mut log.counts;
            let counter = match outcome {
                PublishOutcome::Published(_) => &mut counts.appended,
                PublishOutcome::Refused | PublishOutcome::ChannelLimit => &mut counts.refused,
                PublishOutcome::Unknown => &mut counts.unknown,
            };
            *counter += origins.len() as u64;
        }
        for origin in origins {
            self.reply(*origin, Reply::Published(outcome));
        }
    }

    /// Returns the time since a beat of this node was appended, if it is the one that was read.
    pub(super) fn finish_beat(&mut self, partition: Partition, id: EntryId, now: Duration) {
        if id.writer != self.member.uid {
            return;
        }
        let append = self.log.as_ref().and_then(|log| log.appends.get(&id.append));
        if let Some(AppendKind::Repetition { first, .. }) = append.map(|append| &append.kind) {
            let life = self
                .followed(partition)
                .filter(|followed| followed.rollback.is_none());
            let life = life.and_then(|followed| followed.reader.life()).map(Life::epoch);
            let first = first.filter(|first| Some(first.epoch) == life);
            return self.finish_read(id, first);
        }
        let Some(append) = self.remove_append(id.append) else {
            return;
        };
        if let Some(log) = &mut self.log {
            log.round_trip = now.saturating_sub(append.at);
        }
        if let Some(followed) = self.followed_mut(partition) {
            (followed.beat_read, followed.beat_appended) = (now, Some(append.at));
        }
    }

    pub(super) fn finish_life(&mut self, id: EntryId) {
        if id.writer == self.member.uid {
            self.remove_append(id.append);
        }
    }

    /// Ends the wait for appends that are not certain in time. They may be in the log.
    pub(super) fn expire_appends(&mut self, now: Duration) {
        let is_late = |append: &PendingAppend| now.saturating_sub(append.at) >= limits::REQUEST_TIMEOUT;
        while let Some(log) = &self.log
            && let Some((id, _)) = log
                .appends
                .first_key_value()
                .filter(|(_, append)| is_late(append))
        {
            let id = *id;
            self.finish_append(id, PublishOutcome::Unknown);
        }
        if let Some(log) = &mut self.log {
            let appends = &log.appends;
            log.repeats.retain(|(.., id)| appends.contains_key(id));
        }
    }
}

/// Returns the outcome of a publication that the log has. Without a position it is in no life: the broker has it, but no history will.
fn published_at(position: Option<StreamPosition>) -> PublishOutcome {
    match position {
        Some(_) => PublishOutcome::Published(position),
        None => PublishOutcome::Unknown,
    }
}
