//! The workers' figures, put together: by interval, and of the whole round.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use super::{Progress, RunError};
use crate::client::News;
use crate::figures::{Counts, Figures, Percentiles};
use crate::limits;
use crate::plan::Plan;
use crate::report::{Effort, Interval, Round};
use crate::server::Server;

pub(super) struct Collector<'a> {
    plan: &'a Plan,
    server: Option<&'a mut Server>,
    began: Vec<Duration>,
    /// Intervals that some workers have yet to tell of, and how many have done so and gone on.
    open: BTreeMap<u64, (usize, Figures)>,
    /// The last interval of each worker that has ended.
    last: Vec<u64>,
    total: Figures,
    series: Vec<Interval>,
    /// Intervals of the plan that one entry of the series covers.
    merged: u32,
    efforts: Vec<Effort>,
    elapsed: Duration,
}

impl<'a> Collector<'a> {
    pub(super) fn new(plan: &'a Plan, server: Option<&'a mut Server>) -> Collector<'a> {
        Collector {
            plan,
            server,
            began: Vec::new(),
            open: BTreeMap::new(),
            last: Vec::new(),
            total: Figures::default(),
            series: Vec::new(),
            merged: 1,
            efforts: vec![Effort::default(); plan.threads],
            elapsed: Duration::ZERO,
        }
    }

    /// Whether every worker has ended.
    pub(super) fn is_done(&self) -> bool {
        self.last.len() == self.plan.threads
    }

    pub(super) fn take(&mut self, news: News, show: &mut dyn FnMut(Progress<'_>)) -> Result<(), RunError> {
        match news {
            News::Began { wall } => {
                self.began.push(wall);
                if self.began.len() == 1 {
                    if let Some(server) = &mut self.server {
                        server.begin()?;
                    }
                    show(Progress::Measuring);
                }
            }
            News::Interval { index, figures } => {
                // Moved where it is the first: merging histograms costs more than all else here.
                match (self.open.entry(index), figures) {
                    (Entry::Vacant(vacant), Some(told)) => {
                        vacant.insert((1, *told.figures));
                    }
                    (entry, told) => {
                        let (workers, open) = entry.or_default();
                        *workers += 1;
                        if let Some(told) = told {
                            open.merge(&told.figures);
                        }
                    }
                }
            }
            News::Ended {
                worker,
                index,
                figures,
                elapsed,
                cpu,
                waited,
            } => {
                self.open.entry(index).or_default().1.merge(&figures);
                self.elapsed = self.elapsed.max(elapsed);
                self.efforts[worker] = Effort {
                    cpu,
                    waited,
                    pinned: self.plan.cpus.get(worker % self.plan.cpus.len().max(1)).copied(),
                };
                self.last.push(index);
            }
            // Connections that come and go later are in the figures.
            News::Standing { .. } | News::NotConnected { .. } => {}
        }
        while let Some((&index, (told, _))) = self.open.first_key_value() {
            // Who has ended tells nothing more.
            let ended = self.last.iter().filter(|last| **last <= index).count();
            if told + ended < self.plan.threads {
                break;
            }
            let rest = if self.is_done() {
                self.elapsed.saturating_sub(self.series_end(index))
            } else {
                if let Some(server) = &mut self.server {
                    server.tick()?;
                }
                self.plan.interval
            };
            self.close(index, rest.min(self.plan.interval), show);
        }
        Ok(())
    }

    /// Where interval `index` begins.
    fn series_end(&self, index: u64) -> Duration {
        self.plan.interval * u32::try_from(index).unwrap_or(u32::MAX)
    }

    /// All workers have told of interval `index`.
    fn close(&mut self, index: u64, length: Duration, show: &mut dyn FnMut(Progress<'_>)) {
        let (_, figures) = self.open.remove(&index).expect("it was just added to");
        self.total.merge(&figures);
        // The end of a round may fall on the end of an interval.
        if length.is_zero() && figures.counts == Counts::default() {
            return;
        }
        let interval = Interval {
            until: self.series_end(index) + length,
            length,
            counts: figures.counts.clone(),
            service: figures.service.percentiles(),
            response: figures.response.percentiles(),
        };
        show(Progress::Interval {
            interval: &interval,
            figures: &figures,
        });
        self.append(interval, index);
    }

    fn append(&mut self, interval: Interval, index: u64) {
        match self.series.last_mut() {
            Some(last) if !index.is_multiple_of(u64::from(self.merged)) => join(last, &interval),
            _ => self.series.push(interval),
        }
        if self.series.len() > limits::SERIES {
            self.merged *= 2;
            let mut halved: Vec<Interval> = Vec::with_capacity(limits::SERIES);
            for (at, interval) in self.series.drain(..).enumerate() {
                match halved.last_mut() {
                    Some(last) if at % 2 == 1 => join(last, &interval),
                    _ => halved.push(interval),
                }
            }
            self.series = halved;
        }
    }

    pub(super) fn finish(self) -> Result<Round, RunError> {
        let Some(began) = self.began.into_iter().min() else {
            return Err(RunError::Stopped);
        };
        let server = match self.server {
            Some(server) => Some(server.end()?),
            None => None,
        };
        Ok(Round {
            elapsed: self.elapsed,
            began,
            figures: self.total,
            series: self.series,
            workers: self.efforts,
            server,
        })
    }
}

/// Adds a later interval to one. Percentiles of the two together are not known any more: the worse ones stand.
fn join(into: &mut Interval, later: &Interval) {
    into.until = later.until;
    into.length += later.length;
    into.counts.merge(&later.counts);
    worse(&mut into.service, &later.service);
    worse(&mut into.response, &later.response);
}

fn worse(into: &mut Percentiles, other: &Percentiles) {
    into.p50 = into.p50.max(other.p50);
    into.p90 = into.p90.max(other.p90);
    into.p99 = into.p99.max(other.p99);
    into.p999 = into.p999.max(other.p999);
    into.p9999 = into.p9999.max(other.p9999);
    into.max = into.max.max(other.max);
}
