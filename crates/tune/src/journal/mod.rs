//! The journal: what is about to be written, before it is written, so that it can be taken back whatever happens.
//!
//! A directory with a file `journal`, a line of JSON for each record; each is on the disk before what it announces is
//! done. The file appears whole (written aside, synced, renamed), grows by whole lines, and goes into `history` by a
//! rename when all of it is taken back.
//!
//! ```text
//! begin ─▶ snapshot ─▶ ( intend ─▶ [the setting is written and read again] ─▶ took )* ─▶ ( undone )* ─▶ history
//! ```
//!
//! A line that a crash has cut announces nothing that was done: it is dropped. Knows no setting's meaning.

mod folder;
#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::root::Key;

/// The version of the journal's form.
pub const VERSION: u32 = 1;

/// A setting with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Which setting.
    pub key: Key,
    /// Its value.
    pub value: String,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// A host's settings are about to be changed.
    Begin {
        /// [`VERSION`].
        version: u32,
        /// Which start of the host this is.
        boot: Option<String>,
        /// The network namespace.
        network: Option<String>,
    },
    /// How all settings are that are about to be changed.
    Snapshot(Vec<Value>),
    /// A setting is about to be written.
    Intend(Intent),
    /// It was written, and this is what the kernel made of it.
    Took {
        /// The intent's number.
        serial: usize,
        /// The value that was read back.
        effective: String,
    },
    /// It is as it was before, or nobody wants it taken back any more.
    Undone {
        /// The intent's number.
        serial: usize,
    },
}

/// A setting that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Its number in this journal.
    pub serial: usize,
    /// The step that wants it, by name.
    pub step: String,
    /// Which setting.
    pub key: Key,
    /// Its value before.
    pub before: String,
    /// The value that is wanted.
    pub wanted: String,
    /// Other settings that the kernel forgets with this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Value>,
}

/// An intent and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What was intended.
    pub intent: Intent,
    /// What the kernel made of it; `None` if a crash came between.
    pub effective: Option<String>,
    /// Whether it is taken back.
    pub undone: bool,
}

/// What a journal holds, to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which start of the host it belongs to.
    pub boot: Option<String>,
    /// Its entries.
    pub entries: Vec<Entry>,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory or a file in it.
    #[error("cannot {what} {}: {source}{}", path.display(), hint(source))]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another program changes settings.
    #[error("another ringmain tune is changing this host (it holds {}): wait for it", .0.display())]
    Locked(PathBuf),
    /// Another user could have written the directory or a file in it.
    #[error("{} is not trusted: {why}; a revert would write its values. Inspect it, then move it away or select another \
             directory with --state", path.display())]
    Untrusted {
        /// The directory or the file.
        path: PathBuf,
        /// What makes it so.
        why: String,
    },
    /// A record names a setting that no step changes.
    #[error("{}: record {record} names {key}, which no step changes: another program has written it. Nothing was changed; \
             inspect it, then move it away", path.display())]
    ForeignKey {
        /// The journal.
        path: PathBuf,
        /// The record, from 1.
        record: usize,
        /// The setting.
        key: Key,
    },
    /// A line in the middle is no record.
    #[error("{}, line {line}: expected a record of version {VERSION}, found {found}: the changes are not known for certain; \
             compare by hand, then move the file away", path.display())]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is there.
        found: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there: no setting is changed without a record"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; mount it writable, or select another directory with --state",
        io::ErrorKind::PermissionDenied => "; run it as root, or select your own directory with --state",
        _ => "",
    }
}

/// An open journal, locked for this process.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    _lock: File,
    /// None before the first record.
    file: Option<File>,
    boot: Option<String>,
    network: Option<String>,
    entries: Vec<Entry>,
}

