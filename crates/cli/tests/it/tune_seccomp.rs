//! The server under exactly the system calls that `ringmain tune export --as seccomp` allows.
#![cfg(target_arch = "x86_64")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real processes and real time"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{Directory, PATIENCE, Server, program};
use crate::proxy::{Origin, get, until};
use crate::secure::{Authority, Secure, connector_of, trusting};
use ringmain_sys::seccomp;
use ringmain_tls::PeerName;
use ringmain_tune::export::CALLS;

/// Arguments of the program under the filter, one run per line.
const INSIDE: &str = "RINGMAIN_TEST_ALLOWED";

/// A number above the last system call; runtimes refuse later ones, too.
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
        SYS_fallocate SYS_fcntl SYS_fdatasync SYS_flock SYS_fstat SYS_fsync SYS_ftruncate SYS_futex SYS_getcpu SYS_getcwd SYS_getdents64 SYS_geteuid SYS_getegid
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

/// `ringmain ARGS…` under the filter: this test's own program, which sets it up and becomes that.
fn confined(test: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, args.join("\n"));
    command
}

/// Becomes the program if this is what [`confined`] has started.
fn become_confined() {
    let Ok(args) = std::env::var(INSIDE) else {
        return;
    };
    let numbers: Vec<i64> = allowed().into_iter().map(|(_, number)| number).collect();
    let others: Vec<i64> = (0..NUMBERS).filter(|number| !numbers.contains(number)).collect();
    seccomp::deny(&others, libc::EPERM).unwrap();
    let error = Command::new(program()).args(args.lines()).exec();
    panic!("{error}");
}

#[test]
fn the_server_serves_with_the_exported_profile() {
    become_confined();
    let names: Vec<&str> = allowed()
        .iter()
        .map(|(name, _)| name.trim_start_matches("SYS_"))
        .collect();
    assert_eq!(names, CALLS, "this table and the profile name the same calls");
    for engine in ["uring", "epoll"] {
        let args = ["--listen", "127.0.0.1:0", "--engine", engine];
        let test = "tune_seccomp::the_server_serves_with_the_exported_profile";
        let (_server, addrs) = Server::start(&mut confined(test, &args), 1);
        for path in ["/json", "/live"] {
            let mut stream = TcpStream::connect(&addrs[0]).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut start = [0; 15];
            stream.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200 OK", "{engine} {path}");
        }
    }
}

/// Returns the response to a publish request.
fn publish(addr: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let said = r#"{"channel":"kept:news","data":1}"#;
    let length = said.len();
    write!(
        stream,
        "POST /live/api/publish HTTP/1.1\r\nHost: x\r\nX-API-Key: K\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{said}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// TLS, upstreams by name, files, push, a log, the administration, and a file that changes meanwhile.
#[test]
fn a_gateway_serves_with_the_exported_profile() {
    become_confined();
    for engine in ["uring", "epoll"] {
        let (authority, folder) = (Authority::new("authority"), Directory::new());
        let pair = authority.sign("shop.test");
        fs::write(folder.join("shop.crt"), &pair.chain.bytes).unwrap();
        fs::write(folder.join("shop.key"), &pair.key.bytes).unwrap();
        fs::create_dir(folder.join("files")).unwrap();
        fs::write(folder.join("files/page.txt"), "a page").unwrap();
        let origin = Origin::named("origin");
        let port = origin.addr().rsplit_once(':').unwrap().1.to_owned();
        let text = format!(
            "
listeners:
  plain: {{address: 127.0.0.1:0}}
  secure: {{address: 127.0.0.1:0, tls: {{certificates: [shop]}}}}
certificates:
  shop: {{chain: shop.crt, key: shop.key}}
admin: {{address: 127.0.0.1:0}}
access_log: {{to: access.log}}
push: {{anonymous: true, api_key: K, namespaces: {{kept: {{retention: {{}}}}}}}}
routes:
  live: {{rules: [{{match: /live, push: {{below: /live}}}}]}}
  shop: {{rules: [{{match: /files, files: files}}, {{match: /, to: 'http://localhost:{port}'}}]}}
"
        );
        let file = folder.join("proxy.yaml");
        fs::write(&file, &text).unwrap();
        let args = [
            "run",
            file.to_str().unwrap(),
            "--engine",
            engine,
            "--workers",
            "2",
        ];
        let test = "tune_seccomp::a_gateway_serves_with_the_exported_profile";
        let (mut server, addrs) = Server::start(&mut confined(test, &args), 2);
        let (plain, secure) = (&addrs[0], &addrs[1]);

        assert_eq!(get(plain, "shop.test", "/x").body, "origin /x", "{engine}");
        assert_eq!(
            get(plain, "shop.test", "/files/page.txt").body,
            "a page",
            "{engine}"
        );
        let published = publish(plain);
        assert!(published.contains(r#""offset":1"#), "{engine}: {published}");
        let mut stream = TcpStream::connect(secure).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = PeerName::new("shop.test").unwrap();
        let connector = connector_of(&trusting(&authority.pem));
        let mut tls = Secure::new(&mut stream, &connector, &name).expect("a handshake");
        let wire = tls.seal(b"GET /y HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n");
        stream.write_all(&wire).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"origin /y") {
            assert_ne!(tls.receive(&mut stream, &mut answer).unwrap(), 0, "{engine}");
        }

        fs::write(&file, text.replace("match: /, to:", "match: /new, to:")).unwrap();
        server.wait_for("configuration reloaded in");
        until(plain, "shop.test", "/x", |answer| answer.status == 404);
        server.terminate();
        let log = fs::read_to_string(folder.join("access.log")).unwrap();
        assert!(log.contains("/files/page.txt"), "{engine}: {log}");
    }
}
