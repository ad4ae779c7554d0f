//! Changes of files as something to wait for (inotify).
//!
//! Folders are watched, not files: whoever replaces a file, or a link on the way to it, changes an entry of a folder, and a file
//! that was replaced says nothing any more. Knows nothing of what is in files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::event::Event;

/// Symbolic links that are followed on the way to one file, as the kernel has it (`path_resolution(7)`). Behind more of them
/// nothing is watched.
const LINKS: usize = 40;

/// Bytes of events that are read at once.
const EVENTS_BYTES: usize = 16 * 1024;

/// Entries of folders that are watched.
#[derive(Debug)]
pub struct Watcher {
    fd: OwnedFd,
    folders: BTreeMap<i32, PathBuf>,
    entries: BTreeSet<(PathBuf, OsString)>,
    /// Those that were written to and not closed since.
    written: BTreeSet<(PathBuf, OsString)>,
    writes: u64,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Something happened in a folder: see [`Watcher::has_changed`].
    Files,
    /// The bell was rung.
    Bell,
    /// The time is over.
    Time,
}

impl Watcher {
    /// One that watches nothing yet.
    ///
    /// # Errors
    /// As `inotify_init1(2)`: `EMFILE` when the user has too many (`fs.inotify.max_user_instances`).
    pub fn new() -> io::Result<Watcher> {
        Ok(Watcher {
            fd: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            folders: BTreeMap::new(),
            entries: BTreeSet::new(),
            written: BTreeSet::new(),
            writes: 0,
        })
    }

    /// Watches these files and nothing else: each entry on the way that is a symbolic link, and the file's own. Returns the
    /// folders that cannot be watched.
    pub fn watch<'p>(&mut self, files: impl Iterator<Item = &'p Path>) -> Vec<(PathBuf, io::Error)> {
        let mut entries = BTreeSet::new();
        for file in files {
            on_the_way(file, &mut entries);
        }
        let mut failures = Vec::new();
        let mut folders = BTreeMap::new();
        let wanted: BTreeSet<&PathBuf> = entries.iter().map(|(folder, _)| folder).collect();
        let events = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        for folder in wanted {
            match inotify::add_watch(&self.fd, folder.as_path(), events) {
                Ok(number) => drop(folders.insert(number, folder.clone())),
                Err(error) => failures.push((folder.clone(), error.into())),
            }
        }
        for number in self.folders.keys().filter(|number| !folders.contains_key(number)) {
            // It is gone already if its folder is.
            let _ = inotify::remove_watch(&self.fd, *number);
        }
        self.folders = folders;
        self.entries = entries;
        self.written.retain(|entry| self.entries.contains(entry));
        failures
    }

    /// Waits until something happens in a folder, the bell rings, or the time is over; `None` waits for ever. Drains the bell.
    ///
    /// # Errors
    /// As `poll(2)`: `ENOMEM`.
    pub fn wait(&self, bell: &Event, timeout: Option<Duration>) -> io::Result<Woken> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        loop {
            let mut waited = [
                PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN),
                PollFd::new(&self.fd, PollFlags::IN),
            ];
            match poll(&mut waited, timeout.as_ref()) {
                Ok(0) => return Ok(Woken::Time),
                Ok(_) if !waited[0].revents().is_empty() => {
                    bell.drain();
                    return Ok(Woken::Bell);
                }
                Ok(_) => return Ok(Woken::Files),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A watched file that a program has written to and has not closed yet.
    #[must_use]
    pub fn being_written(&self) -> Option<PathBuf> {
        let (folder, name) = self.written.first()?;
        Some(folder.join(name))
    }

    /// How often watched files were written to so far, as far as that was taken by [`Watcher::has_changed`].
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Files that were written to count as closed, up to the next write: their writers keep them open.
    pub fn forget_writers(&mut self) {
        self.written.clear();
    }

    /// Takes all that happened: whether any of it was about a watched file. Its contents may be the same afterwards. That a file is
    /// being written to counts when it is closed: see [`Watcher::being_written`].
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn has_changed(&mut self) -> io::Result<bool> {
        let mut memory = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = inotify::Reader::new(&self.fd, &mut memory);
        let mut changed = false;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(changed),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let flags = event.events();
            changed |= match (self.folders.get(&event.wd()), event.file_name()) {
                // Too much at once: it may have been anything.
                _ if flags.contains(ReadFlags::QUEUE_OVERFLOW) => {
                    self.written.clear();
                    true
                }
                // Of a folder that is watched no longer.
                (None, _) => false,
                // The folder itself is another one now.
                (Some(_), None) => true,
                (Some(folder), Some(name)) => {
                    let entry = (folder.clone(), OsStr::from_bytes(name.to_bytes()).to_owned());
                    if !self.entries.contains(&entry) {
                        false
                    } else if flags.contains(ReadFlags::MODIFY) {
                        self.written.insert(entry);
                        self.writes += 1;
                        false
                    } else {
                        // A change of attributes says nothing of the writer.
                        if !flags.contains(ReadFlags::ATTRIB) {
                            self.written.remove(&entry);
                        }
                        true
                    }
                }
            };
        }
    }
}

/// The entries that lead to a file: links on the way, and where it ends, or would.
fn on_the_way(file: &Path, entries: &mut BTreeSet<(PathBuf, OsString)>) {
    let Ok(file) = std::path::absolute(file) else {
        return;
    };
    let mut left: Vec<OsString> = reversed(&file);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let here = at.join(&name);
        match std::fs::read_link(&here) {
            Ok(target) => {
                entries.insert((at.clone(), name));
                links += 1;
                if links > LINKS {
                    return;
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                left.extend(reversed(&target));
            }
            Err(_) if left.is_empty() || !here.exists() => {
                entries.insert((at, name));
                return;
            }
            Err(_) => at = here,
        }
    }
}

/// What a path is made of, the last part first.
fn reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.collect()
}
