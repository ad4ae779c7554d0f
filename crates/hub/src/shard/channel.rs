//! One channel of a shard: offsets, history, members, and the workers with subscribers. Must not know queues.

mod conflation;
mod log;
mod predecessor_members;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::history::{Epoch, History, Recovery, StreamPosition};
use crate::limits;
use crate::mail::{
    ChannelOptions, ChannelQuery, DeliveryMode, EpochFilter, Origin, QueryResult, RecoverFrom, TopicKey,
    WorkerId,
};
use crate::protocol::{ClientInfo, Join, Leave, Published, PushMessage, Variant};
use crate::tag_filter::TagFilter;
pub(super) use conflation::SendDecision;
use conflation::UpdateLimiter;
use log::LogState;
use predecessor_members::PredecessorClients;

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: Arc<str>,
    options: ChannelOptions,
    epoch: Epoch,
    /// `None` until the channel has offsets.
    history: Option<History<Arc<Published>>>,
    interests: Vec<Interest>,
    /// The number of subscribers by the variant of their pushes.
    subscribers_by_variant: [u32; Variant::ALL.len()],
    present: BTreeMap<Arc<str>, Arc<ClientInfo>>,
    /// The members in `present` whose clients are connected to a predecessor.
    predecessor_members: PredecessorClients,
    log: LogState,
    /// The publishers of its publications, one bit for each [`Origin`].
    origins: u64,
    /// The time of the last publication, or of the last unsubscription.
    last_used: Duration,
    /// Its key among the unused channels: the result of [`Channel::evictable_from`] when it was inserted. `None`: it is not among these.
    pub(super) unused: Option<Duration>,
    limiter: UpdateLimiter,
    /// True if the options permit subscriptions with features, or have since there are subscribers.
    has_features: bool,
}

/// A worker with subscribers.
#[derive(Debug)]
pub(super) struct Interest {
    pub(super) worker: WorkerId,
    pub(super) key: TopicKey,
    subscribers: u32,
    /// The first publication that did not fit into the worker's queue.
    pub(super) marked: Option<u64>,
}

/// The publications that a worker or a client missed, in order. `None`: they are not all available.
type Missed = Option<Vec<(u64, Arc<Published>)>>;

pub(super) fn joining(info: ClientInfo) -> PushMessage {
    PushMessage {
        join: Some(Join { info: Some(info) }),
        ..PushMessage::default()
    }
}

pub(super) fn leaving(info: ClientInfo) -> PushMessage {
    PushMessage {
        leave: Some(Leave { info: Some(info) }),
        ..PushMessage::default()
    }
}

impl Channel {
    pub(super) fn new(name: Arc<str>, options: ChannelOptions, epoch: Epoch, now: Duration) -> Channel {
        Channel {
            name,
            options,
            epoch,
            history: options
                .history
                .map(|history_options| History::new(epoch, history_options)),
            interests: Vec::new(),
            subscribers_by_variant: [0; Variant::ALL.len()],
            present: BTreeMap::new(),
            predecessor_members: PredecessorClients::default(),
            log: LogState::default(),
            origins: 0,
            last_used: now,
            unused: None,
            limiter: UpdateLimiter::default(),
            has_features: options.has_features(),
        }
    }

    /// Applies the current options of its namespace. Returns whether a new epoch is required, because publications were not counted while
    /// none were retained.
    #[must_use]
    pub(super) fn apply_options(&mut self, options: ChannelOptions, now: Duration) -> bool {
        if options == self.options {
            return false;
        }
        match (&mut self.history, options.history) {
            (Some(history), Some(history_options)) => history.set_options(history_options, now),
            (history @ None, Some(history_options)) => {
                *history = Some(History::new(self.epoch, history_options))
            }
            // Offsets continue, in case a history is configured again: a position must not denote another publication.
            (Some(history), None) => history.clear(),
            (None, None) => {}
        }
        if !options.presence && !options.join_leave {
            self.present.clear();
            self.predecessor_members = PredecessorClients::default();
        }
        self.options = options;
        self.has_features = options.has_features() || (self.has_features && self.has_subscribers());
        options.history.is_some() && std::mem::take(&mut self.log.is_outdated)
    }

    /// Records the publisher of a publication.
    pub(super) fn record_origin(&mut self, origin: Origin) {
        self.origins |= origin.bit();
    }

    /// Records that a predecessor had the channel: any source may have fed it.
    pub(super) fn set_any_origin(&mut self) {
        self.origins = u64::MAX;
    }

