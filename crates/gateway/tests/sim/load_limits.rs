//! Limits on a run's requests, which stay the same whatever else of the configuration changes, and the checks that they held.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    Concurrency, FaultInjection, Fraction, Policy, RateKey, RateLimit, RetryBudget, Upstream,
};
use ringmain_gateway::stats::upstreams::{CounterState, UpstreamLimit};
use ringmain_gateway::{Gateway, UpstreamStatus};
use ringmain_sim::World;
use ringmain_web::testing::TestReply;

use crate::filters;
use crate::request::{TIMEOUTS, Timeouts};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// So many of the run's requests pass, and then none: time brings no more within it.
    rate: Option<u32>,
    /// So many at once by the rule.
    at_once: Option<u32>,
    /// These are counted by a key, which is the same for all.
    keyed: bool,
    /// So many at once at the upstream.
    requests: Option<u32>,
    /// So many that are tried again at once.
    retries: Option<u32>,
    /// Some requests are delayed.
    delay: Option<Duration>,
    /// They pass filters that change nothing.
    filters: bool,
    /// The retry budget.
    budget: RetryBudget,
    /// Requests are counted elsewhere, too.
    shared: bool,
    /// Some bodies are live streams, and some stop: there are so many connections that these are in no other request's way.
    pub(crate) live: bool,
}

/// Connections to an upstream where some bodies are live streams.
const LIVE_CONNECTIONS: u32 = 1000;

/// So slow that no share returns within a run.
const NEVER: Duration = Duration::from_hours(24 * 365 * 100);

/// The upstream of requests.
fn origin(gateway: &Gateway) -> UpstreamStatus {
    let mut upstreams = gateway.upstreams().into_iter();
    let found = upstreams.find(|upstream| &*upstream.name == "origin");
    found.expect("it is configured")
}

impl Bounds {
    pub(crate) fn draw(world: &World, shared: bool) -> Bounds {
        let draw = |of: usize, most: usize| (world.below(of) == 0).then(|| 1 + world.below(most) as u32);
        Bounds {
            rate: draw(5, 40).filter(|_| !shared),
            at_once: draw(5, 4),
            keyed: world.below(2) == 0,
            requests: draw(5, 4),
            retries: draw(3, 2),
            delay: draw(5, 2000).map(|millis| Duration::from_millis(millis.into())),
            filters: false,
            budget: RetryBudget {
                percent: world.below(101) as u8,
                least: world.below(20) as u32,
                interval: draw(2, 20).map(|seconds| Duration::from_secs(seconds.into())),
                ..RetryBudget::default()
            },
            shared,
            live: world.below(3) == 0,
        }
    }

    /// Filters that want a body whole make an upload of a live stream: not there.
    pub(crate) fn with_filters(self, filters: bool) -> Bounds {
        Bounds {
            filters: filters && !self.live,
            ..self
        }
    }

    pub(crate) fn policies(&self) -> Vec<Policy> {
        let rate = self.rate.map(|requests| {
            let mut limit = RateLimit::new("sim", requests, NEVER);
            // Every request has the same host, whose hash depends on the run.
            limit.by = vec![RateKey::Host];
            Policy::RateLimit(Arc::new(limit))
        });
        let at_once = self.at_once.map(|requests| {
            Policy::Concurrency(Arc::new(Concurrency {
                name: "sim".into(),
                requests,
                by: self.keyed.then_some(RateKey::Host).into_iter().collect(),
            }))
        });
        let delay = self.delay.map(|time| {
            Policy::Inject(Arc::new(FaultInjection {
                delay: Some((time, Fraction { part: 1, of: 3 })),
                ..FaultInjection::default()
            }))
        });
        let bounds = [rate, at_once, delay].into_iter().flatten();
        let passed = self.filters.then(filters::policies).into_iter().flatten();
        bounds.chain(passed).collect()
    }

