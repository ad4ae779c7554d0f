//! One channel at home: numbers, memory, who is there, which workers listen. Knows no queues.

mod conflation;
mod log;
mod predecessor_members;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::history::{Epoch, History, Place, Recovered};
use crate::limits;
use crate::mail::{Course, Life, Origin, Question, Rules, Since, Told, TopicKey, WorkerId};
use crate::protocol::{ClientInfo, Join, Leave, Published, Push, Variant};
pub(super) use conflation::Goes;
use conflation::Pace;
use log::LogState;
use predecessor_members::Moving;

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: Arc<str>,
    rules: Rules,
    epoch: Epoch,
    /// If it has numbers.
    history: Option<History<Arc<Published>>>,
    interests: Vec<Interest>,
    /// Subscribers by what pushes look like to them.
    heard: [u32; Variant::ALL.len()],
    present: BTreeMap<Arc<str>, Arc<ClientInfo>>,
    /// Of `present`, the clients of a predecessor that have not connected here.
    moving: Moving,
    log: LogState,
    /// The publishers of its publications, a bit for each [`Origin`].
    origins: u64,
    /// When somebody last went, or published.
    touched: Duration,
    /// Its key among the unused channels: what [`Channel::free_from`] was when it was put there. `None`: it is not there.
    pub(super) unused: Option<Duration>,
    pace: Pace,
}

/// A worker with subscribers.
#[derive(Debug)]
pub(super) struct Interest {
    pub(super) worker: WorkerId,
    pub(super) key: TopicKey,
    subscribers: u32,
    /// The first publication that found no room.
    pub(super) marked: Option<u64>,
}

/// What a worker has missed, in order; `None` if it is not all there.
type Missed = Option<Vec<(u64, Arc<Published>)>>;

pub(super) fn joining(info: ClientInfo) -> Push {
    Push {
        join: Some(Join { info: Some(info) }),
        ..Push::default()
    }
}

pub(super) fn leaving(info: ClientInfo) -> Push {
    Push {
        leave: Some(Leave { info: Some(info) }),
        ..Push::default()
    }
}

impl Channel {
    pub(super) fn new(name: Arc<str>, rules: Rules, epoch: Epoch, now: Duration) -> Channel {
        Channel {
            name,
            rules,
            epoch,
            history: rules.keep.map(|keep| History::new(epoch, keep)),
            interests: Vec::new(),
            heard: [0; Variant::ALL.len()],
            present: BTreeMap::new(),
            moving: Moving::default(),
            log: LogState::default(),
            origins: 0,
            touched: now,
            unused: None,
            pace: Pace::default(),
        }
    }

    /// Applies the current rules of its namespace. Returns whether it has to start a new epoch: publications were not counted while
    /// none were retained.
    #[must_use]
    pub(super) fn follow(&mut self, rules: Rules, now: Duration) -> bool {
        if rules == self.rules {
            return false;
        }
        match (&mut self.history, rules.keep) {
            (Some(history), Some(keep)) => history.set_keep(keep, now),
            (history @ None, Some(keep)) => *history = Some(History::new(self.epoch, keep)),
            // Offsets go on, should they be wanted again: who stood somewhere must not find itself elsewhere.
            (Some(history), None) => history.clear(),
            (None, None) => {}
        }
        if !rules.presence && !rules.join_leave {
            self.present.clear();
            self.moving = Moving::default();
        }
        self.rules = rules;
        rules.keep.is_some() && std::mem::take(&mut self.log.is_outdated)
    }

    /// Notes the publisher of a publication.
    pub(super) fn note_origin(&mut self, origin: Origin) {
        self.origins |= origin.bit();
    }

    /// Notes that a process before this one had it: any source may have fed it.
    pub(super) fn set_any_origin(&mut self) {
        self.origins = u64::MAX;
    }

