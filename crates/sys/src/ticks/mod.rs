//! The CPU's tick counter, for telling within a loop turn how much time has passed.
//!
//! Owns the reading and the rate. Reading it costs some ten nanoseconds less than the kernel's clock, and no
//! branch; where the counter does not run at a constant rate there is none.

/// Nanoseconds that must lie between two readings of the kernel's clock before the rate follows from them.
const CALIBRATION_NANOSECONDS: u64 = 20_000_000;

/// The span of two readings that gives the final rate, in nanoseconds. Until then the rate is computed again whenever the span has doubled: a
/// thread that is stopped between the two clocks of a reading shifts it by milliseconds, which a long span outweighs.
const CALIBRATED_NANOSECONDS: u64 = 60_000_000_000;

/// A clock that follows the kernel's between two readings of it, by the CPU's tick counter.
#[derive(Debug)]
pub struct TickClock {
    available: bool,
    /// Nanoseconds a tick, with 32 binary digits behind the point; zero until it is known.
    rate: u64,
    /// The time of the kernel's clock from which on the rate is computed again.
    due: u64,
    /// The first reading of both clocks: (ticks, nanoseconds).
    first: Option<(u64, u64)>,
    /// The last reading of both clocks.
    last: (u64, u64),
}

impl TickClock {
    /// Creates a clock; it has no rate until [`TickClock::anchor`] was called twice, with some time in between.
    #[must_use]
    pub fn new() -> TickClock {
        TickClock {
            available: has_constant_rate(),
            rate: 0,
            due: 0,
            first: None,
            last: (0, 0),
        }
    }

    /// Notes what the kernel's clock has just shown.
    #[inline]
    pub fn anchor(&mut self, nanoseconds: u64) {
        if self.available {
            self.read_both(ticks(), nanoseconds);
        }
    }

    #[inline]
    fn read_both(&mut self, ticks: u64, nanoseconds: u64) {
        self.last = (ticks, nanoseconds);
        if nanoseconds >= self.due {
            self.calibrate();
        }
    }

    #[cold]
    fn calibrate(&mut self) {
        let Some(first) = self.first else {
            self.first = Some(self.last);
            self.due = self.last.1.saturating_add(CALIBRATION_NANOSECONDS);
            return;
        };
        let span = self.last.1.saturating_sub(first.1);
        let ticks = self.last.0.saturating_sub(first.0);
        // A counter below 8 MHz or above 1 THz is none that this is for.
        if ticks < span / 128 || ticks > span.saturating_mul(1024) {
            self.available = false;
            self.rate = 0;
            return;
        }
        let rate = (u128::from(span) << 32) / u128::from(ticks);
        self.rate = u64::try_from(rate).unwrap_or(0);
        self.due = if span < CALIBRATED_NANOSECONDS {
            first.1.saturating_add(2 * span)
        } else {
            u64::MAX
        };
    }

    /// Returns the time in nanoseconds on the kernel's clock, as far as ticks since the last anchor tell; `None` while the
    /// rate is not known.
    #[inline]
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        if self.rate == 0 {
            return None;
        }
        let passed = ticks().saturating_sub(self.last.0);
        let span = (u128::from(passed) * u128::from(self.rate)) >> 32;
        Some(self.last.1.saturating_add(span as u64))
    }
}

impl Default for TickClock {
    fn default() -> TickClock {
        TickClock::new()
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction; it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn has_constant_rate() -> bool {
    use core::arch::x86_64::__cpuid;
    const EXTENDED: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    __cpuid(EXTENDED).eax >= POWER && __cpuid(POWER).edx & INVARIANT_TSC != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_constant_rate() -> bool {
    false
}

#[cfg(test)]
mod tests;