    /// Returns whether a source that publishes in channels with such names may feed this one: it has done so, or nothing has published yet.
    /// If the names are configured (`is_named`), channels in which only programs have published may be the source's, too.
    pub(super) fn may_be_fed_by(&self, origin: Origin, is_named: bool) -> bool {
        let other_origins = if is_named {
            self.origins & !Origin::PROGRAM.bit()
        } else {
            self.origins
        };
        other_origins == 0 || other_origins & origin.bit() != 0
    }

    /// Returns whether subscribers rely on positions, and so have to be notified of missing publications.
    pub(super) fn relies_on_positions(&self) -> bool {
        self.options.history.is_some() && self.options.conflation_interval.is_none()
    }

    pub(super) fn history_mut(&mut self) -> Option<&mut History<Arc<Published>>> {
        self.history.as_mut()
    }

    /// Returns the time of the last publication, or of the last unsubscription.
    pub(super) fn last_used(&self) -> Duration {
        self.last_used
    }

    /// Returns the current position, or `None` if the channel has no offsets.
    pub(super) fn position(&self) -> Option<StreamPosition> {
        self.options.history?;
        self.history.as_ref().map(History::position)
    }

    /// Starts a new epoch at the current position. Returns whether subscribers rely on positions, and so have to be notified.
    pub(super) fn start_epoch(&mut self, epoch: Epoch) -> bool {
        self.epoch = epoch;
        self.log.leave();
        if let Some(history) = &mut self.history {
            history.start_epoch(epoch);
        }
        self.relies_on_positions()
    }

    pub(super) fn options(&self) -> ChannelOptions {
        self.options
    }

    /// Replaces the history by that of the channel's owner.
    pub(super) fn restore(&mut self, history: History<Arc<Published>>) {
        self.epoch = history.position().epoch;
        self.log.leave();
        self.limiter.clear_last_sent();
        self.history = Some(history);
    }

    /// Returns the current position and the publications that a client missed.
    pub(super) fn recover(
        &mut self,
        recover_from: Option<RecoverFrom>,
        now: Duration,
    ) -> (Option<StreamPosition>, Missed) {
        let position = self.position();
        let recover_from = recover_from.map(|recover_from| self.resolve(recover_from));
        if self.options.cache_recovery || self.options.conflation_interval.is_some() {
            return self.recover_cached(position, recover_from, now);
        }
        let missed = match (&mut self.history, recover_from) {
            (Some(history), Some(recover_from)) if position.is_some() => match recover_from.epoch {
                EpochFilter::Any => recovered(
                    history,
                    recover_from.offset,
                    None,
                    limits::RECOVERED_PUBLICATIONS,
                    now,
                ),
                EpochFilter::Exact(epoch) => recovered(
                    history,
                    recover_from.offset,
                    Some(epoch),
                    limits::RECOVERED_PUBLICATIONS,
                    now,
                ),
                EpochFilter::Foreign => None,
            },
            _ => None,
        };
        (position, missed)
    }

    /// Returns the missed publications that match a filter; in a channel in which only the last publication matters, the last that matches.
    pub(super) fn filter_missed(&mut self, missed: Missed, filter: &TagFilter) -> Missed {
        let mut missed = missed?;
        let is_cached = self.options.cache_recovery || self.options.conflation_interval.is_some();
        let had_any = !missed.is_empty();
        missed.retain(|(_, published)| filter.matches(&published.tags));
        if is_cached && had_any && missed.is_empty() {
            let retained = self.history.iter().flat_map(History::retained);
            let matching = retained.filter(|(_, published, _)| filter.matches(&published.tags));
            let last = matching.last();
            missed.extend(last.map(|(offset, published, _)| (offset, Arc::clone(published))));
        }
        Some(missed)
    }

    /// Returns whether subscriptions may have features.
    pub(super) fn has_features(&self) -> bool {
        self.has_features
    }

    /// Returns the position for a channel in which only the last publication matters. If one is held, the last that was sent counts, so
    /// that all subscribers receive the held one.
    fn recover_cached(
        &mut self,
        position: Option<StreamPosition>,
        recover_from: Option<RecoverFrom>,
        now: Duration,
    ) -> (Option<StreamPosition>, Missed) {
        let Some(mut position) = position else {
            return (None, None);
        };
        let pending = self.limiter.is_holding().then(|| self.limiter.last_sent());
        if let Some(last_sent) = &pending {
            position.offset = last_sent.as_ref().map_or(0, |(offset, _)| *offset);
        }
        let Some(recover_from) = recover_from else {
            return (Some(position), None);
        };
        let epoch_matches = match recover_from.epoch {
            EpochFilter::Any => true,
            EpochFilter::Exact(epoch) => epoch == position.epoch,
            EpochFilter::Foreign => false,
        };
        if epoch_matches && recover_from.offset == position.offset {
            return (Some(position), Some(Vec::new()));
        }
        if position.offset == 0 {
            // The client's publication is of another epoch, and there is none to replace it.
            return (Some(position), None);
        }
        let last = match pending {
            Some(last_sent) => last_sent,
            None => self.last(now),
        };
        (Some(position), last.map(|last| vec![last]))
    }