    /// Returns whether a source that publishes in channels of such names may feed it: it has, or nothing has published yet. If the names
    /// are known (`is_named`), the channels in which programs alone have published may be the source's, too.
    pub(super) fn may_be_fed_by(&self, origin: Origin, is_named: bool) -> bool {
        let others = match is_named {
            true => self.origins & !Origin::PROGRAM.bit(),
            false => self.origins,
        };
        others == 0 || others & origin.bit() != 0
    }

    /// Returns whether subscribers rely on positions, and so have to be notified of missing publications.
    pub(super) fn relies_on_positions(&self) -> bool {
        self.rules.keep.is_some() && self.rules.every.is_none()
    }

    pub(super) fn history_mut(&mut self) -> Option<&mut History<Arc<Published>>> {
        self.history.as_mut()
    }

    /// The time of the last publication, or of the last unsubscription.
    pub(super) fn touched(&self) -> Duration {
        self.touched
    }

    /// Where it stands. `None`: it has no numbers.
    pub(super) fn place(&self) -> Option<Place> {
        self.rules.keep?;
        self.history.as_ref().map(History::place)
    }

    /// Starts a new epoch at the current position. Returns whether subscribers rely on positions, and so have to be notified.
    pub(super) fn renew(&mut self, epoch: Epoch) -> bool {
        self.epoch = epoch;
        self.log.leave();
        if let Some(history) = &mut self.history {
            history.renew(epoch);
        }
        self.relies_on_positions()
    }

    /// Where it stands, and what somebody has missed.
    pub(super) fn stand(&mut self, since: Option<Since>, now: Duration) -> (Option<Place>, Missed) {
        let place = self.place();
        let since = since.map(|since| self.resolve(since));
        if self.rules.cache || self.rules.every.is_some() {
            return self.stand_shown(place, since, now);
        }
        let missed = match (&mut self.history, since) {
            (Some(history), Some(since)) if place.is_some() => match since.life {
                Life::Any => recovered(history, since.offset, None, limits::RECOVERED_PUBLICATIONS, now),
                Life::Of(epoch) => recovered(
                    history,
                    since.offset,
                    Some(epoch),
                    limits::RECOVERED_PUBLICATIONS,
                    now,
                ),
                Life::Foreign => None,
            },
            _ => None,
        };
        (place, missed)
    }

    /// The same where only the last publication counts: the last that was sent, so that what is held comes to all alike.
    fn stand_shown(
        &mut self,
        place: Option<Place>,
        since: Option<Since>,
        now: Duration,
    ) -> (Option<Place>, Missed) {
        let Some(mut place) = place else {
            return (None, None);
        };
        let held = self.pace.is_holding().then(|| self.pace.shown());
        if let Some(shown) = &held {
            place.offset = shown.as_ref().map_or(0, |(offset, _)| *offset);
        }
        let Some(since) = since else {
            return (Some(place), None);
        };
        let is_ours = match since.life {
            Life::Any => true,
            Life::Of(epoch) => epoch == place.epoch,
            Life::Foreign => false,
        };
        if is_ours && since.offset == place.offset {
            return (Some(place), Some(Vec::new()));
        }
        if place.offset == 0 {
            // The client's publication is of another epoch, and there is none to replace it.
            return (Some(place), None);
        }
        let last = match held {
            Some(shown) => shown,
            None => self.last(now),
        };
        (Some(place), last.map(|last| vec![last]))
    }

    fn last(&mut self, now: Duration) -> Option<(u64, Arc<Published>)> {
        let last = self.history.as_mut()?.last(now)?;
        Some((last.0, Arc::clone(last.1)))
    }

    pub(super) fn enter(&mut self, worker: WorkerId, key: TopicKey, variant: Variant) {
        self.log.has_notified = false;
        self.heard[variant.number()] += 1;
        match self
            .interests
            .iter_mut()
            .find(|interest| interest.worker == worker)
        {
            Some(interest) => {
                debug_assert_eq!(interest.key, key, "a worker knows a channel by one key");
                interest.subscribers += 1;
            }
            None => self.interests.push(Interest {
                worker,
                key,
                subscribers: 1,
                marked: None,
            }),
        }
    }

