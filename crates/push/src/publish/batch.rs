//! Batches of a source's records: one queue operation, one wake-up and one completion for all records of a worker.
//!
//! ```text
//! Batch::submit ─ checks, room, receipt ─▶ staged by worker ─ STAGED_MAX, or the end of the batch ─▶ queue of the worker
//!                                          receipts ◀─ completed, source woken once ── RecordBatch::publish
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::mail::{ChannelOptions, Idempotency, Origin};
use ringmain_hub::protocol::{Published, compact};
use ringmain_hub::shard::{ChannelShard, LogId, LogPublishOutcome};

use crate::options::{DataFormat, ValidOptions, publication_limit};
use crate::publish::inbound_queue::{Inbound, InboundQueue, worker_of};
use crate::publish::receipts::{Completion, ReceiptOutcome, Receipts};
use crate::publish::thread_publisher::{SubmitError, ThreadPublisher};

/// Records that are queued for a worker by one operation, at most.
const STAGED_MAX: usize = 64;

/// A record of a source.
#[derive(Debug)]
pub struct SourceRecord {
    /// The channel.
    pub channel: Arc<str>,
    /// The data: one JSON value, unless the channel's namespace allows any bytes.
    pub data: Bytes,
    /// The tags of the publication.
    pub tags: BTreeMap<String, String>,
    /// The log of the record and its offset there: the publication has the same offset on all nodes. `None`: the channel assigns the
    /// offset.
    pub log_position: Option<(LogId, u64)>,
    /// An idempotency key: another record of the channel with the same key is not published while the key is stored. At most
    /// [`KEY_BYTES`](ringmain_hub::limits::KEY_BYTES); ignored with a log position, which identifies duplicates.
    pub key: Option<Box<str>>,
}

/// Records with receipts of one window. They are queued when the batch is dropped, at the latest.
pub struct Batch<'i> {
    publisher: &'i ThreadPublisher,
    receipts: &'i mut Receipts,
    /// The staged records of each worker.
    staged: Vec<Vec<StagedRecord>>,
    /// Workers with queued records that were not woken yet.
    to_wake: Vec<bool>,
}

/// A record with the options of its channel and the number of its receipt.
struct StagedRecord {
    record: SourceRecord,
    channel_options: ChannelOptions,
    receipt: u32,
}

/// Records in the queue of a worker, at least one.
pub(crate) struct RecordBatch {
    staged: Vec<StagedRecord>,
    completion: Completion,
    /// The time for which keys are stored.
    window: Duration,
    origin: Origin,
    bytes: usize,
}

impl ThreadPublisher {
    /// Starts a batch of records with receipts of this window.
    pub fn batch<'i>(&'i mut self, receipts: &'i mut Receipts) -> Batch<'i> {
        self.refresh();
        let workers = self.workers();
        Batch {
            publisher: self,
            receipts,
            staged: std::iter::repeat_with(Vec::new).take(workers).collect(),
            to_wake: vec![false; workers],
        }
    }
}

