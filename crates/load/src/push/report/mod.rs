//! What a fan-out has shown: the one form that all outputs are made from.
//!
//! Plain data and what follows from it; [`text`] is for a terminal, [`json`] for programs.

pub mod json;
pub mod text;

use std::time::Duration;

use super::calendar::Calendar;
use super::figures::{Heard, Outage, Published, Spread};
use super::layout::Layout;
use super::plan::Plan;
use crate::figures::Latency;
use crate::report::{Remark, ServerUse};

/// A whole run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was asked for.
    pub plan: Plan,
    /// The engine that clients ran on, with its features.
    pub engine: String,
    /// How clients came to stand.
    pub joined: Joined,
    /// What came of publishing.
    pub published: Published,
    /// What clients heard.
    pub heard: Heard,
    /// What follows from both.
    pub totals: Totals,
    /// When the process of [`Plan::kill_server`] received SIGKILL, from the time at which publications count.
    pub killed_after: Option<Duration>,
    /// What each thread used while it counted; the last one published.
    pub efforts: Vec<Effort>,
    /// What the server used in that time, if it was watched.
    pub server: Option<ServerUse>,
}

/// How clients came to stand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joined {
    /// How long all of them took.
    pub took: Duration,
    /// CPU time of the server in that.
    pub server_cpu: Option<Duration>,
    /// Memory that the server holds since then.
    pub server_bytes: Option<u64>,
    /// Memory that this program holds since then, all together.
    pub own_bytes: Option<u64>,
}

/// What one thread of the client used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// CPU time.
    pub cpu: Duration,
    /// How long it was ready and had no CPU; `None` where the kernel does not say.
    pub waited: Option<Duration>,
}

/// Deliveries that were to be, and publications by how far they came. Clients that read slowly are apart.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Deliveries to clients that read as fast as they can.
    pub expected: u64,
    /// The same to clients that read slowly.
    pub expected_slow: u64,
    /// Clients that read slowly.
    pub slow_clients: u32,
    /// From a publication's moment to the last of its clients having it, of those that all clients have that read as fast
    /// as they can. Empty where values are conflated.
    pub last: Latency,
    /// The same of the channel that all subscribe to.
    pub last_common: Latency,
    /// Publications that some of these clients do not have.
    pub incomplete: u64,
    /// From a publication's moment to the broker's acknowledgement. This and the following are empty unless publications are written to a
    /// broker.
    pub acknowledged: Latency,
    /// From the broker's acknowledgement of a publication to the last of its clients having it, of those in `last`. Zero where the client
    /// had it before the acknowledgement arrived.
    pub last_after: Latency,
    /// From the broker's acknowledgement to a plain consumer having it; zero as above.
    pub consumed_after: Latency,
    /// From a publication's moment to a plain consumer having it.
    pub consumed: Latency,
}

/// For each publication that counts and was written to a broker, microseconds since it was due; `u32::MAX`: never.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    /// Until the broker acknowledged it.
    pub(super) acknowledged: Vec<u32>,
    /// Until a plain consumer had it.
    pub(super) consumed: Vec<u32>,
}

impl Recorded {
    fn acknowledged(&self, place: usize) -> Option<u32> {
        self.acknowledged.get(place).copied().filter(|at| *at != u32::MAX)
    }

    fn consumed(&self, place: usize) -> Option<u32> {
        self.consumed.get(place).copied().filter(|at| *at != u32::MAX)
    }
}

impl Totals {
    pub(super) fn new(layout: &Layout, calendar: &Calendar, accepted: &[bool]) -> Totals {
        let audiences = layout.audiences();
        let mut totals = Totals {
            slow_clients: layout.slow_clients(),
            ..Totals::default()
        };
        for (place, _) in accepted.iter().enumerate().filter(|(_, accepted)| **accepted) {
            let audience = audiences[calendar.channel_of(place) as usize];
            totals.expected += u64::from(audience.fast);
            totals.expected_slow += u64::from(audience.slow);
        }
        totals
    }

    /// With what is known of each publication, by threads.
    pub(super) fn spread(
        mut self,
        layout: &Layout,
        calendar: &Calendar,
        accepted: &[bool],
        spreads: &[Vec<Spread>],
        recorded: &Recorded,
    ) -> Totals {
        self.record(recorded);
        if spreads.iter().all(Vec::is_empty) {
            return self;
        }
        let audiences = layout.audiences();
        for (place, accepted) in accepted.iter().enumerate() {
            let mut all = Spread::default();
            for spread in spreads.iter().filter_map(|spreads| spreads.get(place)) {
                all.merge(*spread);
            }
            let channel = calendar.channel_of(place);
            let audience = audiences[channel as usize];
            if !accepted && all.count == 0 {
                continue;
            }
            if !accepted {
                // Its answer was lost, but it was published.
                self.expected += u64::from(audience.fast);
                self.expected_slow += u64::from(audience.slow);
            }
            if all.count < audience.fast {
                self.incomplete += 1;
            } else if audience.fast > 0 {
                let latency = if channel == layout.channels {
                    &mut self.last_common
                } else {
                    &mut self.last
                };
                latency.record(u64::from(all.last_us) * 1000);
                if let Some(acknowledged) = recorded.acknowledged(place) {
                    self.last_after
                        .record(u64::from(all.last_us.saturating_sub(acknowledged)) * 1000);
                }
            }
        }
        self
    }

