//! What is published when: two even streams, one to the channels in turn and one to the common channel.
//!
//! Pure: a publication's place in the run follows from its channel and sequence number, and so does its moment.

use std::time::Duration;

use super::plan::Plan;

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// All publications of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calendar {
    channels: u32,
    streams: [Stream; 2],
}

/// Publications at one pace.
#[derive(Clone, Copy, Debug)]
struct Stream {
    rate: f64,
    /// The first that counts.
    first: u64,
    /// The first that is not published any more.
    end: u64,
}

/// A publication's number in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    /// 0: to the channels in turn. 1: to the common channel.
    pub(super) stream: u8,
    pub(super) number: u64,
}

/// What tells a publication from others: its channel, and its number there from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) channel: u32,
    pub(super) sequence: u32,
}

impl Stream {
    fn new(rate: f64, plan: &Plan) -> Stream {
        let until = |span: Duration| (span.as_secs_f64() * rate).ceil() as u64;
        Stream {
            rate,
            first: until(plan.warmup),
            end: until(plan.warmup + plan.duration),
        }
    }

    fn counted(&self) -> u64 {
        self.end - self.first
    }

    fn due(&self, number: u64) -> Duration {
        Duration::from_nanos((number as f64 * SECOND / self.rate) as u64)
    }

    /// How many are due by then.
    fn due_by(&self, elapsed: Duration) -> u64 {
        if self.rate <= 0.0 {
            return 0;
        }
        let number = (elapsed.as_nanos() as f64 * self.rate / SECOND) as u64;
        (number + 1).min(self.end)
    }
}

impl Calendar {
    pub(super) fn new(plan: &Plan) -> Calendar {
        Calendar::at(plan, plan.rates())
    }

    /// With other rates than the plan's.
    pub(super) fn at(plan: &Plan, rates: [f64; 2]) -> Calendar {
        let published = |rate| if plan.publishes() { rate } else { 0.0 };
        Calendar {
            channels: plan.channels,
            streams: rates.map(|rate| Stream::new(published(rate), plan)),
        }
    }

    /// Publications a second to the channels in turn, and to the common one.
    pub(super) fn rates(&self) -> [f64; 2] {
        [self.streams[0].rate, self.streams[1].rate]
    }

    /// When a publication is due, from the beginning on; `None` if it is not published any more.
    pub(super) fn due(&self, at: Number) -> Option<Duration> {
        let stream = &self.streams[usize::from(at.stream)];
        (at.number < stream.end).then(|| stream.due(at.number))
    }

    /// Where a publication goes.
    pub(super) fn mark(&self, at: Number) -> Mark {
        if at.stream == 1 {
            return Mark {
                channel: self.channels,
                sequence: at.number as u32 + 1,
            };
        }
        let channels = u64::from(self.channels);
        Mark {
            channel: (at.number % channels) as u32,
            sequence: (at.number / channels) as u32 + 1,
        }
    }

    fn number(&self, mark: Mark) -> Number {
        let turn = u64::from(mark.sequence) - 1;
        if mark.channel == self.channels {
            Number {
                stream: 1,
                number: turn,
            }
        } else {
            Number {
                stream: 0,
                number: turn * u64::from(self.channels) + u64::from(mark.channel),
            }
        }
    }

    /// The place of a publication among those that count; `None` if it does not, or is none.
    #[inline]
    pub(super) fn place(&self, mark: Mark) -> Option<usize> {
        if mark.sequence == 0 || mark.channel > self.channels {
            return None;
        }
        let Number { stream, number } = self.number(mark);
        let Stream { first, end, .. } = self.streams[usize::from(stream)];
        let before = if stream == 1 { self.streams[0].counted() } else { 0 };
        (first <= number && number < end).then(|| (before + number - first) as usize)
    }

    /// Publications that count.
    pub(super) fn counted(&self) -> usize {
        (self.streams[0].counted() + self.streams[1].counted()) as usize
    }

    /// The channel of a publication that counts.
    pub(super) fn channel_of(&self, place: usize) -> u32 {
        let (place, first) = (place as u64, &self.streams[0]);
        if place < first.counted() {
            ((first.first + place) % u64::from(self.channels)) as u32
        } else {
            self.channels
        }
    }

    /// The newest sequence number of a channel that is due by then; 0 for none.
    pub(super) fn newest(&self, channel: u32, elapsed: Duration) -> u32 {
        if channel == self.channels {
            return self.streams[1].due_by(elapsed) as u32;
        }
        self.of_channel(channel, self.streams[0].due_by(elapsed))
    }

    /// The last sequence number of a channel; 0 for none.
    pub(super) fn last(&self, channel: u32) -> u32 {
        if channel == self.channels {
            self.streams[1].end as u32
        } else {
            self.of_channel(channel, self.streams[0].end)
        }
    }

    /// How many of the first `due` publications go to a channel.
    fn of_channel(&self, channel: u32, due: u64) -> u32 {
        let channel = u64::from(channel);
        due.checked_sub(channel + 1)
            .map_or(0, |rest| (rest / u64::from(self.channels)) as u32 + 1)
    }

    /// How far one publication of a channel is behind a later one of it. One that has not come yet (0) counts as the first.
    pub(super) fn behind(&self, channel: u32, held: u32, newest: u32) -> Duration {
        let at = |sequence: u32| {
            let Number { stream, number } = self.number(Mark {
                channel,
                sequence: sequence.max(1),
            });
            self.streams[usize::from(stream)].due(number)
        };
        at(newest).saturating_sub(at(held))
    }
}

#[cfg(test)]
mod tests;
