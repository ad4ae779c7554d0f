//! The kernel's clocks and its random numbers: what a simulation replaces, and the CPU time that is reported.

use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Time since some fixed moment (the host's start); never goes back, stands still in suspend.
#[must_use]
pub fn monotonic() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Wall-clock time since the Unix epoch; may jump either way. Zero if the clock is set before 1970.
#[must_use]
pub fn realtime() -> Duration {
    duration(clock_gettime(ClockId::Realtime))
}

/// CPU time that this process has used since it began, in user space and in the kernel, all threads together.
#[must_use]
pub fn process_cpu() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// How late the calling thread's timers may fire so that several fire together; 50 µs unless set. Zero brings that back.
///
/// # Errors
/// As `prctl(2)`: a seccomp filter may forbid it.
pub fn set_timer_slack(span: Duration) -> std::io::Result<()> {
    let nanoseconds = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Ok(rustix::thread::set_current_timer_slack(
        std::num::NonZeroU64::new(nanoseconds),
    )?)
}

pub(crate) fn duration(time: Timespec) -> Duration {
    match u64::try_from(time.tv_sec) {
        Ok(seconds) => Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)),
        Err(_) => Duration::ZERO,
    }
}

/// A random number from the kernel's cryptographic generator. Early in the host's start it waits
/// until that has been seeded.
#[must_use]
pub fn random() -> u64 {
    let mut bytes = [0u8; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Random numbers from the kernel's cryptographic generator, fetched [`Random::STOCK`] at a time: a system call for each
/// costs more than most of what they are for.
#[derive(Debug)]
pub struct Random {
    stock: [u8; Random::STOCK * 8],
    /// Bytes of the stock that were given out.
    used: usize,
}

impl Random {
    /// Numbers that one system call fetches: up to 256 bytes come whole, whatever signals do (getrandom(2)).
    pub const STOCK: usize = 32;

    /// An empty stock.
    #[must_use]
    pub fn new() -> Random {
        Random {
            stock: [0; Random::STOCK * 8],
            used: Random::STOCK * 8,
        }
    }

    /// The next number. Early in the host's start it waits until the kernel's generator has been seeded.
    pub fn draw(&mut self) -> u64 {
        if self.used == self.stock.len() {
            fill(&mut self.stock);
            self.used = 0;
        }
        let mut bytes = [0; 8];
        let taken = &mut self.stock[self.used..self.used + 8];
        bytes.copy_from_slice(taken);
        // What was given out may be a secret of somebody's.
        taken.fill(0);
        self.used += 8;
        u64::from_ne_bytes(bytes)
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}

/// Fills at most 256 bytes.
fn fill(bytes: &mut [u8]) {
    let count = retry_on_intr(|| {
        // SAFETY: the kernel writes at most `bytes.len()` bytes to it.
        let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        usize::try_from(count).map_err(|_| {
            let error = std::io::Error::last_os_error();
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    });
    // Up to 256 bytes come whole; the call exists since Linux 3.17.
    assert_eq!(
        count,
        Ok(bytes.len()),
        "getrandom(2) is refused: does a seccomp filter forbid it?"
    );
}
