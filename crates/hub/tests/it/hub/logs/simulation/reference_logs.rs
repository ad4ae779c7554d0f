//! The reference logs: all records of each epoch, and the publication that each position denotes.

use std::collections::BTreeMap;

use ringmain_hub::history::Epoch;

/// The channels, two of which have no offsets. The log of a channel is its index modulo the number of logs.
pub(super) const CHANNELS: [&str; 6] = ["a", "b", "c", "d", "plain:a", "plain:b"];

/// Returns whether a channel has offsets.
pub(super) fn keeps(channel: &str) -> bool {
    !channel.starts_with("plain:")
}

/// A record: its offset, its channel, and a unique identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRecord {
    pub(super) offset: u64,
    pub(super) channel: &'static str,
    pub(super) id: u64,
}

/// A log in its current epoch.
#[derive(Debug)]
pub(super) struct TrueLog {
    pub(super) epoch: Epoch,
    /// Records above this offset can be read.
    pub(super) retained: u64,
    pub(super) end: u64,
}

/// The logs and their past.
#[derive(Debug)]
pub(super) struct ReferenceLogs {
    pub(super) logs: Vec<TrueLog>,
    /// The records of each epoch, including lost and deleted ones.
    lives: BTreeMap<Epoch, Vec<LogRecord>>,
    /// For epochs after a truncation: the previous epoch, and the offset up to which both have the same records.
    continued: BTreeMap<Epoch, (Epoch, u64)>,
    /// The log of each epoch.
    owners: BTreeMap<Epoch, usize>,
    names: BTreeMap<(&'static str, Epoch, u64), u64>,
    ids: u64,
}

impl ReferenceLogs {
    pub(super) fn new(count: usize) -> ReferenceLogs {
        let mut reference = ReferenceLogs {
            logs: Vec::new(),
            lives: BTreeMap::new(),
            continued: BTreeMap::new(),
            owners: BTreeMap::new(),
            names: BTreeMap::new(),
            ids: 0,
        };
        for index in 0..count {
            let log = reference.create(index);
            reference.logs.push(log);
        }
        reference
    }

    fn create(&mut self, index: usize) -> TrueLog {
        let epoch = Epoch::new(self.lives.len() as u64 + 1);
        self.lives.insert(epoch, Vec::new());
        self.owners.insert(epoch, index);
        TrueLog {
            epoch,
            retained: 0,
            end: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Returns the log that feeds a channel.
    pub(super) fn log_of(&self, channel: &str) -> usize {
        let index = CHANNELS.iter().position(|name| *name == channel);
        index.expect("a channel") % self.logs.len()
    }

    /// Appends a record to a log. Some offsets are skipped.
    pub(super) fn append(&mut self, random: &mut fastrand::Rng) {
        let channel = *random.choice(&CHANNELS).expect("one");
        let id = self.next_id();
        let log = self.log_of(channel);
        let log = &mut self.logs[log];
        log.end += random.u64(1..=2);
        let record = LogRecord {
            offset: log.end,
            channel,
            id,
        };
        self.lives.entry(log.epoch).or_default().push(record);
    }

    /// Truncates the tail of a log, if it has one, which starts a new epoch. Returns whether records were lost.
    pub(super) fn truncate(&mut self, random: &mut fastrand::Rng) -> bool {
        let index = random.usize(0..self.logs.len());
        let (before, end, retained) = {
            let log = &self.logs[index];
            (log.epoch, log.end, log.retained)
        };
        let retained = end.saturating_sub(random.u64(1..=6)).max(retained);
        if retained == end {
            return false;
        }
        let records = self.lives[&before].iter();
        let records: Vec<LogRecord> = records
            .filter(|record| record.offset <= retained)
            .copied()
            .collect();
        let log = TrueLog {
            retained,
            end: retained,
            ..self.create(index)
        };
        self.lives.insert(log.epoch, records);
        self.continued.insert(log.epoch, (before, retained));
        self.logs[index] = log;
        true
    }

    /// Deletes a log and creates it again.
    pub(super) fn recreate(&mut self, random: &mut fastrand::Rng) {
        let index = random.usize(0..self.logs.len());
        self.logs[index] = self.create(index);
    }

    /// Deletes the oldest records of a log.
    pub(super) fn retain(&mut self, random: &mut fastrand::Rng) {
        let index = random.usize(0..self.logs.len());
        let log = &mut self.logs[index];
        log.retained = log.end.saturating_sub(random.u64(0..16)).max(log.retained);
    }

    /// Returns the position in the current epoch for a reader that has read another epoch up to an offset.
    pub(super) fn continue_at(&self, log: usize, read: Option<Epoch>, at: u64) -> u64 {
        let (mut epoch, mut at) = (self.logs[log].epoch, at);
        while Some(epoch) != read {
            let Some(&(before, end)) = self.continued.get(&epoch) else {
                return 0;
            };
            at = at.min(end);
            epoch = before;
        }
        at
    }

    /// Returns the first record of a log above an offset.
    pub(super) fn next(&self, log: usize, above: u64) -> Option<LogRecord> {
        let records = &self.lives[&self.logs[log].epoch];
        records.iter().find(|record| record.offset > above).copied()
    }

    /// Returns the log that has, or had, an epoch.
    pub(super) fn log_of_epoch(&self, epoch: Epoch) -> usize {
        self.owners[&epoch]
    }

    pub(super) fn is_of_log(&self, epoch: Epoch) -> bool {
        self.lives.contains_key(&epoch)
    }

    /// Returns the records of a channel in an epoch, above the first offset and up to the second.
    pub(super) fn between(&self, epoch: Epoch, channel: &str, above: u64, up_to: u64) -> Vec<LogRecord> {
        let records = self.lives.get(&epoch).into_iter().flatten();
        let wanted = records.filter(|record| record.channel == channel);
        let wanted = wanted.filter(|record| record.offset > above && record.offset <= up_to);
        wanted.copied().collect()
    }

    /// Records the publication that a position denotes, and checks that it denotes no other one and, in a log, the log's record.
    pub(super) fn check_name(
        &mut self,
        channel: &'static str,
        epoch: Epoch,
        offset: u64,
        id: u64,
        seed: u64,
    ) {
        let first = *self.names.entry((channel, epoch, offset)).or_insert(id);
        assert_eq!(first, id, "seed {seed}: {channel} {epoch} {offset} names two");
        if self.is_of_log(epoch) {
            let found = self.lives[&epoch].iter().find(|record| record.offset == offset);
            let found = found.map(|record| (record.channel, record.id));
            let expected = Some((channel, id));
            assert_eq!(
                found, expected,
                "seed {seed}: {channel} {epoch} {offset} is not the log's"
            );
        }
    }
}
