//! What is known of upstreams at a moment: for whoever looks after them.

use std::sync::Arc;
use std::time::Duration;

use crate::fault::Fault;
use crate::health::{Reason, Verdict};
use crate::model::{Addr, Name};
pub use crate::upstream::breaker::Cap;
use crate::upstream::{Copied, Endpoint, Shared};

/// An upstream and its endpoints. Each number is true at its own instant: workers go on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: Name,
    /// Requests under way.
    pub requests: u32,
    /// Connections that stand or are being made, kept ones counted.
    pub connections: u32,
    /// Requests that wait for a connection.
    pub waiting: u32,
    /// Requests that are tried again.
    pub retrying: u32,
    /// Requests that were tried at two endpoints at once, since it is known.
    pub hedged: u64,
    /// How often each of its caps has refused something, since it is known.
    pub refused: [(Cap, u64); Cap::ALL.len()],
    /// Tries that its budget has granted, since its name is configured.
    pub retries: u64,
    /// Tries that its budget has refused.
    pub retries_refused: u64,
    /// Copies of requests for it, in the order of [`Copied::ALL`].
    pub copies: [u64; Copied::ALL.len()],
    /// How often attempts at it ended by each fault, since its name is configured; faults that have not occurred are left out.
    pub faults: Vec<(Fault, u64)>,
    /// Whom it has now.
    pub endpoints: Vec<EndpointStatus>,
}

/// What a policy counts, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterStatus {
    /// That of the limit.
    pub name: Name,
    /// What is counted.
    pub counted: Counted,
}

/// What a policy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// A rate limit's keys.
    Keys {
        /// How many are remembered at most.
        room: usize,
        /// How many were forgotten, for want of room, while they owed something: each may have passed too often since.
        forgotten: u64,
    },
    /// Requests under way, of rules with a cap of this name.
    Requests(u32),
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Where it is.
    pub addr: Addr,
    /// Its share.
    pub weight: u32,
    /// Whether it gets nothing new.
    pub draining: bool,
    /// Requests under way.
    pub requests: u32,
    /// Attempts that failed since it is configured: no connection, no response, or one with a status from 500 on.
    pub failures: u64,
    /// What its active health checks have shown.
    pub verdict: Verdict,
    /// Why the last of these checks failed; `None`: it succeeded, or there was none.
    pub check_error: Option<Arc<str>>,
    /// When it was passed over last for what requests have met. It may be over.
    pub ejection: Option<Ejection>,
    /// Until when it is passed over because it could not be connected to, since the Unix epoch; it may be over. `None`: it never was.
    pub unreachable_until: Option<Duration>,
}

/// An endpoint that is passed over for what requests have met there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Its end, since the Unix epoch.
    pub until: Duration,
    /// What was met.
    pub why: Reason,
    /// How often that has happened, less one for each good interval since: the next one takes so many times twice as long.
    pub times: u32,
}

impl UpstreamStatus {
    pub(crate) fn of(shared: &Shared) -> UpstreamStatus {
        let current = shared.current();
        UpstreamStatus {
            name: shared.name.clone(),
            requests: shared.requests(),
            connections: shared.connections(),
            waiting: shared.waiting.len(),
            retrying: shared.breaker.retries(),
            hedged: shared.breaker.hedges(),
            refused: shared.breaker.refused(),
            retries: shared.counts.0.retries(),
            retries_refused: shared.counts.0.refused(),
            copies: shared.counts.0.copies(),
            faults: shared.counts.0.faults(),
            endpoints: current
                .endpoints
                .iter()
                .map(|endpoint| EndpointStatus::of(endpoint))
                .collect(),
        }
    }
}

impl EndpointStatus {
    fn of(endpoint: &Endpoint) -> EndpointStatus {
        let health = endpoint.state.health();
        EndpointStatus {
            addr: endpoint.addr.clone(),
            weight: endpoint.weight,
            draining: endpoint.draining,
            requests: endpoint.state.active(),
            failures: health.record.failures(),
            verdict: health.verdict(),
            check_error: health.check_error(),
            ejection: health.record.ejection(),
            unreachable_until: health.unreachable_until(),
        }
    }
}
