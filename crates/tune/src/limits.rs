//! Every limit of the tuner, with its unit and what happens when it is reached.

/// Bytes of a file of `/proc` or `/sys` that are read. The rest is not looked at.
pub const FILE_BYTES: u64 = 1 << 20;

/// CPUs that masks and lists may name. A mask that names others is unknown.
pub const CPUS: usize = 8192;

/// Entries of a directory that are looked at. Those beyond are left out.
pub const ENTRIES: usize = 65_536;

/// Interfaces that are looked at. Those beyond are left out, and the report says so.
pub const INTERFACES: usize = 256;

/// Queues of an interface in one direction. Those beyond are left out.
pub const QUEUES: usize = 1024;

/// Names of processes in one sentence of a report. Of more, the number is said.
pub const NAMES: usize = 4;

/// Columns of a report.
pub const COLUMNS: usize = 100;

/// Bytes of a journal. A longer one is not read: no host has so many settings.
pub const JOURNAL_BYTES: u64 = 64 << 20;

/// Journals of the past that are kept. The oldest go.
pub const HISTORY: usize = 100;

/// How often settings are gone through while they are taken back: one may depend on another.
pub const PASSES: usize = 3;

/// How often a host is looked at anew while changes are applied: one may make room for others.
pub const ROUNDS: usize = 3;

/// Keys of a snapshot. Those beyond are left out.
pub const SNAPSHOT_KEYS: usize = 100_000;
