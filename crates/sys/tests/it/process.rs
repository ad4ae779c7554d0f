//! CPU time and affinity, of a real busy child and of this thread.
#![allow(clippy::disallowed_methods, reason = "tests of real threads and processes")]

use crate::common;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use ringmain_sys::process::{cpu_time, thread_cpu_time, thread_waited};
use ringmain_sys::{clock, cpu};
use ringmain_testkit::program;

/// What each of the child's two threads burns.
const SHARE: Duration = Duration::from_millis(60);

fn burn(span: Duration) {
    let begin = thread_cpu_time();
    while thread_cpu_time() - begin < span {}
}

/// Not a test: the busy child. One thread has ended when it says so, the other waits.
#[test]
fn a_busy_process() {
    if !common::is_child() {
        return;
    }
    std::thread::spawn(|| burn(SHARE)).join().unwrap();
    burn(SHARE);
    println!("burnt");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn last_cpu() -> usize {
    *cpu::allowed().last().expect("never empty")
}

/// All of it runs on [`last_cpu`].
fn busy_child() -> Child {
    use std::os::unix::process::CommandExt;
    let mut command = common::in_child("process::a_busy_process");
    let cpu = last_cpu();
    // SAFETY: between fork and exec it makes one system call, and allocates nothing as this CPU is below 1024.
    unsafe { command.pre_exec(move || cpu::pin(cpu)) };
    let mut child = program::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let burnt = lines.map(Result::unwrap).any(|line| line.contains("burnt"));
    assert!(burnt, "the child ended early");
    child
}

fn assert_no_process<T: std::fmt::Debug>(result: std::io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn a_childs_time_counts_ended_threads_and_lasts_until_it_is_waited_for() {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let mut child = busy_child();
    let burnt = cpu_time(child.id()).unwrap();
    assert!(burnt >= SHARE * 2, "{burnt:?}");
    assert!(cpu_time(child.id()).unwrap() >= burnt, "it never goes back");
    drop(child.stdin.take());
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
    assert!(
        cpu_time(child.id()).unwrap() >= burnt,
        "it has ended and is not waited for"
    );
    assert!(child.wait().unwrap().success());
    assert_no_process(cpu_time(child.id()));
}

#[test]
fn a_childs_affinity_is_its_own() {
    let mut child = busy_child();
    assert_eq!(cpu::allowed_of(child.id()).unwrap(), [last_cpu()]);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_no_process(cpu::allowed_of(child.id()));
}

#[test]
fn numbers_that_no_process_can_have() {
    for pid in [0, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX] {
        assert_no_process(cpu_time(pid));
        assert_no_process(cpu::allowed_of(pid));
    }
}

#[test]
fn this_process_has_the_time_of_all_its_threads_and_a_thread_its_own() {
    let (process, thread) = (clock::process_cpu(), thread_cpu_time());
    std::thread::spawn(|| burn(SHARE)).join().unwrap();
    let ours = cpu_time(std::process::id()).unwrap();
    assert!(ours >= process + SHARE, "{ours:?} after {process:?}");
    assert!(ours <= clock::process_cpu(), "the same clock");
    let waited = thread_cpu_time() - thread;
    assert!(waited < SHARE, "{waited:?} for waiting");
}

#[test]
fn this_process_may_use_what_its_main_thread_may() {
    let own = cpu::allowed_of(std::process::id()).unwrap();
    assert_eq!(own, cpu::allowed());
}

#[test]
fn timer_slack_is_the_threads_own() {
    let slack = || rustix::thread::current_timer_slack().unwrap();
    let before = slack();
    let set = move || {
        clock::set_timer_slack(Duration::from_micros(1)).unwrap();
        let sharp = slack();
        clock::set_timer_slack(Duration::ZERO).unwrap();
        (sharp, slack())
    };
    assert_eq!(std::thread::spawn(set).join().unwrap(), (1000, before));
    assert_eq!(slack(), before);
}

/// Two that want one CPU at the same time: one of them has to wait.
#[test]
fn a_thread_that_shares_its_cpu_waits_for_it() {
    let cpu = cpu::allowed()[0];
    let both = std::sync::Barrier::new(2);
    let waited = || {
        cpu::pin(cpu).unwrap();
        both.wait();
        burn(SHARE);
        thread_waited()
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(waited);
        (scope.spawn(waited).join().unwrap(), other.join().unwrap())
    });
    match one.zip(other) {
        Some((one, other)) => assert!(one + other >= SHARE / 2, "{one:?} and {other:?}"),
        None => eprintln!("SKIPPED: this kernel does not count how long threads wait (CONFIG_SCHED_INFO)"),
    }
}
