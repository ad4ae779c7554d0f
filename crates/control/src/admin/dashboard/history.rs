//! The history of the last minutes: one point a second, recorded whether a page is open or not, so that a reloaded page has its curves
//! at once. Bounded by [`DASHBOARD_HISTORY`].

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use super::snapshot::{round_to_tenth, saturating_rate};
use crate::limits::DASHBOARD_HISTORY;

/// The counters of one point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// By a clock that does not jump.
    pub(super) at: Duration,
    /// Since the Unix epoch.
    pub(super) wall: Duration,
    /// CPU time that the process has used.
    pub(super) cpu: Duration,
    /// Responses, and those with a status from 500 on.
    pub(super) responses: u64,
    pub(super) server_errors: u64,
    /// Open connections, upstreams included.
    pub(super) connections: u64,
    /// Clients of push, and deliveries to them; `None`: push is not configured.
    pub(super) push: Option<(u64, u64)>,
}

/// A second of the history.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    /// Seconds since the Unix epoch.
    second: u64,
    requests_per_s: f64,
    errors_per_s: f64,
    connections: u64,
    cpu_percent: f64,
    push: Option<(u64, f64)>,
}

/// The ring of points, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RateHistory {
    last: Totals,
    points: VecDeque<Point>,
}

/// The history as columns: each has one value for each entry of `seconds`.
#[derive(Serialize)]
struct Columns {
    /// Seconds since the Unix epoch. A second without a point was not recorded.
    seconds: Vec<u64>,
    requests_per_s: Vec<f64>,
    errors_per_s: Vec<f64>,
    connections: Vec<u64>,
    cpu_percent: Vec<f64>,
    /// `null` where push was not configured.
    clients: Vec<Option<u64>>,
    deliveries_per_s: Vec<Option<f64>>,
}

impl RateHistory {
    /// Returns whether a point is due: the last one is of another second.
    pub(super) fn is_due(&self, wall: Duration) -> bool {
        self.last.wall.as_secs() != wall.as_secs()
    }

    /// Records a point; its rates cover the time since the last call. The first call only sets the baseline.
    pub(super) fn record(&mut self, now: Totals) {
        let last = std::mem::replace(&mut self.last, now);
        let span = now.at.saturating_sub(last.at).as_secs_f64();
        if last.at.is_zero() || span <= 0.0 {
            return;
        }
        if self.points.len() == DASHBOARD_HISTORY {
            self.points.pop_front();
        }
        let per_s = |count: u64, before: u64| saturating_rate(count, before, span);
        self.points.push_back(Point {
            second: now.wall.as_secs(),
            requests_per_s: per_s(now.responses, last.responses),
            errors_per_s: per_s(now.server_errors, last.server_errors),
            connections: now.connections,
            cpu_percent: round_to_tenth(100.0 * now.cpu.saturating_sub(last.cpu).as_secs_f64() / span),
            push: now.push.map(|(clients, deliveries)| {
                // Push that was configured just now has delivered nothing before.
                let before = last.push.map_or(deliveries, |(_, before)| before);
                (clients, per_s(deliveries, before))
            }),
        });
    }

    /// Returns all points, as one line of JSON.
    pub(super) fn document(&self) -> String {
        let column = |pick: fn(&Point) -> f64| -> Vec<f64> { self.points.iter().map(pick).collect() };
        let columns = Columns {
            seconds: self.points.iter().map(|point| point.second).collect(),
            requests_per_s: column(|point| point.requests_per_s),
            errors_per_s: column(|point| point.errors_per_s),
            connections: self.points.iter().map(|point| point.connections).collect(),
            cpu_percent: column(|point| point.cpu_percent),
            clients: self.points.iter().map(|point| Some(point.push?.0)).collect(),
            deliveries_per_s: self.points.iter().map(|point| Some(point.push?.1)).collect(),
        };
        serde_json::to_string(&columns).expect("finite numbers under text names")
    }
}
