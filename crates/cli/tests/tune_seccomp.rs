//! The server under exactly the system calls that `ringmain tune export --as seccomp` allows.
#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real processes and real time"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{Server, program};
use ringmain_sys::seccomp;
use ringmain_tune::export::CALLS;

const INSIDE: &str = "RINGMAIN_TEST_ALLOWED";

/// Beyond the last system call that there is; later ones are refused too by a runtime, and nobody knows them yet.
const NUMBERS: i64 = 480;

macro_rules! numbers {
    ($($name:ident)*) => {
        [$((stringify!($name), libc::$name),)*]
    };
}

fn allowed() -> Vec<(&'static str, i64)> {
    numbers![
        SYS_accept SYS_accept4 SYS_access SYS_arch_prctl SYS_bind SYS_brk SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_clone3 SYS_close
        SYS_connect SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_wait SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group
        SYS_fallocate SYS_fcntl SYS_fdatasync SYS_flock SYS_fstat SYS_fsync SYS_ftruncate SYS_futex SYS_getcpu SYS_getdents64 SYS_geteuid SYS_getegid
        SYS_getgid SYS_getpeername SYS_getpid SYS_getppid SYS_getrandom SYS_getrusage SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday
        SYS_getuid SYS_inotify_add_watch SYS_inotify_init1 SYS_inotify_rm_watch SYS_ioctl SYS_io_uring_enter SYS_io_uring_register
        SYS_io_uring_setup SYS_kill SYS_listen SYS_lseek SYS_lstat SYS_madvise SYS_membarrier SYS_mkdir SYS_mkdirat SYS_mmap SYS_mprotect SYS_mremap
        SYS_munmap SYS_nanosleep SYS_newfstatat SYS_open SYS_openat SYS_openat2 SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_poll SYS_ppoll
        SYS_prctl SYS_pread64 SYS_preadv2 SYS_prlimit64 SYS_pwrite64 SYS_read SYS_readlink SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmsg SYS_rename
        SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn
        SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_yield SYS_sendfile SYS_sendmsg SYS_sendto SYS_set_robust_list
        SYS_set_tid_address SYS_setsockopt SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_socket SYS_socketpair SYS_stat SYS_statfs SYS_statx
        SYS_sysinfo SYS_tgkill SYS_timerfd_create SYS_timerfd_settime SYS_tkill SYS_umask SYS_uname SYS_unlink SYS_unlinkat SYS_wait4 SYS_waitid
        SYS_write SYS_writev
    ]
    .into()
}

#[test]
fn the_server_serves_with_the_exported_profile() {
    if let Some(engine) = std::env::var_os(INSIDE) {
        let numbers: Vec<i64> = allowed().into_iter().map(|(_, number)| number).collect();
        let others: Vec<i64> = (0..NUMBERS).filter(|number| !numbers.contains(number)).collect();
        seccomp::deny(&others, libc::EPERM).unwrap();
        let error = Command::new(program())
            .args(["--listen", "127.0.0.1:0", "--engine"])
            .arg(engine)
            .exec();
        panic!("{error}");
    }
    let names: Vec<&str> = allowed()
        .iter()
        .map(|(name, _)| name.trim_start_matches("SYS_"))
        .collect();
    assert_eq!(names, CALLS, "this table and the profile name the same calls");
    for engine in ["uring", "epoll"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let test = "the_server_serves_with_the_exported_profile";
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(INSIDE, engine);
        let (_server, addrs) = Server::start(&mut command, 1);
        for path in ["/json", "/live"] {
            let mut stream = TcpStream::connect(&addrs[0]).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut start = [0; 15];
            stream.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200 OK", "{engine} {path}");
        }
    }
}
