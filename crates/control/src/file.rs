//! The configuration file with all files that it names: reading, and comparison with the previous reading.
//!
//! Reads files and the environment; does not know the meaning of keys: [`crate::config`] does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringmain_sys::clock;
use ringmain_sys::event::Event;
use ringmain_sys::file::open_regular;

use crate::config::{self, ConfigEnvironment, Loaded};
use crate::limits;

/// A file that was read.
#[derive(Debug)]
pub struct LoadedFile {
    /// The parsed configuration.
    pub loaded: Loaded,
    /// The file, as it is written.
    pub text: Arc<str>,
    /// Identifies the files that were read.
    pub fingerprint: Fingerprint,
}

/// The files of a reading, by path, for comparison with later readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// The file itself and the files that it names; an error for each that could not be read.
    files: BTreeMap<PathBuf, Result<FileStamp, io::ErrorKind>>,
}

/// One file as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    contents: u64,
    length: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl Fingerprint {
    /// Adds the files of the last reading to those of a failed one: a change of any may make the file readable again.
    pub(crate) fn merged_with(mut self, last: &Fingerprint) -> Fingerprint {
        for (path, stamp) in &last.files {
            self.files.entry(path.clone()).or_insert(*stamp);
        }
        self
    }

    /// Returns the files that were read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Returns whether the files had the same contents, whatever their time of modification.
    pub(crate) fn has_same_contents(&self, other: &Fingerprint) -> bool {
        let contents = |stamp: &Result<FileStamp, _>| stamp.map(|stamp| stamp.contents);
        self.files.len() == other.files.len()
            && self
                .files
                .iter()
                .zip(&other.files)
                .all(|((path, stamp), (name, last))| path == name && contents(stamp) == contents(last))
    }

    /// Returns whether all files are unchanged: contents, size, time of modification, inode.
    pub(crate) fn is_unchanged(&self, path: &Path) -> bool {
        self.files
            .iter()
            .all(|(path_name, before)| read_stamp(path_name, size_limit(path, path_name)) == *before)
    }

    /// Returns whether all files were modified at least `span` ago, so that probably none is being written.
    fn is_older_than(&self, span: Duration) -> bool {
        let now = clock::realtime();
        let age = |modified: SystemTime| {
            let since = modified
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            // A time in the future has no age.
            now.checked_sub(since)
        };
        let stamps = self.files.values().filter_map(|stamp| stamp.as_ref().ok());
        let mut ages = stamps.map(|stamp| stamp.modified.and_then(age));
        ages.all(|age| age.is_some_and(|age| age >= span))
    }
}

/// The error of a file that cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration {}: {reason}", .path.display())]
pub struct UnreadableFile {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
    /// Identifies the files that were read.
    pub fingerprint: Fingerprint,
}

/// Reads a configuration file as [`read`] does, once its files are stable: modified some time ago, or unchanged for
/// [`limits::DEBOUNCE`].
///
/// # Errors
/// Those of [`read`]; the files keep changing for longer than [`limits::DEBOUNCE_TIMEOUT`].
pub fn read_stable(path: &Path) -> Result<LoadedFile, Box<UnreadableFile>> {
    let end = clock::monotonic() + limits::DEBOUNCE_TIMEOUT;
    loop {
        let read = read(path);
        let fingerprint = match &read {
            Ok(file) => &file.fingerprint,
            Err(unreadable) => &unreadable.fingerprint,
        };
        if fingerprint.is_older_than(limits::DEBOUNCE) {
            return read;
        }
        let pause = Event::new().and_then(|never| never.wait_for(limits::DEBOUNCE));
        if pause.is_err() || fingerprint.is_unchanged(path) {
            return read;
        }
        if clock::monotonic() >= end {
            return Err(Box::new(UnreadableFile {
                path: path.to_owned(),
                reason: "it or a file that it names keeps changing; start again when they are complete"
                    .to_owned(),
                fingerprint: fingerprint.clone(),
            }));
        }
    }
}

