//! The timeouts of an attempt while its request body is sent: which side is silent, and the fault that results.
//!
//! ```text
//!                         waits for the client       waits for the upstream
//! per_try                 stopped                    runs: `head_timeout`
//! idle, no byte moves     `request_idle`             `head_timeout`; `body_timeout` once the response has started
//! request                 runs: `request_timeout`    runs: `request_timeout`
//! ```
//!
//! While other requests wait for a slot of the upstream ([`Contention`]), a body without a response yet must reach a rate that rises each
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

use super::Job;
use crate::fault::Fault;
use crate::limits;
use crate::proxy::min_rate::Contention;
use crate::proxy::request_body::Progress;
use crate::proxy::response_body::Clock;
use crate::upstream::pool::UpstreamConn;

/// The timeouts of one attempt.
pub(super) struct Watch<'a> {
    cx: &'a Cx,
    link: &'a UpstreamConn,
    /// Bytes that the upstream had accepted at the last check.
    sent: u64,
    /// The timer that wakes the attempt, and its deadline.
    sleep: Option<(Time, Sleep)>,
    contention: Contention<'a>,
    /// Time of the next contention check.
    check: Time,
}

impl<'a> Watch<'a> {
    pub(super) fn new(job: &Job<'a, '_>, link: &'a UpstreamConn) -> Watch<'a> {
        Watch {
            cx: &job.worker.cx,
            link,
            sent: 0,
            sleep: None,
            contention: Contention::new(&job.local.upstream, job.sending.listener.limits.rate_bytes),
            check: job.worker.cx.now().after(limits::CONTENDED_LOOK),
        }
    }

    /// Completes when a timeout expires. `answered`: the response head was received. Must be polled whenever bytes may have moved.
    pub(super) fn poll(
        &mut self,
        clock: &Clock,
        progress: &Progress,
        answered: bool,
        context: &mut Context<'_>,
    ) -> Poll<Fault> {
        loop {
            let now = self.cx.now();
            let sent = self.link.bytes_sent();
            if sent != self.sent {
                self.sent = sent;
                progress.advance(now);
            }
            if now >= self.check {
                self.check = now.after(limits::CONTENDED_LOOK);
                // With a response it is a conversation, which may have pauses.
                let slow = self.contention.is_too_slow(progress.received());
                if slow && !answered && progress.is_waiting() {
                    return Poll::Ready(Fault::RequestTooSlow);
                }
            }
            let due = due(clock, progress, answered, now);
            if let Some((_, fault)) = due.filter(|(at, _)| now >= *at) {
                if matches!(fault, Fault::HeadTimeout | Fault::BodyTimeout) {
                    self.link.check_connection();
                }
                return Poll::Ready(fault);
            }
            let mut at = due.map_or(Time::NEVER, |(at, _)| at).min(self.check);
            if let Some(idle) = clock.idle.filter(|_| !progress.is_waiting()) {
                // No event reports how much of a long piece the upstream has accepted.
                at = at.min(now.after(idle / LOOKS));
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
                    self.link.update_bytes_sent();
                }
            }
        }
    }
}

/// Checks, within the idle time, of the bytes that an upstream has accepted while nothing else moves.
const LOOKS: u32 = 4;

/// Returns the next timeout and its fault.
fn due(clock: &Clock, progress: &Progress, answered: bool, now: Time) -> Option<(Time, Fault)> {
    let waits = progress.is_waiting();
    let total = clock.total.map(|at| (at, Fault::RequestTimeout));
    let head = clock.head.filter(|_| !waits && !answered);
    let head = head.map(|at| (at.after(progress.client_time(now)), Fault::HeadTimeout));
    let silent = match (waits, answered) {
        (true, _) => Fault::RequestIdle,
        (false, false) => Fault::HeadTimeout,
        (false, true) => Fault::BodyTimeout,
    };
    let idle = clock
        .idle
        .map(|idle: Duration| (progress.moved().after(idle), silent));
    [total, head, idle]
        .into_iter()
        .flatten()
        .min_by_key(|(at, _)| *at)
}
