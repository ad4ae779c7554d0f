//! `Expect: 100-continue` (RFC 9110 §10.1.1) of a request whose handler decides when its body is wanted.

use std::future::poll_fn;
use std::task::Poll;

use super::{BodyProgress, Exchange};

impl Exchange {
    /// Returns true if the client waits for `100 Continue` and has sent no byte of its body.
    pub(crate) fn expects_continue(&self) -> bool {
        let body = self.body_queue.borrow();
        body.expects_continue && body.queue.is_empty()
    }

    /// Waits until the client sends its body, or until the 100 was sent. Never completes if the final response starts first and the
    /// client sends no body.
    pub(crate) async fn body_started(&self) {
        poll_fn(|context| {
            let body = self.body_queue.borrow();
            let is_complete = body.progress.as_ref().is_none_or(BodyProgress::is_complete);
            if body.continue_sent || is_complete || body.fault.is_some() || !body.queue.is_empty() {
                return Poll::Ready(());
            }
            drop(body);
            self.wait(context)
        })
        .await;
    }

    /// Records that the 100 was sent.
    pub(crate) fn mark_continue_sent(&self) {
        let mut body = self.body_queue.borrow_mut();
        body.continue_sent |= std::mem::take(&mut body.expects_continue);
    }
}
