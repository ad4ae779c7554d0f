//! The limits of sources, with their units.

use std::time::Duration;

/// Records of one partition that are in flight unless the configuration says otherwise: read, and not yet taken by their channels.
/// At the limit that partition is not read.
pub const IN_FLIGHT: usize = 4096;

/// The highest limit of records in flight that may be set.
pub const IN_FLIGHT_MOST: usize = 65_536;

/// The interval at which completed records are committed.
pub const COMMIT_INTERVAL: Duration = Duration::from_millis(100);

/// The time for which a failed connection waits before it is tried again: the first time, and the longest.
pub const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3)];

/// A connection that worked for so long resets the backoff.
pub const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(10);

/// The time for which the thread of sources waits for more records while some arrive: at most so much latency is added to a record.
pub const LINGER: Duration = Duration::from_micros(250);

/// The interval at which a source checks for workers at the start.
pub const READY_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The time for which clients with positions in a log retry after the broker was first reached, until its source reads it: a consumer group
/// takes that long to notice that a member of before was killed. While the broker cannot be reached they retry, too.
pub const LOG_EXPECTED: Duration = Duration::from_secs(20);

/// A source logs the same failure at most so often.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Dead letters of one partition that wait for their destination, at most, and not more than records may be in flight: beyond that the
/// partition is not read. Those of the records that were read at once are added.
pub const DEAD_LETTERS_WAITING: usize = 256;

/// Bytes of the dead letters of one source that wait: beyond that, no partition with such a letter is read.
pub const DEAD_LETTER_BYTES: usize = 64 << 20;

/// Bytes of a record's value that can be published; a larger one is a dead letter.
pub const RECORD_BYTES: usize = ringmain_push::limits::PUBLICATION_BYTES;

/// Channels of one `broadcast` command; a record with more is a dead letter.
pub const BROADCAST_CHANNELS: usize = 1024;

/// The time for which a source may be without a sign of its broker before it counts as not delivering.
pub const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The time for which a source waits after a panic before it is started again.
pub const PANIC_WAIT: Duration = Duration::from_secs(15);

/// The time that a source may take to end: to commit the completed records, and to leave its group.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which an append to a log waits for its broker. Then it is refused.
pub const LOG_QUEUE_TIME: Duration = Duration::from_millis(1300);

/// The time for which the broker of a log may take to acknowledge a batch. Then the connection is closed, and the outcomes are unknown.
pub const LOG_RESPONSE_TIME: Duration = Duration::from_millis(1900);

/// The appends of one batch. Further ones wait for the next.
pub const LOG_APPENDS_AT_ONCE: usize = 1024;

/// The bytes of the entries in one batch, unless it has one entry only. Further ones wait for the next.
pub const LOG_APPEND_BYTES_AT_ONCE: usize = 4 << 20;

/// The time for which a lost connection to the broker of a log waits before it is tried again: the first time, and the longest.
pub const LOG_BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// The bytes of records that one read of the broker of a log returns, approximately: the number of records follows from the size of
/// those before.
pub const LOG_READ_BYTES: usize = 4 << 20;

/// The records of one partition that one read returns, at least and at most.
pub const LOG_READ_RECORDS: [usize; 2] = [16, 1024];

/// The requests for older records of a log that are in flight. Further ones wait.
pub const LOG_TAILS: usize = 4;

/// The time for which the last append or check of a partition counts for the state of a log's adapter. Owners of partitions append once a
/// second.
pub const LOG_FAILED_TIME: Duration = Duration::from_secs(5);

/// The lines that the adapter of a log writes within [`LOG_INTERVAL`]. Further ones are left out, and their number is logged.
pub const LOG_LINES: usize = 16;

/// The interval at which the adapter of a log checks for appends that have waited too long.
pub const LOG_CHECK_INTERVAL: Duration = Duration::from_millis(250);

const _: () = {
    let in_all = LOG_QUEUE_TIME.as_millis() + LOG_CHECK_INTERVAL.as_millis() + LOG_RESPONSE_TIME.as_millis();
    assert!(in_all <= ringmain_cluster::limits::LOG_APPEND_TIMEOUT.as_millis());
};
