//! CPUs: which ones a process may use, how much of them, and pinning a thread to one.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::cgroup;

/// The CPUs that the calling thread may run on, in ascending order; never empty.
#[must_use]
pub fn allowed() -> Vec<usize> {
    let found = allowed_by_mask(None).or_else(|_| allowed_by_file("thread-self"));
    found.unwrap_or_else(|_| vec![current()])
}

/// The CPUs that the main thread of process `pid` may run on, in ascending order. Its other threads began with the
/// same unless they were pinned.
///
/// # Errors
/// `ESRCH` if there is no such process.
pub fn allowed_of(pid: u32) -> io::Result<Vec<usize>> {
    let no_process = || io::Error::from_raw_os_error(libc::ESRCH);
    let number = i32::try_from(pid).map_err(|_| no_process())?;
    // Zero would be the calling thread.
    let name = Pid::from_raw(number).ok_or_else(no_process)?;
    match allowed_by_mask(Some(name)) {
        Err(Errno::INVAL) => allowed_by_file(&pid.to_string()),
        found => Ok(found?),
    }
}

fn allowed_by_mask(pid: Option<Pid>) -> Result<Vec<usize>, Errno> {
    let set = sched_getaffinity(pid)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// A kernel built for more than 1024 CPUs refuses the fixed-size mask; this file has no such limit.
fn allowed_by_file(process: &str) -> io::Result<Vec<usize>> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let listed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpus = listed.and_then(parse_list).filter(|cpus| !cpus.is_empty());
    cpus.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no list of allowed CPUs in /proc"))
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// `InvalidInput` beyond CPU 1023; `EINVAL` if the CPU is offline or outside of the process's cpuset.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        let text = format!(
            "CPU {cpu} is beyond the {} that can be pinned to",
            CpuSet::MAX_CPU
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The CPU that the calling thread runs on at this moment.
#[must_use]
pub fn current() -> usize {
    sched_getcpu()
}

/// How many CPUs' worth of time the control groups of this process allow: the smallest quota on the way
/// up (`cpu.max` of version 2, `cpu.cfs_quota_us` of version 1). `None` without a quota.
#[must_use]
pub fn quota() -> Option<f64> {
    cgroup::cpu_quota_under(Path::new("/"))
}

/// The most CPUs that a list may name; the kernel knows 8192.
const LIST_CPUS: usize = 65_536;

/// Reads the kernel's list form, such as `0-3,8`; `None` for anything else, or beyond 65,536 CPUs.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            None => cpus.push(part.parse().ok()?),
            Some((first, last)) => {
                let last: usize = last.parse().ok().filter(|last| *last < LIST_CPUS)?;
                cpus.extend(first.parse::<usize>().ok()?..=last);
            }
        }
        if cpus.len() > LIST_CPUS {
            return None;
        }
    }
    Some(cpus)
}
