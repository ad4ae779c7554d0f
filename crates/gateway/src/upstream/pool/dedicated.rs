//! Connections dedicated to one client: for protocols other than HTTP, and for protocol upgrades.

use std::rc::Rc;
use std::time::Duration;

use super::{PoolEndpoint, PooledConnection, UpstreamPool, WaitOutcome};
use crate::fault::Fault;
use crate::model::UpstreamProtocol;

/// The purpose of such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DedicatedUse {
    Bytes,
    /// An HTTP/1.1 upgrade request, at an upstream whose endpoints select their protocol.
    Upgrade,
}

impl UpstreamPool {
    /// Returns whether endpoints select HTTP/2 or HTTP/1.1.
    pub(crate) fn negotiates_protocol(&self) -> bool {
        self.protocol() == UpstreamProtocol::Auto
    }

    /// Opens a new connection to an endpoint for one client, within `span`. It is never pooled.
    ///
    /// # Errors
    /// The fault of the attempt, or of a limit that was reached for as long as `span`.
    pub(crate) async fn open_dedicated(
        &self,
        endpoint: &Rc<PoolEndpoint>,
        purpose: DedicatedUse,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<PooledConnection, Fault> {
        let limit = self.refresh_snapshot().upstream.config.pool.connections;
        let permit = match self.upstream.acquire_connection(limit) {
            Ok(permit) => permit,
            Err(_) => match self.wait_for_connection(endpoint, true, limit, span).await? {
                WaitOutcome::Permit(permit) => permit,
                // With `fresh`, no pooled connection is returned.
                WaitOutcome::Connection(_) => return Err(Fault::PendingTimeout),
            },
        };
        let tls = match (purpose, &self.refresh_snapshot().tls) {
            (DedicatedUse::Bytes, handles) => handles.bytes.clone(),
            (DedicatedUse::Upgrade, handles) => handles.upgrades.clone(),
        };
        let opened = self
            .open_connection(endpoint, permit, proxy_header, tls, span)
            .await;
        opened.map(|pooled| PooledConnection {
            has_client_preamble: true,
            ..pooled
        })
    }
}