    /// Adds the times of records of a broker.
    fn record(&mut self, recorded: &Recorded) {
        for place in 0..recorded.acknowledged.len() {
            let acknowledged = recorded.acknowledged(place);
            if let Some(acknowledged) = acknowledged {
                self.acknowledged.record(u64::from(acknowledged) * 1000);
            }
            if let Some(consumed) = recorded.consumed(place) {
                self.consumed.record(u64::from(consumed) * 1000);
                if let Some(acknowledged) = acknowledged {
                    self.consumed_after
                        .record(u64::from(consumed.saturating_sub(acknowledged)) * 1000);
                }
            }
        }
    }
}

impl Run {
    /// Deliveries that counted, each once, to all clients.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.heard.counts.delivered + self.heard.counts.delivered_slow
    }

    /// Deliveries that were to be and were not, to clients that read as fast as they can. Where values are conflated, those
    /// are conflated.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.totals.expected.saturating_sub(self.heard.counts.delivered)
    }

    /// The same of clients that read slowly.
    #[must_use]
    pub fn missing_slow(&self) -> u64 {
        self.totals
            .expected_slow
            .saturating_sub(self.heard.counts.delivered_slow)
    }

    /// Deliveries that were lost: none where values are conflated.
    #[must_use]
    pub fn lost(&self) -> u64 {
        match self.plan.conflated {
            Some(_) => 0,
            None => self.missing() + self.missing_slow(),
        }
    }

    /// Clients that came to stand in a second.
    #[must_use]
    pub fn joins_per_second(&self) -> f64 {
        crate::report::per_second(u64::from(self.plan.clients), self.joined.took)
    }

    /// CPU time of the server for a million deliveries.
    #[must_use]
    pub fn server_cpu_per_million(&self) -> Option<Duration> {
        let cpu = self.server?.cpu;
        let delivered = self.delivered();
        (delivered > 0).then(|| Duration::from_secs_f64(cpu.as_secs_f64() * 1e6 / delivered as f64))
    }

    /// Clients that were cut off on purpose, each as often as it was, and of those that came back.
    #[must_use]
    pub fn cut_and_back(&self) -> (u64, u64) {
        let outages = self.heard.outages.iter();
        outages.fold((0, 0), |(cut, back), outage| {
            (cut + outage.cut, back + outage.back)
        })
    }

    /// How long it took until all that were cut off stood again, at most; `None` if some never did.
    #[must_use]
    pub fn all_back(&self) -> Option<Duration> {
        let outages = &self.heard.outages;
        let is_over = !outages.is_empty() && outages.iter().all(Outage::is_over);
        is_over.then(|| outages.iter().map(|outage| outage.took).max().unwrap_or_default())
    }

    /// Subscriptions of clients that connected again, whatever the server reported of what they had missed.
    #[must_use]
    pub fn recovery_attempts(&self) -> u64 {
        let counts = &self.heard.counts;
        counts.recoveries + counts.unrecovered + counts.unplaced
    }

    /// CPU time of the server for each client that came back after all had been cut off, with what it did besides until then.
    #[must_use]
    pub fn server_cpu_a_return(&self) -> Option<Duration> {
        let known = self.heard.outages.iter().filter_map(|outage| {
            let cpu = outage.server_cpu.filter(|_| outage.back > 0)?;
            Some((cpu, outage.back))
        });
        let (cpu, back) = known.fold((Duration::ZERO, 0), |(sum, all), (cpu, back)| {
            (sum + cpu, all + back)
        });
        (back > 0).then(|| Duration::from_secs_f64(cpu.as_secs_f64() / back as f64))
    }

    /// For each client that stands, of so much.
    fn for_each(&self, bytes: Option<u64>) -> Option<u64> {
        bytes.map(|bytes| bytes / u64::from(self.plan.clients.max(1)))
    }

    /// Memory of the server for each client.
    #[must_use]
    pub fn server_bytes_a_client(&self) -> Option<u64> {
        self.for_each(self.joined.server_bytes)
    }

    /// Memory of this program for each client, with what it holds at all.
    #[must_use]
    pub fn own_bytes_a_client(&self) -> Option<u64> {
        self.for_each(self.joined.own_bytes)
    }

    /// Returns why the run has measured nothing, if that is so: it failed then, whatever its other figures are.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let (published, delivered) = (&self.published, self.delivered());
        let expected = self.totals.expected + self.totals.expected_slow;
        if delivered > 0 {
            None
        } else if published.due > 0 && published.accepted == 0 {
            let due = published.due;
            Some(format!(
                "none of {due} publications was accepted, and nothing was delivered"
            ))
        } else if let Some(run) = self.plan.listening {
            Some(format!(
                "no publication of run {run:08x} arrived; check --prefix, and that the producer's payloads have {} bytes and this run \
                 number",
                self.plan.size
            ))
        } else if expected > 0 {
            Some(format!(
                "none of {expected} deliveries arrived; check that clients and publications reach the same server and channels"
            ))
        } else {
            None
        }
    }

    /// What speaks against believing it, the weightier first. `shared` says on which CPUs both sides may run, if any.
    #[must_use]
    pub fn remarks(&self, shared: &[usize]) -> Vec<Remark> {
        super::doubts::doubts(self, shared)
    }
}
