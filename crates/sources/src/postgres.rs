//! An outbox table of PostgreSQL: this file and its modules alone know `tokio-postgres`.
//!
//! ```text
//! INSERT ─ NOTIFY ─▶ SELECT ─▶ partition ─ push, pump ─▶ workers      full: that partition is not read, the others are
//!                                        ◀─ receipts ─ done ─▶ DELETE
//! ```
//!
//! One connection for all partitions. Each partition is read by the session that holds its advisory lock, so no transaction stays open
//! while rows are in flight: workers that are full do not hold up VACUUM. Sessions find each other in `pg_locks` and divide the partitions
//! evenly; the server releases the locks of a session that ends.
//!
//! A partition is read from its first row each time, once no row is in flight: a transaction that commits late, with smaller
//! ids, is not skipped.

mod connect;
mod dead;
mod owned;
mod table;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringmain_gateway::model::Postgres;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::{Client, Row};

use self::connect::{connect, within};
use self::dead::DeadTable;
use self::owned::{Owned, note_age};
use self::table::{Table, quoted};
use crate::epoch;
use crate::failure::Failure;
use crate::feed::Feed;
use crate::limits;

/// Rows of a partition that are read at once, at most.
const READ_ROWS: usize = 1000;
/// Bytes of rows that are read at once, as they are stored; of each partition at least one row is read.
const READ_BYTES: usize = 8 << 20;
/// The interval at which the connection is checked, partitions are divided, and the lag is counted.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which a partition whose workers are full is retried.
const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// The shortest interval of polling.
const POLL_INTERVAL_LEAST: Duration = Duration::from_millis(10);
/// The time for which rows in flight are awaited before the source ends.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// The time after which the session of a process that was killed has ended at the server, unless it cannot know: until then, partitions
/// that another session has may be of that process.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(3);
/// Separates our advisory locks from those of others on the same table: "ring".
const LOCKS: u32 = 0x7269_6e67;
/// The second key of the lock that all readers of a table share. Partitions are not negative.
const MEMBERS: i32 = -1;

