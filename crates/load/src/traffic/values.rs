//! What a connection has captured in the flow it is in.

use crate::limits;

/// Captured values, by the number that compiling gave their names. Bounded: at most [`limits::VALUES`] of at most
/// [`limits::VALUE_BYTES`] each. Without captures it never allocates; with them not once warm.
#[derive(Clone, Debug, Default)]
pub struct Values {
    slots: Vec<Vec<u8>>,
}

impl Values {
    /// Forgets all values and keeps the memory. To be called whenever a flow begins.
    pub fn clear(&mut self) {
        for slot in &mut self.slots {
            slot.clear();
        }
    }

    /// The value; empty if its capture has failed.
    pub(super) fn value(&self, slot: usize) -> &[u8] {
        self.slots.get(slot).map_or(&[], Vec::as_slice)
    }

    /// Keeps a value. `false` if it is longer than [`limits::VALUE_BYTES`]; then the slot is empty.
    pub(super) fn set(&mut self, slot: usize, value: &[u8]) -> bool {
        debug_assert!(slot < limits::VALUES, "compiling numbers no more names");
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, Vec::new);
        }
        let kept = &mut self.slots[slot];
        kept.clear();
        if value.len() > limits::VALUE_BYTES {
            return false;
        }
        kept.extend_from_slice(value);
        true
    }
}