    fn last(&mut self, now: Duration) -> Option<(u64, Arc<Published>)> {
        let last = self.history.as_mut()?.last(now)?;
        Some((last.0, Arc::clone(last.1)))
    }

    pub(super) fn add_subscriber(&mut self, worker: WorkerId, key: TopicKey, variant: Variant) {
        self.log.has_notified = false;
        self.subscribers_by_variant[variant.number()] += 1;
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

    /// Removes a subscriber of a worker.
    pub(super) fn remove_subscriber(&mut self, worker: WorkerId, variant: Variant, now: Duration) {
        let Some(index) = self
            .interests
            .iter()
            .position(|interest| interest.worker == worker)
        else {
            return;
        };
        self.subscribers_by_variant[variant.number()] =
            self.subscribers_by_variant[variant.number()].saturating_sub(1);
        self.interests[index].subscribers -= 1;
        if self.interests[index].subscribers == 0 {
            self.interests.swap_remove(index);
            self.last_used = now;
            self.has_features = self.options.has_features() || (self.has_features && self.has_subscribers());
        }
    }

    /// Adds a member. Returns its info, and whether join pushes are enabled, if it is new.
    pub(super) fn add_member(&mut self, info: Arc<ClientInfo>) -> Option<(ClientInfo, bool)> {
        if !self.options.presence && !self.options.join_leave {
            return None;
        }
        let result = ClientInfo::clone(&info);
        let before = self.present.insert(Arc::from(&*info.client), info);
        before.is_none().then_some((result, self.options.join_leave))
    }

    /// Removes a member. Returns its info, and whether leave pushes are enabled.
    pub(super) fn remove_member(&mut self, client: &str) -> Option<(ClientInfo, bool)> {
        let info = self.present.remove(client)?;
        Some((ClientInfo::clone(&info), self.options.join_leave))
    }

    /// Assigns an offset to a publication and retains it. Returns the offset, or 0 if there is none.
    pub(super) fn publish(&mut self, published: Arc<Published>, now: Duration) -> u64 {
        let bytes = published.data.len();
        self.last_used = now;
        match &mut self.history {
            Some(history) if self.options.history.is_some() => history.publish(published, bytes, now),
            history => {
                self.log.is_outdated |= history.is_some();
                0
            }
        }
    }

    /// Retains a record of the channel's log with its offset. Returns the offset, or 0 if none is retained.
    pub(super) fn publish_at(&mut self, offset: u64, published: Arc<Published>, now: Duration) -> u64 {
        let bytes = published.data.len();
        self.last_used = now;
        match &mut self.history {
            Some(history) if self.options.history.is_some() => {
                history.publish_at(offset, published, bytes, now);
                offset
            }
            history => {
                self.log.is_outdated |= history.is_some();
                0
            }
        }
    }

    /// Decides whether a publication is sent to the workers with subscribers now.
    pub(super) fn decide(&mut self, offset: u64, published: &Arc<Published>, now: Duration) -> SendDecision {
        let conflation_interval = self
            .options
            .conflation_interval
            .filter(|_| self.has_subscribers())
            .map(forward_interval);
        self.limiter.decide(conflation_interval, offset, published, now)
    }

    /// Returns the delivery mode of publications.
    pub(super) fn mode(&self) -> DeliveryMode {
        self.options
            .conflation_interval
            .map_or(DeliveryMode::Immediate, DeliveryMode::Conflated)
    }

    /// Returns the time at which the held publication is sent.
    pub(super) fn due(&self) -> Option<Duration> {
        self.limiter.due()
    }

    /// Returns the held publication, with its offset, which is sent now.
    pub(super) fn release(&mut self, now: Duration) -> Option<(u64, Arc<Published>)> {
        self.limiter
            .release(self.options.conflation_interval.map(forward_interval), now)
    }

    /// Returns whether there are subscribers.
    pub(super) fn has_subscribers(&self) -> bool {
        !self.interests.is_empty()
    }

    /// Returns the total number of subscribers.
    pub(super) fn subscribers(&self) -> u32 {
        self.interests.iter().map(|interest| interest.subscribers).sum()
    }

    /// Returns whether publications have offsets and are retained.
    pub(super) fn has_history(&self) -> bool {
        self.options.history.is_some()
    }

    pub(super) fn interests(&mut self) -> &mut [Interest] {
        &mut self.interests
    }

    /// Returns the number of subscribers by the variant of their pushes.
    pub(super) fn subscribers_by_variant(&self) -> &[u32; Variant::ALL.len()] {
        &self.subscribers_by_variant
    }

    /// Returns the result of a query.
    pub(super) fn query(&mut self, query: ChannelQuery, now: Duration) -> QueryResult {
        match query {
            ChannelQuery::History { query, epoch } => {
                let (Some(position), Some(history)) = (self.position(), &mut self.history) else {
                    return QueryResult::NotAvailable;
                };
                let epoch_matches = match epoch {
                    EpochFilter::Any => true,
                    EpochFilter::Exact(epoch) => epoch == position.epoch,
                    EpochFilter::Foreign => false,
                };
                if query.since.is_some() && !epoch_matches {
                    return QueryResult::Unrecoverable;
                }
                let selected = history.query(query, now).into_iter();
                let publications = selected
                    .map(|(offset, item)| (offset, Arc::clone(item)))
                    .collect();
                QueryResult::History {
                    publications,
                    position,
                }
            }
            ChannelQuery::ClearHistory => match &mut self.history {
                Some(history) if self.options.history.is_some() => {
                    history.clear();
                    QueryResult::HistoryCleared
                }
                _ => QueryResult::NotAvailable,
            },
            ChannelQuery::Presence | ChannelQuery::PresenceStats if !self.options.presence => {
                QueryResult::NotAvailable
            }
            ChannelQuery::Presence => QueryResult::Presence(self.present.values().cloned().collect()),
            ChannelQuery::PresenceStats => {
                let users: BTreeSet<&str> = self.present.values().map(|info| &*info.user).collect();
                QueryResult::PresenceStats {
                    clients: self.present.len() as u32,
                    users: users.len() as u32,
                }
            }
        }
    }

    /// Returns the pushes that did not fit into a worker's queue, and clears its mark. `None`: there are none.
    pub(super) fn take_missed(&mut self, worker: WorkerId, now: Duration) -> Option<(TopicKey, Missed)> {
        let interest = self
            .interests
            .iter_mut()
            .find(|interest| interest.worker == worker)?;
        let first = interest.marked.take()?;
        if self.options.conflation_interval.is_some()
            && let Some(last_sent) = self.limiter.last_sent()
        {
            return Some((interest.key, Some(vec![last_sent])));
        }
        let missed = match &mut self.history {
            // Without offsets nothing can be sent again.
            Some(history) if first > 0 => recovered(history, first - 1, None, limits::RESENT_PUSHES, now),
            _ => None,
        };
        Some((interest.key, missed))
    }

    /// Returns the time from which on the channel retains nothing, and may be evicted if it has no subscribers.
    pub(super) fn evictable_from(&self) -> Duration {
        let last_expiry = self.history.as_ref().and_then(History::last_expiry);
        let pending = self.limiter.due();
        self.last_used
            .max(last_expiry.unwrap_or_default())
            .max(pending.unwrap_or_default())
    }

    /// Returns whether the channel can be removed: it has no subscribers and retains no publication, and its offsets have expired.
    pub(super) fn is_expired(&mut self, now: Duration) -> bool {
        let has_publications = self
            .history
            .as_mut()
            .is_some_and(|history| history.expire(now).is_some());
        let needs_position = self.history.as_ref().is_some_and(|history| {
            let has_published = history.position().offset > 0;
            let retained = match self.options.history {
                // A client that subscribed before the first publication recovers it for as long as it could be retained.
                Some(history_options) if !has_published => history_options.ttl.min(self.options.position_ttl),
                _ => self.options.position_ttl,
            };
            now < self.last_used + retained
        });
        self.interests.is_empty()
            && !has_publications
            && !needs_position
            && !self.limiter.is_holding()
            && self.predecessor_members.is_empty()
    }
}

/// Returns the interval at which workers receive updates of a channel with this conflation interval.
fn forward_interval(conflation_interval: Duration) -> Duration {
    (conflation_interval / limits::FORWARDS_PER_INTERVAL)
        .max(limits::MIN_FORWARD_INTERVAL)
        .min(conflation_interval)
}

fn recovered(
    history: &mut History<Arc<Published>>,
    offset: u64,
    epoch: Option<Epoch>,
    limit: usize,
    now: Duration,
) -> Missed {
    match history.recover(offset, epoch, limit, now) {
        Recovery::All(items) => Some(
            items
                .into_iter()
                .map(|(offset, item)| (offset, Arc::clone(item)))
                .collect(),
        ),
        Recovery::Gap => None,
    }
}
