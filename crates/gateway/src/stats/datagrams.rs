//! Counts of UDP sessions by stream route: the way each ended, datagrams and bytes in both directions, and drops by cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Metrics, add_relaxed, lock};
use crate::model::Name;

/// The end of a UDP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// No datagram passed in either direction for the route's idle time.
    Idle,
    /// The endpoint has sent the route's number of responses.
    Complete,
    /// The least recently used session, where another needed its place.
    Evicted,
    /// The listener or the endpoint is no longer configured.
    Removed,
    /// The process stopped.
    Shutdown,
    /// No datagram could be forwarded; a fault is counted, too.
    Fault,
}

impl SessionEnd {
    /// Every value, in the order of counters.
    pub const ALL: [SessionEnd; 6] = [
        SessionEnd::Idle,
        SessionEnd::Complete,
        SessionEnd::Evicted,
        SessionEnd::Removed,
        SessionEnd::Shutdown,
        SessionEnd::Fault,
    ];

    /// Returns the name for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            SessionEnd::Idle => "idle",
            SessionEnd::Complete => "complete",
            SessionEnd::Evicted => "evicted",
            SessionEnd::Removed => "removed",
            SessionEnd::Shutdown => "shutdown",
            SessionEnd::Fault => "fault",
        }
    }
}

/// The cause of a dropped datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramDrop {
    /// No route applies to the listener.
    NoRoute,
    /// No endpoint is available; a fault is counted, too.
    Unavailable,
    /// Too many datagrams wait for the session's socket, or for the kernel.
    QueueFull,
    /// The process is shutting down, and the client has no session.
    Draining,
    /// The kernel has refused to send the datagram.
    SendFailed,
}

impl DatagramDrop {
    /// Every value, in the order of counters.
    pub const ALL: [DatagramDrop; 5] = [
        DatagramDrop::NoRoute,
        DatagramDrop::Unavailable,
        DatagramDrop::QueueFull,
        DatagramDrop::Draining,
        DatagramDrop::SendFailed,
    ];

    /// Returns the name for metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            DatagramDrop::NoRoute => "no_route",
            DatagramDrop::Unavailable => "unavailable",
            DatagramDrop::QueueFull => "queue_full",
            DatagramDrop::Draining => "draining",
            DatagramDrop::SendFailed => "send_failed",
        }
    }
}

/// One worker's counts of the UDP sessions of one stream route. Only the worker writes them.
#[derive(Debug, Default)]
pub(crate) struct DatagramCounts {
    opened: AtomicU64,
    /// In the order of [`SessionEnd::ALL`].
    ended: [AtomicU64; SessionEnd::ALL.len()],
    received: Traffic,
    sent: Traffic,
    /// In the order of [`DatagramDrop::ALL`].
    dropped: [AtomicU64; DatagramDrop::ALL.len()],
}

#[derive(Debug, Default)]
struct Traffic {
    datagrams: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    fn count(&self, datagrams: usize, bytes: usize) {
        add_relaxed(&self.datagrams, datagrams as u64);
        add_relaxed(&self.bytes, bytes as u64);
    }

    fn add_to(&self, (datagrams, bytes): (&mut u64, &mut u64)) {
        *datagrams += self.datagrams.load(Ordering::Relaxed);
        *bytes += self.bytes.load(Ordering::Relaxed);
    }
}

impl DatagramCounts {
    /// Counts a new session.
    pub(crate) fn count_open(&self) {
        add_relaxed(&self.opened, 1);
    }

    /// Counts the end of a session.
    pub(crate) fn count_end(&self, ended: SessionEnd) {
        add_relaxed(&self.ended[ended as usize], 1);
    }

    /// Counts datagrams from a client.
    pub(crate) fn count_received(&self, datagrams: usize, bytes: usize) {
        self.received.count(datagrams, bytes);
    }

    /// Counts datagrams to a client.
    pub(crate) fn count_sent(&self, datagrams: usize, bytes: usize) {
        self.sent.count(datagrams, bytes);
    }

    /// Counts dropped datagrams.
    pub(crate) fn count_dropped(&self, cause: DatagramDrop, datagrams: usize) {
        add_relaxed(&self.dropped[cause as usize], datagrams as u64);
    }
}

/// Counts of the UDP sessions of a stream route, summed over all workers, which continue meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramReport {
    /// The route's name, or one of the labels of the parent module.
    pub name: Name,
    /// Sessions.
    pub opened: u64,
    /// Ended sessions, in the order of [`SessionEnd::ALL`].
    pub ended: [u64; SessionEnd::ALL.len()],
    /// Datagrams from clients, dropped ones included.
    pub received_datagrams: u64,
    /// Bytes of these.
    pub received: u64,
    /// Datagrams to clients.
    pub sent_datagrams: u64,
    /// Bytes of these.
    pub sent: u64,
    /// Dropped datagrams of both directions, in the order of [`DatagramDrop::ALL`].
    pub dropped: [u64; DatagramDrop::ALL.len()],
}

impl DatagramReport {
    fn new(name: Name) -> DatagramReport {
        DatagramReport {
            name,
            opened: 0,
            ended: [0; SessionEnd::ALL.len()],
            received_datagrams: 0,
            received: 0,
            sent_datagrams: 0,
            sent: 0,
            dropped: [0; DatagramDrop::ALL.len()],
        }
    }

    /// Returns the number of open sessions.
    #[must_use]
    pub fn open_sessions(&self) -> u64 {
        // The counts are not read at one instant: never negative.
        self.opened.saturating_sub(self.ended.iter().sum())
    }

    fn add(&mut self, counts: &DatagramCounts) {
        self.opened += counts.opened.load(Ordering::Relaxed);
        counts
            .received
            .add_to((&mut self.received_datagrams, &mut self.received));
        counts.sent.add_to((&mut self.sent_datagrams, &mut self.sent));
        for (sums, counts) in [
            (&mut self.ended[..], &counts.ended[..]),
            (&mut self.dropped[..], &counts.dropped[..]),
        ] {
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
    }
}

impl Metrics {
    /// Returns the counts of stream routes that had datagrams, in the order of their first configuration.
    pub(crate) fn datagrams(&self) -> Vec<DatagramReport> {
        let names = lock(&self.streams).names.clone();
        let mut reports: Vec<DatagramReport> = names.into_iter().map(DatagramReport::new).collect();
        for worker in lock(&self.workers).iter() {
            for (report, counts) in reports.iter_mut().zip(lock(&worker.datagrams).iter()) {
                let counts: Option<&Arc<DatagramCounts>> = counts.as_ref();
                if let Some(counts) = counts {
                    report.add(counts);
                }
            }
        }
        reports.retain(|report| report.opened > 0 || report.received_datagrams > 0);
        reports
    }
}
