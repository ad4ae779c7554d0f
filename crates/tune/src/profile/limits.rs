//! Every limit of profiles, with its unit and what happens there.

use std::time::Duration;

/// Samples a second of CPU time that may be asked for. More is refused as a wrong value; the sysctl
/// `kernel.perf_event_max_sample_rate` may allow less.
pub const FREQUENCY: u32 = 10_000;

/// Samples a second unless somebody says how many: a prime, so that nothing periodic keeps step with it.
pub const FREQUENCY_DEFAULT: u32 = 997;

/// How long a running process is watched unless somebody says how long.
pub const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Bytes of a stack that are copied for each sample where frame pointers do not lead through it, unless somebody says how many.
/// Of deeper stacks the outer frames are missing, which is counted and said.
pub const STACK_BYTES: u32 = 16 << 10;

/// Bytes of the ring of each CPU, the first that the kernel allows: an ordinary user may lock 516 KiB a CPU
/// (`kernel.perf_event_mlock_kb`). What finds no room in it is lost, counted and said.
pub const RING_BYTES: [usize; 3] = [4 << 20, 512 << 10, 128 << 10];

/// Memory of all rings together, bytes: on hosts with many CPUs each ring is smaller.
pub const RINGS_BYTES: usize = 256 << 20;

/// Counters, which is threads times CPUs: each is a descriptor. With more there would be, attaching is refused.
pub const COUNTERS: usize = 64 << 10;

/// How often a process is searched for threads that were started while the others were attached to.
pub const ATTACH_ROUNDS: usize = 16;

/// How long at most until the rings are looked at again.
pub const LOOK: Duration = Duration::from_millis(50);

/// Bytes of records that wait to be put in their order. What is beyond is read in the order in which it came.
pub const WAITING_BYTES: usize = 128 << 20;

/// Different stacks. Samples with another one are counted under its thread as `[other stacks]`.
pub const STACKS: usize = 1 << 18;

/// Frames of one stack. The innermost are kept; the rest is `[truncated]`.
pub const FRAMES: usize = 512;

/// Processes whose mappings are known at once. Of further ones user frames are `[unknown]`.
pub const PROCESSES: usize = 4096;

/// Executable mappings of one process. Further ones are `[unknown]`.
pub const MAPPINGS: usize = 16 << 10;

/// Executables and libraries. Of further ones no symbols are read.
pub const IMAGES: usize = 4096;

/// Bytes of one section of an executable that are read. Of one with a longer section that section is left out.
pub const SECTION_BYTES: u64 = 1 << 30;

/// Bytes of a file of debug information that belongs to a stripped program. A longer one is not read: its checksum alone would take
/// seconds.
pub const SEPARATE_FILE_BYTES: u64 = 4 << 30;

/// Symbols of one executable. Further ones are left out.
pub const SYMBOLS: usize = 4 << 20;

/// Bytes of `/proc/kallsyms` that are read: a large kernel has some 20 MB.
pub const KALLSYMS_BYTES: u64 = 256 << 20;

/// How far behind the last symbol an address of the kernel may be and still be named after it, bytes.
pub const KERNEL_TAIL: u64 = 1 << 20;

/// Characters of a function's name. The rest is cut and marked by `…`.
pub const NAME: usize = 300;

/// Bytes of a file of folded stacks, and of one of its lines. Longer ones are refused.
pub const FOLDED_BYTES: u64 = 256 << 20;

/// Samples of one profile: as many as a JSON number tells apart. A file with more is refused; more that are added are left out.
pub const SAMPLES: u64 = 1 << 53;

/// Functions that the summary lists, of each kind.
pub const LISTED: usize = 12;

/// Of a graph's width, the least that a frame is drawn with: narrower ones could not be seen, and are counted.
pub const DRAWN: f64 = 0.000_5;

/// How long a command that was started has to end when it is asked to. Then it is forced to.
pub const COMMAND_END: Duration = Duration::from_secs(5);

const _: () = assert!(STACK_BYTES <= ringmain_sys::perf::COPIED_STACK_BYTES);
