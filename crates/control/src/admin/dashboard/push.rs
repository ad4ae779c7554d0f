//! The row of push: clients, channels, rates of publications and deliveries, slow consumers.

use ringmain_push::metrics::{Report, slow_label};
use serde::Serialize;

/// The code with which slow consumers are disconnected.
const SLOW: u32 = 3008;

#[derive(Serialize)]
pub(super) struct PushRow {
    clients: u64,
    users: u64,
    subscriptions: u64,
    channels: u64,
    subscribed_channels: u64,
    connects: u64,
    connects_per_s: f64,
    publications_per_s: f64,
    deliveries_per_s: f64,
    deliveries: u64,
    /// Slow clients that were disconnected.
    slow_disconnects: u64,
    /// Publications that slow clients did not receive, by policy; policies without any are omitted.
    slow: Vec<(&'static str, u64)>,
    /// Rejected clients, by reason; reasons without any are omitted.
    refused: Vec<(&'static str, u64)>,
    /// Disconnected clients by code, most frequent first.
    disconnects: Vec<(String, u64)>,
    /// Subscriptions with a gap, whatever its cause.
    lost: u64,
    recovered: u64,
    unrecovered: u64,
}

impl PushRow {
    /// `per_s` returns the rate of a count since the last snapshot.
    pub(super) fn of(now: &Report, before: Option<&Report>, per_s: impl Fn(u64, u64) -> f64) -> PushRow {
        // Push that was configured just now has counted nothing before.
        let before = before.unwrap_or(now);
        let slow = now
            .slow
            .iter()
            .map(|(policy, count)| (slow_label(*policy), *count));
        let refused = now.refused.iter().map(|(why, count)| (why.label(), *count));
        let mut disconnects: Vec<(String, u64)> = now
            .disconnects
            .iter()
            .map(|(code, count)| {
                (
                    code.map_or_else(|| "other".to_owned(), |code| code.to_string()),
                    *count,
                )
            })
            .collect();
        disconnects.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        PushRow {
            clients: now.clients,
            users: now.users,
            subscriptions: now.subscriptions,
            channels: now.channels,
            subscribed_channels: now.subscribed_channels,
            connects: now.connects,
            connects_per_s: per_s(now.connects, before.connects),
            publications_per_s: per_s(now.publications, before.publications),
            deliveries_per_s: per_s(now.deliveries, before.deliveries),
            deliveries: now.deliveries,
            slow_disconnects: slow_disconnects(now),
            slow: slow.filter(|(_, count)| *count > 0).collect(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            disconnects,
            lost: now.lost,
            recovered: now.recovered,
            unrecovered: now.unrecovered,
        }
    }
}

fn slow_disconnects(report: &Report) -> u64 {
    let slow = report.disconnects.iter().filter(|(code, _)| *code == Some(SLOW));
    slow.map(|(_, count)| count).sum()
}