impl Journal {
    /// Opens the journal of a directory, which is made if it is not there, and locks it.
    ///
    /// # Errors
    /// Where it cannot be written, is locked, or cannot be understood.
    pub fn open(directory: &Path) -> Result<Journal, JournalError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::File { what, path, source }
        };
        folder::ensure_directory(directory)?;
        let path = directory.join("lock");
        let lock = folder::open(
            &path,
            File::options().create(true).truncate(false).write(true),
            "open",
        )?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::Locked(path)),
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let mut journal = Journal {
            directory: directory.to_owned(),
            _lock: lock,
            file: None,
            boot: None,
            network: None,
            entries: Vec::new(),
        };
        journal.load()?;
        Ok(journal)
    }

    /// The entries of a directory's journal, to be looked at only; none where there is no journal.
    ///
    /// # Errors
    /// As [`Journal::open`], but for the lock.
    pub fn peek(directory: &Path) -> Result<Option<Kept>, JournalError> {
        let path = directory.join("journal");
        let Some(bytes) = read(&path)? else {
            return Ok(None);
        };
        let (records, _) = records(&path, &bytes)?;
        let mut kept = Kept {
            boot: None,
            entries: Vec::new(),
        };
        for record in records {
            if let Record::Begin { boot, .. } = &record {
                kept.boot.clone_from(boot);
            }
            replay(&mut kept.entries, record);
        }
        Ok(Some(kept))
    }

    fn path(&self) -> PathBuf {
        self.directory.join("journal")
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> JournalError + use<> {
        let path = self.path();
        move |source| JournalError::File { what, path, source }
    }

    fn load(&mut self) -> Result<(), JournalError> {
        let path = self.path();
        let Some(bytes) = read(&path)? else {
            return Ok(());
        };
        let (records, whole) = records(&path, &bytes)?;
        check_keys(&path, &records)?;
        for record in records {
            if let Record::Begin { boot, network, .. } = &record {
                (self.boot, self.network) = (boot.clone(), network.clone());
            }
            replay(&mut self.entries, record);
        }
        let file = folder::open(&path, File::options().append(true), "open")?;
        if whole < bytes.len() as u64 {
            file.set_len(whole).map_err(self.failed("shorten"))?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.file.is_some()
    }

    /// Which start of the host it belongs to.
    #[must_use]
    pub fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    /// Which network namespace it belongs to.
    #[must_use]
    pub fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }

    /// What it holds.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Begins one: written aside, synced, put in its place. Does nothing where there is one.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn begin(&mut self, boot: Option<String>, network: Option<String>) -> Result<(), JournalError> {
        if self.is_begun() {
            return Ok(());
        }
        let record = Record::Begin {
            version: VERSION,
            boot: boot.clone(),
            network: network.clone(),
        };
        let aside = self.directory.join("journal.new");
        let mut file = folder::create(&aside)?;
        let done = file.write_all(&line(&record)).and_then(|()| file.sync_all());
        done.and_then(|()| fs::rename(&aside, self.path()))
            .and_then(|()| sync(&self.directory))
            .map_err(self.failed("start"))?;
        self.file = Some(folder::open(&self.path(), File::options().append(true), "open")?);
        (self.boot, self.network) = (boot, network);
        Ok(())
    }

    /// Appends a record. It is on the disk when this returns.
    ///
    /// # Errors
    /// Where it cannot be written; then the journal is as before.
    pub fn append(&mut self, record: Record) -> Result<(), JournalError> {
        // Else a later run would refuse what this one has written.
        debug_assert!(!matches!(&record, Record::Intend(intent) if !intent.key.is_changed_by_steps()));
        let failed = self.failed("write");
        let Some(file) = &mut self.file else {
            return Err(failed(io::Error::other("it is not open")));
        };
        let length = file.metadata().map(|metadata| metadata.len());
        let written = file.write_all(&line(&record)).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // A cut line would be dropped anyway; but another may follow it.
            if let Ok(length) = length {
                let _ = file.set_len(length);
            }
            return Err(failed(error));
        }
        replay(&mut self.entries, record);
        Ok(())
    }

    /// Puts the journal to the past ones: there is nothing in it any more that could be taken back.
    ///
    /// # Errors
    /// Where files cannot be moved.
    pub fn close(&mut self) -> Result<(), JournalError> {
        if self.file.take().is_none() {
            return Ok(());
        }
        let history = self.directory.join("history");
        folder::ensure_directory(&history)?;
        let mut past: Vec<u64> = numbers(&history);
        past.sort_unstable();
        let next = past.last().map_or(1, |last| last + 1);
        fs::rename(self.path(), history.join(format!("{next:08}.journal")))
            .and_then(|()| sync(&self.directory))
            .map_err(self.failed("archive"))?;
        let old = past.len().saturating_sub(limits::HISTORY - 1);
        for number in past.into_iter().take(old) {
            // An old journal that stays costs nothing but room.
            let _ = fs::remove_file(history.join(format!("{number:08}.journal")));
        }
        self.entries.clear();
        (self.boot, self.network) = (None, None);
        Ok(())
    }
}

