//! Other processes, as `/proc` shows them: who started whom, CPU time, memory; and programs in a group of their own.
//!
//! Knows nothing of what the processes are for.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::inherit::unblock_signals;

#[cfg(test)]
mod tests;

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub pid: u32,
    /// The process that it belongs to: the one that started it, or, if that has ended, one further up.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// When it began, in ticks since the host's start. Numbers are used again; number and start together are not.
    pub start: u64,
    /// It has ended, and its parent has not taken notice.
    pub ended: bool,
    /// CPU time of its threads, user and system, in whole ticks (mostly 10 ms).
    pub own: Duration,
    /// CPU time of the children that have ended and that it has waited for, with that of theirs; in whole ticks.
    pub reaped: Duration,
}

/// How to end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `SIGTERM`: it may put its things in order.
    Ask,
    /// `SIGKILL`: the kernel ends it.
    Force,
}

/// Looks at a process; `None` if there is none of this number, or it may not be looked at.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    // The name is the process's own choice, so that the line need not be UTF-8.
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(&String::from_utf8_lossy(&line), ticks_per_second())
}

/// All processes that may be looked at, in ascending order. One that ends meanwhile may be missing.
///
/// # Errors
/// As `readdir(3)` of `/proc`: `ENOENT` where it is not mounted.
pub fn all() -> io::Result<Vec<Stat>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        all.extend(pid.and_then(stat));
    }
    all.sort_unstable_by_key(|stat| stat.pid);
    Ok(all)
}

/// Memory of a process that is in RAM, bytes: its proportional share of what it shares with others (PSS) where that may
/// be read, else all of it (RSS), which counts shared memory once for each process. Zero if it has ended.
#[must_use]
pub fn memory(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    if let Some(share) = rollup.ok().as_deref().and_then(proportional) {
        return share;
    }
    let pages = fs::read_to_string(format!("/proc/{pid}/statm"));
    let pages = pages
        .ok()
        .and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// One tick, the unit of [`Stat`]'s times.
#[must_use]
pub fn tick() -> Duration {
    Duration::from_secs(1) / u32::try_from(ticks_per_second()).unwrap_or(100).max(1)
}

/// Starts a program as the leader of a process group of its own, with no signal blocked, on these CPUs; an empty list
/// leaves them as they are.
///
/// # Errors
/// As `fork(2)` and `execve(2)`; `EINVAL` if none of the CPUs may be used; `InvalidInput` for a CPU beyond 1023.
pub fn spawn_group(command: &mut Command, cpus: &[usize]) -> io::Result<Child> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            let text = format!(
                "CPU {cpu} is beyond the {} that can be pinned to",
                CpuSet::MAX_CPU
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        set.set(cpu);
    }
    let pinned = !cpus.is_empty();
    let prepare = move || {
        unblock_signals()?;
        if pinned {
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    };
    command.process_group(0);
    // SAFETY: the closure only calls pthread_sigmask and sched_setaffinity and allocates nothing.
    unsafe { command.pre_exec(prepare) }.spawn()
}

/// Starts a program with no signal blocked, in this process's own group: it has the terminal as this one has it.
///
/// # Errors
/// As `fork(2)` and `execve(2)`.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // SAFETY: the closure only calls pthread_sigmask and allocates nothing.
    unsafe { command.pre_exec(unblock_signals) }.spawn()
}

/// Ends a process if it is still the one that was looked at; one that has ended is left alone.
///
/// # Errors
/// As `pidfd_send_signal(2)`: `EPERM` for a process of somebody else's.
pub fn end(process: &Stat, how: Ending) -> io::Result<()> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    // What the descriptor means stays the same, so that the check holds for the signal too.
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Ok(());
    };
    if stat(process.pid).is_none_or(|now| now.start != process.start) {
        return Ok(());
    }
    let signal = match how {
        Ending::Ask => Signal::TERM,
        Ending::Force => Signal::KILL,
    };
    match pidfd_send_signal(&handle, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        result => Ok(result?),
    }
}

fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// Reads a line of `/proc/PID/stat`. The name, in parentheses, may hold spaces and parentheses.
fn parse(line: &str, ticks_per_second: u64) -> Option<Stat> {
    let pid = line.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let time = |index: usize| {
        let ticks = number(index)? + number(index + 1)?;
        Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64))
    };
    Some(Stat {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        start: number(19)?,
        ended: matches!(*fields.first()?, "Z" | "X"),
        own: time(11)?,
        reaped: time(13)?,
    })
}

/// `Pss` of `/proc/PID/smaps_rollup`, in bytes.
fn proportional(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
