//! Processes: facts about this one and its threads, and what there is to see and do of others ([`stat`] and what stands
//! with it).

mod others;

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub use self::others::{Ending, Stat, all, end, memory, spawn, spawn_group, stat, tick};
use crate::clock::duration;

/// Memory of this process that is in RAM, bytes; `None` without `/proc`.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Address space of this process, bytes; `None` without `/proc`.
#[must_use]
pub fn virtual_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Open file descriptors of this process; `None` without `/proc`. Linear in their number.
#[must_use]
pub fn open_descriptors() -> Option<u64> {
    // The one that reads the directory is among them.
    let count = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(count.saturating_sub(1))
}

/// How many file descriptors this process may have open; `None`: any number.
#[must_use]
pub fn max_descriptors() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// When this process began, since the Unix epoch, to a hundredth of a second; `None` without `/proc`.
#[must_use]
pub fn start_time() -> Option<Duration> {
    // Field 22 is in clock ticks since the boot; the name before it (field 2) may hold spaces and parentheses.
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    let ticks: f64 = fields.split(' ').nth(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot: f64 = boot.trim().parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Duration::try_from_secs_f64(boot + ticks / per_second).ok()
}

/// The effective user: the one that permissions are checked against.
#[must_use]
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// CPU time that process `pid` has used since it began, in user space and in the kernel: all its threads, those that have
/// ended too, but not its children. To the nanosecond; a process that has ended still has its time until its parent
/// has waited for it. Any user may ask.
///
/// # Errors
/// `ESRCH` if there is no such process.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let no_process = || io::Error::from_raw_os_error(libc::ESRCH);
    // The kernel's name of a process's clock (clock_getcpuclockid(3)): the number inverted, and 2 for scheduler time.
    // Zero would be the calling process.
    let number = i32::try_from(pid).map_err(|_| no_process())?;
    if number == 0 || number > i32::MAX >> 3 {
        return Err(no_process());
    }
    let clock = (!number << 3) | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time to `time`, which outlives the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } == 0 {
        return Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    }
    let error = io::Error::last_os_error();
    // A clock whose process is gone is no clock.
    Err(match error.raw_os_error() {
        Some(libc::EINVAL) => no_process(),
        _ => error,
    })
}

/// How long the calling thread has been ready to run without a CPU since it began: others had it. `None` where the
/// kernel does not count it (`CONFIG_SCHED_INFO`).
#[must_use]
pub fn thread_waited() -> Option<Duration> {
    // Time on the CPU, time waiting for one (nanoseconds), turns.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

/// CPU time that the calling thread has used since it began, in user space and in the kernel.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}
/// Returns the name of the host, as `uname -n` prints it.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