/// Returns an error if a record names a setting that no step writes: whatever it says would be written with the rights of the caller.
fn check_keys(path: &Path, records: &[Record]) -> Result<(), JournalError> {
    for (at, record) in records.iter().enumerate() {
        let Record::Intend(intent) = record else {
            continue;
        };
        let also = intent.also.iter().map(|value| &value.key);
        if let Some(key) = std::iter::once(&intent.key)
            .chain(also)
            .find(|key| !key.is_changed_by_steps())
        {
            return Err(JournalError::ForeignKey {
                path: path.to_owned(),
                record: at + 1,
                key: key.clone(),
            });
        }
    }
    Ok(())
}

fn numbers(history: &Path) -> Vec<u64> {
    let files = fs::read_dir(history).into_iter().flatten().flatten();
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| name.strip_suffix(".journal")?.parse().ok())
        .collect()
}

/// A renamed file is only there for sure when its directory is on the disk.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, JournalError> {
    let failed = |source| JournalError::File {
        what: "read",
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    match folder::open(path, File::options().read(true), "read") {
        Err(JournalError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
        Ok(file) => file
            .take(limits::JOURNAL_BYTES)
            .read_to_end(&mut bytes)
            .map_err(failed)?,
    };
    Ok(Some(bytes))
}

/// A record as its line.
#[must_use]
pub fn line(record: &Record) -> Vec<u8> {
    // Records hold nothing that JSON could not.
    let mut line = serde_json::to_vec(record).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The records of a journal's bytes, and how many of these they take. A last line that is cut is left out. `path` is for
/// the error.
///
/// # Errors
/// Where a line in the middle is no record.
pub fn records(path: &Path, bytes: &[u8]) -> Result<(Vec<Record>, u64), JournalError> {
    let mut records = Vec::new();
    let mut whole = 0;
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let last = whole + line.len() == bytes.len();
        let record: Option<Record> = serde_json::from_slice(line).ok();
        let record = record.filter(|record| match record {
            Record::Begin { version, .. } => *version == VERSION,
            _ => true,
        });
        match record {
            Some(record) if line.ends_with(b"\n") => records.push(record),
            // What is cut was not yet done. The first line came by a rename and cannot be cut.
            _ if last && at > 0 => break,
            _ => {
                let found: String = String::from_utf8_lossy(line)
                    .trim_end()
                    .chars()
                    .take(60)
                    .collect();
                return Err(JournalError::Corrupt {
                    path: path.to_owned(),
                    line: at + 1,
                    found: format!("`{found}`"),
                });
            }
        }
        whole += line.len();
    }
    Ok((records, whole as u64))
}

fn replay(entries: &mut Vec<Entry>, record: Record) {
    match record {
        Record::Begin { .. } | Record::Snapshot(_) => {}
        Record::Intend(intent) => entries.push(Entry {
            intent,
            effective: None,
            undone: false,
        }),
        Record::Took { serial, effective } => {
            if let Some(entry) = entries.get_mut(serial) {
                entry.effective = Some(effective);
            }
        }
        Record::Undone { serial } => {
            if let Some(entry) = entries.get_mut(serial) {
                entry.undone = true;
            }
        }
    }
}
