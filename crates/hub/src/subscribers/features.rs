//! Subscriptions whose pushes differ from those of other subscribers: deltas, filters by tags, and numbers in place of channel names.
//!
//! ```text
//! push ─▶ filter (once for each distinct one) ─▶ forms (once for each distinct one) ─▶ queue: whole push and delta ─▶ popped:
//!         the delta if the connection has its base, otherwise the whole push
//! ```
//!
//! A topic without such subscribers has no state here. A connection may lack the base of a queued delta, because pushes were dropped or
//! replaced: this is known only when the delta is sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::delivery::SlowConsumer;
use super::push_queue::QueuedFrame;
use super::{ConnId, SubscriberTable};
use crate::mail::{EncodedPush, PushSource};
use crate::protocol::{DataForm, Disconnect, Format, Published, PushMessage, Variant};
use crate::tag_filter::TagFilter;

/// The entry of a subscriber without features.
pub(super) const PLAIN: u32 = u32::MAX;

/// The features of a subscription. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubscriptionFeatures {
    /// Publications are sent as deltas from those before them, where these are shorter ([`DataForm`]).
    pub delta: bool,
    /// Pushes have the channel's number ([`channel_number`](super::SubscriberTable::channel_number)) instead of its name.
    pub compaction: bool,
    /// Only publications that match are sent.
    pub filter: Option<Arc<TagFilter>>,
}

impl SubscriptionFeatures {
    pub(super) fn is_plain(&self) -> bool {
        *self == SubscriptionFeatures::default()
    }
}

/// A publication in the two forms of subscriptions with deltas, shared by the subscribers with the same form of pushes.
#[derive(Debug)]
pub(super) struct DeltaPush {
    whole: Bytes,
    /// The version that the connection must have to receive the delta.
    base: Option<u32>,
    /// The version of this publication. `None`: it is not among the retained ones, and no delta is made from it.
    version: Option<u32>,
    /// `None`: it is sent whole.
    delta: Option<Bytes>,
}

/// A queued push of a subscription with deltas.
#[derive(Clone, Debug)]
pub(super) struct PushDelta {
    entry: u32,
    shared: Arc<DeltaPush>,
}

/// The subscriptions with features of one worker.
#[derive(Debug, Default)]
pub(super) struct FeatureEntries {
    entries: Vec<FeatureEntry>,
    free: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct FeatureEntry {
    has_delta: bool,
    compaction: bool,
    /// The filter's number within its topic.
    filter: Option<u32>,
    /// The version of the last publication that was sent, in a subscription with deltas.
    sent: Option<u32>,
}

/// The state of a topic whose subscribers include some with features.
#[derive(Debug, Default)]
pub(super) struct TopicFeatures {
    /// The entry of each subscriber, in the order of the topic's subscribers, or [`PLAIN`].
    subscribers: Vec<u32>,
    /// The number of entries.
    count: usize,
    /// The number of subscriptions with deltas.
    deltas: usize,
    filters: TopicFilters,
    /// The last publications with their versions, the newest last, as long as there are subscriptions with deltas.
    bases: VecDeque<(u32, Arc<Published>)>,
    version: u32,
    /// The forms of the current push.
    forms: Vec<PushForm>,
    /// The deltas of the current push, by the versions of their bases. `None`: there is no shorter one.
    form_deltas: Vec<(u32, Option<Bytes>)>,
}

/// One form of a push.
#[derive(Debug)]
struct PushForm {
    key: FormKey,
    whole: Bytes,
    delta: Option<Arc<DeltaPush>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FormKey {
    variant: Variant,
    compaction: bool,
    has_delta: bool,
    base: Option<u32>,
}

impl FormKey {
    /// Returns whether the complete pushes of two forms are equal.
    fn has_same_whole(self, other: FormKey) -> bool {
        let base = self.base;
        self == FormKey { base, ..other }
    }
}

/// The distinct filters of a topic.
#[derive(Debug, Default)]
struct TopicFilters {
    numbers: BTreeMap<Box<[u8]>, u32>,
    filters: Vec<Option<UsedFilter>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct UsedFilter {
    filter: Arc<TagFilter>,
    subscribers: u32,
    /// The result for the current push.
    result: Option<bool>,
}

/// The base of a subscriber's delta.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeltaBase {
    /// The publication before: all subscribers receive every publication.
    Previous,
    /// The last one that was sent to the subscriber, of a conflated channel.
    Sent,
}

/// A topic, as far as its pushes contain it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopicName<'a> {
    pub(super) channel: &'a str,
    pub(super) topic: u32,
}

/// The outcome for one subscriber.
#[derive(Debug)]
pub(super) enum FormOutcome {
    Send(QueuedFrame),
    /// The push does not match the subscriber's filter.
    Filtered,
    /// The push has no form for the subscriber.
    Reject(SlowConsumer),
}

/// Returns the form of a push for a subscriber, given by its entry ([`TopicFeatures::entry`]).
pub(super) fn subscriber_form(
    features: Option<&mut TopicFeatures>,
    (entries, entry): (&FeatureEntries, u32),
    variant: Variant,
    topic: TopicName<'_>,
    encoded: Option<&EncodedPush>,
    base: DeltaBase,
) -> FormOutcome {
    let plain = encoded.and_then(|encoded| Some((encoded, encoded.get(variant)?)));
    match (features, plain) {
        (_, None) => FormOutcome::Reject(SlowConsumer::Disconnect(Disconnect::INAPPROPRIATE_PROTOCOL)),
        (None, Some((_, plain))) => FormOutcome::Send(QueuedFrame::Whole(plain.clone())),
        (Some(features), Some(push)) => features.form((entries, entry), variant, topic, push, base),
    }
}

/// Returns the number of a topic in pushes. 0 is none.
fn topic_number(topic: u32) -> i64 {
    i64::from(topic) + 1
}

impl SubscriberTable {
    /// Returns the number of a channel with subscribers at this worker, by which pushes refer to it ([`SubscriptionFeatures::compaction`]).
    #[must_use]
    pub fn channel_number(&self, channel: &str) -> Option<i64> {
        self.names.get(channel).map(|topic| topic_number(*topic))
    }

