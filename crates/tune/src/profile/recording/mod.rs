//! Taking a profile: counters attached, rings read until the end, each sample's stack put where it belongs.
//!
//! ```text
//! rings ─▶ order: by time ─▶ processes, mappings ─▶ spaces ─┐ which file an address is in, how its stack is walked
//!                          └▶ samples ──────────────────────┴─▶ stacks
//! ```
//!
//! Nothing has a name here but threads: files are read for what unwinding needs, and symbols are looked up at the end.

mod attach;
mod order;
pub(super) mod spaces;
pub(super) mod stacks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringmain_sys::perf::record::{self, Record, Sample};
use ringmain_sys::perf::{self, CALLCHAIN, Clock, Sampling, UserStack};
use ringmain_sys::process::{self, Ending, Stat};
use ringmain_sys::{clock, limits as system_limits};

use self::attach::Attached;
use self::order::Order;
use self::spaces::{Frame, Spaces};
use self::stacks::Stacks;
use super::error::ProfileError;
use super::limits::{COMMAND_END, DURATION_DEFAULT, LOOK, STACK_BYTES};
use super::unwind::{self, End};
use super::{Options, StackKind, Target, image};

/// What was taken, without names.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) spaces: Spaces,
    pub(super) stacks: Stacks,
    pub(super) counts: Counts,
}

/// What became of samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) samples: u64,
    pub(super) lost: u64,
    /// Times that the kernel took fewer than asked for.
    pub(super) throttled: u64,
    /// Samples with user code, of which the stack is cut, or led nowhere.
    pub(super) user: u64,
    pub(super) cut: u64,
    pub(super) broken: u64,
    /// Samples with at most two frames of user code, where frame pointers were followed.
    pub(super) shallow: u64,
    /// Records that made no sense.
    pub(super) unread: u64,
}

/// How it was taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) who: String,
    pub(super) clock: Clock,
    pub(super) stacks: StackKind,
    pub(super) lasted: Duration,
    /// Why the kernel's part is missing, if it is.
    pub(super) no_kernel: Option<String>,
    /// Why the kernel's functions would have no names.
    pub(super) no_kernel_names: String,
    /// That the process has ended before the time, or the command has failed.
    pub(super) ended: Option<String>,
}

/// Names of threads and everything that samples are put into.
#[derive(Debug, Default)]
struct Recorder {
    recording: Recording,
    threads: BTreeMap<u32, u32>,
    copies: bool,
    addresses: Vec<u64>,
    frames: Vec<Frame>,
}

/// Takes a profile.
pub(super) fn take(options: &Options, stop: &AtomicBool) -> Result<(Recording, Taken), ProfileError> {
    // Each thread has a counter on each CPU. With fewer descriptors than that it is told below.
    let _ = system_limits::raise_open_files();
    let stacks = stack_kind(options)?;
    let sampling = Sampling {
        clock: Clock::Cycles,
        frequency: options.frequency,
        kernel: true,
        user: match stacks {
            StackKind::FramePointers => UserStack::FramePointers,
            StackKind::Copied(bytes) => UserStack::Copied(bytes),
        },
        on_exec: false,
        wake_bytes: 64 << 10,
    };
    match &options.target {
        Target::Process(pid) => of_process(*pid, options, sampling, stop),
        Target::Command(words) => of_command(words, options, sampling, stop),
    }
    .map(|(recording, mut taken)| {
        taken.stacks = stacks;
        (recording, taken)
    })
}

/// How stacks are had, by what the program keeps if nobody says.
fn stack_kind(options: &Options) -> Result<StackKind, ProfileError> {
    let bytes = options.stack_bytes.unwrap_or(STACK_BYTES);
    match options.stacks {
        super::Stacks::FramePointers => Ok(StackKind::FramePointers),
        super::Stacks::Copied if !unwind::SUPPORTED => Err(ProfileError::Unwinding),
        super::Stacks::Copied => Ok(StackKind::Copied(bytes)),
        super::Stacks::Auto => {
            let program = match &options.target {
                Target::Process(pid) => Some(format!("/proc/{pid}/exe").into()),
                Target::Command(words) => words.first().and_then(|word| super::found(word)),
            };
            let kept = program.and_then(|program| image::keeps_frame_pointers(&program));
            Ok(if kept == Some(true) || !unwind::SUPPORTED {
                StackKind::FramePointers
            } else {
                StackKind::Copied(bytes)
            })
        }
    }
}

