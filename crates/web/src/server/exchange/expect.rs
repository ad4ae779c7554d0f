//! `Expect: 100-continue` (RFC 9110 §10.1.1) of a request whose handler decides when its body is wanted.

use std::future::poll_fn;
use std::task::Poll;

use super::{Coming, Exchange};

impl Exchange {
    /// Returns true if the client waits for `100 Continue` and has sent no byte of its body.
    pub(crate) fn expects_continue(&self) -> bool {
        let incoming = self.incoming.borrow();
        incoming.expects && incoming.queue.is_empty()
    }

    /// Waits until the client sends its body, or until the 100 was sent. Never completes if the final response starts first and the
    /// client sends no body.
    pub(crate) async fn body_begins(&self) {
        poll_fn(|context| {
            let incoming = self.incoming.borrow();
            let is_over = incoming.coming.as_ref().is_none_or(Coming::is_over);
            if incoming.invited || is_over || incoming.fault.is_some() || !incoming.queue.is_empty() {
                return Poll::Ready(());
            }
            drop(incoming);
            self.wait(context)
        })
        .await;
    }

    /// Records that the 100 was sent.
    pub(crate) fn invites(&self) {
        let mut incoming = self.incoming.borrow_mut();
        incoming.invited |= std::mem::take(&mut incoming.expects);
    }
}
