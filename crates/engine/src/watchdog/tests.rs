//! Stalls in virtual time, one sequence of checks each; then reading while the worker writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{Event, Heartbeat, Names, StepName, Watch};
use crate::backend::Time;
use crate::limits;

const THRESHOLD: Duration = Duration::from_millis(100);

fn ms(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn stalled(worker: usize, what: StepName, since: Time) -> Event {
    Event::Stalled { worker, what, since }
}

fn recovered(worker: usize, what: StepName, held_ms: u64) -> Event {
    Event::Recovered {
        worker,
        what,
        held: Duration::from_millis(held_ms),
    }
}

fn setup() -> (Watch, [Heartbeat; 2], StepName, StepName) {
    let names = Names::new();
    let beats = [Heartbeat::new(), Heartbeat::new()];
    (
        Watch::new(THRESHOLD),
        beats,
        names.intern("GET /slow"),
        names.intern("GET /quick"),
    )
}

#[test]
fn a_stall_is_reported_once_and_then_its_end() {
    let (mut watch, beats, slow, _) = setup();
    assert_eq!(watch.check(&beats, ms(0)), []);
    beats[1].enter(ms(10), slow);
    assert_eq!(watch.check(&beats, ms(25)), []);
    assert_eq!(watch.check(&beats, ms(109)), []);
    assert_eq!(watch.check(&beats, ms(110)), [stalled(1, slow, ms(10))]);
    assert_eq!(watch.check(&beats, ms(135)), []);
    assert_eq!(watch.check(&beats, ms(900)), []);
    beats[1].leave();
    assert_eq!(watch.check(&beats, ms(925)), [recovered(1, slow, 915)]);
    assert_eq!(watch.check(&beats, ms(950)), []);
}

#[test]
fn a_step_that_ends_in_time_is_no_event() {
    let (mut watch, beats, slow, _) = setup();
    beats[0].enter(ms(0), slow);
    assert_eq!(watch.check(&beats, ms(99)), []);
    beats[0].leave();
    assert_eq!(watch.check(&beats, ms(500)), []);
    assert_eq!(
        watch.check(&beats, ms(5000)),
        [],
        "an idle worker may sleep for ever"
    );
}

#[test]
fn a_busy_worker_of_short_steps_is_no_stall() {
    let (mut watch, beats, _, quick) = setup();
    // The same step over and over, each seen by one check.
    for at in (0..2000).step_by(25) {
        beats[0].enter(ms(at), quick);
        assert_eq!(watch.check(&beats, ms(at + 20)), [], "at {at}");
    }
}

#[test]
fn the_next_step_of_the_same_turn_is_not_blamed() {
    let (mut watch, beats, slow, quick) = setup();
    // The worker reads the clock once a turn, so both steps say that they began at 0.
    beats[0].enter(ms(0), slow);
    assert_eq!(watch.check(&beats, ms(100)), [stalled(0, slow, ms(0))]);
    beats[0].enter(ms(0), quick);
    assert_eq!(watch.check(&beats, ms(125)), [recovered(0, slow, 125)]);
    beats[0].leave();
    assert_eq!(watch.check(&beats, ms(150)), []);
}

#[test]
fn one_stall_directly_after_another_is_two() {
    let (mut watch, beats, slow, quick) = setup();
    beats[0].enter(ms(0), slow);
    assert_eq!(watch.check(&beats, ms(150)), [stalled(0, slow, ms(0))]);
    beats[0].leave();
    beats[0].enter(ms(160), quick);
    let both = [recovered(0, slow, 300), stalled(0, quick, ms(160))];
    assert_eq!(watch.check(&beats, ms(300)), both);
}

#[test]
fn workers_are_told_apart() {
    let (mut watch, beats, slow, quick) = setup();
    beats[0].enter(ms(0), slow);
    beats[1].enter(ms(50), quick);
    assert_eq!(watch.check(&beats, ms(120)), [stalled(0, slow, ms(0))]);
    assert_eq!(watch.check(&beats, ms(160)), [stalled(1, quick, ms(50))]);
    beats[0].leave();
    assert_eq!(watch.check(&beats, ms(170)), [recovered(0, slow, 170)]);
}

#[test]
fn names_are_interned_and_bounded() {
    let names = Names::new();
    let a = names.intern("a");
    assert_eq!(names.intern("a"), a);
    assert_ne!(names.intern("b"), a);
    assert_eq!(names.text(a), "a");
    for i in 0..limits::STEP_NAMES {
        let _ = names.intern(Box::leak(format!("step {i}").into_boxed_str()));
    }
    assert_eq!(names.intern("one too many"), StepName::OTHER);
    assert_eq!(names.text(StepName::OTHER), "other");
    assert_eq!(names.intern("a"), a, "known names stay known");
}

#[test]
fn a_reader_never_joins_two_steps() {
    let beat = Heartbeat::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The time tells the step.
            for i in 0..10_000_000u32 {
                beat.enter(Time(u64::from(i)), StepName(i % 7));
                if i % 3 == 0 {
                    beat.leave();
                }
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            if let Some((_, StepName(step), Time(since))) = beat.read() {
                assert_eq!(u64::from(step), since % 7, "since {since}");
            }
        }
    });
}
