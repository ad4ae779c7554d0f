//! Writes of a plan, each announced in the journal before and verified after; and taking them back.
//!
//! What is written is what was planned and nothing else. The outcomes of what can go wrong:
//!
//! | what | outcome |
//! |---|---|
//! | a write is refused, or the kernel does not take the value | the step is taken back, the others stand |
//! | the journal cannot be written (full or read-only disk) | nothing is written any more, this run is taken back |
//! | the process is killed at any point | `revert` takes back all that was begun |
//! | a value is another than planned | its step is not begun |
//! | somebody else has changed a value since | `revert` leaves it alone and says so, unless forced |
//! | the host was restarted since | nothing is left of it; `revert` writes nothing and closes the journal |
//! | a setting is gone (an interface, a queue) | there is nothing to take back |
//! | the journal of a killed run is there | it is gone on with; `revert` has all as it was before the first |

mod revert;

pub use self::revert::{How, Left, Reverted, State, status, undo};
use crate::audit::{Wish, audit};
use crate::catalogue::Id;
use crate::host::{Asked, Host, HostError};
use crate::journal::{Intent, Journal, JournalError, Record, Value};
use crate::plan::{Planned, plan};
use crate::root::{Ethtool, Fields, Key, Reading, Root};
use crate::{limits, report};

/// What happens, told while it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A setting is written down and about to be written.
    Intended(Key),
    /// It is written.
    Written(Key),
    /// It is as wanted, or as near as the device can, and that is written down.
    Verified {
        /// Which setting.
        key: Key,
        /// Its value before.
        before: String,
        /// Its value now.
        effective: String,
    },
    /// It is as it was before.
    Undone {
        /// Which setting.
        key: Key,
        /// Its value again.
        value: String,
    },
}

/// Listens to what happens.
pub type Tell<'a> = &'a mut dyn FnMut(&Event);

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Settings that were changed.
    pub changed: usize,
    /// Steps that were taken back, and why.
    pub failed: Vec<(Id, String)>,
}

/// Why nothing more could be done.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The host is not as asked.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The journal cannot be written.
    #[error("{source}; the changes of this run are reverted{}", left.iter().map(|l| format!(", but {l}")).collect::<String>())]
    Journal {
        /// Why.
        source: JournalError,
        /// What could not be taken back.
        left: Vec<String>,
    },
    /// Settings are taken back, and the journal cannot be told.
    #[error(
        "{source}; the settings listed above are restored nevertheless: once the journal can be written, ringmain tune revert \
         closes it"
    )]
    Unnoted {
        /// Why.
        source: JournalError,
    },
    /// The journal is of another network namespace.
    #[error(
        "the journal was written in the network namespace {of}, and this is {here}: run it there, or name another --state"
    )]
    OtherNetwork {
        /// The journal's.
        of: String,
        /// This process's.
        here: String,
    },
}

impl From<JournalError> for ApplyError {
    fn from(source: JournalError) -> ApplyError {
        ApplyError::Journal {
            source,
            left: Vec::new(),
        }
    }
}

/// Looks, plans and writes, and again as long as what was written makes room for more.
///
/// # Errors
/// Where the host is not as asked, or the journal cannot be used.
pub fn apply(
    root: &Root,
    asked: &Asked,
    wish: &Wish,
    journal: &mut Journal,
    tell: Tell<'_>,
) -> Result<Applied, ApplyError> {
    let mut all = Applied::default();
    let mut first = None;
    for _ in 0..limits::ROUNDS {
        let host = Host::look(root, asked)?;
        let mut plan = plan(&audit(root, &host, wish));
        plan.retain(|planned| !all.failed.iter().any(|(id, _)| *id == planned.step));
        if plan.is_empty() {
            break;
        }
        prepare(&host, journal)?;
        let first = *first.get_or_insert(journal.entries().len());
        let applied = written(root, &plan, journal, first, tell)?;
        all.failed.extend(applied.failed);
        all.changed += applied.changed;
        if applied.changed == 0 {
            break;
        }
    }
    Ok(all)
}

