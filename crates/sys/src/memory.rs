//! Memory of the process.

/// Returns memory to the kernel that the process has freed and its allocator keeps for later. Takes milliseconds: for use after a rare peak.
///
/// glibc's allocator is trimmed as a whole. With the feature `mimalloc` the calling thread's heap and the arenas of all threads are purged; without
/// that call mimalloc purges freed pages with some later allocation, which a process that has become idle does not make.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers go in or out, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    #[cfg(feature = "mimalloc")]
    // SAFETY: no pointers go in or out, and any thread may call it at any time, also in a program with another global allocator.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
