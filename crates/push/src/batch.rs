//! Batches of a source's records: one queue operation, one wake-up and one completion for all that go to the same worker.
//!
//! ```text
//! Batch::submit ─ checks, room, receipt ─▶ staged by worker ─ MOST_STAGED, or the end of the batch ─▶ queue of the worker
//!                                          receipts ◀─ completed, source woken once ── Records::publish
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::mail::{ChannelOptions, Idempotency, Origin};
use ringmain_hub::protocol::{Published, compact};
use ringmain_hub::shard::{ChannelShard, LogId, LogPublishOutcome};

use crate::inlet::{Arriving, Inlet, NotTaken, Slot, worker_of};
use crate::limits;
use crate::options::{Checked, DataFormat};
use crate::receipts::{Completion, Receipted, Receipts};

/// Records that are queued for a worker by one operation, at most.
const MOST_STAGED: usize = 64;

/// A record of a source.
#[derive(Debug)]
pub struct SourceRecord {
    /// The channel.
    pub channel: Arc<str>,
    /// The data: one JSON value, unless the channel's namespace takes any bytes.
    pub data: Bytes,
    /// The tags of the publication.
    pub tags: BTreeMap<String, String>,
    /// The log that the record is from, with its offset there: the publication has the same offset on all nodes. `None`: the channel
    /// counts.
    pub place: Option<(LogId, u64)>,
    /// A key: another record of the channel with the same one is not published within the time that keys are remembered. At most
    /// [`KEY_BYTES`](ringmain_hub::limits::KEY_BYTES); ignored with a place, by which repeats are recognized.
    pub key: Option<Box<str>>,
}

/// Records of one window of receipts, on their way to workers. They are handed over when it is dropped, at the latest.
pub struct Batch<'i> {
    inlet: &'i Inlet,
    receipts: &'i mut Receipts,
    /// The staged records of each worker.
    staged: Vec<Vec<Staged>>,
    /// Workers that have been handed records, and were not woken yet.
    unwoken: Vec<bool>,
}

/// A record with the rules of its channel and the number of its receipt.
struct Staged {
    record: SourceRecord,
    rules: ChannelOptions,
    receipt: u32,
}

/// Records in the queue of a worker. There is at least one.
pub(crate) struct Records {
    staged: Vec<Staged>,
    completion: Completion,
    /// The time for which keys are remembered.
    window: Duration,
    origin: Origin,
    bytes: usize,
}

impl Inlet {
    /// Begins a batch of records with receipts of this window.
    pub fn batch<'i>(&'i mut self, receipts: &'i mut Receipts) -> Batch<'i> {
        self.refresh();
        let workers = self.workers();
        Batch {
            inlet: self,
            receipts,
            staged: std::iter::repeat_with(Vec::new).take(workers).collect(),
            unwoken: vec![false; workers],
        }
    }
}