/// Reads a configuration file and the files that it names. Their paths are relative to its directory as named, not to the target of
/// a symbolic link: so a directory of links that is replaced as a whole stays consistent.
///
/// # Errors
/// The file itself cannot be read, or is not text. All else is in [`Loaded::errors`].
pub fn read(path: &Path) -> Result<LoadedFile, Box<UnreadableFile>> {
    let recorder = Recorder::default();
    match recorder.read(path, limits::CONFIG_BYTES).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(recorder.load(path, text)),
        wrong => Err(Box::new(UnreadableFile {
            path: path.to_owned(),
            reason: wrong.map_or_else(
                |error| error.to_string(),
                |_| "not a text file (UTF-8)".to_owned(),
            ),
            fingerprint: recorder.0.into_inner(),
        })),
    }
}

/// As [`read`], with this text as the contents of the file, and without the file in the fingerprint.
#[must_use]
pub fn read_text(path: &Path, text: String) -> LoadedFile {
    Recorder::default().load(path, text)
}

/// Reads files, and records their stamps.
#[derive(Default)]
struct Recorder(RefCell<Fingerprint>);

impl Recorder {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let read = read_file(path, limit);
        let stamp = read.as_ref().map(|(_, stamp)| *stamp).map_err(io::Error::kind);
        self.0.borrow_mut().files.insert(path.to_owned(), stamp);
        read.map(|(bytes, _)| bytes)
    }

    fn load(self, path: &Path, text: String) -> LoadedFile {
        let folder = parent_folder(path);
        let environment = ConfigEnvironment {
            variable: &|name| std::env::var(name).ok(),
            file: &|path_name| self.read(&folder.join(path_name), limits::NAMED_FILE_BYTES),
            is_public: &|path_name| {
                let status = std::fs::metadata(folder.join(path_name));
                status.is_ok_and(|status| status.mode() & 0o004 != 0)
            },
            folder: &folder,
        };
        let loaded = config::load(&path.display().to_string(), &text, &environment);
        LoadedFile {
            loaded,
            text: text.into(),
            fingerprint: self.0.into_inner(),
        }
    }
}

/// Returns whether a file and the files that it names have the contents of a reading. Cheaper than a new reading, since only bytes
/// are compared.
pub(crate) fn matches_disk(path: &Path, before: &Fingerprint) -> bool {
    let contents =
        |path_name: &Path| read_stamp(path_name, size_limit(path, path_name)).map(|stamp| stamp.contents);
    !before.files.is_empty()
        && before
            .files
            .iter()
            .all(|(path_name, stamp)| contents(path_name) == stamp.map(|stamp| stamp.contents))
}

/// Returns the absolute path of a file's directory.
fn parent_folder(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

/// Returns the maximum size of a file that a configuration at `path` names, or is.
fn size_limit(path: &Path, path_name: &Path) -> usize {
    if path_name == path {
        limits::CONFIG_BYTES
    } else {
        limits::NAMED_FILE_BYTES
    }
}

fn content_hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn read_stamp(path: &Path, limit: usize) -> Result<FileStamp, io::ErrorKind> {
    read_file(path, limit)
        .map(|(_, stamp)| stamp)
        .map_err(|error| error.kind())
}

/// Reads a file, up to one byte beyond the limit, and its stamp.
fn read_file(path: &Path, limit: usize) -> io::Result<(Vec<u8>, FileStamp)> {
    let file = open_regular(path)?;
    let status = file.metadata()?;
    let mut bytes = Vec::new();
    let max_bytes = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(max_bytes).read_to_end(&mut bytes)?;
    let stamp = FileStamp {
        contents: content_hash(&bytes),
        length: status.len(),
        modified: status.modified().ok(),
        inode: status.ino(),
    };
    Ok((bytes, stamp))
}
