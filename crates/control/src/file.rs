//! A configuration file as it is now, with all that it names: read, and compared with what was read before.
//!
//! Reads files and the environment; what keys mean is for [`crate::config`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{self, Loaded, Sources};
use crate::limits;

/// A file that was read.
#[derive(Debug)]
pub struct Reading {
    /// What it says.
    pub loaded: Loaded,
    /// The file, as it is written.
    pub text: Arc<str>,
    /// By what it can be told from other readings.
    pub print: Print,
}

/// What was read, by short: readings with equal prints say the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Print {
    /// The file itself first, then what it names: hashes of contents, or what kept them from being read.
    files: BTreeMap<PathBuf, Result<u64, io::ErrorKind>>,
}

impl Print {
    /// Of a file that could not be read: what it named before may make it readable again.
    pub(crate) fn with(mut self, last: &Print) -> Print {
        for (path, contents) in &last.files {
            self.files.entry(path.clone()).or_insert(*contents);
        }
        self
    }

    /// The files that were read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }
}

/// Why a file cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the configuration {}: {why}", .path.display())]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: String,
    /// By what it can be told from other readings.
    pub print: Print,
}

/// Reads a configuration file and what it names. Paths in it are relative to its folder as it is named, not to the one that a
/// symbolic link leads to: so what lies beside it is found where files are links into a folder that is replaced as a whole.
///
/// # Errors
/// The file itself cannot be read, or is no text. All else is in [`Loaded::errors`].
pub fn read(path: &Path) -> Result<Reading, Box<Unreadable>> {
    let print = RefCell::new(Print::default());
    let note = |path: &Path, bytes: &io::Result<Vec<u8>>| {
        let of = bytes.as_deref().map(hash).map_err(io::Error::kind);
        print.borrow_mut().files.insert(path.to_owned(), of);
    };
    let bytes = bounded(path, limits::CONFIG_BYTES);
    note(path, &bytes);
    let text = match bytes.map(String::from_utf8) {
        Ok(Ok(text)) => text,
        wrong => {
            return Err(Box::new(Unreadable {
                path: path.to_owned(),
                why: wrong.map_or_else(|error| error.to_string(), |_| "it is no text (UTF-8)".to_owned()),
                print: print.into_inner(),
            }));
        }
    };
    let folder = folder(path);
    let sources = Sources {
        variable: &|name| std::env::var(name).ok(),
        file: &|named| {
            let path = folder.join(named);
            let bytes = bounded(&path, limits::NAMED_FILE_BYTES);
            note(&path, &bytes);
            bytes
        },
        folder: &folder,
    };
    let loaded = config::load(&path.display().to_string(), &text, &sources);
    Ok(Reading {
        loaded,
        text: text.into(),
        print: print.into_inner(),
    })
}

/// Whether a file and what it named say what they said in a reading: cheaper than reading them again, since only bytes are
/// compared.
pub(crate) fn is_as_before(path: &Path, before: &Print) -> bool {
    !before.files.is_empty()
        && before.files.iter().all(|(named, contents)| {
            let limit = if named == path {
                limits::CONFIG_BYTES
            } else {
                limits::NAMED_FILE_BYTES
            };
            bounded(named, limit)
                .map(|bytes| hash(&bytes))
                .map_err(|error| error.kind())
                == *contents
        })
}

/// The folder of a file, absolute.
fn folder(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// As much of a file as tells whether it is too long.
fn bounded(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
