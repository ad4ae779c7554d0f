//! Handing publications and commands to workers, in batches.
//!
//! ```text
//! backlog   p p p [c] p p      p: publication, c: command
//!           └─┬─┘  │  └─ in a batch once the command is done
//!     in a batch   └─ alone, once the publications are done
//! ```

use ringmain_push::{Batch, LogId, SourceRecord, SubmitError, ThreadPublisher};

use super::{Partition, Prepared};
use crate::commands::{Action, Publication};
use crate::feed::Feed;
use crate::status::DeadReason;

/// The outcome of handing over a backlog.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pumped {
    All,
    /// A worker has no room.
    WorkerFull,
    /// The limit of publications in flight is reached.
    WindowFull,
    /// Publications or a command in flight have to complete first.
    Ordered,
    /// A command is next, which no batch has.
    Command,
}

impl<P: Clone> Partition<P> {
    /// Hands over as many publications as there is room for. Returns whether all were.
    pub(super) fn hand_over(&mut self, feed: &mut Feed) -> bool {
        self.collect(feed);
        while !self.backlog.is_empty() {
            let mut refused = Vec::new();
            let pumped = if self.next_waits() {
                Pumped::Ordered
            } else {
                self.submit_batch(&mut feed.inlet, &mut refused)
            };
            let pumped = match pumped {
                Pumped::Command if !self.next_waits() => self.submit_command(&mut feed.inlet, &mut refused),
                Pumped::Command => Pumped::Ordered,
                other => other,
            };
            for (number, reason) in refused {
                self.close_one(number);
                self.bury(feed, number, reason);
            }
            match pumped {
                Pumped::All | Pumped::Command => {}
                Pumped::WorkerFull => return false,
                Pumped::WindowFull | Pumped::Ordered => {
                    let before = self.receipts.in_flight();
                    self.collect(feed);
                    if self.receipts.in_flight() == before {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Returns whether what was handed over has to be done before the next: commands keep their order among publications, which other
    /// workers receive.
    pub(super) fn next_waits(&mut self) -> bool {
        if self.receipts.in_flight() == 0 {
            self.awaits_command = false;
        }
        self.awaits_command || self.receipts.in_flight() > 0 && self.is_command_next()
    }

    fn is_command_next(&self) -> bool {
        let next = self.backlog.front();
        next.is_some_and(|next| matches!(next.action, Action::Command(_)))
    }

    /// Hands over what there is room for up to the next command, in one batch. Publications that no channel takes are added to `refused`,
    /// with the numbers of their records.
    fn submit_batch(&mut self, inlet: &mut ThreadPublisher, refused: &mut Vec<(u64, DeadReason)>) -> Pumped {
        let mut batch = inlet.batch(&mut self.receipts);
        while let Some(prepared) = self.backlog.pop_front() {
            let Prepared {
                record: number,
                offset,
                action,
            } = prepared;
            let publication = match action {
                Action::Publish(publication) => publication,
                Action::Command(_) => {
                    self.backlog.push_front(Prepared {
                        record: number,
                        offset,
                        action,
                    });
                    return Pumped::Command;
                }
            };
            match submit(&mut batch, publication, self.log.zip(offset)) {
                Ok(()) => {
                    self.owners.push_back(number);
                    self.reached = self.reached.max(offset.unwrap_or(0).saturating_sub(1));
                }
                Err((SubmitError::Full | SubmitError::NotReady, publication)) => {
                    self.backlog.push_front(Prepared {
                        record: number,
                        offset,
                        action: Action::Publish(*publication),
                    });
                    return if batch.has_room() {
                        Pumped::WorkerFull
                    } else {
                        Pumped::WindowFull
                    };
                }
                Err((why, _)) => refused.push((number, reason(why))),
            }
            if self.backlog.is_empty() {
                self.reached = self.reached.max(offset.unwrap_or(0));
            }
        }
        Pumped::All
    }

    /// Hands over the command that is next, with nothing in flight.
    fn submit_command(
        &mut self,
        inlet: &mut ThreadPublisher,
        refused: &mut Vec<(u64, DeadReason)>,
    ) -> Pumped {
        let Some(next) = self.backlog.front() else {
            return Pumped::All;
        };
        let Action::Command(command) = &next.action else {
            return Pumped::All;
        };
        let (number, offset) = (next.record, next.offset.unwrap_or(0));
        match inlet.submit_command(command, &mut self.receipts) {
            Ok(()) => {
                self.owners.push_back(number);
                self.awaits_command = true;
            }
            Err(SubmitError::Full | SubmitError::NotReady) => return Pumped::WorkerFull,
            Err(why) => refused.push((number, reason(why))),
        }
        self.backlog.pop_front();
        let reached = offset.saturating_sub(u64::from(!self.backlog.is_empty()));
        self.reached = self.reached.max(reached);
        Pumped::Command
    }
}

fn reason(why: SubmitError) -> DeadReason {
    match why {
        SubmitError::InvalidChannel(_) => DeadReason::NoChannel,
        SubmitError::TooLarge => DeadReason::TooLarge,
        SubmitError::InvalidData | SubmitError::Full | SubmitError::NotReady => DeadReason::BadFormat,
    }
}

/// Adds a publication to a batch.
fn submit(
    batch: &mut Batch<'_>,
    publication: Publication,
    log_position: Option<(LogId, u64)>,
) -> Result<(), (SubmitError, Box<Publication>)> {
    let record = SourceRecord {
        channel: publication.channel,
        data: publication.data,
        tags: publication.tags,
        log_position,
        key: publication.key,
    };
    batch.submit(record).map_err(|(why, record)| {
        let publication = Publication {
            channel: record.channel,
            data: record.data,
            tags: record.tags,
            key: record.key,
        };
        (why, Box::new(publication))
    })
}
