//! Samples put together: each stack once, with how often it was seen; and what could not be seen of them.

use std::collections::BTreeMap;

use super::spaces::Frame;
use crate::profile::limits::STACKS;

/// Stacks by the thread's name and their frames, the outermost last.
#[derive(Debug, Default)]
pub(in super::super) struct Stacks {
    stacks: BTreeMap<(u32, Vec<Frame>), u64>,
    /// Of threads whose further stacks are not told apart.
    others: BTreeMap<u32, u64>,
    /// Samples of each thread's name.
    pub(in super::super) threads: BTreeMap<u32, u64>,
    names: BTreeMap<String, u32>,
    /// Names by their numbers.
    pub(in super::super) by_number: Vec<String>,
}

impl Stacks {
    /// The number of a thread's name.
    pub(super) fn name(&mut self, name: &str) -> u32 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = u32::try_from(self.by_number.len()).unwrap_or(u32::MAX);
        self.names.insert(name.to_owned(), number);
        self.by_number.push(name.to_owned());
        number
    }

    /// A sample.
    pub(super) fn add(&mut self, name: u32, frames: &[Frame]) {
        *self.threads.entry(name).or_default() += 1;
        let key = (name, frames.to_vec());
        if let Some(count) = self.stacks.get_mut(&key) {
            *count += 1;
        } else if self.stacks.len() < STACKS {
            self.stacks.insert(key, 1);
        } else {
            *self.others.entry(name).or_default() += 1;
        }
    }

    /// Every stack: its thread's name, frames, and count.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = (&str, &[Frame], u64)> {
        self.stacks.iter().map(|((name, frames), count)| {
            (self.by_number[*name as usize].as_str(), frames.as_slice(), *count)
        })
    }

    /// Samples whose stacks were too many to be told apart, by thread.
    pub(in super::super) fn others(&self) -> impl Iterator<Item = (&str, u64)> {
        self.others
            .iter()
            .map(|(name, count)| (self.by_number[*name as usize].as_str(), *count))
    }
}
