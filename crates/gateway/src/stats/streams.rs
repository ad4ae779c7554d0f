//! Counts of forwarded connections by stream route: the way each ended, and bytes in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Metrics, add_relaxed, lock};
use crate::model::Name;

/// The end of a forwarded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Both sides closed in order, the client first.
    Client,
    /// Both sides closed in order, the upstream first.
    Upstream,
    /// The client reset the connection.
    ClientReset,
    /// The upstream reset the connection.
    UpstreamReset,
    /// Neither side sent bytes for the route's idle timeout.
    Idle,
    /// The process stopped.
    Shutdown,
    /// The connection was not forwarded; a fault is counted, too.
    Fault,
}

impl ConnectionEnd {
    /// Every value, in the order of counters.
    pub const ALL: [ConnectionEnd; 7] = [
        ConnectionEnd::Client,
        ConnectionEnd::Upstream,
        ConnectionEnd::ClientReset,
        ConnectionEnd::UpstreamReset,
        ConnectionEnd::Idle,
        ConnectionEnd::Shutdown,
        ConnectionEnd::Fault,
    ];

    /// Returns the name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            ConnectionEnd::Client => "client",
            ConnectionEnd::Upstream => "upstream",
            ConnectionEnd::ClientReset => "client_reset",
            ConnectionEnd::UpstreamReset => "upstream_reset",
            ConnectionEnd::Idle => "idle",
            ConnectionEnd::Shutdown => "shutdown",
            ConnectionEnd::Fault => "fault",
        }
    }
}

/// One worker's counts of one stream route. Only the worker writes them.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    opened: AtomicU64,
    /// In the order of [`ConnectionEnd::ALL`].
    ended: [AtomicU64; ConnectionEnd::ALL.len()],
    received: AtomicU64,
    sent: AtomicU64,
}

impl StreamCounts {
    /// Counts a new connection.
    pub(crate) fn count_open(&self) {
        add_relaxed(&self.opened, 1);
    }

    /// Counts the end of a connection.
    pub(crate) fn count_end(&self, ended: ConnectionEnd) {
        add_relaxed(&self.ended[ended as usize], 1);
    }

    /// Counts bytes from the client.
    pub(crate) fn count_received(&self, bytes: usize) {
        add_relaxed(&self.received, bytes as u64);
    }

    /// Counts bytes to the client.
    pub(crate) fn count_sent(&self, bytes: usize) {
        add_relaxed(&self.sent, bytes as u64);
    }
}

/// Counts of a stream route, summed over all workers, which continue meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// The route's name, or one of the labels of the parent module.
    pub name: Name,
    /// Accepted connections.
    pub opened: u64,
    /// Closed connections, in the order of [`ConnectionEnd::ALL`].
    pub ended: [u64; ConnectionEnd::ALL.len()],
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
}

impl StreamReport {
    /// Returns the number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        // The counts are not read at one instant: never negative.
        self.opened.saturating_sub(self.ended.iter().sum())
    }

    fn add(&mut self, counts: &StreamCounts) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.opened += load(&counts.opened);
        for (sum, count) in self.ended.iter_mut().zip(&counts.ended) {
            *sum += load(count);
        }
        self.received += load(&counts.received);
        self.sent += load(&counts.sent);
    }
}

impl Metrics {
    /// Returns the counts of stream routes that had connections, in the order of their first configuration.
    pub(crate) fn streams(&self) -> Vec<StreamReport> {
        let names = lock(&self.streams).names.clone();
        let empty = |name| StreamReport {
            name,
            opened: 0,
            ended: [0; ConnectionEnd::ALL.len()],
            received: 0,
            sent: 0,
        };
        let mut reports: Vec<StreamReport> = names.into_iter().map(empty).collect();
        for worker in lock(&self.workers).iter() {
            for (report, counts) in reports.iter_mut().zip(lock(&worker.streams).iter()) {
                let counts: Option<&Arc<StreamCounts>> = counts.as_ref();
                if let Some(counts) = counts {
                    report.add(counts);
                }
            }
        }
        reports.retain(|report| report.opened > 0);
        reports
    }
}
