//! A simulated worker's lent buffers.
//!
//! Owns the memory and the count of who has what. Knows nothing of sockets.

use std::ptr::NonNull;

use ringmain_engine::backend::Lent;

use super::random::Random;

/// What a buffer holds when nobody may read it.
const FREE_PATTERN: u8 = 0xdb;

/// The buffers of one worker.
#[derive(Debug)]
pub(super) struct Buffers {
    worker: u32,
    limit: usize,
    size: usize,
    /// Made on first use; each is `size` bytes from a `Box<[u8]>`.
    made: Vec<NonNull<u8>>,
    free: Vec<u32>,
    /// The buffer that the worker holds at present.
    held: Option<u32>,
}

impl Buffers {
    pub(super) fn new(worker: usize, limit: usize, size: usize) -> Buffers {
        let worker = u32::try_from(worker).expect("a simulation has few workers");
        Buffers {
            worker,
            limit,
            size,
            made: Vec::new(),
            free: Vec::new(),
            held: None,
        }
    }

    /// Buffers that neither the worker nor an undelivered completion holds.
    pub(super) fn free(&self) -> usize {
        self.limit - self.made.len() + self.free.len()
    }

    /// Buffers in undelivered completions or with the worker.
    pub(super) fn out(&self) -> usize {
        self.made.len() - self.free.len()
    }

    /// Whether the worker holds a buffer that it was lent.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Fills a free buffer with the front of `data`, at most `size` bytes.
    ///
    /// Which buffer it is depends on the seed: a worker must not rely on an order.
    pub(super) fn fill(&mut self, random: &mut Random, data: &[u8]) -> Lent {
        let index = match self.free.len() {
            0 => self.make(),
            count => self.free.swap_remove(random.index(count)),
        };
        let start = self.made[index as usize];
        let len = data.len().min(self.size);
        // SAFETY: `start` owns `size` initialised bytes, and no `Lent` of it exists: it was free.
        // The copied range is within them, and `data` cannot overlap memory that only we know.
        unsafe { start.as_ptr().copy_from_nonoverlapping(data.as_ptr(), len) };
        let len = u32::try_from(len).expect("a buffer is smaller than 4 GiB");
        // SAFETY: the buffer is out of `free` until it is given back, so nobody else touches it.
        unsafe { Lent::new(start, len, self.worker << 16 | index) }
    }

    /// Notes that the worker has received this buffer.
    pub(super) fn hand_over(&mut self, data: &Lent) {
        self.held = Some(data.id());
    }

    /// Takes a buffer back.
    ///
    /// # Errors
    /// Says how the caller broke the contract.
    pub(super) fn give_back(&mut self, mut data: Lent) -> Result<(), String> {
        if self.held != Some(data.id()) {
            let owner = data.id() >> 16;
            return Err(format!(
                "a buffer of worker {owner} was given back to worker {}",
                self.worker
            ));
        }
        self.held = None;
        data.bytes_mut().fill(FREE_PATTERN);
        self.free.push(data.id() & 0xffff);
        Ok(())
    }

    fn make(&mut self) -> u32 {
        assert!(self.made.len() < self.limit, "the caller asked free() first");
        let memory = Box::leak(vec![FREE_PATTERN; self.size].into_boxed_slice());
        self.made.push(NonNull::from(memory).cast());
        u32::try_from(self.made.len() - 1).expect("the limit is below 2^16")
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let held = self.held.map(|id| (id & 0xffff) as usize);
        for (index, start) in self.made.iter().enumerate() {
            // A `Lent` that outlives its world keeps its memory: better lost than dangling.
            if held != Some(index) {
                let memory = std::ptr::slice_from_raw_parts_mut(start.as_ptr(), self.size);
                // SAFETY: `make` leaked exactly this box, and nobody holds a `Lent` of it.
                drop(unsafe { Box::from_raw(memory) });
            }
        }
    }
}