fn of_process(
    pid: u32,
    options: &Options,
    sampling: Sampling,
    stop: &AtomicBool,
) -> Result<(Recording, Taken), ProfileError> {
    let mut attached = Attached::process(pid, sampling)?;
    let began = process::stat(pid).ok_or(ProfileError::Gone(pid))?;
    let mut recorder = Recorder::new(attached.copies());
    // Files are opened before anything is sampled, since that may take longer than rings have room for. What is mapped meanwhile is
    // seen the second time, and what is mapped after that is told by the kernel.
    recorder.load(&attached.processes);
    attached.enable()?;
    recorder.load(&attached.processes);
    let from = clock::monotonic();
    let until = from + options.duration.unwrap_or(DURATION_DEFAULT);
    let mut ended = None;
    recorder.watch(&mut attached, &mut || {
        if !is_there(&began) {
            ended = Some(format!("process {pid} has ended"));
        }
        ended.is_none() && clock::monotonic() < until && !stop.load(Ordering::Relaxed)
    })?;
    let taken = taken(
        &attached,
        format!("process {pid} ({})", name_of(pid)),
        from,
        ended,
    );
    Ok((recorder.recording, taken))
}

fn is_there(process: &Stat) -> bool {
    process::stat(process.pid).is_some_and(|now| now.start == process.start && !now.ended)
}

fn of_command(
    words: &[std::ffi::OsString],
    options: &Options,
    sampling: Sampling,
    stop: &AtomicBool,
) -> Result<(Recording, Taken), ProfileError> {
    let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let shown = shown.join(" ");
    let mut attached = Attached::command(sampling, &format!("`{shown}`"))?;
    let mut recorder = Recorder::new(attached.copies());
    let mut command = Command::new(words.first().cloned().unwrap_or_default());
    command.args(words.iter().skip(1)).stdin(Stdio::inherit());
    let from = clock::monotonic();
    let child = process::spawn(&mut command).map_err(|error| ProfileError::Start {
        command: shown.clone(),
        error,
    })?;
    let mut child = Started(child);
    let until = options.duration.map(|duration| from + duration);
    let (mut over, mut ended) = (false, None);
    recorder.watch(&mut attached, &mut || {
        // It is this process's child, so that looking cannot fail.
        if let Ok(Some(status)) = child.0.try_wait() {
            over = true;
            ended = (!status.success()).then(|| format!("`{shown}` has failed ({status})"));
        }
        let late = until.is_some_and(|until| clock::monotonic() >= until);
        !over && !late && !stop.load(Ordering::Relaxed)
    })?;
    let taken = taken(&attached, format!("`{shown}`"), from, ended);
    // The counters end before the command is told to.
    drop(attached);
    child.end();
    Ok((recorder.recording, taken))
}

/// A command that was started here and has ended when this value is gone.
struct Started(Child);

impl Started {
    /// Asks it to end, and has it end if it does not in time.
    fn end(&mut self) {
        self.tell(Ending::Ask);
        let until = clock::monotonic() + COMMAND_END;
        while matches!(self.0.try_wait(), Ok(None)) {
            if clock::monotonic() >= until {
                self.tell(Ending::Force);
                let _ = self.0.wait();
                return;
            }
            pause();
        }
    }

