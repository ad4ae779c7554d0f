//! The load that endpoints report about themselves, and its comparison.
//!
//! A report is the value of [`LOAD_HEADER`] in the response to a health check. Between reports, the estimate follows the requests of this
//! process. A report is a claim: an endpoint cannot have fewer clients than this process has connections to it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::limits;

/// The header of a load report.
pub const LOAD_HEADER: &str = "ringmain-load";

/// The load of a push server as it reports it: `clients=1200, max=50000, leaving`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Connected clients.
    pub clients: u32,
    /// The clients that it has room for. `None`: not limited.
    pub max: Option<u32>,
    /// It sends its clients away, and must not receive new ones.
    pub leaving: bool,
}

impl LoadReport {
    /// Parses the value of the header; `None`: it is not valid. Unknown items are ignored.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<LoadReport> {
        let text = std::str::from_utf8(value).ok()?;
        let (mut clients, mut report) = (None, LoadReport::default());
        for item in text.split(',') {
            match item.trim().split_once('=') {
                Some(("clients", number)) => clients = Some(parse_count(number)?),
                Some(("max", number)) => report.max = Some(parse_count(number).filter(|max| *max > 0)?),
                None if item.trim() == "leaving" => report.leaving = true,
                _ => {}
            }
        }
        report.clients = clients?;
        Some(report)
    }
}

fn parse_count(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "clients={}", self.clients)?;
        if let Some(max) = self.max {
            write!(f, ", max={max}")?;
        }
        if self.leaving {
            f.write_str(", leaving")?;
        }
        Ok(())
    }
}

/// A report, as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedReport {
    pub(crate) report: LoadReport,
    /// The end of its validity, in nanoseconds of the engine's clock.
    pub(crate) until: u64,
    /// The requests in flight to the endpoint at that time.
    pub(crate) in_flight: u32,
}

/// The last report of an endpoint, which health checks write and selections read without a lock. A selection during a write may see parts of
/// two reports of the same endpoint: one estimate is then off by their difference.
#[derive(Debug, Default)]
pub(crate) struct SharedReport {
    clients: AtomicU32,
    in_flight: AtomicU32,
    /// 0: not limited.
    max: AtomicU32,
    leaving: AtomicBool,
    /// The end of the validity; 0: there is no report.
    until: AtomicU64,
}

impl SharedReport {
    /// Stores a report, or that there is none. Returns whether the endpoint has begun or ceased to leave.
    pub(crate) fn store(&self, received: Option<ReceivedReport>) -> bool {
        let report = received.map(|received| received.report).unwrap_or_default();
        if let Some(received) = received {
            self.clients.store(report.clients, Ordering::Relaxed);
            self.in_flight.store(received.in_flight, Ordering::Relaxed);
            self.max.store(report.max.unwrap_or_default(), Ordering::Relaxed);
        }
        let until = received.map_or(0, |received| received.until.max(1));
        self.until.store(until, Ordering::Release);
        self.leaving.swap(report.leaving, Ordering::Relaxed) != report.leaving
    }

    /// Returns the last report.
    pub(crate) fn load(&self) -> Option<ReceivedReport> {
        let until = self.until.load(Ordering::Acquire);
        (until > 0).then(|| ReceivedReport {
            report: LoadReport {
                clients: self.clients.load(Ordering::Relaxed),
                max: Some(self.max.load(Ordering::Relaxed)).filter(|max| *max > 0),
                leaving: self.is_leaving(),
            },
            until,
            in_flight: self.in_flight.load(Ordering::Relaxed),
        })
    }

    /// Returns whether the endpoint has reported that it sends its clients away.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }
}

/// The load of one or several endpoints, as estimated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLoad {
    /// The number of endpoints.
    count: u64,
    clients: u64,
    /// The clients that they have room for, times their weights.
    room: u64,
    in_flight: u64,
    weight: u64,
    /// There is a valid report of each.
    is_reported: bool,
    is_full: bool,
}

impl NodeLoad {
    /// No endpoint.
    pub(crate) const NONE: NodeLoad = NodeLoad {
        count: 0,
        clients: 0,
        room: 0,
        in_flight: 0,
        weight: 0,
        is_reported: true,
        is_full: false,
    };

    /// Estimates the load of an endpoint. `weight` is above 0.
    pub(crate) fn estimate(
        received: Option<ReceivedReport>,
        in_flight: u32,
        weight: u64,
        now: u64,
    ) -> NodeLoad {
        let local = u64::from(in_flight);
        let without_report = NodeLoad {
            count: 1,
            clients: local,
            room: 0,
            in_flight: local,
            weight,
            is_reported: false,
            is_full: false,
        };
        let Some(received) = received.filter(|received| now <= received.until) else {
            return without_report;
        };
        let LoadReport { clients, max, .. } = received.report;
        let since = (u64::from(clients) + local).saturating_sub(u64::from(received.in_flight));
        let clients = since.max(local);
        NodeLoad {
            clients,
            room: u64::from(max.unwrap_or(limits::PUSH_CLIENTS_ASSUMED)).saturating_mul(weight),
            is_reported: true,
            is_full: max.is_some_and(|max| clients >= u64::from(max)),
            ..without_report
        }
    }

    /// Adds the load of another endpoint.
    pub(crate) fn add(&mut self, other: NodeLoad) {
        self.count += other.count;
        self.clients = self.clients.saturating_add(other.clients);
        self.room = self.room.saturating_add(other.room);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.weight = self.weight.saturating_add(other.weight);
        self.is_reported &= other.is_reported;
    }

    /// Returns whether the endpoint has no room for another client, by its report.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns whether there is no endpoint.
    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }

    /// Returns whether the load exceeds another one times `percent` / 100: by the share of clients that there is room for, or, unless both
    /// are reported, by requests in flight relative to weight.
    pub(crate) fn exceeds(&self, other: &NodeLoad, percent: u64) -> bool {
        let by_report = self.is_reported && other.is_reported;
        let (own, own_room) = self.load_and_room(by_report);
        let (others, others_room) = other.load_and_room(by_report);
        own * others_room * 100 > others * own_room * u128::from(percent)
    }

    /// Returns the part of `total`'s clients that the endpoint should have: by the room of each, or by weights unless every endpoint reports it.
    pub(crate) fn share_of(&self, total: &NodeLoad) -> u64 {
        if total.is_reported { self.room } else { self.weight }
    }

    /// Returns whether another client keeps the endpoint within `percent` of its share of a total (consistent hashing with bounded loads;
    /// Mirrokni, Thorup and Zadimoghaddam, 2016).
    pub(crate) fn is_within(&self, total: &NodeLoad, percent: u64) -> bool {
        let (own, room, all, all_room) = if total.is_reported {
            (self.clients, self.room, total.clients, total.room)
        } else {
            (self.in_flight, self.weight, total.in_flight, total.weight)
        };
        let share = (u128::from(all) + 1) * u128::from(room) * u128::from(percent);
        u128::from(own) < share.div_ceil((u128::from(all_room) * 100).max(1))
    }

    /// Returns clients and room, or requests and weight. One more is counted for each endpoint, so that empty ones differ by room.
    fn load_and_room(&self, by_report: bool) -> (u128, u128) {
        let (load, room) = if by_report {
            (self.clients, self.room)
        } else {
            (self.in_flight, self.weight)
        };
        (u128::from(load) + u128::from(self.count), u128::from(room))
    }
}
