//! The records that this node reads from the log.

use super::*;
use crate::log::reader::{Opening, Read};
use crate::log::{LogEvent, Opened, Record};

impl Node {
    /// Handles an event of the log's adapter.
    pub fn receive_log(&mut self, event: LogEvent, now: Duration) {
        match event {
            LogEvent::Appended { id, outcome } => self.appended(id, outcome),
            LogEvent::Opened(opened) => self.opened(&opened, now),
            LogEvent::Records {
                partition,
                records,
                now_ms,
            } => self.read_records(partition, records, now_ms, now),
            LogEvent::Older {
                partition,
                from,
                records,
                is_first,
                now_ms,
            } => {
                self.read_older(partition, from, records, is_first, now_ms, now);
                self.settle_partition(partition, now);
            }
            LogEvent::Trimmed { partition, first } => {
                if let Some(followed) = self.followed_mut(partition) {
                    followed.reader.trim(first);
                    self.lose_records(partition, now);
                }
            }
            LogEvent::Closed { partition } => {
                if let Some(followed) = self.followed_mut(partition) {
                    followed.reader.close();
                }
            }
            LogEvent::Health(health) => {
                if let Some(log) = &mut self.log {
                    log.set_health(health, now);
                }
            }
        }
        self.run_loopback(now);
    }

    fn opened(&mut self, opened: &Opened, now: Duration) {
        let partition = opened.partition;
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        if followed.reader.state() == ReaderState::Closed {
            return;
        }
        match followed.reader.open(opened, now) {
            Opening::Started => {
                if let Some(above) = &mut followed.rollback {
                    above.get_or_insert(opened.end);
                }
            }
            Opening::Continued => {}
            Opening::Trimmed => self.lose_records(partition, now),
            Opening::RolledBack => self.roll_back(partition, now),
        }
        self.settle_partition(partition, now);
    }

    fn read_records(&mut self, partition: Partition, records: Vec<Record>, now_ms: i64, now: Duration) {
        for record in records {
            let Some(followed) = self.followed_mut(partition) else {
                return;
            };
            if !matches!(followed.reader.state(), ReaderState::Reading { .. }) {
                return;
            }
            let (number, is_readable) = (record.number, record.entry.is_ok());
            let read = followed.reader.read(record, now_ms);
            // What was read so far belongs to the life before the rollback, and a new one begins above it.
            let is_kept = followed.rollback.is_none();
            let position = followed.reader.position_at(number).filter(|_| is_kept);
            if let Some(log) = &mut self.log {
                log.counts.records += 1;
                log.counts.unreadable += u64::from(!is_readable);
            }
            match read {
                Read::Nothing => {}
                Read::Publication {
                    id,
                    first: Some(first),
                    ..
                } => {
                    if let Some(log) = &mut self.log {
                        log.counts.repeated += 1;
                    }
                    self.finish_read(id, first.filter(|_| is_kept));
                }
                Read::Publication { id, publish, age, .. } => {
                    if position.is_some() || !self.has_history(&publish.channel) {
                        self.deliver_logged(partition, number, publish, age, now);
                    }
                    self.finish_read(id, position);
                }
                Read::Beat { id } => {
                    self.finish_beat(partition, id, now);
                    self.report_progress(partition);
                }
                Read::LifeStarted { id } => {
                    self.finish_life(id);
                    self.start_life(partition, number, now);
                }
                Read::RolledBack => return self.roll_back(partition, now),
            }
        }
        self.finish_repeats(partition);
        self.settle_partition(partition, now);
    }

    /// Reports the position of a partition to the nodes with mirrors, those of this one included.
    fn report_progress(&mut self, partition: Partition) {
        let Some(reader) = self.followed(partition).map(|followed| &followed.reader) else {
            return;
        };
        if let Some(life) = reader.life().filter(|_| reader.is_attached()) {
            let progress = Frame::Progress {
                partition: partition.0,
                epoch: life.epoch(),
                number: reader.position(),
            };
            self.send_progress(&progress);
        }
    }

