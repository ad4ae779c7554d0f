//! Connections that are not for HTTP: each is opened for one client and closed with it.

use std::rc::Rc;
use std::time::Duration;

use super::{End, Local, Sole, Waited};
use crate::fault::Fault;

impl Local {
    /// A new connection to an endpoint for a client's bytes, within `span`. It is never kept.
    pub(crate) async fn open_for_bytes(
        &self,
        end: &Rc<End>,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Sole, Fault> {
        let most = self.follow().current.config.pool.connections;
        let permit = match self.shared.begin_connection(most) {
            Ok(permit) => permit,
            Err(_) => match self.wait(end, true, most, span).await? {
                Waited::Permit(permit) => permit,
                // Nobody who wants a new one is given another.
                Waited::Kept(_) => return Err(Fault::PendingTimeout),
            },
        };
        let tls = self.follow().tls_for_bytes.clone();
        self.dial(end, permit, greeting, tls, span).await
    }
}