/// Reads until something fails, or until it is to end: then `None`.
pub(crate) async fn run(
    postgres: &Postgres,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Option<Failure> {
    read(postgres, feed, stopped).await.err()
}

async fn read(
    postgres: &Postgres,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Result<(), Failure> {
    let wake = Arc::new(Notify::new());
    let opened = tokio::select! {
        opened = Reader::open(postgres, feed, &wake) => opened,
        _ = stopped.changed() => return Ok(()),
    };
    let (mut reader, mut connection) = opened?;
    feed.status.connected();
    log::info!(
        "source {} (postgres): reading table {} at {}",
        feed.name,
        postgres.table,
        postgres.server
    );
    let outcome = tokio::select! {
        // First, since its failure says more than that of a request.
        biased;
        ended = &mut connection => Err(ended.unwrap_or_else(|error| Failure::Client(Box::new(error)))),
        outcome = reader.run(feed, &wake) => outcome,
        _ = stopped.changed() => {
            // Rows that are published are deleted; the other readers get the partitions at once.
            let _ = reader.finish(feed).await;
            Ok(())
        }
    };
    drop(reader);
    // Its socket is closed once the server knows that the session has ended.
    if !connection.is_finished() && timeout(STOP_WAIT, &mut connection).await.is_err() {
        connection.abort();
    }
    outcome
}

struct Reader<'p> {
    postgres: &'p Postgres,
    client: Client,
    table: Table,
    /// The first key of the advisory locks.
    locks: i32,
    /// The prefix of the names of this table's rows.
    name: String,
    owned: BTreeMap<i32, Owned>,
    dead: DeadTable,
    /// The time at which the connection was opened.
    opened: Instant,
    /// The time of the last deletion of published rows.
    deleted: Instant,
    /// The time of the last search for rows outside of the partitions.
    checked: Option<Instant>,
}

impl Reader<'_> {
    async fn open<'p>(
        postgres: &'p Postgres,
        feed: &Feed,
        wake: &Arc<Notify>,
    ) -> Result<(Reader<'p>, JoinHandle<Failure>), Failure> {
        let (client, connection) = connect(postgres, wake).await?;
        let mapping = &feed.mapping;
        let table = Table::find(&client, &postgres.table, mapping.format).await?;
        // Rows that were not moved are read again.
        feed.letters.start_session(true);
        if let Some(channel) = &postgres.notify {
            within(client.batch_execute(&format!("LISTEN {}", quoted(channel)))).await?;
        }
        let locks = (table.oid ^ LOCKS).cast_signed();
        within(client.query("SELECT pg_advisory_lock_shared($1, $2)", &[&locks, &MEMBERS])).await?;
        let parts = [&*postgres.server, &*postgres.database].map(str::as_bytes);
        let name = format!("{}/{}", epoch::of(&parts), table.oid);
        let reader = Reader {
            postgres,
            client,
            table,
            locks,
            name,
            owned: BTreeMap::new(),
            dead: DeadTable::default(),
            opened: Instant::now(),
            deleted: Instant::now(),
            checked: None,
        };
        Ok((reader, connection))
    }

    async fn run(&mut self, feed: &mut Feed, wake: &Notify) -> Result<(), Failure> {
        let poll_interval = self.postgres.poll_interval.max(POLL_INTERVAL_LEAST);
        let mut polled = Instant::now();
        let mut beat: Option<Instant> = None;
        loop {
            if beat.is_none_or(|at| at.elapsed() >= HEARTBEAT_INTERVAL) {
                beat = Some(Instant::now());
                self.heartbeat(feed).await?;
            }
            if polled.elapsed() >= poll_interval {
                polled = Instant::now();
                self.due();
            }
            for owned in self.owned.values_mut() {
                let _ = owned.partition.pump(feed);
            }
            self.complete(feed).await?;
            self.leave(feed).await?;
            let has_rows = self.fetch(feed).await?;
            if self.has_begun() {
                feed.has_begun().await;
            }
            if has_rows {
                continue;
            }
            let next = beat.map_or(polled, |at| at + HEARTBEAT_INTERVAL);
            let next = next.min(polled + poll_interval);
            let is_full = self.owned.values().any(|owned| !owned.partition.is_drained());
            tokio::select! {
                () = wake.notified() => self.due(),
                () = self.receipt() => {}
                () = sleep(FULL_RETRY_INTERVAL), if is_full => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Returns whether all rows that a process that was killed may have published were handed to workers: as many as are in flight at
    /// most. Clients with positions of before are answered behind them.
    fn has_begun(&self) -> bool {
        let others = usize::from(self.postgres.partitions.max(1)).saturating_sub(self.owned.len());
        may_begin(others, self.opened.elapsed())
            && self
                .owned
                .values()
                .all(|owned| owned.partition.is_drained() && (owned.was_empty || owned.read >= READ_ROWS))
    }

    /// Marks all partitions as having new rows.
    fn due(&mut self) {
        for owned in self.owned.values_mut() {
            owned.is_due = true;
        }
    }

    /// Waits until a publication of any partition is done.
    async fn receipt(&self) {
        poll_fn(|context| {
            let mut progress = Poll::Pending;
            for owned in self.owned.values() {
                // All of them are polled, so that each wakes.
                if owned.partition.poll_receipt(context).is_ready() {
                    progress = Poll::Ready(());
                }
            }
            progress
        })
        .await;
    }

    /// Buries dead letters, and deletes published rows: at once where nothing of a partition is in flight, which then is read again.
    async fn complete(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        for owned in self.owned.values_mut() {
            owned.collect(feed);
        }
        self.bury(feed).await?;
        let is_due = self.deleted.elapsed() >= limits::COMMIT_INTERVAL;
        let is_finished = |owned: &Owned| owned.rows.is_empty() && !owned.done.is_empty();
        if is_due || self.owned.values().any(is_finished) {
            self.delete(feed).await?;
        }
        Ok(())
    }

    /// Deletes rows that are done.
    async fn delete(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        self.deleted = Instant::now();
        let done = self.owned.values().flat_map(|owned| &owned.done);
        let (ids, versions): (Vec<i64>, Vec<i64>) = done.copied().unzip();
        if ids.is_empty() {
            return Ok(());
        }
        let rows = within(self.client.query(&self.table.delete, &[&ids, &versions])).await?;
        feed.status.committed();
        let deleted = numbers(&rows)?;
        for owned in self.owned.values_mut() {
            let left = std::mem::take(&mut owned.done)
                .into_iter()
                .filter(|(id, _)| !deleted.contains(id));
            owned.locked.extend(left);
        }
        Ok(())
    }

    /// Reads the partitions that are due and have nothing in flight. Returns whether there were rows.
    async fn fetch(&mut self, feed: &mut Feed) -> Result<bool, Failure> {
        let mut partitions = Vec::new();
        let mut locked = 0;
        for (number, owned) in &mut self.owned {
            if owned.is_due && owned.is_idle() && !owned.is_leaving && !owned.is_held(feed) {
                owned.is_due = false;
                partitions.push(*number);
                locked = locked.max(owned.locked.len() + owned.letters.len() + owned.unmoved.len());
            }
        }
        if partitions.is_empty() {
            return Ok(false);
        }
        let most = feed.mapping.in_flight.clamp(1, READ_ROWS) + locked;
        let bytes = (READ_BYTES / partitions.len()).max(1);
        let limits = (most as i64, bytes as i64);
        let rows = within(
            self.client
                .query(&self.table.read, &[&partitions, &limits.0, &limits.1]),
        )
        .await?;
        let mut has_rows = false;
        let mut rows = rows.iter().peekable();
        for number in partitions {
            let Some(owned) = self.owned.get_mut(&number) else {
                continue;
            };
            let mut seen = BTreeSet::new();
            while let Some(row) = rows.next_if(|row| row.try_get(0).is_ok_and(|found: i32| found == number)) {
                let version = (row.try_get(1)?, row.try_get(2)?);
                if owned.locked.contains(&version) {
                    seen.insert(version);
                    continue;
                }
                if owned.unmoved.contains(&version) || owned.letters.contains_key(&version) {
                    continue;
                }
                owned.push(feed, &self.name, row, version)?;
                has_rows = true;
            }
            owned.was_empty |= owned.rows.is_empty();
            // Those that are not seen were deleted or updated by others.
            owned.locked = seen;
            // There may be more behind those that were read.
            owned.is_due |= !owned.rows.is_empty();
        }
        Ok(has_rows)
    }

    /// Checks the connection, divides the partitions among the sessions that read the table, and counts the lag.
    async fn heartbeat(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        let members = "SELECT count(DISTINCT pid), count(DISTINCT pid) FILTER (WHERE pid < pg_backend_pid()) FROM pg_locks \
                       WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = $1 AND objid = $2 \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let keys = (self.locks.cast_unsigned(), MEMBERS.cast_unsigned());
        let row = within(self.client.query_one(members, &[&keys.0, &keys.1])).await?;
        let (count, rank): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        self.divide(feed, count.max(1), rank).await?;
        // Rows that others had locked.
        for owned in self.owned.values_mut() {
            if owned.rows.is_empty() {
                owned.is_due |= !owned.unmoved.is_empty();
                owned.unmoved.clear();
            }
            let locked = std::mem::take(&mut owned.locked);
            owned.is_due |= !locked.is_empty();
            owned.done.extend(locked);
        }
        self.delete(feed).await?;
        self.measure(feed).await?;
        let is_check_due = self.checked.is_none_or(|at| at.elapsed() >= limits::LOG_INTERVAL);
        if rank == 0 && is_check_due {
            self.checked = Some(Instant::now());
            self.check_outside(feed).await?;
        }
        feed.status.responded(Duration::ZERO);
        Ok(())
    }

    /// Takes the partitions that are this session's, and leaves the others.
    async fn divide(&mut self, feed: &mut Feed, count: i64, rank: i64) -> Result<(), Failure> {
        // A predecessor that hands over has published nothing that its state lacks.
        feed.has_company |= count > 1 && !feed.inlet.continues();
        let is_own = |number: i32| i64::from(number) % count == rank;
        for (number, owned) in &mut self.owned {
            owned.is_leaving = !is_own(*number);
        }
        self.leave(feed).await?;
        let partitions = 0..i32::from(self.postgres.partitions.max(1));
        let wanted: Vec<i32> = partitions
            .filter(|number| is_own(*number) && !self.owned.contains_key(number))
            .collect();
        if !wanted.is_empty() {
            let lock =
                "SELECT number FROM unnest($2::int4[]) AS p(number) WHERE pg_try_advisory_lock($1, number)";
            let rows = within(self.client.query(lock, &[&self.locks, &wanted])).await?;
            if feed.has_company && !rows.is_empty() {
                // Clients here miss the rows that another session has published.
                feed.gap();
            }
            for row in rows {
                self.owned.insert(row.try_get(0)?, Owned::new(feed));
            }
        }
        Ok(())
    }

    /// Leaves partitions to other sessions, once no row is in flight. Clients here miss the rows that those publish, and are notified.
    async fn leave(&mut self, feed: &Feed) -> Result<(), Failure> {
        let owned = self.owned.iter();
        let left: Vec<i32> = owned
            .filter(|(_, owned)| owned.is_leaving && owned.is_idle())
            .map(|(number, _)| *number)
            .collect();
        if !left.is_empty() {
            let unlock = "SELECT pg_advisory_unlock($1, number) FROM unnest($2::int4[]) AS p(number)";
            within(self.client.query(unlock, &[&self.locks, &left])).await?;
            self.owned.retain(|number, _| !left.contains(number));
            feed.gap();
        }
        Ok(())
    }

    async fn measure(&self, feed: &Feed) -> Result<(), Failure> {
        let (mut paused, mut in_flight) = (0, 0);
        let mut behind = Vec::new();
        for (number, owned) in &self.owned {
            paused += usize::from(!owned.partition.is_drained() || owned.is_held(feed));
            in_flight += owned.rows.len() as u64;
            // The others were read to their end: nothing has to be counted.
            if owned.is_due && !owned.rows.is_empty() {
                behind.push(*number);
            }
        }
        feed.status.set_partitions(self.owned.len(), paused, in_flight);
        let mut lag = 0;
        if !behind.is_empty() {
            let row = within(self.client.query_one(&self.table.lag, &[&behind])).await?;
            let count: i64 = row.try_get(0)?;
            let read = behind.iter().filter_map(|number| self.owned.get(number));
            let read: usize = read.map(|owned| owned.rows.len() + owned.done.len()).sum();
            lag = count.unsigned_abs().saturating_sub(read as u64);
            note_age(feed, row.try_get(1)?);
        }
        feed.status.set_lag(Some(lag));
        Ok(())
    }

    /// Warns of rows that no reader reads.
    async fn check_outside(&self, feed: &Feed) -> Result<(), Failure> {
        let partitions = i32::from(self.postgres.partitions.max(1));
        let row = within(self.client.query_one(&self.table.outside, &[&partitions])).await?;
        if row.try_get(0)? {
            log::warn!(
                "source {} (postgres): table {} has rows that are not read: their partition is not between 0 and {}",
                feed.name,
                self.postgres.table,
                partitions - 1
            );
        }
        Ok(())
    }

    /// Waits a moment for rows in flight, and deletes published ones.
    async fn finish(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        let is_in_flight = |owned: &Owned| owned.partition.is_drained() && !owned.rows.is_empty();
        let end = Instant::now() + STOP_WAIT;
        while self.owned.values().any(is_in_flight) && Instant::now() < end {
            tokio::select! {
                () = self.receipt() => {}
                () = sleep_until(end) => {}
            }
            self.complete(feed).await?;
        }
        self.complete(feed).await?;
        self.delete(feed).await
    }
}

/// Returns whether a process that connected so long ago does not wait for the `others`: partitions that another session has.
fn may_begin(others: usize, connected: Duration) -> bool {
    others == 0 || connected >= PREDECESSOR_WAIT
}

/// The numbers of the first column.
fn numbers(rows: &[Row]) -> Result<BTreeSet<i64>, tokio_postgres::Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PREDECESSOR_WAIT, may_begin};

    #[test]
    fn partitions_of_a_session_that_was_killed_are_waited_for() {
        assert!(may_begin(0, Duration::ZERO));
        assert!(!may_begin(1, Duration::ZERO));
        assert!(!may_begin(4, PREDECESSOR_WAIT - Duration::from_millis(1)));
        assert!(may_begin(4, PREDECESSOR_WAIT));
    }
}