    fn tell(&self, how: Ending) {
        if let Some(stat) = process::stat(self.0.id()).filter(|stat| !stat.ended) {
            // What may not be ended, as a program with more rights, goes on.
            let _ = process::end(&stat, how);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// Waits a little.
fn pause() {
    // No counter: the time alone ends it. What the system says against that is said at the next wait that matters.
    let _ = perf::wait(&[], LOOK);
}

fn taken(attached: &Attached, who: String, from: Duration, ended: Option<String>) -> Taken {
    Taken {
        who,
        clock: attached.sampling.clock,
        stacks: StackKind::FramePointers,
        lasted: clock::monotonic().saturating_sub(from),
        no_kernel: attached.no_kernel(),
        no_kernel_names: attached.no_kernel_names(),
        ended,
    }
}

/// The name that a process goes by.
fn name_of(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    super::names::plain(String::from_utf8_lossy(&name).trim_end())
}

impl Recorder {
    fn new(copies: bool) -> Recorder {
        Recorder {
            copies,
            ..Recorder::default()
        }
    }

    /// What is there already of processes: mappings, and names of threads.
    fn load(&mut self, processes: &[u32]) {
        for process in processes {
            self.load_one(*process);
        }
    }

    fn load_one(&mut self, process: u32) {
        self.recording.spaces.load(process);
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let thread = task.file_name().to_str().and_then(|name| name.parse().ok());
            let name = std::fs::read(task.path().join("comm"));
            if let (Some(thread), Ok(name)) = (thread, name) {
                self.name(thread, name.trim_ascii_end());
            }
        }
    }

    fn name(&mut self, thread: u32, name: &[u8]) {
        let name = super::names::plain(&String::from_utf8_lossy(name));
        let number = self.recording.stacks.name(&name);
        self.threads.insert(thread, number);
    }

    /// Reads rings until `go_on` says no, and then what is left in them.
    fn watch(
        &mut self,
        attached: &mut Attached,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), ProfileError> {
        let mut order = Order::default();
        let mut over = vec![false; attached.rings.len()];
        while go_on() {
            let leaders = attached.leaders();
            let waited: Vec<usize> = (0..over.len()).filter(|at| !over[*at]).collect();
            let counters: Vec<_> = waited.iter().map(|at| leaders[*at]).collect();
            let doing = "cannot wait for samples";
            let ended = perf::wait(&counters, LOOK).map_err(|error| ProfileError::System { doing, error })?;
            for (at, ended) in waited.into_iter().zip(ended) {
                over[at] = ended;
            }
            self.read(attached, &mut order);
            order.round(|record| self.record(record));
        }
        attached.disable()?;
        self.read(attached, &mut order);
        order.finish(|record| self.record(record));
        Ok(())
    }

    fn read(&mut self, attached: &mut Attached, order: &mut Order) {
        for ring in &mut attached.rings {
            ring.drain(|record| match record::time(record) {
                Some(time) => order.push(time, record),
                None => self.recording.counts.unread += 1,
            });
        }
    }

    fn record(&mut self, bytes: &[u8]) {
        let spaces = &mut self.recording.spaces;
        match record::read(bytes, self.copies) {
            Some(Record::Sample(sample)) => self.sample(&sample),
            Some(Record::Mapped(mapped)) => spaces.map(&mapped),
            Some(Record::Named {
                process,
                thread,
                name,
                by_exec,
            }) => {
                if by_exec {
                    spaces.forget(process);
                }
                self.name(thread, name);
            }
            Some(Record::Started {
                process,
                parent,
                thread,
                by,
            }) => {
                if process != parent {
                    spaces.fork(process, parent);
                }
                if let Some(name) = self.threads.get(&by).copied() {
                    self.threads.insert(thread, name);
                }
            }
            Some(Record::Ended { process, thread }) => {
                self.threads.remove(&thread);
                if process == thread {
                    spaces.forget(process);
                }
            }
            Some(Record::Lost(count)) => self.recording.counts.lost += count,
            Some(Record::Throttled) => self.recording.counts.throttled += 1,
            None => {}
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        let Recording {
            spaces,
            stacks,
            counts,
        } = &mut self.recording;
        counts.samples += 1;
        self.frames.clear();
        self.addresses.clear();
        let kernel = called_from(&sample.kernel).map(Frame::Kernel);
        self.frames.extend(kernel);
        let end = match &sample.copied {
            Some(copied) => spaces.walk(sample.process, copied, &mut self.addresses),
            None => {
                self.addresses.extend(called_from(&sample.user));
                let full = sample.kernel.len() + sample.user.len() >= usize::from(CALLCHAIN);
                if full { End::Cut } else { End::Whole }
            }
        };
        let process = sample.process;
        let user = self
            .addresses
            .iter()
            .map(|address| spaces.place(process, *address));
        self.frames.extend(user);
        if !self.addresses.is_empty() {
            counts.user += 1;
            counts.cut += u64::from(end == End::Cut);
            counts.broken += u64::from(end == End::Broken);
            counts.shallow += u64::from(!self.copies && self.addresses.len() <= SHALLOW);
        }
        if end == End::Cut {
            self.frames.push(Frame::Cut);
        }
        let name = match self.threads.get(&sample.thread) {
            Some(name) => *name,
            None => stacks.name(super::names::UNKNOWN),
        };
        stacks.add(name, &self.frames);
    }
}

/// A stack with so few frames of user code leads nowhere: `_start`, `main` and what they call are more.
const SHALLOW: usize = 2;

/// Each but the first address is where a call returns to, which may be behind the caller's last byte.
fn called_from(addresses: &[u64]) -> impl Iterator<Item = u64> {
    (0..).zip(addresses).map(|(at, address)| match at {
        0 => *address,
        _ => address.saturating_sub(1),
    })
}
