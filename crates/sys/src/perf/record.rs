//! Records of a ring as values: samples, and what happens to processes and their mappings.
//!
//! Pure. Reads what [`super::Sampling`] asks for and nothing else; what cannot be read is [`None`], never a guess.

/// What every sample and (as far as it applies) every other record holds: `IP`, `TID`, `TIME`, `CALLCHAIN`.
pub(super) const SAMPLE_TYPE: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5;

/// What a sample holds besides if the stack is copied: `REGS_USER`, `STACK_USER`.
pub(super) const SAMPLE_TYPE_COPIED: u64 = 1 << 12 | 1 << 13;

/// The registers that unwinding begins with, by their bits (`asm/perf_regs.h`), in ascending order of which they come.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// As above: frame pointer, link register, stack pointer, program counter.
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTERS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
/// Not known for this architecture: none.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) const REGISTERS: u64 = 0;

/// Numbers of records (`enum perf_event_type`).
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;

/// Bits of `misc`.
const COMM_EXEC: u16 = 1 << 13;
const MMAP_BUILD_ID: u16 = 1 << 14;

/// Where a callchain goes over from one part to the next: numbers from here on are no addresses.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// Executable memory (`PROT_EXEC`).
const EXECUTABLE: u32 = 4;

/// The time and the numbers at the end of every record that is no sample.
const TRAILER: usize = 16;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// What a thread did at one moment.
    Sample(Sample<'a>),
    /// Memory of a process is a file's, or anonymous, from now on.
    Mapped(Mapped<'a>),
    /// A thread has this name now.
    Named {
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// Its name, mostly UTF-8.
        name: &'a [u8],
        /// Because it executes another program: all mappings are gone.
        by_exec: bool,
    },
    /// A thread was started; in a process of its own if `process` is not `parent`.
    Started {
        /// Its process.
        process: u32,
        /// The process that started it.
        parent: u32,
        /// The thread.
        thread: u32,
        /// The thread that started it.
        by: u32,
    },
    /// A thread has ended.
    Ended {
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
    },
    /// So many records, mostly samples, found no room.
    Lost(u64),
    /// The kernel took samples less often for a while: they cost more than the sysctl `kernel.perf_cpu_time_max_percent` allows.
    Throttled,
}

/// A sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// Where the thread was, in the kernel or not.
    pub ip: u64,
    /// The kernel's part of the stack, the innermost first; each but the first is where a call returns to.
    pub kernel: Vec<u64>,
    /// The same of the user's part, as frame pointers tell it; empty if it was copied.
    pub user: Vec<u64>,
    /// The user's part as it is in memory.
    pub copied: Option<Copied<'a>>,
}

/// A user's stack and the registers that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// Program counter.
    pub ip: u64,
    /// Stack pointer: where `stack` begins.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// Link register; 0 on x86-64, which has none.
    pub lr: u64,
    /// What lay there, up to the stack's end or as much as was asked for.
    pub stack: &'a [u8],
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// The process.
    pub process: u32,
    /// The first address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// The file's device, major and minor.
    pub device: (u32, u32),
    /// The file's number on it; 0 if the kernel did not say.
    pub inode: u64,
    /// Whether code can run there.
    pub executable: bool,
    /// The file as the process sees it; `//anon`, `[vdso]` and such have none.
    pub path: &'a [u8],
}

