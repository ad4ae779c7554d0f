//! What is known of upstreams at a moment: for whoever looks after them.

use crate::health::Verdict;
use crate::model::{Addr, Name};
pub use crate::upstream::breaker::Cap;
use crate::upstream::{Endpoint, Shared};

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
    /// What asking it has shown.
    pub verdict: Verdict,
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
        EndpointStatus {
            addr: endpoint.addr.clone(),
            weight: endpoint.weight,
            draining: endpoint.draining,
            requests: endpoint.state.active(),
            verdict: endpoint.state.health().verdict(),
        }
    }
}
