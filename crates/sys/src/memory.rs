//! Memory of the process.

/// Bytes of a block that allocators take from the system's pages by themselves, and look for others to give back with.
const LARGE_BYTES: usize = 4 * 1024 * 1024;

/// Gives back to the kernel what the process has freed and its allocator keeps for later: worth its milliseconds behind
/// something rare that took much more than stays.
///
/// For glibc's allocator by its own call. mimalloc gives pages back a second after they were freed, but only when something
/// large is allocated or freed then, which a process that has become idle never does: so that is done here.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers go in or out, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    for _ in 0..2 {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    }
}
