//! Which file an address of a process is in: mappings as they are made, inherited and replaced.
//!
//! Only executable ones matter. Knows files as images; reads `/proc/PID/maps` of processes that were there before.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringmain_sys::perf::record::{Copied, Mapped};

use super::super::image::{Image, Name};
use super::super::limits::{FRAMES, IMAGES, MAPPINGS, PROCESSES};
use super::super::unwind::{Cache, End, Unwinder};

/// Where code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Frame {
    /// In the kernel.
    Kernel(u64),
    /// In an image, at its own address.
    User { image: u32, address: u64 },
    /// In memory of a process that no file was mapped to: code made at run time, or a mapping that was not seen.
    Nowhere,
    /// There are further frames outwards, which are not known.
    Cut,
}

/// An executable mapping.
#[derive(Clone, Debug)]
struct Mapping {
    end: u64,
    offset: u64,
    image: u32,
}

/// One process's memory.
#[derive(Clone, Debug, Default)]
struct Space {
    mappings: BTreeMap<u64, Mapping>,
    unwinder: Unwinder,
}

/// All processes' memory.
#[derive(Debug, Default)]
pub(in super::super) struct Spaces {
    processes: BTreeMap<u32, Space>,
    numbers: BTreeMap<Name, u32>,
    pub(in super::super) images: Vec<Image>,
    cache: Cache,
}

impl Spaces {
    /// Reads what a process has mapped already.
    pub(super) fn load(&mut self, process: u32) {
        // One that has ended, or may not be looked into, has frames that are nowhere.
        let maps = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
        for line in maps.split(|byte| *byte == b'\n') {
            if let Some(mapped) = maps_line(process, line) {
                self.map(&mapped);
            }
        }
    }

    /// A file is mapped.
    pub(super) fn map(&mut self, mapped: &Mapped<'_>) {
        let end = mapped.start.saturating_add(mapped.length);
        if !mapped.executable || !self.make_room(mapped.process) {
            return;
        }
        let image = self.image(mapped, end);
        let space = self.processes.entry(mapped.process).or_default();
        space.clear(mapped.start, end);
        let Some(image) = image.filter(|_| space.mappings.len() < MAPPINGS) else {
            return;
        };
        let mapping = Mapping {
            end,
            offset: mapped.offset,
            image,
        };
        space.mappings.insert(mapped.start, mapping);
        let image = &self.images[image as usize];
        if let Some(address) = image.address(mapped.offset)
            && image.unwinding.is_there()
        {
            let bias = mapped.start.wrapping_sub(address);
            space.unwinder.add(mapped.start..end, bias, &image.unwinding);
        }
    }

    /// Whether one more process can be known.
    fn make_room(&self, process: u32) -> bool {
        self.processes.len() < PROCESSES || self.processes.contains_key(&process)
    }

    /// The number of the file of a mapping; `None` for memory without one.
    fn image(&mut self, mapped: &Mapped<'_>, end: u64) -> Option<u32> {
        let path = mapped.path;
        let is_file = path.starts_with(b"/") && !path.starts_with(b"//");
        if !is_file && path != b"[vdso]" {
            return None;
        }
        let name = Name {
            path: PathBuf::from(OsStr::from_bytes(path)),
            inode: mapped.inode,
        };
        if let Some(number) = self.numbers.get(&name) {
            return Some(*number);
        }
        if self.images.len() >= IMAGES {
            return None;
        }
        let number = u32::try_from(self.images.len()).ok()?;
        self.images
            .push(Image::open(mapped.process, (mapped.start, end), &name));
        self.numbers.insert(name, number);
        Some(number)
    }

    /// A process was started by another: it has the same mappings.
    pub(super) fn fork(&mut self, process: u32, parent: u32) {
        if let Some(space) = self.processes.get(&parent).cloned()
            && self.make_room(process)
        {
            self.processes.insert(process, space);
        }
    }

    /// A process executes another program, or has ended: its mappings are gone.
    pub(super) fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// Where this address of a process is.
    pub(super) fn place(&self, process: u32, address: u64) -> Frame {
        let found = self.processes.get(&process).and_then(|space| {
            let (start, mapping) = space.mappings.range(..=address).next_back()?;
            let offset = (address < mapping.end).then(|| address - start + mapping.offset)?;
            let image = mapping.image;
            let address = self.images[image as usize].address(offset)?;
            Some(Frame::User { image, address })
        });
        found.unwrap_or(Frame::Nowhere)
    }

    /// Takes a copied stack apart: addresses to look up, the innermost first.
    pub(super) fn walk(&mut self, process: u32, copied: &Copied<'_>, out: &mut Vec<u64>) -> End {
        match self.processes.get(&process) {
            Some(space) => space.unwinder.walk(&mut self.cache, copied, FRAMES, out),
            None => {
                out.push(copied.ip);
                End::Broken
            }
        }
    }
}

impl Space {
    /// What was mapped between these addresses is replaced.
    fn clear(&mut self, start: u64, end: u64) {
        let overlapping: Vec<u64> = self
            .mappings
            .range(..end)
            .rev()
            .take_while(|(_, mapping)| mapping.end > start)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
            self.mappings.remove(&start);
            self.unwinder.remove(start);
        }
    }
}

/// A line of `/proc/PID/maps`: `7f01-7f02 r-xp 00001000 08:01 42    /bin/a`.
fn maps_line(process: u32, line: &[u8]) -> Option<Mapped<'_>> {
    // The path may hold anything, and is behind the fifth gap, which is filled up with spaces.
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind.get(1..).unwrap_or_default();
        std::str::from_utf8(word).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let (rights, offset, device, inode) = (word()?, word()?, word()?, word()?);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let (major, minor) = device.split_once(':')?;
    Some(Mapped {
        process,
        start,
        length: end.checked_sub(start)?,
        offset: hex(offset)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode: inode.parse().ok()?,
        executable: rights.contains('x'),
        path: rest.trim_ascii_start(),
    })
}
