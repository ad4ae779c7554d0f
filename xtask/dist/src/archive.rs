//! Archives whose bytes depend on their contents alone: sorted, owned by root, with one time.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use lzma_rust2::{XzOptions, XzWriter};
use tar::{Builder, EntryType, Header};

/// A file or folder of an archive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The path, without a slash at its start.
    pub(crate) path: String,
    /// The permissions.
    pub(crate) mode: u32,
    /// The contents; `None` for a folder.
    pub(crate) data: Option<Vec<u8>>,
}

impl Entry {
    /// An entry for a file.
    pub(crate) fn file(path: impl Into<String>, mode: u32, data: impl Into<Vec<u8>>) -> Entry {
        Entry {
            path: path.into(),
            mode,
            data: Some(data.into()),
        }
    }

    /// An entry for a folder.
    pub(crate) fn folder(path: impl Into<String>, mode: u32) -> Entry {
        Entry {
            path: path.into(),
            mode,
            data: None,
        }
    }
}

/// Returns a tar archive; `time` is the modification time of every entry, in seconds since 1970.
///
/// Entries are sorted, and folders are added for the files that have none.
pub(crate) fn tar(entries: &[Entry], time: u64) -> io::Result<Vec<u8>> {
    let mut entries = entries.to_vec();
    for path in entries.iter().map(|entry| entry.path.clone()).collect::<Vec<_>>() {
        for (end, _) in path.match_indices('/') {
            let folder = &path[..end];
            if entries.iter().all(|entry| entry.path != folder) {
                entries.push(Entry::folder(folder, 0o755));
            }
        }
    }
    entries.sort();
    let mut builder = Builder::new(Vec::new());
    for entry in &entries {
        let data = entry.data.as_deref().unwrap_or_default();
        let mut header = Header::new_ustar();
        header.set_entry_type(if entry.data.is_some() {
            EntryType::Regular
        } else {
            EntryType::Directory
        });
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(time);
        header.set_size(data.len() as u64);
        let path = if entry.data.is_some() {
            entry.path.clone()
        } else {
            format!("{}/", entry.path)
        };
        builder.append_data(&mut header, path, data)?;
    }
    builder.into_inner()
}

/// Compresses with gzip, without a name or time in the header.
pub(crate) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

/// The time that compression may take for a smaller result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effort {
    /// For what everybody downloads.
    Small,
    /// For symbols: 200 MB a target, which few download.
    Fast,
}

/// Compresses with xz.
pub(crate) fn xz(bytes: &[u8], effort: Effort) -> io::Result<Vec<u8>> {
    let preset = match effort {
        Effort::Small => 6,
        Effort::Fast => 1,
    };
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(preset))?;
    writer.write_all(bytes)?;
    writer.finish()
}