    /// Begins to read a partition again, whose last records are gone. The node serves its histories until the log is read again, in a new life.
    fn roll_back(&mut self, partition: Partition, now: Duration) {
        let Some(log) = &mut self.log else { return };
        let Some(followed) = log.followed.get_mut(&partition) else {
            return;
        };
        log.counts.rollbacks += 1;
        followed.reader.restart(now);
        followed.rollback = Some(None);
        followed.life_sent = None;
        followed.ahead = None;
        followed.follow_at = now;
        log.requests.push(LogRequest::Unfollow { partition });
        self.follow_closed(now);
    }

    /// Attaches a partition that is read up to its end, or appends the life that it needs before; requests older records.
    pub(super) fn settle_partition(&mut self, partition: Partition, now: Duration) {
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        let is_rolled_back = followed.rollback.is_some_and(|above| above.is_some());
        if followed.reader.needs_life() || (is_rolled_back && followed.reader.can_append_life()) {
            self.append_life(partition, now);
        }
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        if followed.rollback.is_none() && followed.reader.try_attach() {
            self.attach_histories(partition, now);
        }
        let Some(log) = &mut self.log else { return };
        if let Some(followed) = log.followed.get_mut(&partition)
            && let Some((before, bytes)) = followed.reader.next_fill()
        {
            log.requests.push(LogRequest::Tail {
                partition,
                before,
                bytes,
            });
        }
    }

    /// A life has begun.
    fn start_life(&mut self, partition: Partition, number: u64, now: Duration) {
        let Some(log) = &mut self.log else { return };
        log.counts.lives += 1;
        let Some(followed) = log.followed.get_mut(&partition) else {
            return;
        };
        if followed
            .rollback
            .is_some_and(|above| above.is_some_and(|above| number > above))
        {
            followed.rollback = None;
        }
        (followed.life_sent, followed.ahead) = (None, None);
        if followed.reader.is_attached() {
            self.restart_histories(partition, now);
        }
    }

    /// Records were deleted before they were read: mirrors that are not behind them have a gap.
    fn lose_records(&mut self, partition: Partition, now: Duration) {
        if let Some(log) = &mut self.log {
            log.counts.trimmed += 1;
        }
        self.raise_floors(partition, now);
    }

    /// Returns whether a mirror must subscribe again later: the log is not read as far as it needs.
    pub(in crate::node) fn must_wait_for_log(
        &mut self,
        partition: Partition,
        position: Option<ringmain_hub::history::StreamPosition>,
        now: Duration,
    ) -> bool {
        let Some(options) = self.log.as_ref().map(|log| log.options) else {
            return false;
        };
        let Some(followed) = self.followed_mut(partition) else {
            return true;
        };
        let reader = &followed.reader;
        if !reader.is_attached() || !reader.is_bound() {
            return true;
        }
        let life = reader.life().map(Life::epoch);
        let position = position.filter(|position| Some(position.epoch) == life && position.offset > 0);
        match position {
            Some(position) if position.offset > reader.position() => {
                // Another node has read more, or the log has lost records.
                followed.ahead.get_or_insert((position.offset, now));
                true
            }
            Some(position) if position.offset >= reader.floor() => false,
            _ => reader.is_filling() && now < reader.opened_at() + options.takeover_time,
        }
    }

    /// Finds out whether positions of mirrors are ahead because records are gone: if so, an entry that was appended later is read first.
    pub(super) fn check_ahead(&mut self, partition: Partition, now: Duration) {
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        let Some((offset, since)) = followed.ahead else {
            return;
        };
        if followed.reader.position() >= offset {
            followed.ahead = None;
        } else if followed.is_owned
            && now.saturating_sub(since) >= limits::LOG_AHEAD_AFTER
            && followed.beat_appended.is_some_and(|at| at > since)
        {
            self.roll_back(partition, now);
        }
    }
}
