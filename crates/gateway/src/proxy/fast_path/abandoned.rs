//! A request whose client disconnected before the response arrived.

use std::rc::Rc;

use ringmain_web::Method;

use super::{Ahead, Started};
use crate::gateway::Worker;
use crate::policy::http_client::finish_abandoned;
use crate::upstream::pool::UpstreamConn;

impl Ahead {
    /// Starts reading the response to its end without a client. No byte was consumed yet.
    pub(super) fn finish_abandoned(&mut self, worker: &Rc<Worker>) {
        let method = if self.to_head { Method::Head } else { Method::Get };
        if let Some(Started {
            local,
            admitted,
            chosen,
            link: Some(UpstreamConn::Http1(sole)),
            ..
        }) = self.started.take()
        {
            finish_abandoned(worker, local, (admitted, chosen), sole, method);
        }
    }
}
