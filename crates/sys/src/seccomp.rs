//! Refusing system calls to a thread, so that tests can see what happens where a sandbox does.
//!
//! Not a sandbox itself: it lists what is refused, not what is allowed, and trusts the calling convention.

use std::io;

/// The most system calls that one filter can name; the kernel takes 4096 instructions.
const CALLS_LIMIT: usize = 2000;

/// From now on the calling thread, and the threads and processes that it starts, get `errno` from each of
/// `syscalls`. Cannot be undone, and forbids gaining privileges by exec (`no_new_privs`).
///
/// # Errors
/// As `seccomp(2)`; `InvalidInput` beyond 2000 calls.
pub fn deny(syscalls: &[i64], errno: i32) -> io::Result<()> {
    if syscalls.len() > CALLS_LIMIT {
        let text = format!("expected at most {CALLS_LIMIT} calls; found {}", syscalls.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let op = |code: u32, k: u32, jf: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let refuse = libc::SECCOMP_RET_ERRNO | (errno as u32 & libc::SECCOMP_RET_DATA);
    // A = seccomp_data.nr
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for &number in syscalls {
        // Skips the refusal unless it is this call.
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 1));
        program.push(op(libc::BPF_RET | libc::BPF_K, refuse, 0));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    rustix::thread::set_no_new_privs(true)?;
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and its length are as above; the kernel copies it during the call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The system call that samples threads, which containers often refuse.
#[must_use]
pub fn perf_syscalls() -> [i64; 1] {
    [libc::SYS_perf_event_open]
}

/// The system calls of io_uring, which containers often refuse.
#[must_use]
pub fn io_uring_syscalls() -> [i64; 3] {
    [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ]
}
