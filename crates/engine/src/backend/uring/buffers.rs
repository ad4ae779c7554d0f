//! A ring of receive buffers shared with the kernel (provided-buffer ring, Linux 5.19).
//!
//! Owns the memory, the ring's tail, and how many free buffers the kernel may have at a time (the window). Knows nothing of
//! sockets or completions.
//!
//! A multishot receive takes buffers as long as there are any and its peer sends: one connection can fill all that are
//! free within one entry of the kernel, before the worker can stop it. So the kernel is given few at a time, and more when
//! many connections have used them up.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::backend::Lent;
use crate::limits;

/// One buffer group.
pub(super) struct Buffers {
    ring: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: u16,
    bytes: u32,
    group: u16,
    tail: u16,
    /// Buffers that the kernel has, or has filled in completions that were not taken yet.
    free: u16,
    /// As many of those as there may be.
    window: u16,
    /// The window is never smaller.
    floor: u16,
    /// Buffers outside the window.
    reserve: Vec<u16>,
    batch: Batch,
    /// Batches in a row that used little of the window.
    quiet: u16,
}

/// The receipts since the last entry of the kernel.
#[derive(Debug, Default)]
struct Batch {
    /// Buffers that they filled.
    taken: u16,
    /// Connections that filled them: receipts of one connection lie side by side.
    runs: u16,
    /// Buffers in the present run and in the longest.
    run: u16,
    longest: u16,
    last: u32,
    /// A receive found no buffer.
    short: bool,
}

impl Buffers {
    /// Maps and registers `count` (a power of two) buffers of `bytes` bytes as group `group`. The kernel has `floor` of them at
    /// first.
    ///
    /// The pages are touched only when the kernel first writes to them.
    pub(super) fn register(
        ring: &IoUring,
        group: u16,
        count: u16,
        bytes: u32,
        floor: u16,
    ) -> io::Result<Buffers> {
        assert!(
            count.is_power_of_two() && count <= 32_768,
            "the kernel takes 2^0 to 2^15 buffers"
        );
        let entries = map(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = map(usize::from(count) * bytes as usize)?;
        let mut buffers = Buffers {
            ring: entries.cast(),
            memory,
            count,
            bytes,
            group,
            tail: 0,
            free: 0,
            window: floor.min(count),
            floor: floor.min(count),
            reserve: Vec::new(),
            batch: Batch::default(),
            quiet: 0,
        };
        // SAFETY: the mapping is page-aligned, large enough for `count` entries, and lives until `drop`,
        // which runs after the ring is gone (field order in `Uring`).
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(entries.as_ptr() as u64, count, group, 0)?
        };
        for id in 0..count {
            buffers.put(id);
        }
        Ok(buffers)
    }

    pub(super) fn group(&self) -> u16 {
        self.group
    }

    pub(super) fn free(&self) -> usize {
        usize::from(self.free)
    }

    /// Notes that a receive of the connection at `index` filled a buffer.
    pub(super) fn note_receipt(&mut self, index: u32) {
        let batch = &mut self.batch;
        batch.taken = batch.taken.saturating_add(1);
        if batch.run == 0 || batch.last != index {
            batch.last = index;
            batch.run = 0;
            batch.runs = batch.runs.saturating_add(1);
        }
        batch.run = batch.run.saturating_add(1);
        batch.longest = batch.longest.max(batch.run);
    }

    /// Notes that a receive found no buffer.
    pub(super) fn note_shortage(&mut self) {
        self.batch.short = true;
    }