/// Writes a plan.
///
/// # Errors
/// Where the journal cannot be used.
pub fn carry_out(
    root: &Root,
    host: &Host,
    plan: &[Planned],
    journal: &mut Journal,
    tell: Tell<'_>,
) -> Result<Applied, ApplyError> {
    prepare(host, journal)?;
    let first = journal.entries().len();
    written(root, plan, journal, first, tell)
}

/// Writes a plan; if the journal cannot be, takes back what this run has written, whose entries begin at `first`.
fn written(
    root: &Root,
    plan: &[Planned],
    journal: &mut Journal,
    first: usize,
    tell: Tell<'_>,
) -> Result<Applied, ApplyError> {
    let done = steps(root, plan, journal, tell);
    done.map_err(|source| ApplyError::Journal {
        // Taking back needs no journal: it only compares with what is there.
        left: take_back(root, journal, first, tell),
        source,
    })
}

/// Has a journal of this start of the host and this network namespace.
fn prepare(host: &Host, journal: &mut Journal) -> Result<(), ApplyError> {
    check_network(host.network.as_deref(), journal)?;
    if journal.is_begun() && journal.boot() != host.boot.as_deref() {
        // The restart has taken back all of it.
        journal.close()?;
    }
    journal.begin(host.boot.clone(), host.network.clone())?;
    Ok(())
}

