//! The directory of a journal and the files in it: who owns them, who may write them, and that none is a link to another place.
//!
//! A revert writes what the journal says, with the rights of whoever runs it (mostly root). So the journal is only believed where no other
//! user could have written it. Knows no record.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::JournalError;

/// Mode of the directory and of `history`: only the owner reads, writes and enters.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of files: only the owner reads and writes.
const FILE_MODE: u32 = 0o600;
/// Bits of a mode that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// Creates a directory, if it does not exist, and makes sure that no other user can write into it.
///
/// # Errors
/// [`JournalError::Untrusted`] where it belongs to another user or others can write into it, and a symbolic link of another user;
/// [`JournalError::File`] where it cannot be created.
pub(super) fn ensure_directory(path: &Path) -> Result<(), JournalError> {
    let failed = |what| {
        move |source| JournalError::File {
            what,
            path: path.to_owned(),
            source,
        }
    };
    let parents = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parents) = parents {
        fs::create_dir_all(parents).map_err(failed("create the directory"))?;
    }
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create the directory")(error)),
    }
    let link = fs::symlink_metadata(path).map_err(failed("inspect"))?;
    check_owner(path, &link)?;
    let found = fs::metadata(path).map_err(failed("inspect"))?;
    if !found.is_dir() {
        return Err(untrusted(path, "it is not a directory".to_owned()));
    }
    check_owner(path, &found)?;
    if found.mode() & OTHERS_WRITE != 0 {
        let mode = found.mode() & 0o7777;
        return Err(untrusted(
            path,
            format!("other users can write into it (mode {mode:04o})"),
        ));
    }
    // Earlier versions left it to the umask.
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)).map_err(failed("protect"))?;
    }
    Ok(())
}

/// Opens a file of the journal: never through a symbolic link, readable by its owner only, and only where this user owns it.
///
/// # Errors
/// [`JournalError::Untrusted`] where it is a link, no regular file, or another user's; [`JournalError::File`] as the kernel refuses it.
pub(super) fn open(path: &Path, options: &mut OpenOptions, what: &'static str) -> Result<File, JournalError> {
    const ELOOP: i32 = 40;
    let opened = options
        .mode(FILE_MODE)
        .custom_flags(ringmain_sys::file::OPEN_SAFELY)
        .open(path);
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(ELOOP) => untrusted(path, "it is a symbolic link".to_owned()),
        _ => JournalError::File {
            what,
            path: path.to_owned(),
            source,
        },
    })?;
    let failed = |source| JournalError::File {
        what: "inspect",
        path: path.to_owned(),
        source,
    };
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(untrusted(path, "it is not a regular file".to_owned()));
    }
    check_owner(path, &found)?;
    if found.mode() & OTHERS_WRITE != 0 {
        let mode = found.mode() & 0o7777;
        return Err(untrusted(
            path,
            format!("other users can write it (mode {mode:04o})"),
        ));
    }
    if found.nlink() > 1 {
        return Err(untrusted(path, "it has a second name (a hard link)".to_owned()));
    }
    if found.mode() & 0o077 != 0 {
        // A reader without the right to change it (`status` as another user) goes on with what it is.
        let _ = file.set_permissions(Permissions::from_mode(FILE_MODE));
    }
    Ok(file)
}

/// Creates a file that does not exist; a leftover of a run that was killed is removed before.
///
/// # Errors
/// As [`open`].
pub(super) fn create(path: &Path) -> Result<File, JournalError> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(JournalError::File {
                what: "remove",
                path: path.to_owned(),
                source,
            });
        }
    }
    open(path, File::options().write(true).create_new(true), "create")
}

/// Root believes root only; any other user believes itself and root.
fn check_owner(path: &Path, found: &Metadata) -> Result<(), JournalError> {
    let me = ringmain_sys::process::uid();
    if found.uid() == me || found.uid() == 0 {
        return Ok(());
    }
    Err(untrusted(
        path,
        format!("it belongs to user {}, and this is user {me}", found.uid()),
    ))
}

fn untrusted(path: &Path, why: String) -> JournalError {
    JournalError::Untrusted {
        path: path.to_owned(),
        why,
    }
}
