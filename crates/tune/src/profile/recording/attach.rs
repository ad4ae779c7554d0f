//! Counters on all threads of a process and its descendants, or on what a command will be; and the rings that they write to.
//!
//! A counter for each thread and CPU, all of one CPU to one ring. What a thread starts afterwards inherits them.

use std::fs;
use std::io;

use ringmain_sys::perf::{Clock, Counter, Ring, Sampling, UserStack};
use ringmain_sys::{cpu, process, sysctl};

use super::super::error::ProfileError;
use super::super::limits::{ATTACH_ROUNDS, COUNTERS, RING_BYTES, RINGS_BYTES};
use super::super::rights::Rights;

/// `ENOENT`, `ESRCH`, `ENODEV`, `EOPNOTSUPP`; `EPERM` and `EACCES`.
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;
const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// Descriptors that are left for files and such.
const SPARE: u64 = 256;

/// Counters at work, or about to be.
#[derive(Debug)]
pub(super) struct Attached {
    counters: Vec<Counter>,
    /// The counter of each CPU that has its ring.
    leaders: Vec<(u32, usize)>,
    pub(super) rings: Vec<Ring>,
    ring_bytes: usize,
    /// As the kernel allowed it.
    pub(super) sampling: Sampling,
    /// Processes that were attached to.
    pub(super) processes: Vec<u32>,
    rights: Rights,
}

impl Attached {
    /// Attaches to a process, its descendants, and all their threads.
    pub(super) fn process(pid: u32, sampling: Sampling) -> Result<Attached, ProfileError> {
        let mut attached = Attached::new(sampling)?;
        let mut known: Vec<u32> = Vec::new();
        for _ in 0..ATTACH_ROUNDS {
            let processes = tree(pid)?;
            let mut threads: Vec<u32> = processes.iter().flat_map(|pid| threads(*pid)).collect();
            threads.retain(|thread| !known.contains(thread));
            if threads.is_empty() {
                attached.processes = processes;
                return if attached.counters.is_empty() {
                    Err(ProfileError::Gone(pid))
                } else {
                    Ok(attached)
                };
            }
            attached.check_room(known.len() + threads.len())?;
            for thread in threads {
                attached.open(Some(thread), &format!("process {pid}"))?;
                known.push(thread);
            }
        }
        Err(ProfileError::Restless(pid))
    }

    /// Prepares to sample what the calling thread starts next, from when it executes a program.
    pub(super) fn command(mut sampling: Sampling, who: &str) -> Result<Attached, ProfileError> {
        sampling.on_exec = true;
        let mut attached = Attached::new(sampling)?;
        attached.open(None, who)?;
        Ok(attached)
    }

    fn new(sampling: Sampling) -> Result<Attached, ProfileError> {
        let most = sysctl::read("kernel.perf_event_max_sample_rate").and_then(|text| text.parse().ok());
        if let Some(most) = most.filter(|most| sampling.frequency > *most) {
            let asked = sampling.frequency;
            return Err(ProfileError::Frequency { asked, most });
        }
        Ok(Attached {
            counters: Vec::new(),
            leaders: Vec::new(),
            rings: Vec::new(),
            ring_bytes: 0,
            sampling,
            processes: Vec::new(),
            rights: Rights::read(),
        })
    }

    fn check_room(&self, threads: usize) -> Result<(), ProfileError> {
        let cpus = online().len();
        let (_, descriptors) = ringmain_sys::limits::open_files();
        let most = usize::try_from(descriptors.saturating_sub(SPARE)).unwrap_or(COUNTERS);
        let most = most.min(COUNTERS);
        if threads * cpus > most {
            return Err(ProfileError::Counters { threads, cpus, most });
        }
        Ok(())
    }

    /// A counter of this thread on each CPU.
    fn open(&mut self, thread: Option<u32>, who: &str) -> Result<(), ProfileError> {
        for cpu in online() {
            let counter = match self.counter(thread, cpu) {
                Ok(counter) => counter,
                // The thread has ended, or the CPU was turned off, since they were listed.
                Err(error) if matches!(error.raw_os_error(), Some(ESRCH | ENODEV)) => continue,
                Err(error) => {
                    let advice = self.rights.refused(&error, who);
                    let who = who.to_owned();
                    return Err(ProfileError::Refused { who, error, advice });
                }
            };
            self.join(counter)?;
        }
        Ok(())
    }

