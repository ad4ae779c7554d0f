//! Programs under test: starting one, reading the lines that it writes, ending it. Every wait has an end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::PATIENCE;

/// Until its exec, a child of this process holds copies of all of its descriptors: [`starts_process`] and [`no_process_starts`]
/// exclude each other.
static STARTING: RwLock<()> = RwLock::new(());

/// Held by a test while it starts a process.
pub fn starts_process() -> RwLockWriteGuard<'static, ()> {
    STARTING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that relies on a closed listener or file being closed: a child has copies until its exec.
pub fn no_process_starts() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command beside no test that holds [`no_process_starts`].
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _starting = starts_process();
    command.spawn()
}

/// As [`spawn`], and returns the output once the program has ended.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command.stdin(Stdio::null()))?.wait_with_output()
}

/// A running program whose lines are read. Dropping it ends it.
#[derive(Debug)]
pub struct Program {
    child: Child,
    lines: Receiver<String>,
    /// All lines that were read so far.
    pub said: Vec<String>,
}

impl Program {
    /// Starts it, and reads its standard error. Standard output is discarded.
    pub fn spawn(command: &mut Command) -> Program {
        Program::spawn_with(command, Stdio::null())
    }

    /// As [`Program::spawn`], with another standard output.
    pub fn spawn_with(command: &mut Command, stdout: impl Into<Stdio>) -> Program {
        command.stdout(stdout).stderr(Stdio::piped());
        Program::try_spawn(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Starts it and waits until it listens at so many addresses; returns these too, in the order of its lines.
    #[track_caller]
    pub fn start(command: &mut Command, count: usize) -> (Program, Vec<String>) {
        Program::spawn(command).until_listening(count)
    }

    /// As [`Program::start`], with another standard output.
    #[track_caller]
    pub fn start_with(
        command: &mut Command,
        stdout: impl Into<Stdio>,
        count: usize,
    ) -> (Program, Vec<String>) {
        Program::spawn_with(command, stdout).until_listening(count)
    }

    #[track_caller]
    fn until_listening(mut self, count: usize) -> (Program, Vec<String>) {
        let addrs = (0..count).map(|_| self.listening()).collect();
        (self, addrs)
    }

    /// Starts it, and reads what of standard output and error is piped. An error where there is no such program.
    pub(crate) fn try_spawn(command: &mut Command) -> std::io::Result<Program> {
        let mut child = spawn(command.stdin(Stdio::null()))?;
        let (sender, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child
                .stdout
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
            child
                .stderr
                .take()
                .map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    // A test that has finished reads no more; the program must not wait for it.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Program {
            child,
            lines,
            said: Vec::new(),
        })
    }

    /// Waits for the next line with this text; returns it.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        self.wait_for_each(&[text]).remove(0)
    }

    /// Returns the first line with this text: one that was read before, or the next.
    #[track_caller]
    pub fn line_with(&mut self, text: &str) -> String {
        let read = self.said.iter().find(|line| line.contains(text)).cloned();
        read.unwrap_or_else(|| self.wait_for(text))
    }

    /// Waits until each of these texts was in a new line, in any order; returns the lines.
    #[track_caller]
    pub fn wait_for_each(&mut self, texts: &[&str]) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        let mut found = vec![None; texts.len()];
        while let Some(missing) = found.iter().position(Option::is_none) {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!(
                    "expected a line with `{}`, found {:#?}",
                    texts[missing], self.said
                );
            };
            let slot = texts
                .iter()
                .zip(&mut found)
                .find(|(text, slot)| slot.is_none() && line.contains(*text));
            if let Some((_, slot)) = slot {
                *slot = Some(line.clone());
            }
            self.said.push(line);
        }
        found.into_iter().flatten().collect()
    }

    /// Waits for the next `listening on ADDR`; returns the address.
    #[track_caller]
    pub fn listening(&mut self) -> String {
        let line = self.wait_for("listening on ");
        line.split_once("listening on ")
            .expect("it was waited for")
            .1
            .to_owned()
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a running process");
    }

    /// Waits for its end; returns how it ended and all lines.
    #[track_caller]
    pub fn finish(mut self) -> (ExitStatus, Vec<String>) {
        let end = Instant::now() + PATIENCE;
        // Its output ends with the process (and its successors, which a test ends first).
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.said),
            }
        }
        let status = wait_end(&mut self.child);
        (status, std::mem::take(&mut self.said))
    }

    /// SIGTERM, then [`Program::finish`]; asserts exit code 0.
    #[track_caller]
    pub fn terminate(self) -> Vec<String> {
        self.signal(Signal::TERM);
        let (status, said) = self.finish();
        assert_eq!(status.code(), Some(0), "{said:#?}");
        said
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After `finish` there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process that was started without [`Program`].
#[track_caller]
pub fn wait_end(child: &mut Child) -> ExitStatus {
    let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a child");
    let patience = Timespec::try_from(PATIENCE).expect("a short time");
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&patience)).expect("a descriptor");
    if ended == 0 {
        child.kill().expect("a child");
    }
    let status = child.wait().expect("a child");
    assert_eq!(ended, 1, "it does not end");
    status
}
