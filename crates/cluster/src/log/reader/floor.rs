//! The floors of histories, below which their publications are not complete.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::History;
use ringmain_hub::protocol::Published;

use super::OlderPublication;

/// The relation of a history's floor to that of its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FloorMark {
    /// The floor of the history when it was last brought up to the reader's. A higher one is its own.
    pub(super) floor: u64,
    /// The history has dropped publications: its floor is its own.
    pub(super) is_clipped: bool,
}

impl FloorMark {
    /// Returns whether a history has all publications above the reader's floor.
    pub(super) fn is_unclipped(&mut self, history: &History<Arc<Published>>) -> bool {
        self.is_clipped |= history.floor() != self.floor;
        !self.is_clipped
    }

    /// Raises the floor: publications below it are of another life, or missing.
    pub(crate) fn raise(&mut self, history: &mut History<Arc<Published>>, floor: u64) {
        history.raise_floor(floor);
        if history.floor() == floor {
            *self = FloorMark {
                floor,
                is_clipped: false,
            };
        }
    }

    /// Adds an older publication. They must be added from the newest to the oldest.
    pub(crate) fn add_older(
        &mut self,
        history: &mut History<Arc<Published>>,
        older: OlderPublication,
        now: Duration,
    ) {
        let OlderPublication {
            number, publish, age, ..
        } = older;
        if !self.is_unclipped(history) || number > history.floor() {
            return;
        }
        let bytes = publish.published.data.len();
        let at = now.saturating_sub(age);
        if history.push_older(number, publish.published, bytes, at, now) {
            self.floor = number - 1;
        } else {
            self.floor = number;
            self.is_clipped = true;
        }
        history.lower_floor(self.floor);
    }
}
