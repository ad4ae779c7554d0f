//! Listening on a Unix socket in the file system: stale files, permissions, removal.
//!
//! Between bind and listen a socket looks just like a stale one, so that two starters could each take the
//! other's away. A lock on `PATH.lock` covers everything from the first look to `listen`, and removal too.
//! Programs that do not know the lock are safe except in that one moment of theirs.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SocketType;

use super::{ListenError, ListenOptions, diag, start};
use crate::addr::Addr;
use crate::socket;

pub(super) fn listen(addr: &Addr, path: &Path, options: &ListenOptions) -> Result<OwnedFd, ListenError> {
    let fail = |error| ListenError::unix(addr, error);
    let kernel_addr = addr.to_sockaddr().map_err(fail)?;
    let _lock = PathLock::take(path).map_err(fail)?;
    let fd = socket::open(addr, SocketType::STREAM).map_err(fail)?;
    if options.unix_mode.is_some() || options.unix_owner.is_some() {
        // The file takes its bits from the socket, less the umask: closed to others until it has
        // its owner.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o600)).map_err(|e| fail(e.into()))?;
    }
    match rustix::net::bind(&fd, &kernel_addr) {
        Err(Errno::ADDRINUSE) => {
            clear_stale(addr, path)?;
            rustix::net::bind(&fd, &kernel_addr).map_err(|e| fail(e.into()))?;
        }
        result => result.map_err(|e| fail(e.into()))?,
    }
    let ready = set_access(addr, path, options).and_then(|()| start(&fd, options).map_err(fail));
    if let Err(error) = ready {
        // The file is ours, and nobody could connect yet; if removal fails too the next start replaces it.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(fd)
}

fn set_access(addr: &Addr, path: &Path, options: &ListenOptions) -> Result<(), ListenError> {
    if let Some((user, group)) = options.unix_owner {
        lchown(path, user, group).map_err(|error| {
            let name = |id: Option<u32>| id.map_or("-".to_owned(), |id| id.to_string());
            let what = format!(
                "cannot give the socket to user {} and group {} ({error}); that needs root (CAP_CHOWN), \
                 or a group that this user is in",
                name(user),
                name(group)
            );
            ListenError::new(addr, what, error)
        })?;
    }
    if let Some(mode) = options.unix_mode {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o777)).map_err(|error| {
            ListenError::new(addr, format!("cannot set its mode to {mode:o}: {error}"), error)
        })?;
    }
    Ok(())
}

/// Removes a socket file that nobody listens on. Anything else at `path` is left alone and an error.
fn clear_stale(addr: &Addr, path: &Path) -> Result<(), ListenError> {
    let in_use = |what: String| ListenError::new(addr, what, Errno::ADDRINUSE.into());
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.map_err(|error| ListenError::unix(addr, error))?,
    };
    if !metadata.file_type().is_socket() {
        return Err(in_use(
            "a file that is not a socket is there; move it away or take another path".to_owned(),
        ));
    }
    let outcome = socket::stream(addr, None).and_then(|probe| socket::connect(&probe, addr));
    match outcome.as_ref().err().and_then(Errno::from_io_error) {
        Some(Errno::CONNREFUSED) => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ListenError::new(
                addr,
                format!("a stale socket is there and cannot be removed: {error}"),
                error,
            )),
            _ => Ok(()),
        },
        Some(Errno::NOENT) => Ok(()),
        Some(Errno::ACCESS | Errno::PERM) => Err(in_use(format!(
            "a socket of user {} is there, and this user may not ask whether it is alive; remove it or \
             take another path",
            metadata.uid()
        ))),
        // Connected, a full backlog, or a socket of another type: somebody holds it.
        None | Some(Errno::AGAIN | Errno::PROTOTYPE) => Err(ListenError::unix(addr, Errno::ADDRINUSE.into())),
        Some(error) => Err(in_use(format!("a socket is there that does not answer: {error}"))),
    }
}

/// Removes the socket file that `listener` was bound to, unless another one is at `path` by now.
/// Returns whether it was removed.
///
/// For the end of a service: after a hand-over the file still belongs to the listener, which the
/// successor holds too, so the predecessor must not call this.
///
/// # Errors
/// As `unlink(2)`; `Unsupported` where the kernel cannot tell which file belongs to a socket
/// (no `unix_diag`). The file then stays, and the next start replaces it.
pub fn unlink_if_ours(path: &Path, listener: impl AsFd) -> io::Result<bool> {
    let _lock = PathLock::take(path)?;
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        result => result?,
    };
    let Some(ours) = diag::bound_file(listener)? else {
        return Ok(false);
    };
    if ours != diag::File::of(&there) {
        return Ok(false);
    }
    fs::remove_file(path)?;
    Ok(true)
}

/// The exclusive right to create or remove the socket at a path. Waits for other starters of ours,
/// who hold it for a few system calls.
struct PathLock {
    path: PathBuf,
    _file: File,
}

impl PathLock {
    fn take(socket: &Path) -> io::Result<PathLock> {
        let mut path = OsString::from(socket);
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&path)?;
            retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
            // The one who held it before has removed the file: then this lock excludes nobody.
            let ours = file.metadata()?;
            match fs::symlink_metadata(&path) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(PathLock { path, _file: file });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // Before the lock is released, so that nobody can hold it on a file without a name.
        let _ = fs::remove_file(&self.path);
    }
}
