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