    /// A worker's subscriber has left.
    pub(super) fn leave(&mut self, worker: WorkerId, variant: Variant, now: Duration) {
        let Some(index) = self
            .interests
            .iter()
            .position(|interest| interest.worker == worker)
        else {
            return;
        };
        self.heard[variant.number()] = self.heard[variant.number()].saturating_sub(1);
        self.interests[index].subscribers -= 1;
        if self.interests[index].subscribers == 0 {
            self.interests.swap_remove(index);
            self.touched = now;
        }
    }

    /// Somebody came. Returns what to say of it and whether that is wanted, if it was not there.
    pub(super) fn came(&mut self, info: Arc<ClientInfo>) -> Option<(ClientInfo, bool)> {
        if !self.rules.presence && !self.rules.join_leave {
            return None;
        }
        let told = ClientInfo::clone(&info);
        let before = self.present.insert(Arc::from(&*info.client), info);
        before.is_none().then_some((told, self.rules.join_leave))
    }

    /// Somebody went. As [`Channel::came`].
    pub(super) fn gone(&mut self, client: &str) -> Option<(ClientInfo, bool)> {
        let info = self.present.remove(client)?;
        Some((ClientInfo::clone(&info), self.rules.join_leave))
    }

    /// Numbers and keeps. Returns the number, 0 for none.
    pub(super) fn publish(&mut self, published: Arc<Published>, now: Duration) -> u64 {
        let bytes = published.data.len();
        self.touched = now;
        match &mut self.history {
            Some(history) if self.rules.keep.is_some() => history.publish(published, bytes, now),
            history => {
                self.log.is_outdated |= history.is_some();
                0
            }
        }
    }

    /// Retains a record of the channel's log under its offset. Returns the offset, 0 for none.
    pub(super) fn publish_at(&mut self, offset: u64, published: Arc<Published>, now: Duration) -> u64 {
        let bytes = published.data.len();
        self.touched = now;
        match &mut self.history {
            Some(history) if self.rules.keep.is_some() => {
                history.publish_at(offset, published, bytes, now);
                offset
            }
            history => {
                self.log.is_outdated |= history.is_some();
                0
            }
        }
    }

    /// Whether a publication goes to the workers of those who listen now, by how often they get any.
    pub(super) fn goes(&mut self, offset: u64, published: &Arc<Published>, now: Duration) -> Goes {
        let every = self.rules.every.filter(|_| self.is_heard()).map(passed_every);
        self.pace.goes(every, (offset, published), now)
    }

    /// When those who listen get what is published.
    pub(super) fn course(&self) -> Course {
        self.rules.every.map_or(Course::All, Course::Every)
    }

    /// When what is held goes.
    pub(super) fn due(&self) -> Option<Duration> {
        self.pace.due()
    }

    /// What was held until now, with its number.
    pub(super) fn release(&mut self, now: Duration) -> Option<(u64, Arc<Published>)> {
        self.pace.release(self.rules.every.map(passed_every), now)
    }

    /// Whether anybody listens.
    pub(super) fn is_heard(&self) -> bool {
        !self.interests.is_empty()
    }

    /// How many connections listen, of all workers.
    pub(super) fn subscribers(&self) -> u32 {
        self.interests.iter().map(|interest| interest.subscribers).sum()
    }

    /// Whether publications are kept, and have numbers.
    pub(super) fn keeps(&self) -> bool {
        self.rules.keep.is_some()
    }

    pub(super) fn interests(&mut self) -> &mut [Interest] {
        &mut self.interests
    }

    /// Subscribers by what pushes look like to them.
    pub(super) fn heard(&self) -> &[u32; Variant::ALL.len()] {
        &self.heard
    }

