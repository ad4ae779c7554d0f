//! Channels of push that outlive the process: sent to its successor, or stored in a file until the next start.
//!
//! ```text
//! SIGUSR2          freeze ─▶ pipe to the successor
//! SIGTERM, drain   freeze ─▶ FOLDER/push.state, written beside and renamed          start: read, removed, restored
//! ```
//!
//! The file is removed before it is used: after a crash there is none, and channels start new epochs instead of continuing from
//! outdated positions.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ringmain_gateway::model;
use ringmain_push::{HandOverState, Push, StateRecord, Successor, limits};
use ringmain_sys::clock;
use ringmain_sys::inherit::{self, StatePipe};

use crate::limits::{STATE_FREEZE_TIMEOUT, STATE_RECEIVE_TIMEOUT, STATE_SEND_TIMEOUT};
use crate::reload::ConfigWatcher;

const FILE: &str = "push.state";

/// Restores the channels that the previous process has left. Called before the workers start.
///
/// # Errors
/// The folder cannot be used.
pub(super) fn restore_at_start(push: &Push, settings: Option<&model::Push>) -> Result<(), String> {
    let folder = settings.and_then(|settings| settings.state_dir.as_deref());
    if let Some(folder) = folder {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        created.map_err(|error| format!("push.state_dir {}: {error}", folder.display()))?;
    }
    let file = folder.map(|folder| folder.join(FILE));
    if let Some(pipe) = inherit::state().filter(|_| push.has_settings()) {
        // A file is older than that.
        if let Some(file) = file {
            let _ = fs::remove_file(file);
        }
        receive_in_background(push.clone(), pipe);
        return Ok(());
    }
    let Some(file) = file else { return Ok(()) };
    match take_file(&file) {
        Ok(Some(bytes)) => {
            push.await_state();
            restore(push, &bytes, &file.display().to_string());
        }
        Ok(None) => {}
        Err(error) => log::error!("{}: {error}; channels start new epochs", file.display()),
    }
    Ok(())
}

/// Saves the channels: sends them to the successor, or writes them to the directory of the served configuration.
pub(super) fn save(push: &Push, control: &ConfigWatcher, successor: Option<StatePipe>) {
    let config = Arc::clone(&control.status().config);
    let folder = config.push.as_ref().and_then(|push| push.state_dir.clone());
    if !push.has_settings() || (successor.is_none() && folder.is_none()) {
        return;
    }
    let kind = match successor {
        Some(_) => Successor::Serving,
        None => Successor::NextStart,
    };
    let state = push.freeze(kind, STATE_FREEZE_TIMEOUT, clock::realtime());
    let result = match (successor, folder) {
        (Some(pipe), _) => pipe.send(state.chunks(), STATE_SEND_TIMEOUT),
        (None, Some(folder)) => write_file(&state, &folder),
        (None, None) => Ok(()),
    };
    match result {
        Ok(()) => log::info!("push channels saved for the next process"),
        Err(error) => log::error!("cannot save push channels, the next process starts new epochs: {error}"),
    }
}

/// Receives on a separate thread: the previous process sends once this one serves.
fn receive_in_background(push: Push, pipe: StatePipe) {
    push.await_state();
    let receiver = push.clone();
    let receive = move || match pipe.receive(limits::STATE_BYTES, STATE_RECEIVE_TIMEOUT) {
        Ok(bytes) if bytes.is_empty() => {
            log::warn!("no push channels from the previous process: they start new epochs");
            receiver.restore(Vec::new(), std::time::Duration::ZERO);
        }
        Ok(bytes) => restore(&receiver, &bytes, "the previous process"),
        Err(error) => {
            log::error!(
                "cannot receive push channels from the previous process, they start new epochs: {error}"
            );
            receiver.restore(Vec::new(), std::time::Duration::ZERO);
        }
    };
    let builder = std::thread::Builder::new().name("ringmain-state".into());
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for another process once, which no worker may"
    )]
    let spawned = builder.spawn(receive);
    if let Err(error) = spawned {
        log::error!("cannot start a thread to receive push channels, they start new epochs: {error}");
        push.restore(Vec::new(), std::time::Duration::ZERO);
    }
}

fn restore(push: &Push, bytes: &[u8], source: &str) {
    let (records, elapsed): (Vec<StateRecord>, _) = match HandOverState::read(bytes) {
        Ok((records, result)) => (records, clock::realtime().saturating_sub(result)),
        Err(error) => {
            log::error!("{source}: {error}; channels start new epochs");
            (Vec::new(), std::time::Duration::ZERO)
        }
    };
    log::info!("{source}: {} channel records restored", records.len());
    push.restore(records, elapsed);
}

/// Reads the file and removes it. `None`: there is none.
fn take_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    // The file must not be used a second time, whatever its contents.
    fs::remove_file(path)?;
    let process_uid = fs::metadata("/proc/self")?.uid();
    if !metadata.is_file() || metadata.uid() != process_uid || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other(
            "expected a file of this process's own user that no other user can write, found another one",
        ));
    }
    let limit = limits::STATE_BYTES as u64;
    if metadata.len() > limit {
        return Err(io::Error::other(format!(
            "expected at most {limit} bytes, found {}",
            metadata.len()
        )));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn write_file(state: &HandOverState, folder: &Path) -> io::Result<()> {
    let (path, new) = (folder.join(FILE), folder.join(format!("{FILE}.new")));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    for piece in state.chunks() {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
