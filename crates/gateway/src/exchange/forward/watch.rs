//! The time of an attempt while its request's body is sent: whose silence it is, and what it ends as.
//!
//! ```text
//!                         waits for the client       waits for the upstream
//! per_try                 stopped                    runs: `head_timeout`
//! idle, no byte moves     `request_idle`             `head_timeout`; `body_timeout` once the answer has begun
//! request                 runs: `request_timeout`    runs: `request_timeout`
//! ```
//!
//! While others wait for a place of the upstream ([`Contention`]), a body that has no answer yet must bring a rate that rises each second.
//!
//! Silence of the client is never an endpoint's failure. A body that moves is not idle, in whatever direction and however slowly: for
//! uploads the listener has a minimum rate.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Cx, Sleep};

use super::Job;
use crate::exchange::contention::Contention;
use crate::exchange::relay::Clock;
use crate::exchange::upload::Progress;
use crate::fault::Fault;
use crate::limits;
use crate::upstream::local::Link;

/// See the module.
pub(super) struct Watch<'a> {
    cx: &'a Cx,
    link: &'a Link,
    /// Bytes that the upstream had taken at the last look.
    sent: u64,
    /// Wakes the attempt, and when.
    sleep: Option<(Time, Sleep)>,
    contention: Contention<'a>,
    /// When that is checked next.
    check: Time,
}

impl<'a> Watch<'a> {
    pub(super) fn new(job: &Job<'a, '_>, link: &'a Link) -> Watch<'a> {
        Watch {
            cx: &job.worker.cx,
            link,
            sent: 0,
            sleep: None,
            contention: Contention::new(&job.local.shared, job.sending.listener.limits.rate_bytes),
            check: job.worker.cx.now().after(limits::CONTENDED_LOOK),
        }
    }

    /// Ready when a time is over. `answered`: the answer's head was received. To be polled whenever something may have moved.
    pub(super) fn poll(
        &mut self,
        clock: &Clock,
        progress: &Progress,
        answered: bool,
        context: &mut Context<'_>,
    ) -> Poll<Fault> {
        loop {
            let now = self.cx.now();
            let sent = self.link.sent();
            if sent != self.sent {
                self.sent = sent;
                progress.advance(now);
            }
            if now >= self.check {
                self.check = now.after(limits::CONTENDED_LOOK);
                // With an answer it is a conversation, which may have pauses.
                let slow = self.contention.is_too_slow(progress.received());
                if slow && !answered && progress.is_waiting() {
                    return Poll::Ready(Fault::RequestTooSlow);
                }
            }
            let due = due(clock, progress, answered, now);
            if let Some((_, fault)) = due.filter(|(at, _)| now >= *at) {
                if matches!(fault, Fault::HeadTimeout | Fault::BodyTimeout) {
                    self.link.suspect();
                }
                return Poll::Ready(fault);
            }
            let mut at = due.map_or(Time::NEVER, |(at, _)| at).min(self.check);
            if let Some(idle) = clock.idle.filter(|_| !progress.is_waiting()) {
                // What the upstream takes of a long piece is told by nobody.
                at = at.min(now.after(idle / LOOKS));
            }
            // One that fires too early is followed by another: pieces move far more often than a time is over.
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
                    self.link.count_sent();
                }
            }
        }
    }
}

/// How often the bytes that an upstream takes are counted while nothing else moves, in the time after which it is idle.
const LOOKS: u32 = 4;

/// Returns what is over next, and when.
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
