//! What of a worker's doings is counted: nothing of the warm-up, everything until the end.
//!
//! Owns the phases and the figures of the interval at hand. Knows nothing of connections.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_sys::process::{thread_cpu_time, thread_waited};

use super::link::InFlight;
use super::secure::Agreed;
use super::share;
use super::{Answer, Message};
use crate::figures::{Figures, Waits};
use crate::limits;
use crate::plan::{Grpc, Plan, Protocol};

/// ```text
/// Dialling ─ all stand ─▶ Ready ─ order, time ─▶ Warming ─ time ─▶ Measuring ─ time, count or order ─▶ Ended
///                                                   └──────── no warm-up ────────▶
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Dialling,
    Ready,
    Warming,
    Measuring,
    Ended,
}

/// What a worker tells the run.
#[derive(Debug)]
pub(crate) enum News {
    /// All its connections stand.
    Standing { now: Time },
    /// A connection did not come about while it was setting up.
    NotConnected { error: std::io::Error },
    /// It has begun to count.
    Began { wall: Duration },
    /// An interval is over. Without figures they come with those of a later one: too many are under way.
    Interval { index: u64, figures: Option<Told> },
    /// It counts no more; the figures are those of the last interval, which may be short.
    Ended {
        worker: usize,
        index: u64,
        figures: Box<Figures>,
        elapsed: Duration,
        cpu: Duration,
        waited: Option<Duration>,
    },
}

/// Figures under way to the run, counted until they are dropped.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) figures: Box<Figures>,
    _ticket: Arc<()>,
}

pub(super) struct Window {
    pub(super) phase: Phase,
    /// When the phase or the interval ends; far away where only an event ends it.
    pub(super) next: Time,
    figures: Box<Figures>,
    /// What connecting took before there was any load: it counts, the warm-up does not.
    set_up: Box<Figures>,
    /// As many others hold it as intervals are under way.
    ticket: Arc<()>,
    open_loop: bool,
    /// Answers are streams of messages.
    streaming: bool,
    interval: Duration,
    index: u64,
    began: Time,
    end: Option<Time>,
    /// Requests that this worker is to do, if they are counted.
    quota: Option<u64>,
    /// Of those, begun.
    begun: u64,
    /// Of those, over.
    over: u64,
    in_flight: u64,
    /// Arrivals that wait for a link.
    pub(super) waiting: u64,
    /// When a request was over or a connection came about last.
    progress: Time,
    cpu: Duration,
    waited: Option<Duration>,
}

impl Window {
    pub(super) fn new(plan: &Plan, worker: usize, workers: usize) -> Window {
        Window {
            phase: Phase::Dialling,
            next: Time::NEVER,
            figures: Box::default(),
            set_up: Box::default(),
            ticket: Arc::default(),
            open_loop: plan.pace.rate().is_some(),
            streaming: plan.protocol == Protocol::Grpc(Grpc::ServerStreaming),
            interval: plan.interval,
            index: 0,
            began: Time(0),
            end: None,
            quota: plan.extent.count().map(|total| share(total, worker, workers).1),
            begun: 0,
            over: 0,
            in_flight: 0,
            waiting: 0,
            progress: Time(0),
            cpu: Duration::ZERO,
            waited: None,
        }
    }

    /// Sending is to begin at `at`, which may be a little later than what this worker takes for now.
    pub(super) fn begin(&mut self, at: Time) {
        if self.phase == Phase::Ready {
            self.next = at;
        }
    }

