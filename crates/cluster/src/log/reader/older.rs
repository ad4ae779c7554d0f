//! The parts of a partition that were appended before its reader began.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::mail::Idempotency;

use super::{Reader, numbered};
use crate::frame::Publish;
use crate::log::{Binding, Entry, Life, Record};
use crate::node::idempotency::IdempotencyKeys;

/// A publication that was appended before the reader began.
#[derive(Debug)]
pub(crate) struct OlderPublication {
    pub(crate) number: u64,
    pub(crate) publish: Publish,
    pub(crate) age: Duration,
    /// The floor before the part that has it.
    pub(super) above: u64,
}

/// The findings in a part of the log.
#[derive(Debug, Default)]
struct OlderPart {
    above: u64,
    publications: Vec<OlderPublication>,
    life: Option<(Life, Binding)>,
    has_life_entry: bool,
    keys: IdempotencyKeys,
    /// The first publication of each key: channel, key, number, time.
    firsts: Vec<(Arc<str>, Idempotency, u64, Duration)>,
}

impl Reader {
    /// Handles records below the floor. Returns the publications of this life, in order.
    pub(crate) fn read_older(
        &mut self,
        from: u64,
        records: Vec<Record>,
        is_first: bool,
        now_ms: i64,
    ) -> Vec<OlderPublication> {
        self.fill.is_requested = false;
        self.now_ms = self.now_ms.max(now_ms);
        let bytes: usize = records.iter().map(Record::cost).sum();
        self.fill.bytes_left = self.fill.bytes_left.saturating_sub(bytes.max(1));
        let before = self.floor;
        self.floor = from.saturating_sub(1).min(before);
        let mut part = OlderPart {
            above: before,
            ..OlderPart::default()
        };
        for record in records.into_iter().filter(|record| record.number <= before) {
            self.read_older_record(record, &mut part);
        }
        if self.life.is_none() {
            let unproven = self.unproven.filter(|beat| beat.seen >= self.floor);
            self.life = part.life.or(unproven.map(|beat| (beat.life, beat.binding)));
        }
        for (channel, idempotency, number, at) in part.firsts {
            // Otherwise a newer one of the same key was delivered.
            if self.find_key(&channel, &idempotency).is_none() {
                self.keys.add(&channel, idempotency, numbered(number), at);
            }
        }
        let is_spent = self.fill.bytes_left == 0 && self.life.is_some();
        self.fill.is_done |= is_first || is_spent || part.has_life_entry;
        part.publications
    }

    fn read_older_record(&mut self, record: Record, part: &mut OlderPart) {
        let (number, time_ms) = (record.number, record.time_ms);
        self.oldest_ms = Some(self.oldest_ms.map_or(time_ms, |oldest| oldest.min(time_ms)));
        match record.entry {
            Ok(Entry::Life { life, .. }) => {
                // Older records are of another life.
                part.publications.clear();
                part.keys = IdempotencyKeys::default();
                part.firsts.clear();
                part.has_life_entry = true;
                part.life = Some((life.life, life.binding));
                (self.floor, self.life_start) = (number, number);
            }
            Ok(Entry::Beat { beat, .. }) if part.life.is_none() && beat.seen >= self.floor => {
                part.life = Some((beat.life, beat.binding));
            }
            Ok(Entry::Publication { publish, .. }) => {
                let at = Duration::from_millis(time_ms.max(0) as u64);
                let age = Duration::from_millis(self.now_ms.saturating_sub(time_ms).max(0) as u64);
                if let Some(idempotency) = &publish.options.idempotency {
                    let channel = &publish.channel;
                    if part.keys.find(channel, idempotency, at).is_some() {
                        return;
                    }
                    part.keys.add(channel, idempotency.clone(), None, at);
                    let first = (Arc::clone(channel), idempotency.clone(), number, at);
                    part.firsts.push(first);
                }
                part.publications.push(OlderPublication {
                    number,
                    publish,
                    age,
                    above: part.above,
                });
            }
            Ok(Entry::Beat { .. }) | Err(_) => {}
        }
    }

    /// Handles the loss of records below `first`, which were not read.
    pub(crate) fn trim(&mut self, first: u64) {
        let floor = first.saturating_sub(1);
        if floor <= self.position {
            return;
        }
        self.position = floor;
        (self.digest, self.must_verify) = (None, false);
        // Another life may have begun there: a beat above proves the current one.
        (self.life, self.unproven, self.life_start) = (None, None, 0);
        self.is_attached = false;
        self.keys = IdempotencyKeys::default();
        self.raise_floor(floor);
    }

    /// Retains an older publication of a channel that the node does not serve. They must be added from the newest to the oldest.
    pub(crate) fn retain_older(&mut self, older: OlderPublication, now: Duration) {
        let settings = older.publish.settings;
        let Some(options) = settings.history else {
            return;
        };
        // A new one has all publications above the part that is added.
        let floor = std::mem::replace(&mut self.floor, older.above);
        if let Some(logged) = self.channel(&Arc::clone(&older.publish.channel), options, settings, now) {
            logged.mark.add_older(&mut logged.history, older, now);
        } else {
            self.forgotten = self.forgotten.max(older.number);
        }
        self.floor = floor;
    }
}
