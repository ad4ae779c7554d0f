//! A ring of receive buffers shared with the kernel (provided-buffer ring, Linux 5.19).
//!
//! Owns the memory and the ring's tail. Knows nothing of sockets or completions.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::backend::Lent;

/// One buffer group.
pub(super) struct Buffers {
    ring: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    count: u16,
    bytes: u32,
    group: u16,
    tail: u16,
    free: u16,
}

impl Buffers {
    /// Maps and registers `count` (a power of two) buffers of `bytes` bytes as group `group`.
    ///
    /// The pages are touched only when the kernel first writes to them.
    pub(super) fn register(ring: &IoUring, group: u16, count: u16, bytes: u32) -> io::Result<Buffers> {
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
        let index = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
        // SAFETY: `index` is below `count`; entries between head and tail belong to the kernel and this
        // one is not among them, since never more than `count` buffers are out. The tail lies in the
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