impl Batch<'_> {
    /// Hands a record to the worker where its channel is at home, which completes its receipt; receipts are in the order of the records.
    /// Records of a channel by one [`Inlet`] are published in their order.
    ///
    /// # Errors
    /// [`NotTaken`], with the record: nothing was handed over, and no receipt was issued. [`NotTaken::Full`] is also for a window
    /// without room ([`Receipts::has_room`]).
    pub fn submit(&mut self, mut record: SourceRecord) -> Result<(), (NotTaken, Box<SourceRecord>)> {
        match self.stage(&mut record) {
            Ok((worker, rules, receipt)) => {
                let staged = &mut self.staged[worker];
                if staged.capacity() == 0 {
                    staged.reserve_exact(MOST_STAGED);
                }
                staged.push(Staged {
                    record,
                    rules,
                    receipt,
                });
                if staged.len() >= MOST_STAGED {
                    self.queue(worker);
                }
                Ok(())
            }
            Err(why) => Err((why, Box::new(record))),
        }
    }

    /// Returns whether another receipt may be issued.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.receipts.has_room()
    }

    /// Checks a record, and reserves room and a receipt for it. Returns its worker, the rules of its channel, and the receipt.
    fn stage(&mut self, record: &mut SourceRecord) -> Result<(usize, ChannelOptions, u32), NotTaken> {
        if self.inlet.settings.hand_over.is_frozen() {
            return Err(NotTaken::NotYet);
        }
        let (options, slots) = self.place().ok_or(NotTaken::NotYet)?;
        let namespace = options.namespace(&record.channel).map_err(NotTaken::NoChannel)?;
        let (rules, worker) = (namespace.rules, worker_of(slots, &record.channel));
        let slot = &slots[worker];
        if slot.is_full() {
            return Err(NotTaken::Full);
        }
        if record.data.len() > limits::PUBLICATION_BYTES {
            return Err(NotTaken::TooLarge);
        }
        if namespace.data_format != DataFormat::Binary {
            let data = compact(&record.data).map_err(|_| NotTaken::NotJson)?;
            namespace
                .data_format
                .check_json(&data)
                .map_err(|_| NotTaken::NotJson)?;
            record.data = data;
        } else if record.data.is_empty() {
            return Err(NotTaken::NotJson);
        }
        if !self.receipts.has_room() || !slot.reserve(record.data.len()) {
            return Err(NotTaken::Full);
        }
        let receipt = self.receipts.issue().ok_or(NotTaken::Full)?;
        Ok((worker, rules, receipt))
    }

    fn place(&self) -> Option<(&Checked, &[Slot])> {
        let slots = self.inlet.settings.mesh.slots();
        // Workers that started since the batch began are for the next one.
        let slots = slots.filter(|slots| slots.len() == self.staged.len());
        self.inlet.options.as_deref().zip(slots)
    }

    /// Puts the records that are staged for a worker into its queue.
    fn queue(&mut self, worker: usize) {
        let staged = std::mem::take(&mut self.staged[worker]);
        let Some((options, slots)) = self.place().filter(|_| !staged.is_empty()) else {
            return;
        };
        let records = Records {
            bytes: staged.iter().map(|staged| staged.record.data.len()).sum(),
            staged,
            completion: self.receipts.completion(),
            window: options.keys_remembered,
            origin: self.inlet.origin,
        };
        slots[worker].put_reserved(Arriving::Records(Box::new(records)));
        self.unwoken[worker] = true;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for worker in 0..self.staged.len() {
            self.queue(worker);
        }
        for (worker, _) in self.unwoken.iter().enumerate().filter(|(_, unwoken)| **unwoken) {
            if let Some((_, slots)) = self.place() {
                slots[worker].wake();
            }
        }
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Batch")
    }
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.staged.len()
    }

    /// Bytes of the data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Publishes the records and completes their receipts.
    pub(crate) fn publish(self, home: &mut ChannelShard, now: Duration) {
        let Records {
            staged,
            completion,
            window,
            origin,
            ..
        } = self;
        for Staged {
            record,
            rules,
            receipt,
        } in staged
        {
            if let Some(receipted) = publish(home, record, (rules, window, origin), now) {
                completion.complete(receipt, receipted);
            }
        }
        completion.wake();
    }
}

/// Publishes a record. `None`: a successor reads it again.
fn publish(
    home: &mut ChannelShard,
    record: SourceRecord,
    (rules, window, origin): (ChannelOptions, Duration, Origin),
    now: Duration,
) -> Option<Receipted> {
    let published = Arc::new(Published {
        data: record.data,
        tags: record.tags,
        ..Published::default()
    });
    let outcome = match record.place {
        Some((id, offset)) => home.publish_log_record(&record.channel, rules, published, id, offset, now),
        None => {
            let once = record.key.map(|key| Idempotency { key, window });
            home.publish_idempotent(&record.channel, rules, published, once, origin, now)
        }
    };
    match outcome {
        LogPublishOutcome::Published => Some(Receipted::Published),
        LogPublishOutcome::Duplicate => Some(Receipted::Repeated),
        LogPublishOutcome::NoRoom => Some(Receipted::NoRoom),
        LogPublishOutcome::Draining => None,
    }
}