    /// Makes a subscription with deltas receive the next publication whole, since the client did not receive the recovered ones.
    pub fn forget_delta_base(&mut self, id: ConnId, channel: &str) {
        let Some(&topic) = self.names.get(channel) else {
            return;
        };
        let at = self.slot(id).and_then(|conn| conn.index_in(topic));
        if let (Some(at), Some(features)) = (at, &self.topics[topic as usize].features) {
            features.forget_base(&mut self.feature_entries, at);
        }
    }
}

impl PushDelta {
    /// Returns the length of the complete push.
    pub(super) fn whole_bytes(&self) -> usize {
        self.shared.whole.len()
    }
}

impl FeatureEntries {
    /// Returns the frame to send for a queued push, which the connection has from now on.
    pub(super) fn resolve(&mut self, frame: QueuedFrame) -> Bytes {
        let PushDelta { entry, shared } = match frame {
            QueuedFrame::Whole(whole) => return whole,
            QueuedFrame::Delta(delta) => delta,
        };
        let Some(entry) = self.entries.get_mut(entry as usize) else {
            return shared.whole.clone();
        };
        let has_base = shared.base.is_some() && shared.base == entry.sent;
        entry.sent = shared.version;
        match &shared.delta {
            Some(delta) if has_base => delta.clone(),
            _ => shared.whole.clone(),
        }
    }

    fn add(&mut self, entry: FeatureEntry) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        }
    }

    fn get(&self, at: u32) -> Option<FeatureEntry> {
        self.entries.get(at as usize).copied()
    }
}

impl TopicFeatures {
    /// Adds the last of the topic's `subscribers`. `recovered` is the publication that it receives with its subscription.
    pub(super) fn add(
        &mut self,
        entries: &mut FeatureEntries,
        subscribers: usize,
        features: &SubscriptionFeatures,
        recovered: Option<&Arc<Published>>,
    ) {
        self.subscribers.resize(subscribers - 1, PLAIN);
        let entry = FeatureEntry {
            has_delta: features.delta,
            compaction: features.compaction,
            filter: features.filter.as_ref().map(|filter| self.filters.add(filter)),
            sent: recovered
                .filter(|_| features.delta)
                .and_then(|published| self.version_of(published)),
        };
        self.deltas += usize::from(features.delta);
        self.count += 1;
        self.subscribers.push(entries.add(entry));
    }

    /// Adds the last of the topic's subscribers, which has no features.
    pub(super) fn add_plain(&mut self) {
        self.subscribers.push(PLAIN);
    }