impl Batch<'_> {
    /// Submits a record to the worker of its channel, which completes its receipt; receipts are in the order of the records. Records of a
    /// channel by one [`ThreadPublisher`] are published in their order.
    ///
    /// # Errors
    /// [`SubmitError`], with the record: nothing was submitted, and no receipt was issued. [`SubmitError::Full`] includes a full window
    /// ([`Receipts::has_room`]).
    pub fn submit(&mut self, mut record: SourceRecord) -> Result<(), (SubmitError, Box<SourceRecord>)> {
        match self.stage(&mut record) {
            Ok((worker, channel_options, receipt)) => {
                let staged = &mut self.staged[worker];
                if staged.capacity() == 0 {
                    staged.reserve_exact(STAGED_MAX);
                }
                staged.push(StagedRecord {
                    record,
                    channel_options,
                    receipt,
                });
                if staged.len() >= STAGED_MAX {
                    self.flush_worker(worker);
                }
                Ok(())
            }
            Err(error) => Err((error, Box::new(record))),
        }
    }

    /// Returns whether another receipt can be issued.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.receipts.has_room()
    }

    /// Checks a record, and reserves room and a receipt for it. Returns its worker, the options of its channel, and the receipt.
    fn stage(&mut self, record: &mut SourceRecord) -> Result<(usize, ChannelOptions, u32), SubmitError> {
        if self.publisher.settings.hand_over.is_frozen() {
            return Err(SubmitError::NotReady);
        }
        let (options, queues) = self.queues().ok_or(SubmitError::NotReady)?;
        let namespace = options
            .namespace(&record.channel)
            .map_err(SubmitError::InvalidChannel)?;
        let (channel_options, worker) = (namespace.channel_options, worker_of(queues, &record.channel));
        let queue = &queues[worker];
        if queue.is_full() {
            return Err(SubmitError::Full);
        }
        if record.data.len() > publication_limit(&channel_options) {
            return Err(SubmitError::TooLarge);
        }
        if namespace.data_format != DataFormat::Binary {
            let data = compact(&record.data).map_err(|_| SubmitError::InvalidData)?;
            namespace
                .data_format
                .check_json(&data)
                .map_err(|_| SubmitError::InvalidData)?;
            record.data = data;
        } else if record.data.is_empty() {
            return Err(SubmitError::InvalidData);
        }
        if !self.receipts.has_room() || !queue.reserve(record.data.len()) {
            return Err(SubmitError::Full);
        }
        let receipt = self.receipts.issue().ok_or(SubmitError::Full)?;
        Ok((worker, channel_options, receipt))
    }

    fn queues(&self) -> Option<(&ValidOptions, &[InboundQueue])> {
        let queues = self.publisher.settings.mesh.inbound_queues();
        // Workers that started since the batch was created are for the next one.
        let queues = queues.filter(|queues| queues.len() == self.staged.len());
        self.publisher.options.as_deref().zip(queues)
    }

    /// Moves the staged records of a worker into its queue.
    fn flush_worker(&mut self, worker: usize) {
        let staged = std::mem::take(&mut self.staged[worker]);
        let Some((options, queues)) = self.queues().filter(|_| !staged.is_empty()) else {
            return;
        };
        let records = RecordBatch {
            bytes: staged.iter().map(|staged| staged.record.data.len()).sum(),
            staged,
            completion: self.receipts.completion(),
            window: options.idempotency_window,
            origin: self.publisher.origin,
        };
        queues[worker].enqueue_reserved(Inbound::Records(Box::new(records)));
        self.to_wake[worker] = true;
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for worker in 0..self.staged.len() {
            self.flush_worker(worker);
        }
        for (worker, _) in self.to_wake.iter().enumerate().filter(|(_, to_wake)| **to_wake) {
            if let Some((_, queues)) = self.queues() {
                queues[worker].wake();
            }
        }
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Batch")
    }
}

impl RecordBatch {
    pub(crate) fn len(&self) -> usize {
        self.staged.len()
    }

    /// Returns the bytes of the data.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Publishes the records and completes their receipts.
    pub(crate) fn publish(self, shard: &mut ChannelShard, now: Duration) {
        for staged in self.staged {
            let receipt = staged.receipt;
            if let Some(outcome) = staged.publish(shard, self.window, self.origin, now) {
                self.completion.complete(receipt, outcome);
            }
        }
        self.completion.wake();
    }
}

impl StagedRecord {
    /// Publishes the record. `None`: a successor reads the record again.
    fn publish(
        self,
        shard: &mut ChannelShard,
        window: Duration,
        origin: Origin,
        now: Duration,
    ) -> Option<ReceiptOutcome> {
        let StagedRecord {
            record,
            channel_options,
            ..
        } = self;
        let published = Arc::new(Published {
            data: record.data,
            tags: record.tags,
            ..Published::default()
        });
        let outcome = match record.log_position {
            Some((id, offset)) => {
                shard.publish_log_record(&record.channel, channel_options, published, id, offset, now)
            }
            None => {
                let key = record.key.map(|key| Idempotency { key, window });
                shard.publish_idempotent(&record.channel, channel_options, published, key, origin, now)
            }
        };
        match outcome {
            LogPublishOutcome::Published => Some(ReceiptOutcome::Published),
            LogPublishOutcome::Duplicate => Some(ReceiptOutcome::Duplicate),
            LogPublishOutcome::NoRoom => Some(ReceiptOutcome::ChannelLimit),
            LogPublishOutcome::Draining => None,
        }
    }
}
