//! A request whose client disconnected before the response arrived.

use std::rc::Rc;

use ringmain_web::Method;

use super::{FastPathState, StartedAttempt};
use crate::gateway::Worker;
use crate::policy::http_client::drain_abandoned;
use crate::upstream::pool::UpstreamConn;

impl FastPathState {
    /// Starts reading the response to its end without a client. No byte was consumed yet.
    pub(super) fn finish_abandoned(&mut self, worker: &Rc<Worker>) {
        let method = if self.is_head { Method::Head } else { Method::Get };
        if let Some(StartedAttempt {
            pool,
            permit,
            endpoint: selected,
            conn: Some(UpstreamConn::Http1(pooled)),
            ..
        }) = self.attempt.take()
        {
            drain_abandoned(worker, pool, permit, selected, pooled, method);
        }
    }
}