    /// Removes a subscriber, whose place the last one takes. Returns whether there are still subscribers with features.
    pub(super) fn swap_remove(&mut self, entries: &mut FeatureEntries, at: usize) -> bool {
        let removed = self.subscribers.swap_remove(at);
        if let Some(entry) = entries.get(removed) {
            entries.free.push(removed);
            self.count -= 1;
            self.deltas -= usize::from(entry.has_delta);
            if let Some(filter) = entry.filter {
                self.filters.remove(filter);
            }
        }
        if self.deltas == 0 {
            self.bases = VecDeque::new();
        }
        self.count > 0
    }

    /// Makes a subscriber receive the next publication whole.
    pub(super) fn forget_base(&self, entries: &mut FeatureEntries, at: usize) {
        if let Some(entry) = entries.entries.get_mut(self.entry(at) as usize) {
            entry.sent = None;
        }
    }

    /// Returns the version of a publication that a subscriber recovers, if it is the newest one.
    fn version_of(&mut self, published: &Arc<Published>) -> Option<u32> {
        match self.bases.back() {
            Some((version, newest)) => Arc::ptr_eq(newest, published).then_some(*version),
            None => {
                self.version = self.version.wrapping_add(1);
                self.bases.push_back((self.version, Arc::clone(published)));
                Some(self.version)
            }
        }
    }

    /// Starts a push to the topic's subscribers. If it is a publication, `bases` of those before it are retained.
    pub(super) fn start_push(&mut self, source: Option<&PushSource>, bases: usize) {
        self.end_push();
        if let Some(PushSource::Publication(_, published)) = source
            && self.deltas > 0
        {
            self.version = self.version.wrapping_add(1);
            self.bases.push_back((self.version, Arc::clone(published)));
            let excess = self.bases.len().saturating_sub(bases + 1);
            self.bases.drain(..excess);
        }
    }

    /// Drops the forms of a push.
    pub(super) fn end_push(&mut self) {
        self.forms.clear();
        self.form_deltas.clear();
        for filter in self.filters.filters.iter_mut().flatten() {
            filter.result = None;
        }
    }

    /// Returns the entry of a subscriber, given by its index among those of the topic: [`PLAIN`], or one that remains the same as long as it is
    /// subscribed.
    pub(super) fn entry(&self, at: usize) -> u32 {
        self.subscribers.get(at).copied().unwrap_or(PLAIN)
    }

    /// Returns the form of the current push for a subscriber. `plain` is that without features.
    fn form(
        &mut self,
        (entries, number): (&FeatureEntries, u32),
        variant: Variant,
        topic: TopicName<'_>,
        (encoded, plain): (&EncodedPush, &Bytes),
        base: DeltaBase,
    ) -> FormOutcome {
        let Some(entry) = entries.get(number) else {
            return FormOutcome::Send(QueuedFrame::Whole(plain.clone()));
        };
        let Some(source) = encoded.source() else {
            return FormOutcome::Reject(SlowConsumer::Resync(topic.topic));
        };
        let publication = match source {
            PushSource::Publication(offset, published) => Some((*offset, published)),
            PushSource::Message(_) => None,
        };
        if let (Some(filter), Some((_, published))) = (entry.filter, publication)
            && !self.filters.matches(filter, published)
        {
            return FormOutcome::Filtered;
        }
        let has_delta = entry.has_delta && publication.is_some();
        let base = match base {
            _ if !has_delta => None,
            DeltaBase::Sent => entry
                .sent
                .filter(|sent| self.bases.iter().any(|(version, _)| version == sent)),
            DeltaBase::Previous => self.previous().map(|(version, _)| *version),
        };
        let key = FormKey {
            variant,
            compaction: entry.compaction,
            has_delta,
            base,
        };
        let known = self.forms.iter().position(|form| form.key == key);
        let made = known.or_else(|| {
            let form = self.make_form(key, topic, source, plain)?;
            self.forms.push(form);
            Some(self.forms.len() - 1)
        });
        let Some(form) = made.map(|made| &self.forms[made]) else {
            return FormOutcome::Reject(SlowConsumer::Resync(topic.topic));
        };
        FormOutcome::Send(match &form.delta {
            None => QueuedFrame::Whole(form.whole.clone()),
            Some(shared) => QueuedFrame::Delta(PushDelta {
                entry: number,
                shared: Arc::clone(shared),
            }),
        })
    }