    /// Whether sending is to begin.
    #[inline]
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.phase == Phase::Ready && now >= self.next
    }

    /// Sending begins: nothing was sent before, so without a warm-up nothing is on its way when counting begins. The client follows the
    /// clock next.
    pub(super) fn start(&mut self, plan: &Plan) {
        self.phase = Phase::Warming;
        self.set_up = std::mem::take(&mut self.figures);
        self.next = self.next.after(plan.warmup);
        if let Some(span) = plan.extent.time() {
            self.end = Some(self.next.after(span));
        }
    }

    /// The beginning of the measured time; before it has begun, the start of the clock.
    pub(super) fn began(&self) -> Time {
        self.began
    }

    /// Whether requests are sent.
    #[inline]
    pub(super) fn sends(&self) -> bool {
        matches!(self.phase, Phase::Warming | Phase::Measuring)
    }

    /// Whether another flow may begin.
    #[inline]
    pub(super) fn may_begin(&self) -> bool {
        match self.phase {
            Phase::Warming => true,
            Phase::Measuring => self.quota.is_none_or(|quota| self.begun < quota),
            _ => false,
        }
    }

    /// Whether connections are asked for.
    pub(super) fn dials(&self) -> bool {
        self.phase != Phase::Ended
    }

    /// When the measured time ends, if that has come.
    pub(super) fn over_at(&self, now: Time) -> Option<Time> {
        self.end
            .filter(|end| self.phase == Phase::Measuring && now >= *end)
    }

    /// Where a number of requests is to be done, but none is on its way: since when nothing has happened.
    pub(super) fn idle_since(&self) -> Option<Time> {
        let counts = self.phase == Phase::Measuring && self.quota.is_some();
        (counts && self.in_flight == 0).then_some(self.progress)
    }

    /// When [`Window::pass`] is to be called at the latest.
    pub(super) fn next_alarm(&self) -> Option<Time> {
        (self.next != Time::NEVER).then_some(self.next)
    }

    /// `now` has reached `next`: the warm-up is over, if it was that.
    pub(super) fn end_warmup(&mut self, now: Time, cx: &Cx, news: &Sender<News>) {
        if self.phase == Phase::Warming {
            self.start_counting(now, cx, news);
        }
    }

    /// `now` has reached `next` behind the warm-up: intervals are over, perhaps the measured time.
    pub(super) fn pass(&mut self, now: Time, cx: &Cx, news: &Sender<News>) {
        while self.phase == Phase::Measuring && now >= self.next {
            if self.end.is_some_and(|end| now >= end && self.next >= end) {
                self.end(now, cx, news);
                return;
            }
            let figures = self.tell();
            let _ = news.send(News::Interval {
                index: self.index,
                figures,
            });
            self.index += 1;
            self.next = self.mark();
        }
    }

    /// The figures so far, unless the run is behind: then they are kept, and told of with the next ones.
    fn tell(&mut self) -> Option<Told> {
        (Arc::strong_count(&self.ticket) <= limits::INTERVALS_UNDER_WAY).then(|| Told {
            figures: std::mem::take(&mut self.figures),
            _ticket: Arc::clone(&self.ticket),
        })
    }

    fn start_counting(&mut self, now: Time, cx: &Cx, news: &Sender<News>) {
        self.phase = Phase::Measuring;
        self.figures = std::mem::take(&mut self.set_up);
        // What is on its way is answered in the measured time, so it counts as sent in it.
        self.figures.counts.sent = self.in_flight;
        self.begun = self.in_flight + self.waiting;
        self.over = 0;
        self.progress = now;
        self.began = self.next;
        self.index = 0;
        self.next = self.mark();
        self.cpu = thread_cpu_time();
        self.waited = thread_waited();
        let _ = news.send(News::Began {
            wall: cx.wall().saturating_sub(now.since(self.began)),
        });
        // With fewer requests than workers some have none to send.
        if self.quota == Some(0) {
            self.end(now, cx, news);
        }
    }

    /// The end of the interval at hand.
    fn mark(&self) -> Time {
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        let so_far = interval.saturating_mul(self.index + 1);
        let mark = Time(self.began.0.saturating_add(so_far));
        self.end.map_or(mark, |end| mark.min(end))
    }

    /// Counting ends now, or at the end that was set if that has passed.
    pub(super) fn end(&mut self, now: Time, cx: &Cx, news: &Sender<News>) {
        match self.phase {
            Phase::Ended => return,
            Phase::Measuring => {
                self.figures.counts.unfinished = self.in_flight;
                self.figures.counts.dropped += self.waiting;
            }
            // Nothing of this was to be counted.
            Phase::Dialling | Phase::Ready | Phase::Warming => {
                self.figures.clear();
                self.began = now;
            }
        }
        let cpu = thread_cpu_time().saturating_sub(self.cpu);
        let waited = thread_waited().zip(self.waited);
        self.phase = Phase::Ended;
        self.next = Time::NEVER;
        self.waiting = 0;
        let elapsed = self.end.map_or(now, |end| end.min(now)).since(self.began);
        let _ = news.send(News::Ended {
            worker: cx.worker(),
            index: self.index,
            figures: std::mem::take(&mut self.figures),
            elapsed,
            cpu,
            waited: waited.map(|(end, begin)| end.saturating_sub(begin)),
        });
    }

    /// A flow begins, or waits to.
    #[inline]
    pub(super) fn arrived(&mut self) {
        self.begun += 1;
    }

    /// Counts arrivals between `first` and `last` that were never sent, since every connection was busy and the queue full, or the
    /// measured time ended. Each waited from its own time to `now`; they count as spread evenly.
    pub(super) fn dropped(&mut self, arrivals: u64, first: Time, now: Time) {
        if arrivals == 0 {
            return;
        }
        let figures = &mut *self.figures;
        figures.counts.dropped += arrivals;
        let waited = now.since(first).as_nanos() as u64;
        let response = &mut figures.failed.get_or_insert_default().response;
        let steps = arrivals.min(limits::DROPPED_STEPS);
        for step in 0..steps {
            let count = arrivals / steps + u64::from(step < arrivals % steps);
            response.record_n(waited - waited / steps * step, count);
        }
    }

    /// Counts arrivals that connections took and never sent.
    pub(super) fn drop_unsent(&mut self, unsent: &[Time], now: Time) {
        if self.phase == Phase::Measuring {
            self.figures.counts.dropped += unsent.len() as u64;
            self.record_unsent(unsent.iter().copied(), now);
        }
    }

    /// Counts requests of the quota that were never sent, since no connection could be established: all that have not begun but
    /// those that were `due`, which are counted already, and `unsent` ones of those that have. In a closed loop they have waited since
    /// the last progress.
    pub(super) fn give_up(&mut self, due: u64, unsent: u64, now: Time) {
        let begun = self.begun.saturating_sub(unsent);
        let rest = self.quota.map_or(0, |quota| quota.saturating_sub(begun + due));
        if self.phase != Phase::Measuring || rest == 0 {
            return;
        }
        self.figures.counts.dropped += rest;
        let waits = self.figures.failed.get_or_insert_default();
        if self.open_loop {
            waits.response.record_n(0, rest)
        } else {
            waits
                .service
                .record_n(now.since(self.progress).as_nanos() as u64, rest)
        }
    }

    /// Counts the time in which a connection of a closed loop could not be established, as far as it was measured.
    pub(super) fn unconnected(&mut self, since: Time, now: Time) {
        // A number of requests is as many, whenever it is sent.
        let is_counted = self.quota.is_some() && self.end.is_none();
        if self.phase == Phase::Measuring && !self.open_loop && !is_counted {
            let until = self.end.map_or(now, |end| end.min(now));
            self.figures.counts.unconnected += until.since(since.max(self.began));
        }
    }

    /// The longest time that an attempt to connect took that succeeded, as far as this interval shows.
    pub(super) fn longest_connect(&self) -> Duration {
        self.figures.connect.max()
    }

    /// Counts how long a request without a response had waited.
    fn record_wait(&mut self, request: InFlight, now: Time) {
        let waits = self.figures.failed.get_or_insert_default();
        record_wait(waits, request, now, self.open_loop);
    }

    /// Counts how long requests had waited that are in flight when the measured time ends.
    pub(super) fn record_unfinished(&mut self, requests: impl Iterator<Item = InFlight>, now: Time) {
        if self.phase != Phase::Measuring {
            return;
        }
        let until = self.end.map_or(now, |end| end.min(now));
        for request in requests {
            let waits = self.figures.unfinished.get_or_insert_default();
            record_wait(waits, request, until, self.open_loop);
        }
    }

    /// Counts how long arrivals had waited for a connection that were never sent; [`Window::end`] counts their number.
    pub(super) fn record_unsent(&mut self, intended: impl Iterator<Item = Time>, now: Time) {
        if self.phase != Phase::Measuring {
            return;
        }
        for at in intended {
            let waits = self.figures.failed.get_or_insert_default();
            waits.response.record(now.since(at).as_nanos() as u64);
        }
    }

    /// Counts a request that the server declared unprocessed; it stays in flight and is sent again.
    pub(super) fn unprocessed(&mut self) {
        if self.phase != Phase::Ended {
            self.figures.counts.unprocessed += 1;
        }
    }

    /// A request has left, with `bytes`.
    #[inline]
    pub(super) fn sent(&mut self, request: InFlight, bytes: usize) {
        let counts = &mut self.figures.counts;
        counts.bytes_sent += bytes as u64;
        // One that is sent again has been in flight all the time.
        if request.attempt > 0 {
            return;
        }
        self.in_flight += 1;
        counts.sent += 1;
        if self.open_loop && request.sent.since(request.intended) > limits::LATE {
            counts.late += 1;
        }
    }

    /// `bytes` have come.
    #[inline]
    pub(super) fn received(&mut self, bytes: usize) {
        self.figures.counts.bytes_received += bytes as u64;
    }

    /// `bytes` were sent that are part of no request.
    pub(super) fn said(&mut self, bytes: usize) {
        self.figures.counts.bytes_sent += bytes as u64;
    }

    /// This program was late by so much, a connection being free.
    #[inline]
    pub(super) fn record_lag(&mut self, span: Duration) {
        self.figures.lag.record(span.as_nanos() as u64);
    }

    /// A request has its answer.
    #[inline]
    pub(super) fn answered(
        &mut self,
        request: InFlight,
        answer: Answer,
        now: Time,
        cx: &Cx,
        news: &Sender<News>,
    ) {
        if self.phase == Phase::Ended {
            return;
        }
        let figures = &mut *self.figures;
        figures.counts.answered += 1;
        if answer.status != 0 {
            *figures.counts.statuses.entry(answer.status).or_default() += 1;
        }
        if let Some(code) = answer.code {
            *figures.counts.codes.entry(code.name()).or_default() += 1;
        }
        figures.counts.unexpected += u64::from(!answer.right);
        figures.service.record(now.since(request.sent).as_nanos() as u64);
        if self.open_loop {
            figures
                .response
                .record(now.since(request.intended).as_nanos() as u64);
        }
        self.finish(1, now, cx, news);
    }

    /// A message of an answer has come.
    pub(super) fn message(&mut self, message: Message) {
        if self.phase == Phase::Ended {
            return;
        }
        self.figures.counts.messages += 1;
        if self.streaming {
            let streamed = self.figures.streamed.get_or_insert_default();
            let latency = if message.is_first {
                &mut streamed.first
            } else {
                &mut streamed.between
            };
            latency.record(message.span.as_nanos() as u64);
        }
    }

    /// A request had no response in time.
    pub(super) fn timed_out(&mut self, request: InFlight, cx: &Cx, news: &Sender<News>, now: Time) {
        if self.phase != Phase::Ended {
            self.figures.counts.timeouts += 1;
            self.record_wait(request, now);
            self.finish(1, now, cx, news);
        }
    }

    /// Requests were lost with their connection, or with their stream.
    pub(super) fn broken(&mut self, what: &'static str, lost: &[InFlight], cx: &Cx, news: &Sender<News>) {
        if !lost.is_empty() && self.phase != Phase::Ended {
            *self.figures.counts.broken.entry(what).or_default() += lost.len() as u64;
            for &request in lost {
                self.record_wait(request, cx.now());
            }
            self.finish(lost.len() as u64, cx.now(), cx, news);
        }
    }

    /// A connection stands, `span` after it was asked for.
    pub(super) fn connected(&mut self, span: Duration, now: Time) {
        self.progress = now;
        self.figures.counts.connects += 1;
        self.figures.connect.record(span.as_nanos() as u64);
    }

    /// What a protocol begins with has come, `span` after it was asked for.
    pub(super) fn opened(&mut self, span: Duration, deflated: bool) {
        self.figures.opening.record(span.as_nanos() as u64);
        self.figures.counts.deflated += u64::from(deflated);
    }

    /// A server lets so many streams be open at once on a connection, or says nothing of it.
    pub(super) fn allowed(&mut self, streams: Option<u32>) {
        let least = &mut self.figures.counts.streams_allowed;
        *least = [*least, streams].into_iter().flatten().min();
    }

    /// A connection is secured, `span` after it came about.
    pub(super) fn secured(&mut self, span: Duration, agreed: Agreed) {
        self.figures.handshake.record(span.as_nanos() as u64);
        let counts = &mut self.figures.counts;
        *counts.tls_versions.entry(agreed.version).or_default() += 1;
        *counts.tls_suites.entry(agreed.suite).or_default() += 1;
        counts.tls_resumed += u64::from(agreed.resumed);
    }

    /// A connection came about and its handshake did not.
    pub(super) fn handshake_failed(&mut self, what: &'static str, error: &std::io::Error) {
        self.connect_failed(what);
        self.explain(what, || error.to_string());
    }

    /// Keeps what was said of the first failure of its kind.
    pub(super) fn explain(&mut self, what: &'static str, said: impl FnOnce() -> String) {
        let first = &mut self.figures.counts.first_errors;
        first.entry(what).or_insert_with(said);
    }

    /// A connection did not come about.
    pub(super) fn connect_failed(&mut self, what: &'static str) {
        *self.figures.counts.connect_errors.entry(what).or_default() += 1;
    }

    #[inline]
    fn finish(&mut self, requests: u64, now: Time, cx: &Cx, news: &Sender<News>) {
        self.progress = now;
        self.in_flight -= requests;
        self.over += requests;
        if self.phase == Phase::Measuring && self.quota.is_some_and(|quota| self.over >= quota) {
            self.end(now, cx, news);
        }
    }
}

fn record_wait(waits: &mut Waits, request: InFlight, now: Time, open_loop: bool) {
    waits.service.record(now.since(request.sent).as_nanos() as u64);
    if open_loop {
        waits
            .response
            .record(now.since(request.intended).as_nanos() as u64);
    }
}
