//! Taking back what a journal says was changed, and saying how things stand.

use super::{ApplyError, Event, Tell, check_network};
use crate::host::Host;
use crate::journal::{Entry, Intent, Journal, JournalError, Record};
use crate::limits;
use crate::root::{Reading, Root};

/// What to do with values that somebody else has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Leave them, and keep them in the journal.
    Careful,
    /// Write what was there before all the same.
    Force,
    /// Leave them, and forget them.
    Forget,
}

/// How a setting stands that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is as it was applied.
    Holds,
    /// It is as it was before.
    Before,
    /// Somebody else has changed it since.
    Changed(String),
    /// Writing it was begun, and nobody knows what came of it.
    InDoubt(String),
    /// There is no such setting any more.
    Gone,
    /// It cannot be read.
    Unknown(String),
}

/// A setting that was not taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What was intended.
    pub intent: Intent,
    /// Why it is as it is.
    pub why: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reverted {
    /// Settings that were written.
    pub restored: usize,
    /// Settings that were as before already.
    pub already: usize,
    /// Settings that are gone.
    pub gone: usize,
    /// Settings that are not as before.
    pub left: Vec<Left>,
    /// The host was started anew since: nothing was left to take back.
    pub restarted: bool,
}

/// How a setting stands.
#[must_use]
pub fn status(root: &Root, entry: &Entry) -> State {
    let Entry {
        intent, effective, ..
    } = entry;
    let key = &intent.key;
    match root.read(key) {
        Reading::Absent => State::Gone,
        Reading::Unknown(why) => State::Unknown(why),
        Reading::Value(now) if key.same(&now, &intent.before) => State::Before,
        Reading::Value(now) => match effective {
            None => State::InDoubt(now),
            Some(effective) if key.same(&now, effective) => State::Holds,
            Some(_) => State::Changed(now),
        },
    }
}

/// Takes everything back that the journal holds, the last first. Settings may depend on each other, so that those that
/// do not take their value are tried again after the others.
///
/// # Errors
/// Where the journal is of another network namespace, or cannot be written. What is restored then stays so, and a second
/// run finds it.
pub fn undo(
    root: &Root,
    host: &Host,
    journal: &mut Journal,
    how: How,
    tell: Tell<'_>,
) -> Result<Reverted, ApplyError> {
    let mut reverted = Reverted::default();
    if !journal.is_begun() {
        return Ok(reverted);
    }
    if journal.boot() != host.boot.as_deref() {
        reverted.restarted = true;
        journal.close()?;
        return Ok(reverted);
    }
    check_network(host.network.as_deref(), journal)?;
    let mut open: Vec<Entry> = journal
        .entries()
        .iter()
        .filter(|entry| !entry.undone)
        .cloned()
        .collect();
    open.reverse();
    let mut serials = Vec::new();
    for pass in 1..=limits::PASSES {
        reverted.left.clear();
        let mut again = Vec::new();
        for entry in open {
            match one(root, &entry, how, &mut reverted, tell) {
                Ok(()) => serials.push(entry.intent.serial),
                Err(why) => {
                    reverted.left.push(Left {
                        intent: entry.intent.clone(),
                        why,
                    });
                    again.push(entry);
                }
            }
        }
        open = again;
        if open.is_empty() || pass == limits::PASSES {
            break;
        }
    }
    note(journal, &serials, reverted.left.is_empty()).map_err(|source| ApplyError::Unnoted { source })?;
    Ok(reverted)
}

/// Has it in the journal what is done with; closes it, if that is all.
fn note(journal: &mut Journal, serials: &[usize], all: bool) -> Result<(), JournalError> {
    for serial in serials {
        journal.append(Record::Undone { serial: *serial })?;
    }
    if all {
        journal.close()?;
    }
    Ok(())
}

/// One setting: done with, or why not.
fn one(root: &Root, entry: &Entry, how: How, reverted: &mut Reverted, tell: Tell<'_>) -> Result<(), String> {
    match status(root, entry) {
        State::Gone => reverted.gone += 1,
        State::Before => {
            // What the kernel forgot with it may still be missing.
            restore(root, &entry.intent, tell)?;
            reverted.already += 1;
        }
        State::Changed(now) if how == How::Careful => {
            return Err(format!(
                "changed by another program since, from {} to {now}: --force writes {} nevertheless, --forget leaves it",
                entry.effective.as_deref().unwrap_or(&entry.intent.wanted),
                entry.intent.before
            ));
        }
        State::Changed(_) if how == How::Forget => {}
        State::Unknown(why) => return Err(format!("it cannot be read: {why}")),
        State::Holds | State::Changed(_) | State::InDoubt(_) => {
            restore(root, &entry.intent, tell)?;
            reverted.restored += 1;
        }
    }
    Ok(())
}

/// Has a setting, and what the kernel forgot with it, as before.
pub(super) fn restore(root: &Root, intent: &Intent, tell: Tell<'_>) -> Result<(), String> {
    let also = intent.also.iter().map(|value| (&value.key, &value.value));
    for (key, value) in [(&intent.key, &intent.before)].into_iter().chain(also) {
        match root.read(key) {
            Reading::Value(now) if key.same(&now, value) => continue,
            Reading::Absent => continue,
            _ => {}
        }
        root.write(key, value)
            .map_err(|error| format!("writing {value} is refused: {error}"))?;
        match root.read(key) {
            Reading::Value(now) if key.same(&now, value) => tell(&Event::Undone {
                key: key.clone(),
                value: now,
            }),
            Reading::Value(now) => {
                return Err(format!("{key}: {value} was written, and the kernel has {now}"));
            }
            _ => return Err(format!("{key} cannot be read after it was written")),
        }
    }
    Ok(())
}
