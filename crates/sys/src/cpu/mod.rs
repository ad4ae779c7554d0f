//! CPUs: which ones this process may use, how much of them, and pinning a thread to one.

mod quota;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The CPUs that the calling thread may run on, in ascending order; never empty.
#[must_use]
pub fn allowed() -> Vec<usize> {
    if let Ok(set) = sched_getaffinity(None) {
        return (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    }
    // A kernel built for more than 1024 CPUs refuses the fixed-size mask; this file has no such limit.
    let listed = fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| {
            parse_list(
                status
                    .lines()
                    .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?,
            )
        });
    listed
        .filter(|cpus| !cpus.is_empty())
        .unwrap_or_else(|| vec![current()])
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
    quota::under(Path::new("/"))
}

/// Reads the kernel's list form, such as `0-3,8`.
pub(crate) fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            None => cpus.push(part.parse().ok()?),
            Some((first, last)) => cpus.extend(first.parse::<usize>().ok()?..=last.parse().ok()?),
        }
    }
    Some(cpus)
}
