//! The host that is looked at and changed: the one that runs this, or one in a directory.
//!
//! A directory holds `proc` and `sys` as far as somebody recorded them, and a file `calls` with what only system calls
//! tell (`recorded`). Owns how a setting is read and written; knows not what any is good for.

mod key;
mod live;
mod recorded;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

pub use self::key::{Ethtool, Fields, Key, WrongKey};
use crate::limits;

/// The name of the file with what only system calls tell.
pub const CALLS: &str = "calls";

/// What came of reading a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It is this.
    Value(String),
    /// There is no such setting here: no file, or the driver does not offer it.
    Absent,
    /// There may be one; this is why it cannot be told.
    Unknown(String),
}

impl Reading {
    /// The value, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        match self {
            Reading::Value(value) => Some(value),
            _ => None,
        }
    }

    fn of(result: io::Result<String>) -> Reading {
        match result {
            Ok(value) => Reading::Value(value),
            Err(error) if is_absent(&error) => Reading::Absent,
            Err(error) => Reading::Unknown(error.to_string()),
        }
    }
}

/// A host.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// What only system calls tell comes from a file rather than from the kernel.
    recorded: bool,
}

impl Root {
    /// The host that this runs on.
    #[must_use]
    pub fn live() -> Root {
        Root {
            path: "/".into(),
            recorded: false,
        }
    }

    /// The host recorded in a directory.
    ///
    /// # Errors
    /// As `readdir(3)`; `NotFound` if there is neither `proc` nor `sys` in it.
    pub fn at(path: &Path) -> io::Result<Root> {
        fs::read_dir(path)?;
        if !path.join("proc").is_dir() && !path.join("sys").is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "expected a host's files; found neither `proc` nor `sys` in it",
            ));
        }
        Ok(Root {
            path: path.to_owned(),
            recorded: true,
        })
    }

    /// Whether this is the host that it runs on.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.recorded
    }

    /// Where a file of the host is.
    #[must_use]
    pub fn place(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// A file's text without white space around it.
    #[must_use]
    pub fn text(&self, path: &str) -> Reading {
        Reading::of(self.read_file(path))
    }

    /// The same, or nothing where it cannot be had.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<String> {
        self.read_file(path).ok()
    }

    /// A number in a file of its own.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<u64> {
        self.find(path)?.parse().ok()
    }

    fn read_file(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(self.place(path))?
            .take(limits::FILE_BYTES)
            .read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The names in a directory, in order; none where there is no such directory.
    #[must_use]
    pub fn entries(&self, path: &str) -> Vec<String> {
        let found = fs::read_dir(self.place(path)).into_iter().flatten().flatten();
        let names = found.take(limits::ENTRIES).map(|entry| entry.file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Where a symbolic link leads.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        let to = fs::read_link(self.place(path)).ok()?;
        Some(to.to_string_lossy().into_owned())
    }

    /// Whether there is anything at this path.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// Reads a setting.
    #[must_use]
    pub fn read(&self, key: &Key) -> Reading {
        match key {
            Key::File(path) => Reading::of(self.read_file(path)),
            _ if self.recorded => recorded::read(&self.place(CALLS), key),
            _ => Reading::of(live::read(key)),
        }
    }

    /// Writes a setting. What the kernel made of it, [`Root::read`] tells.
    ///
    /// # Errors
    /// As the kernel refuses it: `EPERM`, `EACCES`, `EROFS`, `EIO`, `EINVAL`, `EOPNOTSUPP`, …
    pub fn write(&self, key: &Key, value: &str) -> io::Result<()> {
        if self.recorded && !recorded::takes(&self.place(CALLS), key)? {
            return Ok(());
        }
        match key {
            Key::File(path) => self.write_file(path, value),
            _ if self.recorded => recorded::write(&self.place(CALLS), key, value),
            _ => live::write(key, value),
        }
    }

    /// One `write(2)`, as such files want it; nothing is created.
    fn write_file(&self, path: &str, value: &str) -> io::Result<()> {
        let path = self.place(path);
        // A recorded file is a file, so that what it held goes; the kernel's have no length.
        let mut file = File::options().write(true).truncate(self.recorded).open(path)?;
        let text = format!("{value}\n");
        let written = file.write(text.as_bytes())?;
        if written < text.len() {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!(
                    "expected to write {} bytes; the kernel took {written}",
                    text.len()
                ),
            ));
        }
        Ok(())
    }

    /// Where the file system of this path is mounted, if it is mounted read-only for this process.
    #[must_use]
    pub fn read_only(&self, path: &str) -> Option<String> {
        let mounts = self.find("/proc/self/mountinfo")?;
        read_only_mount(&mounts, path)
    }
}

/// Of the mounts that a path lies below the innermost counts, of those at one place the last.
fn read_only_mount(mounts: &str, path: &str) -> Option<String> {
    let mut innermost: Option<(&str, bool)> = None;
    for line in mounts.lines() {
        // Number, parent, device, root, mount point, options: proc_pid_mountinfo(5).
        let mut fields = line.split(' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else {
            continue;
        };
        let below = Path::new(path).starts_with(point);
        if below && innermost.is_none_or(|(last, _)| point.len() >= last.len()) {
            innermost = Some((point, options.split(',').any(|option| option == "ro")));
        }
    }
    innermost
        .filter(|(_, read_only)| *read_only)
        .map(|(point, _)| point.to_owned())
}

/// What the kernel says where there is no such setting.
fn is_absent(error: &io::Error) -> bool {
    // ENOENT, ENODEV, EOPNOTSUPP, EPROTONOSUPPORT, EAFNOSUPPORT; ENXIO of a card whose link is down.
    const NUMBERS: [i32; 5] = [2, 19, 95, 93, 97];
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error
        .raw_os_error()
        .is_some_and(|number| NUMBERS.contains(&number))
}
