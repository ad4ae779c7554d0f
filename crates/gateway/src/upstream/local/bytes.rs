//! Connections that are one client's from the beginning to the end: for what is no HTTP, or switches to something else.

use std::rc::Rc;
use std::time::Duration;

use super::{End, Local, Sole, Waited};
use crate::fault::Fault;
use crate::model::UpstreamProtocol;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Bytes,
    /// A request of HTTP/1.1 that asks for another protocol, at an upstream whose endpoints choose what they speak.
    Switch,
}

impl Local {
    /// Whether endpoints choose between HTTP/2 and HTTP/1.1.
    pub(crate) fn lets_choose(&self) -> bool {
        self.protocol() == UpstreamProtocol::Auto
    }

    /// A new connection to an endpoint for one client, within `span`. It is never kept.
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
                // Nobody who wants a new one is given another.
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
