//! Files beneath a directory, for asynchronous code on a worker.
//!
//! What the kernel has in its caches is opened and read at once on the worker; what would wait for the
//! disk goes to the blocking pool. Knows nothing of who may see what, of ranges or of types of content.
//!
//! In a simulation the files and the caches are the machine's own: which reads miss, and so what the
//! simulated pool is asked for, follows from the seed only if the files are in the page cache.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_sys::file::{self as sys, Root as Directory};
pub use ringmain_sys::file::{Kind, Stat};

use crate::limits;
use crate::worker::cx::Cx;
use crate::worker::shared::Counters;

/// A directory that paths cannot escape. Cheap to clone; may be shared by all workers.
#[derive(Clone, Debug)]
pub struct Root(Arc<Directory>);

impl Root {
    /// Opens the directory, waiting for the disk: for the set-up of a process. It stays the same one if its
    /// path is renamed later. On a worker use [`Cx::open_root`].
    ///
    /// # Errors
    /// As `open(2)`: `NotFound`, `NotADirectory`, `PermissionDenied`.
    pub fn open(directory: &Path) -> io::Result<Root> {
        Directory::open(directory).map(|directory| Root(Arc::new(directory)))
    }
}

/// An open file, read-only. It belongs to its worker; dropping it closes it once no read is under way.
pub struct File {
    cx: Cx,
    fd: Arc<OwnedFd>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.fd).finish()
    }
}

impl Cx {
    /// Opens a directory on the blocking pool; see [`Root`].
    ///
    /// # Errors
    /// As [`Root::open`] and [`Cx::blocking`].
    pub async fn open_root(&self, directory: impl Into<PathBuf>) -> io::Result<Root> {
        let directory = directory.into();
        self.blocking(move || Root::open(&directory)).await?
    }

    /// Opens what is at `path` beneath the root, be it a file or a directory (see [`File::stat`]).
    /// Symbolic links are followed as long as they stay beneath the root.
    ///
    /// # Errors
    /// `CrossesDevices` (`EXDEV`) if the path leads outside: absolute, by `..` or by a link. Else as `openat2(2)`,
    /// and as [`Cx::blocking`] when the disk has to be asked.
    pub async fn open_beneath(&self, root: &Root, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let fd = match root.0.open_beneath(path, true) {
            Err(error) if may_be_found_by_waiting(&error) => {
                let (root, path) = (root.clone(), path.to_path_buf());
                self.blocking(move || root.0.open_beneath(&path, false)).await??
            }
            outcome => outcome?,
        };
        Ok(File {
            cx: self.clone(),
            fd: Arc::new(fd),
        })
    }
}

/// Not in the caches, or a kernel that does not know `RESOLVE_CACHED` (before 5.12).
fn may_be_found_by_waiting(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINVAL | libc::ENOSYS)
    )
}

impl File {
    /// Reads at `offset` into the front of `buffer`, which comes back in every case but a cancelled one.
    ///
    /// At most `buffer.len()` and [`limits::FILE_READ_BYTES`] bytes are read; fewer do not mean the end of
    /// the file: what is in the page cache is returned as it is. The end is `Ok(0)`.
    ///
    /// Dropping the future is safe at any time: the pool keeps buffer and file until its read is over.
    ///
    /// # Errors
    /// As `pread(2)`: `IsADirectory` for a directory, `NotSeekable` for a FIFO; as [`Cx::blocking`]
    /// when the disk has to be asked.
    pub async fn read_at(&self, mut buffer: Vec<u8>, offset: u64) -> (io::Result<usize>, Vec<u8>) {
        let len = buffer.len().min(limits::FILE_READ_BYTES);
        match sys::read_at_cached(&*self.fd, &mut buffer[..len], offset) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => {
                if outcome.is_ok() {
                    Counters::add(&self.cx.core().counters().file_hits, 1);
                }
                return (outcome, buffer);
            }
        }
        Counters::add(&self.cx.core().counters().file_misses, 1);
        // Shared, so that a pool that refuses the job or panics does not take the buffer along.
        let shared = Arc::new(Mutex::new(buffer));
        let (fd, lent) = (Arc::clone(&self.fd), Arc::clone(&shared));
        let read = move || {
            let mut buffer = lent.lock().unwrap_or_else(PoisonError::into_inner);
            sys::read_at(&*fd, &mut buffer[..len], offset)
        };
        let outcome = self.cx.blocking(read).await.and_then(|outcome| outcome);
        let buffer = std::mem::take(&mut *shared.lock().unwrap_or_else(PoisonError::into_inner));
        (outcome, buffer)
    }

    /// What the file is: length, time of change, kind. Asked of the open descriptor, on the worker.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn stat(&self) -> io::Result<Stat> {
        sys::stat(&*self.fd)
    }
}