    /// Sets the window by what the last batch was, before the kernel is entered again: larger when many connections shared it
    /// and it was too small, smaller when one of them took more than a floor's worth, or when little of it is used.
    pub(super) fn adapt(&mut self) {
        if self.batch.taken == 0 && !self.batch.short {
            return;
        }
        let Batch {
            taken,
            runs,
            longest,
            short,
            ..
        } = std::mem::take(&mut self.batch);
        if longest > limits::RECEIVE_WINDOW {
            self.quiet = 0;
            self.window = (self.window / 2).max(self.floor);
        } else if short && runs.saturating_mul(2) >= taken {
            self.quiet = 0;
            self.widen();
        } else if taken < self.window / 4 {
            self.quiet += 1;
            if self.quiet == limits::QUIET_BATCHES {
                self.quiet = 0;
                self.window = (self.window / 2).max(self.floor);
            }
        } else {
            self.quiet = 0;
        }
    }

    fn widen(&mut self) {
        self.window = self.window.saturating_mul(2).min(self.count);
        self.refill();
    }

    /// Offers buffers of the reserve up to the window.
    fn refill(&mut self) {
        while self.free < self.window
            && let Some(id) = self.reserve.pop()
        {
            self.offer(id);
        }
    }

    /// Narrows the window to the smallest there is, or lets it be as usual.
    pub(super) fn set_frugal(&mut self, frugal: bool) {
        let floor = if frugal {
            limits::FRUGAL_WINDOW
        } else {
            limits::RECEIVE_WINDOW
        };
        self.floor = floor.min(self.count);
        self.window = if frugal {
            self.floor
        } else {
            self.window.max(self.floor)
        };
        if !frugal {
            self.refill();
        }
    }

    /// Takes the buffer that a completion named.
    pub(super) fn lend(&mut self, id: u16, offset: usize, len: usize) -> Lent {
        assert!(
            id < self.count && offset + len <= self.bytes as usize,
            "the kernel named a foreign buffer"
        );
        self.free -= 1;
        // SAFETY: in bounds by the check above; the kernel gave the buffer away with the completion and
        // `put` has not returned it, so nobody else touches it. The mapping is zero-filled: initialised.
        unsafe {
            let start = self.memory.add(usize::from(id) * self.bytes as usize + offset);
            Lent::new(start, len as u32, u32::from(id) | u32::from(self.group) << 16)
        }
    }

    /// Hands buffer `id` back to the kernel.
    pub(super) fn give_back(&mut self, id: u16) {
        self.put(id);
    }

    /// Copies out a part of a buffer that has not been lent yet.
    pub(super) fn peek(&self, id: u16, len: usize) -> &[u8] {
        assert!(
            id < self.count && len <= self.bytes as usize,
            "the kernel named a foreign buffer"
        );
        // SAFETY: as in `lend`; the shared borrow of self keeps `put` away while the slice lives.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.add(usize::from(id) * self.bytes as usize).as_ptr(),
                len,
            )
        }
    }

    fn put(&mut self, id: u16) {
        if self.free < self.window {
            self.offer(id);
        } else {
            self.reserve.push(id);
        }
    }

    /// Hands a buffer to the kernel.
    fn offer(&mut self, id: u16) {
        let index = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
        // SAFETY: `index` is below `count`; entries between head and tail belong to the kernel and this
        // one is not among them, since each buffer is in one place and never more than `count` are out. The tail lies in the
        // first entry, as the kernel's interface says, and is only ever accessed atomically.
        unsafe {
            let entry = &mut *self.ring.add(index).as_ptr();
            entry.set_addr(self.memory.add(usize::from(id) * self.bytes as usize).as_ptr() as u64);
            entry.set_len(self.bytes);
            entry.set_bid(id);
            let tail = BufRingEntry::tail(self.ring.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let count = usize::from(self.count);
        // SAFETY: mapped by `map` with these sizes; the ring that used them has been dropped before.
        unsafe {
            libc::munmap(self.ring.as_ptr().cast(), count * size_of::<BufRingEntry>());
            libc::munmap(self.memory.as_ptr().cast(), count * self.bytes as usize);
        }
    }
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing of ours.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_ANONYMOUS | libc::MAP_PRIVATE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(start.cast()).expect("mmap without MAP_FIXED never returns address zero"))
}
