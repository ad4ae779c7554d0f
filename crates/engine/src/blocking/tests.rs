//! The pool: order, limits, panics, idleness and both ends of a shutdown.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ringmain_testkit::wait::until;

use super::{Pool, Unfinished};
use crate::backend::Job;

/// Longer than any scheduling delay: when it passes, the test has failed.
const PATIENCE: Duration = ringmain_testkit::PATIENCE;

/// A job that says that it started and runs until told to end.
fn held() -> (Job, Receiver<()>, Sender<()>) {
    let (started, has_started) = channel();
    let (end, may_end) = channel::<()>();
    let job = Box::new(move || {
        started.send(()).expect("the test waits for it");
        // An error means that the test has ended.
        let _ = may_end.recv();
    });
    (job, has_started, end)
}

/// Starts a held job and waits until it runs.
fn occupy(pool: &Pool) -> Sender<()> {
    let (job, has_started, end) = held();
    pool.run(job).expect("room");
    has_started.recv_timeout(PATIENCE).expect("it starts");
    end
}

fn report(to: &Sender<u32>, what: u32) -> Job {
    let to = to.clone();
    Box::new(move || to.send(what).expect("the test waits for it"))
}

#[test]
fn jobs_run_in_order_on_named_threads() {
    let pool = Pool::new(1, 100);
    assert_eq!(pool.threads(), 0, "started on demand");
    let (names, named) = channel();
    pool.run(Box::new(move || {
        let name = thread::current().name().map(String::from);
        names.send(name).expect("the test waits for it");
    }))
    .expect("room");
    let name = named.recv_timeout(PATIENCE).expect("it runs");
    assert_eq!(name.as_deref(), Some("ringmain-blocking-0"));
    let (to, from) = channel();
    for n in 0..100 {
        pool.run(report(&to, n)).expect("room");
    }
    pool.shutdown(PATIENCE).expect("all end");
    assert_eq!(from.try_iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    assert_eq!(pool.threads(), 0);
}

#[test]
fn a_job_never_waits_while_a_thread_may_start() {
    let pool = Pool::new(3, 10);
    // Each would wait for ever behind another on the same thread.
    let ends: Vec<_> = (0..3).map(|_| occupy(&pool)).collect();
    assert_eq!(pool.threads(), 3);
    drop(ends);
    pool.shutdown(PATIENCE).expect("all end");
}

#[test]
fn a_thread_already_told_of_a_job_does_not_count_as_idle() {
    // Which comes first, the second job or the idle thread's waking, differs from round to round.
    for _ in 0..20 {
        let pool = Pool::new(2, 10);
        drop(occupy(&pool));
        until("an idle thread", || pool.shared.lock().idle > 0);
        let ((a, a_started, _end_a), (b, b_started, _end_b)) = (held(), held());
        pool.run(a).expect("room");
        pool.run(b).expect("room");
        a_started
            .recv_timeout(PATIENCE)
            .expect("the idle thread takes it");
        b_started.recv_timeout(PATIENCE).expect("a new thread takes it");
    }
}

#[test]
fn an_idle_thread_is_used_again() {
    let pool = Pool::new(8, 10);
    drop(occupy(&pool));
    until("an idle thread", || pool.shared.lock().idle > 0);
    drop(occupy(&pool));
    assert_eq!(pool.threads(), 1);
    pool.shutdown(PATIENCE).expect("all end");
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let pool = Pool::new(1, 2);
    let end = occupy(&pool);
    let (to, from) = channel();
    pool.run(report(&to, 1)).expect("room");
    pool.run(report(&to, 2)).expect("room");
    assert_eq!(pool.queued(), 2);
    let refused = pool.run(report(&to, 3)).expect_err("two fit");
    (refused.0)();
    assert_eq!(from.try_iter().collect::<Vec<_>>(), [3], "it was the job itself");
    drop(end);
    assert_eq!(from.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(from.recv_timeout(PATIENCE), Ok(2));
    pool.shutdown(PATIENCE).expect("all end");
}

#[test]
fn a_panicking_job_is_counted_and_harms_no_other() {
    let pool = Pool::new(1, 10);
    let (to, from) = channel();
    let end = occupy(&pool);
    // Not panic!: the hook would print a backtrace into the test's output.
    pool.run(Box::new(|| std::panic::resume_unwind(Box::new("on purpose"))))
        .expect("room");
    pool.run(report(&to, 1)).expect("room");
    drop(end);
    assert_eq!(from.recv_timeout(PATIENCE), Ok(1));
    assert_eq!(pool.panics(), 1);
    assert_eq!(pool.threads(), 1, "the same thread went on");
    pool.shutdown(PATIENCE).expect("all end");
}

#[test]
fn idle_threads_end_and_new_ones_start() {
    let pool = Pool::with_idle(2, 10, Duration::from_millis(1));
    drop((occupy(&pool), occupy(&pool)));
    let state = pool.shared.lock();
    let (state, timeout) = pool
        .shared
        .ended
        .wait_timeout_while(state, PATIENCE, |state| state.live > 0)
        .expect("no panic under the lock");
    assert!(!timeout.timed_out(), "{} idle threads go on", state.live);
    drop(state);
    drop(occupy(&pool));
    pool.shutdown(PATIENCE).expect("all end");
}

#[test]
fn shutdown_takes_nothing_new() {
    let pool = Pool::new(1, 10);
    pool.shutdown(PATIENCE).expect("nothing ran");
    assert!(pool.run(Box::new(|| ())).is_err());
    pool.shutdown(PATIENCE).expect("twice is fine");
}

#[test]
fn shutdown_gives_up_on_a_stuck_job() {
    let pool = Pool::new(1, 10);
    let end = occupy(&pool);
    let (to, from) = channel();
    pool.run(report(&to, 1)).expect("room");
    drop(to);
    let outcome = pool.shutdown(Duration::from_millis(1));
    assert_eq!(
        outcome,
        Err(Unfinished {
            running: 1,
            dropped: 1
        })
    );
    assert!(
        from.recv_timeout(PATIENCE).is_err(),
        "the waiting job was dropped"
    );
    drop(end);
    pool.shutdown(PATIENCE).expect("now it ends");
}

#[test]
fn dropping_the_pool_runs_what_was_queued() {
    let pool = Pool::new(1, 10);
    let end = occupy(&pool);
    let (to, from) = channel();
    pool.run(report(&to, 1)).expect("room");
    drop(pool);
    drop(end);
    assert_eq!(from.recv_timeout(PATIENCE), Ok(1));
}
