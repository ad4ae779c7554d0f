//! How a ring is built.

use std::time::Duration;

use crate::features::Features;
use crate::limits;

/// How a ring is built.
#[derive(Clone, Debug)]
pub struct UringConfig {
    /// Operations that can be queued between two entries of the kernel; a power of two.
    pub submission_entries: u32,
    /// Completions that fit before the kernel keeps them in a list of its own; a power of two.
    pub completion_entries: u32,
    /// Receive buffers shared by all connections of the worker; a power of two up to 32,768.
    pub receive_buffers: u16,
    /// Bytes in each of them.
    pub receive_buffer_bytes: u32,
    /// Direct descriptors in the ring's table, at most `RLIMIT_NOFILE`.
    pub table: u32,
    /// Let a kernel thread submit; it sleeps after being idle so long.
    pub sqpoll: Option<Duration>,
    /// Busy-poll the network device for so long before sleeping.
    pub napi: Option<Duration>,
    /// Send without copying from so many bytes on.
    pub zero_copy: Option<u32>,
    /// What may be used beyond the floor.
    pub features: Features,
    /// For tests: every n-th entry submits one operation less than queued; zero is never.
    pub short_submit_every: u32,
}

impl Default for UringConfig {
    fn default() -> UringConfig {
        UringConfig {
            submission_entries: limits::SUBMISSION_ENTRIES,
            completion_entries: limits::COMPLETION_ENTRIES,
            receive_buffers: limits::RECEIVE_BUFFERS,
            receive_buffer_bytes: limits::RECEIVE_BUFFER_BYTES,
            table: 1024,
            sqpoll: None,
            napi: None,
            zero_copy: None,
            features: Features::all(),
            short_submit_every: 0,
        }
    }
}