    /// Opens it, and takes less where there is less: the timer without cycles, user code alone without the right to see the kernel.
    fn counter(&mut self, thread: Option<u32>, cpu: u32) -> io::Result<Counter> {
        loop {
            let error = match Counter::open(&self.sampling, thread, cpu) {
                Ok(counter) => return Ok(counter),
                Err(error) => error,
            };
            // What one thread was given all have, so that the profile is of one kind.
            let first = self.counters.is_empty();
            match error.raw_os_error() {
                Some(ENOENT | EOPNOTSUPP) if first && self.sampling.clock == Clock::Cycles => {
                    self.sampling.clock = Clock::Timer;
                }
                Some(EPERM | EACCES) if first && self.sampling.kernel => self.sampling.kernel = false,
                _ => return Err(error),
            }
        }
    }

    /// Has it write to the ring of its CPU.
    fn join(&mut self, counter: Counter) -> Result<(), ProfileError> {
        let leader = self.leaders.iter().find(|(cpu, _)| *cpu == counter.cpu());
        if let Some((_, leader)) = leader {
            counter
                .write_to(&self.counters[*leader])
                .map_err(|error| ProfileError::Ring { error })?;
        } else {
            let ring = self.ring(&counter)?;
            self.rings.push(ring);
            self.leaders.push((counter.cpu(), self.counters.len()));
        }
        self.counters.push(counter);
        Ok(())
    }

    /// The largest ring that may be had; the others are like the first.
    fn ring(&mut self, counter: &Counter) -> Result<Ring, ProfileError> {
        let share = RINGS_BYTES / online().len().max(1);
        let sizes = RING_BYTES
            .into_iter()
            .filter(|bytes| self.ring_bytes == 0 || *bytes <= self.ring_bytes);
        let mut sizes = sizes.filter(|bytes| *bytes <= share || *bytes == RING_BYTES[RING_BYTES.len() - 1]);
        let mut last = io::Error::from_raw_os_error(ENODEV);
        let ring = sizes.find_map(|bytes| match Ring::map(counter, bytes) {
            Ok(ring) => Some((bytes, ring)),
            Err(error) => {
                last = error;
                None
            }
        });
        let Some((bytes, ring)) = ring else {
            return Err(ProfileError::Ring { error: last });
        };
        self.ring_bytes = bytes;
        Ok(ring)
    }

    /// The counters that have rings, whose readiness is waited for.
    pub(super) fn leaders(&self) -> Vec<&Counter> {
        let leader = |(_, index): &(u32, usize)| &self.counters[*index];
        self.leaders.iter().map(leader).collect()
    }

    /// Begins.
    pub(super) fn enable(&self) -> Result<(), ProfileError> {
        self.control(Counter::enable)
    }

    /// Ends; what is in the rings stays.
    pub(super) fn disable(&self) -> Result<(), ProfileError> {
        self.control(Counter::disable)
    }

    fn control(&self, change: impl Fn(&Counter) -> io::Result<()>) -> Result<(), ProfileError> {
        self.counters.iter().try_for_each(change).map_err(system)
    }

    /// What is missing of the kernel's part, and why.
    pub(super) fn no_kernel(&self) -> Option<String> {
        (!self.sampling.kernel).then(|| self.rights.no_kernel())
    }

    /// Why the kernel's functions have no names, if they have none.
    pub(super) fn no_kernel_names(&self) -> String {
        self.rights.no_kernel_names()
    }

    /// Whether stacks come copied.
    pub(super) fn copies(&self) -> bool {
        self.sampling.user != UserStack::FramePointers
    }
}

fn system(error: io::Error) -> ProfileError {
    let doing = "cannot control the counters";
    ProfileError::System { doing, error }
}

/// The CPUs that work.
fn online() -> Vec<u32> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let cpus = list.as_deref().map(str::trim).and_then(cpu::parse_list);
    let cpus = cpus.filter(|cpus| !cpus.is_empty()).unwrap_or_else(cpu::allowed);
    cpus.into_iter()
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

/// A process and all that descend from it.
fn tree(pid: u32) -> Result<Vec<u32>, ProfileError> {
    if process::stat(pid).is_none_or(|stat| stat.ended) {
        return Err(ProfileError::NoProcess(pid));
    }
    let doing = "cannot read processes in /proc";
    let all = process::all().map_err(|error| ProfileError::System { doing, error })?;
    let mut tree = vec![pid];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        let children = all
            .iter()
            .filter(|stat| stat.parent == parent && !stat.ended && !tree.contains(&stat.pid));
        let children: Vec<u32> = children.map(|stat| stat.pid).collect();
        tree.extend(children);
        at += 1;
    }
    Ok(tree)
}

/// The threads of a process; none if it has ended.
fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}
