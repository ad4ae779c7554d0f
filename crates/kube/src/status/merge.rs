//! Conditions merged into those of a status.

use serde_json::{Map, Value, json};

use crate::limits;
use crate::translate::Condition;

/// The types of conditions that are ours in a list. Others stay.
pub(super) type Owned = &'static [&'static str];

/// The parameters of a merge.
pub(super) struct Merge<'a> {
    /// The generation that was translated.
    pub(super) generation: i64,
    /// RFC 3339.
    pub(super) now: &'a str,
}

impl Merge<'_> {
    /// Replaces the conditions of ours in `parent`. Those that are unchanged keep their position and transition time, and those
    /// that are no longer reported are removed.
    pub(super) fn conditions(&self, parent: &mut Map<String, Value>, owned: Owned, conditions: &[Condition]) {
        let present = parent.remove("conditions").unwrap_or_default();
        let present = present.as_array().map_or(&[][..], Vec::as_slice);
        let mut merged = Vec::new();
        for old in present {
            let kind = old["type"].as_str().unwrap_or_default();
            if let Some(new) = conditions.iter().find(|new| new.kind == kind) {
                merged.push(self.condition(new, Some(old)));
            } else if !owned.contains(&kind) {
                merged.push(old.clone());
            }
        }
        for new in conditions {
            if present.iter().all(|old| old["type"] != new.kind) {
                merged.push(self.condition(new, None));
            }
        }
        parent.insert("conditions".into(), Value::Array(merged));
    }

    fn condition(&self, new: &Condition, old: Option<&Value>) -> Value {
        let status = if new.is_true { "True" } else { "False" };
        let unchanged = old.filter(|old| old["status"] == status);
        let since = unchanged.and_then(|old| old["lastTransitionTime"].as_str());
        json!({
            "type": new.kind,
            "status": status,
            "reason": new.reason,
            "message": new.message.chars().take(limits::MESSAGE_CHARS).collect::<String>(),
            "observedGeneration": self.generation,
            "lastTransitionTime": since.unwrap_or(self.now),
        })
    }
}
