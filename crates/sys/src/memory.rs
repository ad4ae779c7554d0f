//! Memory of the process.

/// Gives back to the kernel what the process has freed and its allocator keeps for later: worth its milliseconds behind
/// something rare that took much more than stays. Does nothing where the allocator is not glibc's.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers go in or out, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
