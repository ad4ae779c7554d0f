//! The process that was started: its shell, its last words, how it ended.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ringmain_sys::process::spawn_group;

use super::ServerError;
use crate::limits::{SERVER_LAST_WORDS, SERVER_OUTPUT_BYTES, SERVER_OUTPUT_LINES};

/// A process that was started here.
#[derive(Debug)]
pub(super) struct Child {
    process: std::process::Child,
    /// How it ended, once it has.
    status: Option<ExitStatus>,
    output: Arc<Output>,
}

/// What a process said last.
#[derive(Debug, Default)]
struct Output {
    bytes: Mutex<VecDeque<u8>>,
    /// Signalled at its end.
    over: Mutex<bool>,
    ended: Condvar,
}

impl Child {
    /// Starts a command of the shell in a process group of its own.
    pub(super) fn start(command: &str, cpus: &[usize]) -> Result<Child, ServerError> {
        let failed = |error| ServerError::Start {
            command: command.to_owned(),
            error,
        };
        let (reader, writer) = io::pipe().map_err(failed)?;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).stdin(Stdio::null());
        shell.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let process = spawn_group(&mut shell, cpus).map_err(failed)?;
        // The command holds the pipe's other end, which would never see its end.
        drop(shell);
        let output = Arc::new(Output::default());
        let mut child = Child {
            process,
            status: None,
            output: output.clone(),
        };
        if let Err(error) = read_on(reader, output) {
            child.kill();
            return Err(failed(error));
        }
        Ok(child)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        if self.status.is_none() {
            // It is this process's child, so that looking cannot fail.
            self.status = self.process.try_wait().ok().flatten();
        }
        self.status.map(described)
    }

    /// What it said last, as the end of a sentence; empty if nothing.
    pub(super) fn last_words(&self) -> String {
        // The end of the process is seen before that of its output.
        let over = self.output.over.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = if self.status.is_some() {
            SERVER_LAST_WORDS
        } else {
            Duration::ZERO
        };
        let waited = self
            .output
            .ended
            .wait_timeout_while(over, patience, |over| !*over);
        drop(waited);
        let bytes = self.output.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(|line| line.trim().escape_debug().to_string());
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return "; it printed nothing".into();
        }
        let last = &lines[lines.len().saturating_sub(SERVER_OUTPUT_LINES)..];
        format!("; its last output: {}", last.join(" | "))
    }

    fn kill(&mut self) {
        // It is this process's child: one that has ended is left alone.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Takes notice of its end, which is near.
    pub(super) fn finish(mut self) {
        self.kill();
    }
}

fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Reads the output for as long as somebody holds it open, so that no server waits for a reader.
#[expect(
    clippy::disallowed_methods,
    reason = "a real process's output: no simulation starts one"
)]
fn read_on(mut reader: io::PipeReader, output: Arc<Output>) -> io::Result<()> {
    let read = move || {
        let mut piece = [0; SERVER_OUTPUT_BYTES];
        while let Ok(count @ 1..) = reader.read(&mut piece) {
            let mut bytes = output.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.extend(&piece[..count]);
            let surplus = bytes.len().saturating_sub(SERVER_OUTPUT_BYTES);
            bytes.drain(..surplus);
        }
        *output.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        output.ended.notify_all();
    };
    std::thread::Builder::new()
        .name("server output".into())
        .spawn(read)?;
    Ok(())
}

/// Waits.
#[expect(
    clippy::disallowed_methods,
    reason = "for a real process's end, which no simulation has"
)]
pub(super) fn wait(time: Duration) {
    std::thread::sleep(time);
}
