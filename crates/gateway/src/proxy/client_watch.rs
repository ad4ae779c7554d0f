//! Clients that leave while their response is relayed.

use std::task::Context;

use ringmain_web::Request;

/// Notices a client that shuts down its side while its response is relayed. One that has done so before may still read.
pub(super) struct ClientWatch<'a, 'r> {
    req: &'a Request<'r>,
    may_leave: bool,
    /// It was noticed in this wait.
    pub(super) has_ended: bool,
}

impl<'a, 'r> ClientWatch<'a, 'r> {
    pub(super) fn new(req: &'a Request<'r>) -> ClientWatch<'a, 'r> {
        ClientWatch {
            req,
            may_leave: !req.has_client_ended(),
            has_ended: false,
        }
    }

    /// Returns whether the client has ended its side, once in a wait.
    pub(super) fn poll_end(&mut self, context: &Context<'_>) -> bool {
        let is_new = self.may_leave && !self.has_ended;
        self.has_ended |= is_new && self.req.poll_client_ended(context).is_ready();
        is_new && self.has_ended
    }

    /// Resets the connection: without that a body that ends with the connection would seem complete.
    pub(super) fn abort(&self) {
        self.req.cx().conn(self.req.connection()).abort();
    }
}
