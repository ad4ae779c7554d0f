//! Connections for one client from start to end: for protocols other than HTTP, and for protocol upgrades.

use std::rc::Rc;
use std::time::Duration;

use super::{End, Local, Sole, Waited};
use crate::fault::Fault;
use crate::model::UpstreamProtocol;

/// The purpose of such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Bytes,
    /// An HTTP/1.1 upgrade request, at an upstream whose endpoints select their protocol.
    Switch,
}

impl Local {
    /// Returns whether endpoints select HTTP/2 or HTTP/1.1.
    pub(crate) fn lets_choose(&self) -> bool {
        self.protocol() == UpstreamProtocol::Auto
    }

    /// Opens a new connection to an endpoint for one client, within `span`. It is never pooled.
    ///
    /// # Errors
    /// The fault of the attempt, or of a limit that was reached for as long as `span`.
    pub(crate) async fn open_alone(
        &self,
        end: &Rc<End>,
        purpose: Purpose,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Sole, Fault> {
        let most = self.follow().current.config.pool.connections;
        let permit = match self.shared.begin_connection(most) {
            Ok(permit) => permit,
            Err(_) => match self.wait(end, true, most, span).await? {
                Waited::Permit(permit) => permit,
                // With `fresh`, no pooled connection is returned.
                Waited::Kept(_) => return Err(Fault::PendingTimeout),
            },
        };
        let tls = match (purpose, &self.follow().tls) {
            (Purpose::Bytes, handles) => handles.bytes.clone(),
            (Purpose::Switch, handles) => handles.switches.clone(),
        };
        let dialled = self.dial(end, permit, greeting, tls, span).await;
        dialled.map(|sole| Sole {
            is_greeted: true,
            ..sole
        })
    }
}
