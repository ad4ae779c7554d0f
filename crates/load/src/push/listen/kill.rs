//! All clients are cut off at moments that the plan says, without a word, and come back.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sys::process::thread_cpu_time;

use super::link::State;
use super::{Listeners, Phase};
use crate::client::Schedule;
use crate::plan::Pace;
use crate::push::figures::Outage;
use crate::push::worker::News;

/// When clients are cut off, and when they were.
#[derive(Debug, Default)]
pub(super) struct Kills {
    /// To come, in order.
    next: VecDeque<Time>,
    /// Those that were: when, and how much CPU time this thread had used by then.
    past: Vec<(Time, Duration)>,
    /// When a server is killed: clients whose sessions end from then on are those of its outage.
    server: Option<Time>,
}

impl Listeners {
    /// Counting begins at `from`.
    pub(super) fn plan_kills(&mut self, from: Time) {
        let moments = self.plan.kill.map(|kill| kill.moments(self.plan.duration));
        self.kills = Kills {
            next: moments.into_iter().flatten().map(|at| from.after(at)).collect(),
            past: Vec::new(),
            server: self.plan.kill_server.map(|kill| from.after(kill.after)),
        };
    }

    pub(super) fn next_kill(&self) -> Option<Time> {
        self.kills
            .next
            .front()
            .copied()
            .filter(|_| self.phase == Phase::Hearing)
    }

    pub(super) fn kill(&mut self, now: Time) {
        while self.next_kill().is_some_and(|at| at <= now) {
            self.kills.next.pop_front();
            self.cut_all();
        }
    }

    /// Those that are on their way back from the last time stay on it.
    fn cut_all(&mut self) {
        let number = self.kills.past.len() as u16;
        let worker = self.cx.worker();
        // The other end goes when the run is over already; then nobody asks any more.
        let _ = self.news.send(News::Cut { number });
        let since = self.cx.clock();
        self.kills.past.push((since, thread_cpu_time()));
        let cx = self.cx.clone();
        let mut cut = 0;
        for (index, link) in self.links.iter_mut().enumerate() {
            if let State::Live { id } = link.state {
                cx.conn(id).abort();
                link.end_life(State::Waiting);
                link.outage = Some(number);
                self.waiting.push_back(index as u32);
                cut += 1;
            }
        }
        self.standing -= cut;
        self.gauge.standing.store(self.standing, Ordering::Relaxed);
        self.figures.outages.push(Outage {
            cut: cut.into(),
            ..Outage::default()
        });
        if let Some(rate) = self.plan.connect_rate {
            self.dials = Schedule::new(Pace::Constant(rate), worker, self.plan.threads, 0, since);
        }
        self.look_whether_back(number);
    }

    /// Records that a live session has ended by itself, and whether that was after the server was killed. The signal is sent at the
    /// planned time or later, never before.
    pub(super) fn ended_live(&mut self, index: u32) {
        let link = &mut self.links[index as usize];
        let node = self.figures.node(usize::from(link.node));
        node.ended += 1;
        let killed = self.kills.server.filter(|_| self.phase == Phase::Hearing);
        let Some(at) = killed.filter(|at| *at <= self.cx.clock()) else {
            return;
        };
        node.ended_by_kill += 1;
        link.outage = Some(0);
        if self.kills.past.is_empty() {
            self.kills.past.push((at, thread_cpu_time()));
            self.figures.outages.push(Outage::default());
        }
        self.figures.outages[0].cut += 1;
    }

    /// A client that was cut off stands again.
    pub(super) fn is_back(&mut self, number: u16) {
        let (since, _) = self.kills.past[usize::from(number)];
        let took = self.cx.clock().since(since);
        self.figures.back.record(took.as_nanos() as u64);
        let outage = &mut self.figures.outages[usize::from(number)];
        outage.back += 1;
        outage.took = outage.took.max(took);
        self.look_whether_back(number);
    }

    fn look_whether_back(&mut self, number: u16) {
        let (since, cpu) = self.kills.past[usize::from(number)];
        let outage = &mut self.figures.outages[usize::from(number)];
        if !outage.is_over() {
            return;
        }
        let span = self.cx.clock().since(since).as_secs_f64();
        let used = thread_cpu_time().saturating_sub(cpu).as_secs_f64();
        outage.busy = if span > 0.0 { used / span } else { 0.0 };
        let _ = self.news.send(News::Back { number });
    }
}
