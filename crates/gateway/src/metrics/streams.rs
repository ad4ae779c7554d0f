//! What is counted of connections that are passed on: by route, how they ended, and bytes both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Metrics, bump, lock};
use crate::model::Name;

/// How a connection that was passed on ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides said that they were done, the client first.
    Client,
    /// Both sides said that they were done, the upstream first.
    Upstream,
    /// The client broke it off.
    ClientReset,
    /// The upstream broke it off.
    UpstreamReset,
    /// Nothing came from either side for the route's idle time.
    Idle,
    /// The process ended.
    Shutdown,
    /// It was never passed on: there is a fault that says why.
    Fault,
}

impl Ended {
    /// All of them.
    pub const ALL: [Ended; 7] = [
        Ended::Client,
        Ended::Upstream,
        Ended::ClientReset,
        Ended::UpstreamReset,
        Ended::Idle,
        Ended::Shutdown,
        Ended::Fault,
    ];

    /// As it stands in logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Ended::Client => "client",
            Ended::Upstream => "upstream",
            Ended::ClientReset => "client_reset",
            Ended::UpstreamReset => "upstream_reset",
            Ended::Idle => "idle",
            Ended::Shutdown => "shutdown",
            Ended::Fault => "fault",
        }
    }
}

/// One worker's counts of one stream route. Only the worker writes them.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    begun: AtomicU64,
    /// In the order of [`Ended::ALL`].
    ended: [AtomicU64; Ended::ALL.len()],
    received: AtomicU64,
    sent: AtomicU64,
}

impl StreamCounts {
    /// A connection has come.
    pub(crate) fn begin(&self) {
        bump(&self.begun, 1);
    }

    /// It is over.
    pub(crate) fn end(&self, ended: Ended) {
        bump(&self.ended[ended as usize], 1);
    }

    /// Bytes came from the client.
    pub(crate) fn received(&self, bytes: usize) {
        bump(&self.received, bytes as u64);
    }

    /// Bytes went to the client.
    pub(crate) fn sent(&self, bytes: usize) {
        bump(&self.sent, bytes as u64);
    }
}

/// What was counted of a stream route, all workers together. Workers go on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Its name, or one of the labels of this module's parent.
    pub name: Name,
    /// Connections that have come.
    pub begun: u64,
    /// Those that are over, in the order of [`Ended::ALL`].
    pub ended: [u64; Ended::ALL.len()],
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
}

impl StreamReport {
    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        // Counts of several moments: never below none.
        self.begun.saturating_sub(self.ended.iter().sum())
    }

    fn add(&mut self, counts: &StreamCounts) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.begun += load(&counts.begun);
        for (sum, count) in self.ended.iter_mut().zip(&counts.ended) {
            *sum += load(count);
        }
        self.received += load(&counts.received);
        self.sent += load(&counts.sent);
    }
}

impl Metrics {
    /// What was counted of stream routes that anybody came by, in the order of their first configuration.
    pub(crate) fn streams(&self) -> Vec<StreamReport> {
        let names = lock(&self.streams).names.clone();
        let empty = |name| StreamReport {
            name,
            begun: 0,
            ended: [0; Ended::ALL.len()],
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
        reports.retain(|report| report.begun > 0);
        reports
    }
}
