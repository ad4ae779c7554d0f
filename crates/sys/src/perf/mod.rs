//! Samples of what threads do, as the kernel takes them (`perf_event_open(2)`): counters, and the rings that their records come by.
//!
//! A counter belongs to one thread and one CPU and is inherited by the threads and processes that the thread starts; that the kernel
//! shares one ring between inherited counters on one CPU only is why it is one for each CPU. All counters of a CPU write to one ring.
//! Knows nothing of symbols, of unwinding, or of what is done with samples.

pub mod record;
mod ring;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use self::ring::Ring;

/// Bytes of a copied stack that a record has room for: its size is a number of 16 bits, and other things are in it.
pub const COPIED_STACK_BYTES: u32 = 60 << 10;

/// Return addresses of one sample that the kernel walks by frame pointers, kernel and user together
/// (`kernel.perf_event_max_stack` has this default).
pub const CALLCHAIN: u16 = 127;

/// What makes the moments at which is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The CPU's counter of cycles: exact also where interrupts are off. Most virtual machines have none.
    Cycles,
    /// A timer of the kernel: everywhere. Where interrupts are off, its sample is taken when they are on again.
    Timer,
}

/// How the user's part of a stack is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserStack {
    /// The kernel walks frame pointers.
    FramePointers,
    /// Registers, and so many bytes of the stack are copied; at most [`COPIED_STACK_BYTES`], a multiple of 8.
    Copied(u32),
}

/// What to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// By which clock.
    pub clock: Clock,
    /// Samples a second of CPU time. More than the sysctl `kernel.perf_event_max_sample_rate` is `EINVAL`.
    pub frequency: u32,
    /// Also while the kernel works for the thread.
    pub kernel: bool,
    /// How the user's part of a stack is had.
    pub user: UserStack,
    /// Begins when the thread, or a process that it started, executes a program; else by [`Counter::enable`].
    pub on_exec: bool,
    /// A waiting reader of the ring is woken when so many bytes are in it.
    pub wake_bytes: u32,
}

/// `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER5`, which every kernel since 4.8 knows; unions by what is used of them.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_interrupt: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// Types and what they count (`perf_type_id`, `perf_hw_id`, `perf_sw_ids`).
const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const HARDWARE_CYCLES: u64 = 0;
const SOFTWARE_CPU_CLOCK: u64 = 0;

/// Bits of `flags`.
const DISABLED: u64 = 1 << 0;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const FREQUENCY: u64 = 1 << 10;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;

/// `PERF_EVENT_IOC_…`, which are the same on every architecture that has a back-end here.
const IOCTL_ENABLE: libc::Ioctl = 0x2400;
const IOCTL_DISABLE: libc::Ioctl = 0x2401;
const IOCTL_SET_OUTPUT: libc::Ioctl = 0x2405;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

impl Sampling {
    fn attributes(&self) -> Attributes {
        let (kind, config) = match self.clock {
            Clock::Cycles => (TYPE_HARDWARE, HARDWARE_CYCLES),
            Clock::Timer => (TYPE_SOFTWARE, SOFTWARE_CPU_CLOCK),
        };
        let mut flags = DISABLED
            | INHERIT
            | EXCLUDE_HYPERVISOR
            | MMAP
            | MMAP2
            | COMM
            | COMM_EXEC
            | TASK
            | FREQUENCY
            | WATERMARK
            | SAMPLE_ID_ALL
            | USE_CLOCK;
        if !self.kernel {
            flags |= EXCLUDE_KERNEL;
        }
        if self.on_exec {
            flags |= ENABLE_ON_EXEC;
        }
        let mut attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config,
            frequency: self.frequency.into(),
            sample_type: record::SAMPLE_TYPE,
            wakeup_watermark: self.wake_bytes,
            // Comparable between CPUs, so that records of several rings can be put in their order.
            clock: libc::CLOCK_MONOTONIC,
            sample_max_stack: CALLCHAIN,
            ..Attributes::default()
        };
        if let UserStack::Copied(bytes) = self.user {
            flags |= EXCLUDE_CALLCHAIN_USER;
            attributes.sample_type |= record::SAMPLE_TYPE_COPIED;
            attributes.sample_regs_user = record::REGISTERS;
            attributes.sample_stack_user = bytes.min(COPIED_STACK_BYTES) & !7;
        }
        attributes.flags = flags;
        attributes
    }
}

/// A counter, not counting yet. Dropping it ends it, and those that were inherited from it.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
    cpu: u32,
}

impl Counter {
    /// A counter of `thread`, and of all that it starts from now on, while they run on `cpu`. `None` is the calling thread.
    ///
    /// # Errors
    /// As `perf_event_open(2)`: `EACCES` or `EPERM` without the right to (`kernel.perf_event_paranoid`, `CAP_PERFMON`, another user's
    /// process, a seccomp filter), `ENOENT` or `EOPNOTSUPP` if this machine has no such clock, `ESRCH` if there is no such thread,
    /// `EINVAL` for a frequency beyond the sysctl, `ENODEV` if the CPU is off, `ENOSYS` without `CONFIG_PERF_EVENTS`, `EMFILE`.
    pub fn open(sampling: &Sampling, thread: Option<u32>, cpu: u32) -> io::Result<Counter> {
        let attributes = sampling.attributes();
        let thread = thread.map_or(Ok(0), i32::try_from);
        let thread = thread.map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let none: RawFd = -1;
        // SAFETY: the kernel reads `size` bytes of the structure during the call and keeps no pointer.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                cpu,
                none,
                CLOSE_ON_EXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(Counter { fd, cpu })
    }

    /// The CPU that it counts on.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Has its records go to the ring of `other`, a counter on the same CPU that has one.
    ///
    /// # Errors
    /// As `ioctl(2)`: `EINVAL` if it is of another CPU or has no ring.
    pub fn write_to(&self, other: &Counter) -> io::Result<()> {
        self.control(IOCTL_SET_OUTPUT, other.fd.as_raw_fd())
    }

    /// Begins to count, with all that were inherited from it.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub fn enable(&self) -> io::Result<()> {
        self.control(IOCTL_ENABLE, 0)
    }

    /// Ceases to count, with all that were inherited from it.
    ///
    /// # Errors
    /// As `ioctl(2)`.
    pub fn disable(&self) -> io::Result<()> {
        self.control(IOCTL_DISABLE, 0)
    }

    fn control(&self, request: libc::Ioctl, argument: RawFd) -> io::Result<()> {
        // SAFETY: these requests take a number and touch no memory of ours.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until a ring of these counters has enough to read or the time is over; a signal ends it, too. Says of each counter whether
/// it is over: its thread and all that were started by it have ended, and it would end every further wait at once.
///
/// # Errors
/// As `poll(2)`: `ENOMEM`.
pub fn wait(counters: &[&Counter], timeout: Duration) -> io::Result<Vec<bool>> {
    let mut waited: Vec<PollFd<'_>> = counters
        .iter()
        .map(|counter| PollFd::new(*counter, PollFlags::IN))
        .collect();
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let over = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
    Ok(waited.iter().map(over).collect())
}
