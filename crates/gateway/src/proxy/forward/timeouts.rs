//! The timeouts of an attempt while its request body is sent: which side is silent, and the fault that results.
//!
//! ```text
//!                         waits for the client       waits for the upstream
//! per_try                 stopped                    runs: `head_timeout`
//! idle, no byte moves     `request_idle`             `head_timeout`; `body_timeout` once the response has started
//! request                 runs: `request_timeout`    runs: `request_timeout`
//! ```
//!
//! While other requests wait for a slot of the upstream ([`MinRateCheck`]), a body without a response yet must reach a rate that rises each
//! second.
//!
//! Silence of the client is never an endpoint's failure. A body that moves is not idle, in whichever direction and however slowly: the
//! listener's minimum rate applies to uploads.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Cx, Sleep};

use super::ForwardJob;
use crate::fault::Fault;
use crate::limits;
use crate::proxy::min_rate::MinRateCheck;
use crate::proxy::request_body::UploadProgress;
use crate::proxy::response_body::ExchangeTimeouts;
use crate::upstream::pool::UpstreamConn;

/// The timeouts of one attempt.
pub(super) struct AttemptTimeouts<'a> {
    cx: &'a Cx,
    conn: &'a UpstreamConn,
    /// Bytes that the upstream had accepted at the last check.
    sent: u64,
    /// The timer that wakes the attempt, and its deadline.
    sleep: Option<(Time, Sleep)>,
    min_rate: MinRateCheck<'a>,
    /// Time of the next contention check.
    next_rate_check: Time,
}

impl<'a> AttemptTimeouts<'a> {
    pub(super) fn new(job: &ForwardJob<'a, '_>, conn: &'a UpstreamConn) -> AttemptTimeouts<'a> {
        AttemptTimeouts {
            cx: &job.worker.cx,
            conn,
            sent: 0,
            sleep: None,
            min_rate: MinRateCheck::new(
                &job.pool.upstream,
                job.upstream_request.listener.limits.rate_bytes,
            ),
            next_rate_check: job.worker.cx.now().after(limits::CONTENDED_LOOK),
        }
    }

    /// Completes when a timeout expires. `head_received`: the response head was received. Must be polled whenever bytes may have moved.
    pub(super) fn poll(
        &mut self,
        clock: &ExchangeTimeouts,
        progress: &UploadProgress,
        head_received: bool,
        context: &mut Context<'_>,
    ) -> Poll<Fault> {
        loop {
            let now = self.cx.now();
            let sent = self.conn.bytes_sent();
            if sent != self.sent {
                self.sent = sent;
                progress.record_transfer(now);
            }
            if now >= self.next_rate_check {
                self.next_rate_check = now.after(limits::CONTENDED_LOOK);
                // Once the response has started, the exchange may be interactive and have pauses.
                let slow = self.min_rate.is_too_slow(progress.received());
                if slow && !head_received && progress.is_waiting_for_client() {
                    return Poll::Ready(Fault::RequestTooSlow);
                }
            }
            let next = next_timeout(clock, progress, head_received, now);
            if let Some((_, fault)) = next.filter(|(at, _)| now >= *at) {
                if matches!(fault, Fault::HeadTimeout | Fault::BodyTimeout) {
                    self.conn.check_connection();
                }
                return Poll::Ready(fault);
            }
            let mut at = next.map_or(Time::NEVER, |(at, _)| at).min(self.next_rate_check);
            if let Some(idle) = clock.idle.filter(|_| !progress.is_waiting_for_client()) {
                // No event reports how much of a long piece the upstream has accepted.
                at = at.min(now.after(idle / IDLE_CHECKS));
            }
            // A timer that fires too early is replaced: pieces move far more often than a timeout expires.
            if self.sleep.as_ref().is_some_and(|(fires, _)| *fires > at) {
                self.sleep = None;
            }
            let (_, sleep) = self
                .sleep
                .get_or_insert_with(|| (at, self.cx.sleep(at.since(now))));
            match Pin::new(sleep).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => {
                    self.sleep = None;
                    self.conn.update_bytes_sent();
                }
            }
        }
    }
}

/// Number of checks, per idle timeout, of the bytes that an upstream has accepted.
const IDLE_CHECKS: u32 = 4;

/// Returns the next timeout and its fault.
fn next_timeout(
    clock: &ExchangeTimeouts,
    progress: &UploadProgress,
    head_received: bool,
    now: Time,
) -> Option<(Time, Fault)> {
    let waits_for_client = progress.is_waiting_for_client();
    let total = clock.total.map(|at| (at, Fault::RequestTimeout));
    let head = clock.head.filter(|_| !waits_for_client && !head_received);
    let head = head.map(|at| (at.after(progress.client_time(now)), Fault::HeadTimeout));
    let idle_fault = match (waits_for_client, head_received) {
        (true, _) => Fault::RequestIdle,
        (false, false) => Fault::HeadTimeout,
        (false, true) => Fault::BodyTimeout,
    };
    let idle = clock
        .idle
        .map(|idle: Duration| (progress.last_transfer().after(idle), idle_fault));
    [total, head, idle]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
}
