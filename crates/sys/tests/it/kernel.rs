//! Clocks, events, signals, filters, settings and descriptor passing on the real kernel.

#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real clocks and of real threads"
)]

use crate::common;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringmain_sys::event::Event;
use ringmain_sys::scm::{FDS_LIMIT, recv_fds, send_fds};
use ringmain_sys::signal::{Signal, Signals};
use ringmain_sys::{clock, process, seccomp, sysctl};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};

#[test]
fn clocks_run_forward_and_agree_with_the_standard_library() {
    let first = clock::monotonic();
    assert!(clock::monotonic() >= first);
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = clock::realtime();
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(before <= now && now <= after, "{before:?} {now:?} {after:?}");
}

#[test]
fn cpu_time_grows_by_work_of_any_thread() {
    let before = clock::process_cpu();
    let worker = std::thread::spawn(move || {
        // The clock of the process counts what this thread burns.
        while clock::process_cpu() < before + Duration::from_millis(5) {
            std::hint::spin_loop();
        }
    });
    worker.join().unwrap();
    assert!(clock::process_cpu() >= before + Duration::from_millis(5));
}

#[test]
fn random_numbers_differ() {
    let mut numbers: Vec<_> = (0..1000).map(|_| clock::random()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1000);
    assert_eq!(numbers.iter().fold(0, |bits, number| bits | number), u64::MAX);
}

#[test]
fn numbers_of_a_stock_differ_beyond_its_end() {
    let mut random = clock::Random::new();
    let mut numbers: Vec<_> = (0..1000).map(|_| random.draw()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1000);
    assert_eq!(numbers.iter().fold(0, |bits, number| bits | number), u64::MAX);
}

fn is_readable(fd: impl AsFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_once)).unwrap() == 1
}

#[test]
fn an_event_is_readable_from_signal_to_drain() {
    let event = Arc::new(Event::new().unwrap());
    event.drain();
    assert!(!is_readable(&*event));
    event.signal();
    event.signal();
    assert!(is_readable(&*event));
    event.drain();
    assert!(!is_readable(&*event));
    let waker = Waker::from(event.clone());
    waker.wake_by_ref();
    assert!(is_readable(&*event));
    event.drain();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert!(is_readable(&*event));
    // At the counter's end a signal neither waits nor fails.
    rustix::io::write(&*event, &(u64::MAX - 2).to_ne_bytes()).unwrap();
    event.signal();
    event.drain();
    assert!(!is_readable(&*event));
}

#[test]
fn blocked_signals_are_waited_for() {
    let signals = Signals::block(&[Signal::User1, Signal::Hangup]).unwrap();
    assert_eq!(signals.wait(Some(Duration::ZERO)).unwrap(), None);
    assert_eq!(signals.wait(Some(Duration::from_millis(1))).unwrap(), None);
    for (number, signal) in [(libc::SIGHUP, Signal::Hangup), (libc::SIGUSR1, Signal::User1)] {
        // SAFETY: raises a signal in this thread, which blocks it.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        assert!(is_readable(&signals));
        assert_eq!(signals.wait(None).unwrap(), Some(signal));
    }
    assert_eq!(signals.wait(Some(Duration::ZERO)).unwrap(), None);
}

fn io_uring_setup_error() -> Option<i32> {
    // SAFETY: without parameters the call fails, whatever else.
    let status = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, std::ptr::null_mut::<u8>()) };
    assert_eq!(status, -1);
    std::io::Error::last_os_error().raw_os_error()
}

#[test]
fn a_filter_holds_for_one_thread_and_what_it_starts() {
    // An error that the kernel never gives here.
    let denied = Some(libc::EXFULL);
    let check = move || {
        seccomp::deny(&seccomp::io_uring_syscalls(), libc::EXFULL).unwrap();
        assert_eq!(io_uring_setup_error(), denied);
        std::thread::spawn(move || assert_eq!(io_uring_setup_error(), denied))
            .join()
            .unwrap();
    };
    std::thread::spawn(check).join().unwrap();
    assert_ne!(io_uring_setup_error(), denied);
    assert_eq!(
        seccomp::deny(&[0; 2001], 1).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn settings_by_name() {
    let expect = std::fs::read_to_string("/proc/sys/kernel/ostype").unwrap();
    assert_eq!(sysctl::read("kernel.ostype").as_deref(), Some(expect.trim_end()));
    assert_eq!(sysctl::read("kernel/ostype").as_deref(), Some(expect.trim_end()));
    for name in [
        "kernel.nosuch",
        "kernel",
        "",
        "../etc/hostname",
        "kernel/../kernel/ostype",
        "/etc/hostname",
    ] {
        assert_eq!(sysctl::read(name), None, "{name}");
    }
}

#[test]
fn this_process() {
    assert!(process::resident_bytes().unwrap() > 100_000);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert_eq!(
        uids.split_whitespace().nth(1),
        Some(process::uid().to_string().as_str())
    );
}

#[test]
fn descriptors_travel_with_bytes() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let (mut kept, given) = UnixStream::pair().unwrap();
    assert_eq!(
        send_fds(&sender, &[given.as_fd(), given.as_fd()], b"take").unwrap(),
        4
    );
    drop(given);
    let mut buffer = [0; 16];
    let (count, mut fds) = recv_fds(&receiver, &mut buffer).unwrap();
    assert_eq!((&buffer[..count], fds.len()), (&b"take"[..], 2));
    for fd in &fds {
        let flags = rustix::io::fcntl_getfd(fd).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    let mut received = UnixStream::from(fds.remove(0));
    received.write_all(b"through").unwrap();
    drop((received, fds));
    let mut text = String::new();
    kept.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");

    assert_eq!(send_fds(&sender, &[], b"plain").unwrap(), 5);
    let (count, fds) = recv_fds(&receiver, &mut buffer).unwrap();
    assert_eq!((count, fds.len()), (5, 0));
    drop(sender);
    assert_eq!(recv_fds(&receiver, &mut buffer).unwrap().0, 0);
}

#[test]
fn as_many_descriptors_as_the_limit_says() {
    let (sender, receiver) = UnixStream::pair().unwrap();
    let many = vec![sender.as_fd(); FDS_LIMIT + 1];
    assert_eq!(
        send_fds(&sender, &many, b"x").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        send_fds(&sender, &many[1..], b"").unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    send_fds(&sender, &many[1..], b"x").unwrap();
    assert_eq!(recv_fds(&receiver, &mut [0; 4]).unwrap().1.len(), FDS_LIMIT);
}

#[test]
fn descriptors_that_do_not_fit_are_an_error() {
    if !common::is_child() {
        return common::run_in_child("kernel::descriptors_that_do_not_fit_are_an_error");
    }
    let (sender, receiver) = UnixStream::pair().unwrap();
    send_fds(&sender, &[sender.as_fd(), sender.as_fd()], b"x").unwrap();
    let free: OwnedFd = rustix::io::dup(&sender).unwrap();
    let room = std::os::fd::AsRawFd::as_raw_fd(&free) as u64 + 1;
    drop(free);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(room),
            maximum: Some(room),
        },
    )
    .unwrap();
    let error = recv_fds(&receiver, &mut [0; 4]).unwrap_err();
    assert!(
        error.to_string().contains("the limit of open files is reached"),
        "{error}"
    );
    // The one that did arrive was closed.
    rustix::io::dup(&sender).unwrap();
}