    /// What is known of it.
    pub(super) fn told_of(&mut self, question: Question, now: Duration) -> Told {
        match question {
            Question::History { query, life } => {
                let (Some(place), Some(history)) = (self.place(), &mut self.history) else {
                    return Told::NotAvailable;
                };
                let is_ours = match life {
                    Life::Any => true,
                    Life::Of(epoch) => epoch == place.epoch,
                    Life::Foreign => false,
                };
                if query.since.is_some() && !is_ours {
                    return Told::Unrecoverable;
                }
                let found = history.query(query, now).into_iter();
                let publications = found.map(|(offset, item)| (offset, Arc::clone(item))).collect();
                Told::History { publications, place }
            }
            Question::Forget => match &mut self.history {
                Some(history) if self.rules.keep.is_some() => {
                    history.clear();
                    Told::Forgotten
                }
                _ => Told::NotAvailable,
            },
            Question::Presence | Question::PresenceStats if !self.rules.presence => Told::NotAvailable,
            Question::Presence => Told::Presence(self.present.values().cloned().collect()),
            Question::PresenceStats => {
                let users: BTreeSet<&str> = self.present.values().map(|info| &*info.user).collect();
                Told::PresenceStats {
                    clients: self.present.len() as u32,
                    users: users.len() as u32,
                }
            }
        }
    }

    /// What a worker has missed since its queue was full; it counts as had from now on. `None`: nothing.
    pub(super) fn missed(&mut self, worker: WorkerId, now: Duration) -> Option<(TopicKey, Missed)> {
        let interest = self
            .interests
            .iter_mut()
            .find(|interest| interest.worker == worker)?;
        let first = interest.marked.take()?;
        if self.rules.every.is_some()
            && let Some(shown) = self.pace.shown()
        {
            return Some((interest.key, Some(vec![shown])));
        }
        let missed = match &mut self.history {
            // Without numbers there is nothing to send again.
            Some(history) if first > 0 => recovered(history, first - 1, None, limits::PUSHES_AGAIN, now),
            _ => None,
        };
        Some((interest.key, missed))
    }

    /// From when on it may be removed for another one, if it has no subscribers: nothing is retained then.
    pub(super) fn free_from(&self) -> Duration {
        let kept = self.history.as_ref().and_then(History::kept_until);
        let held = self.pace.due();
        self.touched
            .max(kept.unwrap_or_default())
            .max(held.unwrap_or_default())
    }

    /// Whether it can be removed: it has no subscribers, retains no publication, and its offsets are not needed any longer.
    pub(super) fn is_expired(&mut self, now: Duration) -> bool {
        let kept = self
            .history
            .as_mut()
            .is_some_and(|history| history.expire(now).is_some());
        let remembered = self.history.as_ref().is_some_and(|history| {
            let has_published = history.place().offset > 0;
            let retained = match self.rules.keep {
                // Whoever subscribed before the first publication recovers it as long as it could be retained.
                Some(keep) if !has_published => keep.time.min(self.rules.remember),
                _ => self.rules.remember,
            };
            now < self.touched + retained
        });
        self.interests.is_empty() && !kept && !remembered && !self.pace.is_holding() && self.moving.is_empty()
    }
}

/// How often workers get a publication of a channel of which a client gets one in this time.
fn passed_every(every: Duration) -> Duration {
    (every / limits::PASSED_AN_INTERVAL)
        .max(limits::PASSED_AT_LEAST)
        .min(every)
}

fn recovered(
    history: &mut History<Arc<Published>>,
    offset: u64,
    epoch: Option<Epoch>,
    limit: usize,
    now: Duration,
) -> Missed {
    match history.recover(offset, epoch, limit, now) {
        Recovered::All(items) => Some(
            items
                .into_iter()
                .map(|(offset, item)| (offset, Arc::clone(item)))
                .collect(),
        ),
        Recovered::Gap => None,
    }
}
