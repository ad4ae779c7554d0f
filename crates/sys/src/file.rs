//! Files beneath a directory that paths cannot escape, and reads that say when they would wait for the disk.
//!
//! Read-only. Knows nothing of who may see what beneath the root.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};

/// Flags of `open(2)` for a file in a directory that another user may have prepared: a symbolic link as the last part of the path is
/// refused with `ELOOP`, and a FIFO is not waited for.
pub const OPEN_SAFELY: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// How often an open is repeated that a concurrent rename has disturbed.
const RENAME_RETRIES: usize = 16;

/// A directory beneath which files are opened.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens the directory. It stays the same one if its path is renamed later.
    ///
    /// # Errors
    /// As `open(2)`: `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn open(directory: &Path) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root {
            directory: retry_on_intr(|| open(directory, flags, Mode::empty()))?,
        })
    }

    /// Opens what is at `path` beneath the root for reading. Symbolic links are followed as long as they stay
    /// beneath it. A FIFO is opened without waiting for its writer: look at [`stat`] before reading.
    ///
    /// With `cached_only` nothing is read from the disk.
    ///
    /// # Errors
    /// As `openat2(2)`: `EXDEV` if the path leads outside (absolute, `..`, a link), `ELOOP` for a magic link of
    /// `/proc`; with `cached_only`, `EAGAIN` if it would wait.
    pub fn open_beneath(&self, path: &Path, cached_only: bool) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        resolve.set(ResolveFlags::CACHED, cached_only);
        let mut retries = if cached_only { 0 } else { RENAME_RETRIES };
        loop {
            match openat2(&self.directory, path, flags, Mode::empty(), resolve) {
                Err(Errno::INTR) => {}
                // The kernel could not be sure that a `..` stayed beneath, because something was renamed.
                Err(Errno::AGAIN) if retries > 0 => retries -= 1,
                result => return Ok(result?),
            }
        }
    }
}

/// Opens a regular file for reading, and nothing else: a FIFO without a writer would block for good, a device might.
///
/// # Errors
/// As `open(2)`; [`io::ErrorKind::InvalidInput`] for what is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = retry_on_intr(|| open(path, flags, Mode::empty()))?;
    let kind = match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => return Ok(file.into()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe (FIFO)",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    let message = format!("it is {kind}, not a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Reads at `offset`; 0 bytes mean the end of the file.
///
/// # Errors
/// As `pread(2)`: `EISDIR` for a directory, `ESPIPE` for a FIFO.
pub fn read_at(fd: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let fd = fd.as_fd();
    Ok(retry_on_intr(|| pread(fd, &mut *buffer, offset))?)
}

/// Reads at `offset` what is in the page cache, perhaps less than asked for.
///
/// # Errors
/// As `preadv2(2)` with `RWF_NOWAIT`: `EAGAIN` if the first byte is not in the page cache, also where the file system
/// cannot tell.
pub fn read_at_cached(fd: impl AsFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let fd = fd.as_fd();
    let read = retry_on_intr(|| preadv2(fd, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT));
    match read {
        Err(Errno::OPNOTSUPP) => Err(Errno::AGAIN.into()),
        result => Ok(result?),
    }
}

/// What an open file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of the content since the Unix epoch; zero if before it.
    pub modified: Duration,
    /// The file's number on its file system.
    pub inode: u64,
    /// What kind of file.
    pub kind: Kind,
}

/// The kinds of files that matter to somebody who serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A FIFO, socket or device: not to be read.
    Other,
}

/// Looks at an open file.
///
/// # Errors
/// As `fstat(2)`.
pub fn stat(fd: impl AsFd) -> io::Result<Stat> {
    let raw = fstat(fd)?;
    let nanoseconds = u32::try_from(raw.st_mtime_nsec).unwrap_or(0);
    Ok(Stat {
        len: u64::try_from(raw.st_size).unwrap_or(0),
        modified: u64::try_from(raw.st_mtime)
            .map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanoseconds)),
        inode: raw.st_ino,
        kind: match FileType::from_raw_mode(raw.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        },
    })
}
