//! `Expect: 100-continue`: the client's body waits for the upstream's `100 Continue`.
//!
//! ```text
//! head with Expect ─▶ upstream ─┬─ 100 ─▶ relayed, the client sends its body
//!                               ├─ final response ─▶ relayed, the client does not send its body
//!                               └─ neither within EXPECT_WAIT ─▶ the gateway sends 100, for upstreams that ignore the field
//! ```

use ringmain_engine::Cx;
use ringmain_web::Request;

use crate::limits;
use crate::resolve::with_timeout;

/// Waits until the body of a request may be read. Returns at once unless the client expects `100 Continue`.
pub(super) async fn wait_for_continue(cx: &Cx, req: &Request<'_>) {
    if !req.expects_continue() {
        return;
    }
    // Boxed, so that requests without the field need no room for it.
    let started = with_timeout(cx, limits::EXPECT_WAIT, Box::pin(req.body_started())).await;
    if started.is_none() && !req.expects_continue() {
        // The final response has started: the client sends its body unrequested, or not at all.
        req.body_started().await;
    }
}