/// When it was written, nanoseconds of `CLOCK_MONOTONIC`; `None` if that cannot be read.
#[must_use]
pub fn time(record: &[u8]) -> Option<u64> {
    let kind = u32::from_ne_bytes(*record.first_chunk()?);
    let bytes = if kind == SAMPLE {
        // Head, address, process and thread.
        record.get(24..32)?
    } else {
        record.last_chunk::<8>()?
    };
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// Reads a record; `copied` if stacks are copied. `None`: of no use here, or not as it should be.
#[must_use]
pub fn read(record: &[u8], copied: bool) -> Option<Record<'_>> {
    let mut fields = Fields(record);
    let kind = fields.u32()?;
    let misc = fields.u16()?;
    fields.u16()?;
    if kind == SAMPLE {
        return sample(fields, copied).map(Record::Sample);
    }
    fields.0 = fields.0.get(..fields.0.len().checked_sub(TRAILER)?)?;
    match kind {
        LOST => {
            fields.u64()?;
            Some(Record::Lost(fields.u64()?))
        }
        LOST_SAMPLES => Some(Record::Lost(fields.u64()?)),
        THROTTLE => Some(Record::Throttled),
        COMM => Some(Record::Named {
            process: fields.u32()?,
            thread: fields.u32()?,
            name: until_zero(fields.0),
            by_exec: misc & COMM_EXEC != 0,
        }),
        FORK | EXIT => {
            let (process, parent) = (fields.u32()?, fields.u32()?);
            let (thread, by) = (fields.u32()?, fields.u32()?);
            Some(if kind == EXIT {
                Record::Ended { process, thread }
            } else {
                Record::Started {
                    process,
                    parent,
                    thread,
                    by,
                }
            })
        }
        MMAP2 => mapped(fields, misc).map(Record::Mapped),
        _ => None,
    }
}

fn mapped(mut fields: Fields<'_>, misc: u16) -> Option<Mapped<'_>> {
    let process = fields.u32()?;
    fields.u32()?;
    let (start, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (mut major, mut minor, mut inode) = (fields.u32()?, fields.u32()?, fields.u64()?);
    fields.u64()?;
    if misc & MMAP_BUILD_ID != 0 {
        // The same bytes hold a build id, which was not asked for.
        (major, minor, inode) = (0, 0, 0);
    }
    let protection = fields.u32()?;
    fields.u32()?;
    Some(Mapped {
        process,
        start,
        length,
        offset,
        device: (major, minor),
        inode,
        executable: protection & EXECUTABLE != 0,
        path: until_zero(fields.0),
    })
}

fn sample(mut fields: Fields<'_>, copied: bool) -> Option<Sample<'_>> {
    let ip = fields.u64()?;
    let (process, thread) = (fields.u32()?, fields.u32()?);
    fields.u64()?;
    let count = fields.u64()?;
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    let mut context = CONTEXT_USER;
    for _ in 0..count {
        let address = fields.u64()?;
        match (address, context) {
            (CONTEXT_MAX.., _) => context = address,
            (_, CONTEXT_KERNEL) => kernel.push(address),
            (_, CONTEXT_USER) => user.push(address),
            // A guest's.
            _ => {}
        }
    }
    let copied = if copied { stack(&mut fields)? } else { None };
    Some(Sample {
        process,
        thread,
        ip,
        kernel,
        user,
        copied,
    })
}

/// Registers and stack. `Some(None)`: a thread of the kernel, which has none.
#[expect(clippy::option_option, reason = "not readable and not there are two things")]
fn stack<'a>(fields: &mut Fields<'a>) -> Option<Option<Copied<'a>>> {
    let mut registers = [0; REGISTERS.count_ones() as usize];
    // Of a 32-bit program the numbers mean something else.
    let abi = fields.u64()?;
    if abi != 0 {
        for register in &mut registers {
            *register = fields.u64()?;
        }
    }
    let size = usize::try_from(fields.u64()?).ok()?;
    let stack = fields.take(size)?;
    let length = if size > 0 { fields.u64()? } else { 0 };
    let stack = stack.get(..usize::try_from(length).ok()?)?;
    Some((abi == ABI_64).then(|| copied(&registers, stack)).flatten())
}

/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;

fn copied<'a>(registers: &[u64], stack: &'a [u8]) -> Option<Copied<'a>> {
    let (ip, sp, fp, lr) = match *registers {
        // x86-64: frame pointer, stack pointer, program counter.
        [fp, sp, ip] => (ip, sp, fp, 0),
        // aarch64.
        [fp, lr, sp, ip] => (ip, sp, fp, lr),
        _ => return None,
    };
    Some(Copied {
        ip,
        sp,
        fp,
        lr,
        stack,
    })
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// What is left of a record.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }
}
