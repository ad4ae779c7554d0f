//! Channels of push that outlive the process: taken over by the process after it, or kept in a file until the next start.
//!
//! ```text
//! SIGUSR2          freeze ─▶ pipe to the successor
//! SIGTERM, drain   freeze ─▶ FOLDER/push.state, written beside and renamed          start: read, removed, restored
//! ```
//!
//! A file is removed before it is used: after a crash there is none, and channels start new epochs instead of continuing from positions
//! that were left behind.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ringmain_gateway::model;
use ringmain_push::{HandOverState, Push, StateRecord, Successor, limits};
use ringmain_sys::clock;
use ringmain_sys::inherit::{self, StatePipe};

use crate::follow::Control;
use crate::limits::{STATE_FREEZE_WITHIN, STATE_RECEIVE_WITHIN, STATE_SEND_WITHIN};

const FILE: &str = "push.state";

/// Has push continue with what the process before this one has left. Before the workers start.
///
/// # Errors
/// The folder cannot be used.
pub(super) fn begin(push: &Push, settings: Option<&model::Push>) -> Result<(), String> {
    let folder = settings.and_then(|settings| settings.state_dir.as_deref());
    if let Some(folder) = folder {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| format!("push.state_dir {}: {error}", folder.display()))?;
    }
    let file = folder.map(|folder| folder.join(FILE));
    if let Some(pipe) = inherit::state().filter(|_| push.has_settings()) {
        // A file is older than that.
        if let Some(file) = file {
            let _ = fs::remove_file(file);
        }
        receive_later(push.clone(), pipe);
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

/// Writes what the process after this one continues with: to it, or into the folder of the configuration that holds.
pub(super) fn save(push: &Push, control: &Control, successor: Option<StatePipe>) {
    let config = Arc::clone(&control.state().config);
    let folder = config.push.as_ref().and_then(|push| push.state_dir.clone());
    if !push.has_settings() || (successor.is_none() && folder.is_none()) {
        return;
    }
    let kind = match successor {
        Some(_) => Successor::Serving,
        None => Successor::NextStart,
    };
    let state = push.freeze(kind, STATE_FREEZE_WITHIN, clock::realtime());
    let written = match (successor, folder) {
        (Some(pipe), _) => pipe.send(state.chunks(), STATE_SEND_WITHIN),
        (None, Some(folder)) => write_file(&state, &folder),
        (None, None) => Ok(()),
    };
    match written {
        Ok(()) => log::info!("the channels of push are left to the next process"),
        Err(error) => log::error!(
            "the channels of push cannot be left to the next process, which starts new epochs: {error}"
        ),
    }
}

/// Receives on a thread of its own: the process before this one sends when this one serves.
fn receive_later(push: Push, pipe: StatePipe) {
    push.await_state();
    let receiver = push.clone();
    let receive = move || match pipe.receive(limits::STATE_BYTES, STATE_RECEIVE_WITHIN) {
        Ok(bytes) if bytes.is_empty() => {
            log::warn!("the process before this one has left no channels: they start new epochs");
            receiver.restore(Vec::new(), std::time::Duration::ZERO);
        }
        Ok(bytes) => restore(&receiver, &bytes, "the process before this one"),
        Err(error) => {
            log::error!("no channels of the process before this one, they start new epochs: {error}");
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
        log::error!("no thread to receive channels, they start new epochs: {error}");
        push.restore(Vec::new(), std::time::Duration::ZERO);
    }
}

fn restore(push: &Push, bytes: &[u8], source: &str) {
    let (records, elapsed): (Vec<StateRecord>, _) = match HandOverState::read(bytes) {
        Ok((records, written)) => (records, clock::realtime().saturating_sub(written)),
        Err(error) => {
            log::error!("{source}: {error}; channels start new epochs");
            (Vec::new(), std::time::Duration::ZERO)
        }
    };
    log::info!("{source}: {} records of channels are taken over", records.len());
    push.restore(records, elapsed);
}

/// Reads the file and removes it. `None`: there is none.
fn take_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let known = file.metadata()?;
    // It must not be used a second time, whatever is wrong with it.
    fs::remove_file(path)?;
    let own = fs::metadata("/proc/self")?.uid();
    if !known.is_file() || known.uid() != own || known.mode() & 0o022 != 0 {
        return Err(io::Error::other(
            "expected a file of this process's own user that no other user can write, found another one",
        ));
    }
    let limit = limits::STATE_BYTES as u64;
    if known.len() > limit {
        return Err(io::Error::other(format!(
            "expected at most {limit} bytes, found {}",
            known.len()
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
