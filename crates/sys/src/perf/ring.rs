//! The ring that the kernel writes records to, read in whole records.
//!
//! The kernel writes at `data_head` and leaves alone what lies between `data_tail` and there; what is read is copied out first and
//! given free afterwards. Knows how long a record is, nothing else of it.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Counter;

/// Where the two positions stand in the first page (`struct perf_event_mmap_page`).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Bytes of a record's head: type, misc, size.
const HEAD: usize = 8;

/// A ring in memory. Dropping it gives the memory back; counters that wrote to it lose what they write.
#[derive(Debug)]
pub struct Ring {
    memory: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
    /// What was copied out last.
    copied: Vec<u8>,
}

// SAFETY: the memory belongs to this value alone, whatever thread it is on; the kernel does not care.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring of so many bytes for a counter that has none: a power of two, at least a page.
    ///
    /// # Errors
    /// As `mmap(2)`: `EPERM` beyond what the user may lock (the sysctl `kernel.perf_event_mlock_kb` a CPU, and `RLIMIT_MEMLOCK`),
    /// `EINVAL` for a number that is no power of two of pages, `ENOMEM`.
    pub fn map(counter: &Counter, bytes: usize) -> io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        if !bytes.is_power_of_two() || bytes < page_bytes {
            let text = format!("expected a power of two from {page_bytes} on; found {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice, of as many pages as perf wants: one and a power of two.
        let memory = unsafe {
            mmap(
                ptr::null_mut(),
                page_bytes + bytes,
                protection,
                MapFlags::SHARED,
                counter,
                0,
            )?
        };
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Ring {
            memory,
            page_bytes,
            data_bytes: bytes,
            copied: Vec::new(),
        })
    }

    /// Hands each record that is there to `each`, the oldest first, and gives their room free.
    ///
    /// A record's first eight bytes are its head, which says its length; it is as long as it says.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        // SAFETY: both lie in the first page of the mapping, aligned; the kernel touches them atomically.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(self.memory.as_ptr().add(DATA_HEAD).cast()),
                AtomicU64::from_ptr(self.memory.as_ptr().add(DATA_TAIL).cast()),
            )
        };
        // Acquire: what the kernel wrote before it moved the head is seen.
        let until = head.load(Ordering::Acquire);
        let from = tail.load(Ordering::Relaxed);
        let length = usize::try_from(until.wrapping_sub(from)).unwrap_or(usize::MAX);
        // More cannot be there; were it, nothing of it would be whole.
        if length <= self.data_bytes {
            self.copy(from, length);
        } else {
            self.copied.clear();
        }
        // Release: the room is free only after it was copied.
        tail.store(until, Ordering::Release);
        split(&self.copied, &mut each);
    }

    /// Copies `length` bytes, at most the ring's, from position `from` on.
    fn copy(&mut self, from: u64, length: usize) {
        self.copied.clear();
        self.copied.reserve(length);
        // The ring is a power of two, so that the position's low bits are the place.
        let at = (from & (self.data_bytes as u64 - 1)) as usize;
        let first = length.min(self.data_bytes - at);
        // SAFETY: `at + first` and `length - first` lie within the ring's data, which begins a page behind `memory`; there is room
        // for `length` bytes; the kernel does not write there until the tail has moved.
        unsafe {
            let data = self.memory.as_ptr().add(self.page_bytes);
            let to = self.copied.as_mut_ptr();
            ptr::copy_nonoverlapping(data.add(at), to, first);
            ptr::copy_nonoverlapping(data, to.add(first), length - first);
            self.copied.set_len(length);
        }
    }
}

/// Hands each whole record to `each`. What a head says that cannot be ends it.
pub(super) fn split(mut bytes: &[u8], each: &mut impl FnMut(&[u8])) {
    while let Some(length) = bytes.get(6..HEAD) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let Some((record, rest)) = bytes.split_at_checked(length).filter(|_| length >= HEAD) else {
            return;
        };
        each(record);
        bytes = rest;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing refers to it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}
