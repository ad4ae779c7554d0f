//! Where subscriptions stand in their channels, for clients that come back: an offset each, and the epoch that it is of.
//!
//! Twelve bytes a subscription. An epoch, which very many share, is kept once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits;

/// The subscriptions of one thread, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions {
    offsets: Vec<u64>,
    /// The number of each one's epoch, from 1; 0 for one that stands nowhere.
    lives: Vec<u32>,
    epochs: Vec<Arc<str>>,
    numbers: BTreeMap<Arc<str>, u32>,
}

impl Positions {
    /// Of so many subscriptions, none of which stands anywhere yet.
    pub(super) fn new(subscriptions: usize) -> Positions {
        Positions {
            offsets: vec![0; subscriptions],
            lives: vec![0; subscriptions],
            ..Positions::default()
        }
    }

    /// Where a subscription stands, if anywhere.
    pub(super) fn at(&self, subscription: usize) -> Option<(u64, &str)> {
        let life = self.lives[subscription].checked_sub(1)?;
        Some((self.offsets[subscription], &self.epochs[life as usize]))
    }

    /// Returns the number of a subscription's epoch, from 1; 0 for none.
    pub(super) fn epoch(&self, subscription: usize) -> u32 {
        self.lives[subscription]
    }

    /// Returns all epochs, numbered from 1.
    pub(super) fn epochs(&self) -> &[Arc<str>] {
        &self.epochs
    }

    /// The server has said where a subscription stands. An epoch that is not kept (see [`limits::EPOCHS`]) is none.
    pub(super) fn stand(&mut self, subscription: usize, offset: u64, epoch: &str) {
        self.offsets[subscription] = offset;
        self.lives[subscription] = self.number(epoch).unwrap_or(0);
    }

    /// A subscription stands nowhere any more.
    pub(super) fn forget(&mut self, subscription: usize) {
        self.lives[subscription] = 0;
    }

    /// A publication of this offset has come; one out of order takes nobody back.
    #[inline]
    pub(super) fn advance(&mut self, subscription: usize, offset: u64) {
        let at = &mut self.offsets[subscription];
        *at = offset.max(*at);
    }

    fn number(&mut self, epoch: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(epoch) {
            return Some(*number);
        }
        if epoch.is_empty() || epoch.len() > limits::EPOCH_BYTES || self.epochs.len() >= limits::EPOCHS {
            return None;
        }
        let epoch: Arc<str> = epoch.into();
        self.epochs.push(Arc::clone(&epoch));
        let number = self.epochs.len() as u32;
        self.numbers.insert(epoch, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests;
