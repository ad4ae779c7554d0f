//! Rows that cannot be published, and the table that they are moved to.
//!
//! ```text
//! row ─ cannot be published ─▶ letters ─ moved ─▶ gone
//!                                ▲  │ └─ locked by others ─▶ unmoved ─ heartbeat ─▶ read again
//!                                └──┘ the table is missing, or cannot be written: after a back-off
//! ```

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::connect::RESPONSE_TIMEOUT;
use super::owned::Version;
use super::{Reader, numbers};
use crate::failure::Failure;
use crate::feed::Feed;
use crate::limits;

/// The table of dead letters, as far as it is known.
#[derive(Default)]
pub(super) struct DeadTable {
    /// `None`: it was not found yet, or cannot be written.
    statement: Option<Statement>,
    /// The time of the next attempt, and the time that the one after it waits.
    retry: Option<(Instant, Duration)>,
}

impl DeadTable {
    fn is_due(&self) -> bool {
        self.retry.is_none_or(|(at, _)| Instant::now() >= at)
    }

    fn fail(&mut self, feed: &Feed, why: &str) {
        feed.letters.note_failure(why);
        // It may be created again.
        self.statement = None;
        let wait = self.retry.map_or(limits::BACKOFF[0], |(_, wait)| wait);
        self.retry = Some((Instant::now() + wait, (2 * wait).min(limits::BACKOFF[1])));
    }

    fn succeed(&mut self, feed: &Feed) {
        self.retry = None;
        feed.status.set_letters_fail(false);
    }
}

impl Reader<'_> {
    /// Moves rows that cannot be published to the table of dead letters. Without success they wait, and the others are published.
    pub(super) async fn bury(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        let Some(destination) = feed.mapping.dead_letters.clone() else {
            return Ok(());
        };
        self.collect_letters(feed);
        let waiting = self
            .owned
            .values()
            .map(|owned| owned.letters.len())
            .sum::<usize>();
        feed.status.set_letters_waiting(waiting as u64);
        if !self.dead.is_due() {
            return Ok(());
        }
        let statement = match &self.dead.statement {
            Some(statement) => statement.clone(),
            None => match self.table.prepare_bury(&self.client, &destination).await {
                Ok(statement) => self.dead.statement.insert(statement).clone(),
                Err(failure) if self.client.is_closed() => return Err(failure),
                Err(failure) => {
                    self.dead.fail(feed, &failure.to_string());
                    return Ok(());
                }
            },
        };
        if waiting > 0 {
            return self.move_letters(feed, &statement).await;
        }
        // A table that can be prepared may still refuse rows: with rows that wait, only a move is a success.
        self.dead.succeed(feed);
        Ok(())
    }

    /// Takes the letters of the partitions, which are done with their rows.
    fn collect_letters(&mut self, feed: &mut Feed) {
        for ((partition, record), letter) in feed.letters.take_all() {
            let mut all = self.owned.values_mut();
            let Some(owned) = all.find(|owned| owned.partition.id() == partition) else {
                continue;
            };
            let index = record
                .checked_sub(owned.first)
                .and_then(|index| usize::try_from(index).ok());
            if let Some(row) = index.and_then(|index| owned.rows.get(index)) {
                owned.letters.insert(*row, letter.reason.label());
            }
            owned.partition.buried(record);
            owned.collect(feed);
        }
    }

    async fn move_letters(&mut self, feed: &mut Feed, statement: &Statement) -> Result<(), Failure> {
        let letters = self.owned.values().flat_map(|owned| &owned.letters);
        let (rows, reasons): (Vec<Version>, Vec<&str>) = letters.map(|(row, reason)| (*row, *reason)).unzip();
        let (ids, versions): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
        let values: [&(dyn ToSql + Sync); 3] = [&ids, &versions, &reasons];
        let moving = self.client.query(statement, &values);
        let moved: Result<Vec<Row>, Error> = match timeout(RESPONSE_TIMEOUT, moving).await {
            Ok(moved) => moved,
            Err(_) => {
                return Err(Failure::Ended(format!(
                    "the server has not responded for {RESPONSE_TIMEOUT:?}"
                )));
            }
        };
        let moved = match moved {
            Ok(moved) => numbers(&moved)?,
            // The table of dead letters is at fault, or one of the rows: the others are published meanwhile.
            Err(error) if error.as_db_error().is_some() => {
                self.dead.fail(feed, &Failure::from(error).to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        feed.status.committed();
        self.dead.succeed(feed);
        for owned in self.owned.values_mut() {
            let left = std::mem::take(&mut owned.letters).into_keys();
            // They are locked by others, or were changed or deleted since.
            owned.unmoved.extend(left.filter(|(id, _)| !moved.contains(id)));
        }
        feed.status.set_letters_waiting(0);
        Ok(())
    }
}
