//! The endpoints of an upstream that a request of the gateway's own tries, one after the other.
//!
//! ```text
//! new ─ admitted, resolved ─▶ an endpoint ─ connect ─┬─ a connection
//!                                 ▲                  └─ no connection could be established
//!                                 └── one that was not tried ──┘
//! ```
//!
//! Knows no protocol beyond that of the connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;

use crate::fault::Fault;
use crate::gateway::Worker;
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{AffinityHint, RequestPermit, UpstreamState};

/// The endpoints for one request, which counts at its upstream until this is dropped.
#[derive(Debug)]
pub(crate) struct ServiceEndpoints {
    worker: Rc<Worker>,
    pool: Rc<UpstreamPool>,
    _permit: RequestPermit,
    /// The deadline of the request.
    until: Time,
    ignore_health: bool,
    tried: Vec<Rc<PoolEndpoint>>,
    selected: SelectedEndpoint,
}

impl ServiceEndpoints {
    /// Selects the first endpoint. `ignore_health`: one that is ejected or fails its health check is used if there is no other.
    ///
    /// # Errors
    /// A limit of the upstream is reached, or it has no endpoint.
    pub(crate) async fn new(
        worker: &Rc<Worker>,
        upstream: &Arc<UpstreamState>,
        until: Time,
        ignore_health: bool,
    ) -> Result<ServiceEndpoints, Fault> {
        let pool = worker.pool(upstream);
        let permit = pool.admit_request()?;
        let remaining = until.since(worker.cx.now());
        pool.wait_until_resolved(pool.connect_timeout().min(remaining))
            .await;
        let selected = select(&pool, &[], ignore_health)?;
        Ok(ServiceEndpoints {
            worker: Rc::clone(worker),
            pool,
            _permit: permit,
            until,
            ignore_health,
            tried: Vec::new(),
            selected,
        })
    }

    pub(crate) fn pool(&self) -> &Rc<UpstreamPool> {
        &self.pool
    }

    /// Returns the endpoint of the last connection.
    pub(crate) fn endpoint(&self) -> &Rc<PoolEndpoint> {
        &self.selected.endpoint
    }

    /// Returns the time until the deadline.
    pub(crate) fn remaining(&self) -> Duration {
        self.until.since(self.worker.cx.now())
    }

    /// Returns a connection. Continues with the endpoints not yet tried as long as no connection can be established. `fresh`: not one
    /// that was used before.
    ///
    /// # Errors
    /// The fault of the last attempt, which is counted.
    pub(crate) async fn connect(&mut self, fresh: bool) -> Result<UpstreamConn, Fault> {
        loop {
            self.pool.count_attempt();
            let proxy_header = self.pool.proxy_header(|| None);
            let span = self.pool.connect_timeout().min(self.remaining());
            let endpoint = &self.selected.endpoint;
            let acquired = self
                .worker
                .acquire_conn(&self.pool, endpoint, fresh, &proxy_header, span);
            let fault = match acquired.await {
                Ok(conn) => return Ok(conn),
                Err(fault) => fault,
            };
            self.pool.count_fault(fault);
            if !fault.is_connect_failure() || self.remaining().is_zero() {
                return Err(fault);
            }
            self.tried.push(Rc::clone(&self.selected.endpoint));
            let next = select(&self.pool, &self.tried, self.ignore_health)?;
            let is_same = |endpoint: &Rc<PoolEndpoint>| Rc::ptr_eq(endpoint, &next.endpoint);
            if self.tried.iter().any(is_same) {
                return Err(fault);
            }
            self.selected = next;
        }
    }
}

fn select(
    pool: &UpstreamPool,
    tried: &[Rc<PoolEndpoint>],
    ignore_health: bool,
) -> Result<SelectedEndpoint, Fault> {
    match pool.select(tried, None, AffinityHint::None) {
        Err(Fault::AllDown) if ignore_health => pool.select_ignoring_health(tried),
        selected => selected,
    }
}