    /// Returns the publication before the current one.
    fn previous(&self) -> Option<&(u32, Arc<Published>)> {
        self.bases.get(self.bases.len().checked_sub(2)?)
    }

    fn make_form(
        &mut self,
        key: FormKey,
        topic: TopicName<'_>,
        source: &PushSource,
        plain: &Bytes,
    ) -> Option<PushForm> {
        let encode = |form: DataForm<'_>| encode(key, topic, source, form);
        let known = self.forms.iter().find(|form| form.key.has_same_whole(key));
        // Only JSON has another form of complete data.
        let whole = match (known, key.has_delta, key.compaction, key.variant.format) {
            (Some(known), ..) => known.whole.clone(),
            (None, false, false, _) | (None, true, false, Format::Protobuf) => plain.clone(),
            (None, false, true, _) => encode(DataForm::Plain)?,
            (None, true, ..) => encode(DataForm::Whole)?,
        };
        let delta = match source {
            PushSource::Publication(_, published) if key.has_delta => {
                let delta = key.base.and_then(|base| self.form_delta(base, published));
                Some(Arc::new(DeltaPush {
                    whole: whole.clone(),
                    base: key.base,
                    version: self.retained_version(published),
                    delta: delta.and_then(|delta| encode(DataForm::Delta(&delta))),
                }))
            }
            PushSource::Publication(..) | PushSource::Message(_) => None,
        };
        Some(PushForm { key, whole, delta })
    }

    /// Returns the delta of the current push's data from that of the publication with this version.
    fn form_delta(&mut self, base: u32, published: &Arc<Published>) -> Option<Bytes> {
        if let Some((_, delta)) = self.form_deltas.iter().find(|(version, _)| *version == base) {
            return delta.clone();
        }
        let (_, base_published) = self.bases.iter().find(|(version, _)| *version == base)?;
        let delta = published.delta_from(base_published);
        self.form_deltas.push((base, delta.clone()));
        delta
    }

    /// Returns the version of a publication. It is not the newest version if the publication is the last update of a conflated channel, and
    /// others without an offset followed it.
    fn retained_version(&self, published: &Arc<Published>) -> Option<u32> {
        let mut newest_first = self.bases.iter().rev();
        let (version, _) = newest_first.find(|(_, retained)| Arc::ptr_eq(retained, published))?;
        Some(*version)
    }
}

/// Encodes a push. `None`: the format has no such data.
fn encode(key: FormKey, topic: TopicName<'_>, source: &PushSource, form: DataForm<'_>) -> Option<Bytes> {
    let mut push = match source {
        PushSource::Publication(offset, published) => PushMessage {
            pub_: Some(published.in_form(*offset, key.variant.format, form)),
            ..PushMessage::default()
        },
        PushSource::Message(push) => PushMessage::clone(push),
    };
    if key.compaction {
        push.id = topic_number(topic.topic);
    } else {
        topic.channel.clone_into(&mut push.channel);
    }
    let mut out = Vec::new();
    key.variant.write(push, &mut out).ok()?;
    Some(out.into())
}

impl TopicFilters {
    /// Returns the number of a filter that is used by one more subscriber.
    fn add(&mut self, filter: &Arc<TagFilter>) -> u32 {
        if let Some(&number) = self.numbers.get(filter.key())
            && let Some(used) = &mut self.filters[number as usize]
        {
            used.subscribers += 1;
            return number;
        }
        let used = Some(UsedFilter {
            filter: Arc::clone(filter),
            subscribers: 1,
            result: None,
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.filters[number as usize] = used;
                number
            }
            None => {
                self.filters.push(used);
                (self.filters.len() - 1) as u32
            }
        };
        self.numbers.insert(filter.key().into(), number);
        number
    }

    fn remove(&mut self, number: u32) {
        let place = &mut self.filters[number as usize];
        let Some(used) = place else { return };
        used.subscribers -= 1;
        if used.subscribers == 0 {
            self.numbers.remove(used.filter.key());
            *place = None;
            self.free.push(number);
        }
    }

    fn matches(&mut self, number: u32, published: &Published) -> bool {
        let Some(used) = &mut self.filters[number as usize] else {
            return true;
        };
        *used
            .result
            .get_or_insert_with(|| used.filter.matches(&published.tags))
    }
}