    pub(crate) fn upstream(&self, upstream: &mut Upstream) {
        upstream.retry_budget = self.budget;
        upstream.pool.requests = self.requests.unwrap_or(upstream.pool.requests);
        upstream.pool.retries = self.retries.unwrap_or(upstream.pool.retries);
        if self.live {
            upstream.pool.connections = LIVE_CONNECTIONS;
        }
    }

    /// Returns whether a response is a refusal that these limits may have caused.
    pub(crate) fn explains(&self, reply: &TestReply) -> bool {
        match (reply.status(), reply.header("X-Overloaded")) {
            (429, _) => self.rate.is_some() && reply.header("Retry-After").is_some(),
            (503, Some("concurrency_full")) => self.at_once.is_some(),
            (503, Some("requests_full")) => self.requests.is_some(),
            _ => false,
        }
    }

    /// Returns whether a concurrency limit may be reached.
    pub(crate) fn fill(&self) -> bool {
        self.at_once.is_some() || self.requests.is_some()
    }

    /// Returns whether a single request is admitted.
    pub(crate) fn lets_one_in(&self) -> bool {
        self.rate.is_none()
    }

    /// At any moment.
    pub(crate) fn hold(&self, gateway: &Gateway, asked: u64, now: Time) {
        let upstream = origin(gateway);
        // Deposits of requests and of time; the first retry receives those of a second.
        let brought = asked * u64::from(self.budget.percent) * 10;
        let grown = (u128::from(now.0) + 1_000_000_000) * u128::from(self.budget.least) / 1_000_000;
        let budget = (u128::from(brought) + grown) / 1000;
        assert!(u128::from(upstream.retries) <= budget, "{budget}: {upstream:?}");
        let most = |cap: Option<u32>| cap.unwrap_or(u32::MAX);
        assert!(upstream.requests <= most(self.requests), "{upstream:?}");
        assert!(upstream.retrying <= most(self.retries), "{upstream:?}");
        for counter in gateway.counters() {
            if let CounterState::InFlight(count) = counter.state {
                assert!(count <= most(self.at_once), "{counter:?}");
            }
        }
    }

    /// Checks the final state. `timeouts` are the numbers of responses that reported each kind.
    pub(crate) fn held(&self, gateway: &Gateway, timeouts: Timeouts) {
        for counter in gateway.counters() {
            assert!(
                matches!(
                    counter.state,
                    CounterState::InFlight(0) | CounterState::RateLimitKeys { forgotten: 0, .. }
                ),
                "{counter:?}"
            );
        }
        let faults = gateway.fault_counts();
        let count = |wanted| {
            let found = faults.iter().find(|(fault, _)| *fault == wanted);
            found.map_or(0, |(_, count)| *count)
        };
        for (fault, seen) in TIMEOUTS.into_iter().zip(timeouts) {
            assert!(count(fault) >= seen, "{seen} clients were notified of {fault}");
        }
        let upstream = origin(gateway);
        assert_eq!(upstream.retrying, 0, "{upstream:?}");
        let refused = upstream.refused[UpstreamLimit::Requests as usize].1;
        // Copies are refused without a word.
        assert!(refused >= count(Fault::RequestsFull), "{upstream:?}");
        let Some(most) = self.rate else {
            assert!(self.shared || count(Fault::RateLimited) == 0);
            return;
        };
        let requests = gateway.route_reports();
        let all: u64 = requests.iter().flat_map(|report| report.classes).sum();
        let passed = all - count(Fault::RateLimited);
        let expected = all.min(most.into());
        assert_eq!(passed, expected, "of {all} requests with a limit of {most}");
    }
}

/// Returns the limits of the server.
pub(crate) fn limits(calm: bool) -> ringmain_web::Limits {
    let mut limits = ringmain_web::Limits {
        // The end of a connection after its last response is web's task, and tested there.
        linger: Duration::from_secs(3600),
        linger_bytes: 1 << 30,
        ..ringmain_web::Limits::default()
    };
    if calm {
        limits.max_queue_delay = None;
    }
    limits
}