/// The same name of an interface means another one elsewhere.
pub(crate) fn check_network(here: Option<&str>, journal: &Journal) -> Result<(), ApplyError> {
    match (journal.network(), here) {
        (Some(of), Some(here)) if of != here => Err(ApplyError::OtherNetwork {
            of: of.to_owned(),
            here: here.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn steps(
    root: &Root,
    plan: &[Planned],
    journal: &mut Journal,
    tell: Tell<'_>,
) -> Result<Applied, JournalError> {
    let keys = plan.iter().flat_map(|planned| &planned.changes);
    let values = keys.filter_map(|change| value(root, &change.key)).collect();
    journal.append(Record::Snapshot(values))?;
    let mut applied = Applied::default();
    for planned in plan {
        let first = journal.entries().len();
        match step(root, planned, journal, tell)? {
            Ok(changed) => applied.changed += changed,
            Err(why) => {
                let left = take_back(root, journal, first, tell);
                record_undone(root, journal, first)?;
                let why = if left.is_empty() {
                    why
                } else {
                    format!("{why}; {}", left.join("; "))
                };
                applied.failed.push((planned.step, why));
            }
        }
    }
    Ok(applied)
}

/// The writes of one step; how many settings changed, or why it cannot be.
fn step(
    root: &Root,
    planned: &Planned,
    journal: &mut Journal,
    tell: Tell<'_>,
) -> Result<Result<usize, String>, JournalError> {
    let mut changed = 0;
    for change in &planned.changes {
        let key = &change.key;
        let before = match root.read(key) {
            Reading::Value(now) if key.same(&now, &change.wanted) => continue,
            Reading::Value(now) if key.same(&now, &change.now) => now,
            Reading::Value(now) => {
                return Ok(Err(format!(
                    "{key}: expected {} as planned, found {now}",
                    change.now
                )));
            }
            // A queue that went with its channel.
            Reading::Absent if changed > 0 || is_of_queue(key) => continue,
            Reading::Absent => return Ok(Err(format!("{key} is gone"))),
            Reading::Unknown(why) => return Ok(Err(format!("{key} cannot be read: {why}"))),
        };
        let serial = journal.entries().len();
        journal.append(Record::Intend(Intent {
            serial,
            step: planned.step.name().to_owned(),
            key: key.clone(),
            before: before.clone(),
            wanted: change.wanted.clone(),
            also: forgotten_with(root, key),
        }))?;
        tell(&Event::Intended(key.clone()));
        if let Err(error) = root.write(key, &change.wanted) {
            return Ok(Err(format!(
                "{key}: writing {} is refused: {error}",
                report::lines::cut(&change.wanted, 40)
            )));
        }
        tell(&Event::Written(key.clone()));
        let effective = match root.read(key) {
            Reading::Value(effective) => effective,
            _ => return Ok(Err(format!("{key} cannot be read after it was written"))),
        };
        if !takes(key, &before, &change.wanted, &effective) {
            return Ok(Err(format!(
                "{key}: the kernel has {effective} after {} was written",
                report::lines::cut(&change.wanted, 40)
            )));
        }
        journal.append(Record::Took {
            serial,
            effective: effective.clone(),
        })?;
        tell(&Event::Verified {
            key: key.clone(),
            before,
            effective,
        });
        changed += 1;
    }
    Ok(Ok(changed))
}

/// Whether the kernel made of a value what was meant. Times of interrupts are rounded by some devices.
fn takes(key: &Key, before: &str, wanted: &str, effective: &str) -> bool {
    if key.same(wanted, effective) {
        return true;
    }
    let rounded = matches!(
        key,
        Key::Ethtool {
            what: Ethtool::Coalesce,
            ..
        }
    );
    let switches = |text: &str| {
        let fields = Fields::parse(text);
        ["adaptive-rx", "adaptive-tx"].map(|name| fields.is_on(name))
    };
    rounded && !key.same(before, effective) && switches(wanted) == switches(effective)
}

fn is_of_queue(key: &Key) -> bool {
    matches!(key, Key::File(path) if path.contains("/queues/"))
}

/// What the kernel forgets of queues whose channels go: masks, and the spread of flows.
fn forgotten_with(root: &Root, key: &Key) -> Vec<Value> {
    let Key::Ethtool {
        interface,
        what: Ethtool::Channels,
    } = key
    else {
        return Vec::new();
    };
    let directory = format!("/sys/class/net/{interface}/queues");
    let queues = root.entries(&directory).into_iter();
    let files = queues.flat_map(|queue| {
        let names: &[&str] = if queue.starts_with("rx-") {
            &["rps_cpus", "rps_flow_cnt"]
        } else {
            &["xps_cpus", "xps_rxqs"]
        };
        let files = names
            .iter()
            .map(|name| Key::File(format!("{directory}/{queue}/{name}")));
        files.collect::<Vec<_>>()
    });
    let table = Key::ethtool(interface, Ethtool::Indirection);
    files.chain([table]).filter_map(|key| value(root, &key)).collect()
}

fn value(root: &Root, key: &Key) -> Option<Value> {
    let value = root.read(key).value()?.to_owned();
    Some(Value {
        key: key.clone(),
        value,
    })
}

/// Takes back the entries from `first` on, the last first; says what is left.
fn take_back(root: &Root, journal: &Journal, first: usize, tell: Tell<'_>) -> Vec<String> {
    let entries = journal.entries().iter().skip(first).rev();
    let open: Vec<_> = entries.filter(|entry| !entry.undone).collect();
    let mut left = Vec::new();
    for pass in 0..limits::PASSES {
        left.clear();
        for entry in &open {
            let intent = &entry.intent;
            match revert::restore(root, intent, tell) {
                Ok(()) => {}
                Err(why) => left.push(format!("{} does not have its previous value: {why}", intent.key)),
            }
        }
        if left.is_empty() || pass + 1 == limits::PASSES {
            break;
        }
    }
    left
}

/// Notes which of them are as they were.
fn record_undone(root: &Root, journal: &mut Journal, first: usize) -> Result<(), JournalError> {
    let entries = journal.entries().iter().skip(first);
    let undone = entries.filter(|entry| {
        let intent = &entry.intent;
        let now = root.read(&intent.key);
        !entry.undone && now.value().is_none_or(|now| intent.key.same(now, &intent.before))
    });
    let serials: Vec<usize> = undone.map(|entry| entry.intent.serial).collect();
    for serial in serials {
        journal.append(Record::Undone { serial })?;
    }
    Ok(())
}
