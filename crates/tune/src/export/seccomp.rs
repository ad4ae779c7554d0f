//! The system calls that Ringmain makes, as a profile that container runtimes take.

use serde_json::{Value, json};

/// What `ringmain run` calls, with both engines, TLS, logs, configurations that change, push, NATS and hand-over, and what the C
/// library and the standard library call around it. Found by tracing and reading; tests run a server and a gateway under it.
#[rustfmt::skip]
pub const CALLS: &[&str] = &[
    "accept", "accept4", "access", "arch_prctl", "bind", "brk", "clock_gettime", "clock_nanosleep", "clone",
    "clone3", "close", "connect", "dup", "dup3", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait",
    "eventfd2", "execve", "exit", "exit_group", "fallocate", "fcntl", "fdatasync", "flock", "fstat",
    "fsync", "ftruncate", "futex", "getcpu", "getcwd", "getdents64", "geteuid", "getegid", "getgid", "getpeername",
    "getpid", "getppid", "getrandom", "getrusage", "getsockname", "getsockopt", "gettid", "gettimeofday",
    "getuid", "inotify_add_watch", "inotify_init1", "inotify_rm_watch", "ioctl", "io_uring_enter",
    "io_uring_register", "io_uring_setup", "kill", "listen", "lseek", "lstat", "madvise", "membarrier",
    "mkdir", "mkdirat", "mmap", "mprotect", "mremap", "munmap", "nanosleep", "newfstatat", "open", "openat",
    "openat2", "pidfd_open", "pidfd_send_signal", "pipe2", "poll", "ppoll", "prctl", "pread64", "preadv2",
    "prlimit64", "pwrite64", "read", "readlink", "readlinkat", "readv", "recvfrom", "recvmsg", "rename",
    "renameat", "renameat2", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sched_getaffinity", "sched_setaffinity", "sched_yield", "sendfile", "sendmsg", "sendto",
    "set_robust_list", "set_tid_address", "setsockopt", "shutdown", "sigaltstack", "signalfd4", "socket",
    "socketpair", "stat", "statfs", "statx", "sysinfo", "tgkill", "timerfd_create", "timerfd_settime",
    "tkill", "umask", "uname", "unlink", "unlinkat", "wait4", "waitid", "write", "writev",
];

/// The profile: these calls are allowed, all others fail with EPERM.
#[must_use]
pub fn seccomp() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "archMap": [
            { "architecture": "SCMP_ARCH_X86_64", "subArchitectures": [] },
            { "architecture": "SCMP_ARCH_AARCH64", "subArchitectures": [] },
        ],
        "syscalls": [{ "names": CALLS, "action": "SCMP_ACT_ALLOW" }],
    })
}
