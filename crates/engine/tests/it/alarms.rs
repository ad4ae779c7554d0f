//! Alarms on every real back-end: never early, exact, one for each worker, and in nobody's way.
#![allow(
    clippy::disallowed_methods,
    reason = "one case runs on a thread of its own, whose system calls are filtered"
)]

use std::cell::Cell;
use std::time::Duration;

use crate::scripted::{self, Server, Setting, Told, echo, serve};
use ringmain_engine::backend::Time;
use ringmain_engine::{Config, Cx};

on_every_backend!(
    an_alarm_comes_once_and_never_early,
    an_alarm_is_finer_than_a_timer,
    a_schedule_is_kept_in_order,
    the_next_alarm_replaces_the_last,
    an_alarm_taken_away_does_not_come,
    alarms_that_are_always_due_starve_nobody,
    an_alarm_holds_no_shutdown_up,
    a_panic_in_an_alarm_is_counted_and_the_next_comes,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Alarms of which one must be exact. Not many more: a thread that is stopped between the turn's time and the wait makes a rounded timeout
/// exact by chance.
const ATTEMPTS: usize = 300;

impl Server {
    /// Sets the alarm so long after the worker's present time; returns when it is due.
    fn set_alarm(&self, after: Duration) -> Time {
        self.on_worker(0, move |cx| {
            let at = cx.clock().after(after);
            cx.set_alarm(Some(at));
            at
        })
    }

    /// The time of the turn in which the next alarm came.
    fn alarm(&self) -> Time {
        self.until(|_, told| match told {
            Told::Alarm(now) => Some(now),
            _ => None,
        })
    }

    /// What is told up to a timer that is set now: nothing but this may be an alarm of before.
    fn alarms_within(&self, span: Duration) -> usize {
        self.on_worker(0, move |cx| assert!(cx.timer(span, 7)));
        let mut alarms = 0;
        self.until(|_, told| {
            alarms += usize::from(matches!(told, Told::Alarm(_)));
            (told == Told::Timer(7)).then_some(alarms)
        })
    }
}

fn an_alarm_comes_once_and_never_early(config: Config) {
    let server = serve(config, Setting::echo);
    for micros in [0, 1, 30, 400, 999, 1000, 1001, 2500, 20_000] {
        let at = server.set_alarm(Duration::from_micros(micros));
        let now = server.alarm();
        assert!(now >= at, "{micros} µs: due at {at:?}, came at {now:?}");
    }
    assert_eq!(
        server.alarms_within(Duration::from_millis(5)),
        0,
        "each came once"
    );
}

/// One alarm is enough: a back-end that rounds timeouts to milliseconds makes each of them at least 700 µs late, while a busy host
/// makes only some of them late.
fn an_alarm_is_finer_than_a_timer(config: Config) {
    let server = serve(config, Setting::echo);
    let is_exact = || {
        // From the time of the turn on, as the worker computes its timeout: the rounding error does not depend on the host.
        let at = server.on_worker(0, |cx| {
            let at = cx.now().after(Duration::from_micros(1300));
            cx.set_alarm(Some(at));
            at
        });
        server.alarm().since(at) < Duration::from_micros(300)
    };
    let found = (0..ATTEMPTS).any(|_| is_exact());
    assert!(found, "all of {ATTEMPTS} alarms were late");
}

/// As an open loop does it: each alarm sets the next by the schedule and not by the time it came.
fn a_schedule_is_kept_in_order(config: Config) {
    const STEP: Duration = Duration::from_micros(150);
    const COUNT: u32 = 300;
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let (mut next, mut left) = (None, COUNT);
        app.alarm = Box::new(move |cx| {
            left -= 1;
            let due: Time = next.unwrap_or(cx.now()).after(STEP);
            next = Some(due);
            cx.set_alarm((left > 0).then_some(due));
        });
        app
    });
    let start = server.set_alarm(Duration::ZERO);
    let first = server.alarm();
    assert!(first >= start);
    for step in 1..COUNT {
        let (now, due) = (server.alarm(), first.after(STEP * step));
        assert!(now >= due, "alarm {step} is due at {due:?} and came at {now:?}");
    }
}

fn the_next_alarm_replaces_the_last(config: Config) {
    let server = serve(config, Setting::echo);
    server.set_alarm(HOUR);
    let sooner = server.set_alarm(Duration::from_millis(2));
    assert!(server.alarm() >= sooner);
    let later = server.on_worker(0, |cx| {
        let now = cx.clock();
        cx.set_alarm(Some(now));
        let later = now.after(Duration::from_millis(30));
        cx.set_alarm(Some(later));
        later
    });
    assert!(server.alarm() >= later, "the earlier one is gone");
    assert_eq!(server.alarms_within(Duration::from_millis(3)), 0);
}

fn an_alarm_taken_away_does_not_come(config: Config) {
    let server = serve(config, Setting::echo);
    let mut span = Duration::from_millis(40);
    loop {
        let at = server.set_alarm(span);
        let is_early = server.on_worker(0, move |cx| {
            cx.set_alarm(None);
            cx.clock() < at
        });
        if is_early {
            break;
        }
        // The host was slower than the alarm. Its report must not count for the next one.
        server.alarms_within(Duration::from_millis(1));
        span *= 2;
    }
    server.on_worker(0, |cx| {
        cx.set_alarm(Some(cx.now()));
        cx.set_alarm(None);
    });
    assert_eq!(server.alarms_within(span + Duration::from_millis(20)), 0);
}

/// An alarm that is due at once, for ever: one in each turn, and connections, timers and mail are served.
fn alarms_that_are_always_due_starve_nobody(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let last = Cell::new(Time(0));
        app.alarm = Box::new(move |cx| {
            assert!(cx.now() > last.replace(cx.now()), "one in a turn");
            cx.set_alarm(Some(Time(0)));
        });
        app
    });
    server.set_alarm(Duration::ZERO);
    let mut client = server.client();
    for _ in 0..100 {
        echo(&mut client, b"still served");
    }
    // A timer fires between them, and they continue behind it.
    server.alarms_within(Duration::from_millis(1));
    for _ in 0..10 {
        server.alarm();
    }
    server.on_worker(0, |cx| cx.set_alarm(None));
    let report = server.running.report().workers[0];
    assert_eq!(report.panics, 0);
}

fn an_alarm_holds_no_shutdown_up(config: Config) {
    for always in [false, true] {
        let config = Config {
            grace: HOUR,
            ..config.clone()
        };
        let server = serve(config, move |setting| {
            let mut app = setting.echo();
            app.alarm = Box::new(move |cx| {
                if always {
                    cx.set_alarm(Some(cx.now()));
                }
            });
            app
        });
        echo(&mut server.client(), b"hello");
        server.set_alarm(if always { Duration::ZERO } else { HOUR });
        server.running.shut_down();
        let Server { running, told, .. } = server;
        running.join().unwrap();
        drop(told);
    }
}

fn a_panic_in_an_alarm_is_counted_and_the_next_comes(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let mut first = true;
        app.alarm = Box::new(move |_| {
            assert!(!std::mem::take(&mut first), "an application's mistake");
        });
        app
    });
    server.set_alarm(Duration::ZERO);
    server.alarm();
    let at = server.set_alarm(Duration::from_micros(100));
    assert!(server.alarm() >= at);
    assert_eq!(server.running.report().workers[0].panics, 1);
}

/// Where a filter knows no `epoll_pwait2`, alarms are late and all else is as ever.
#[test]
fn without_exact_timeouts_an_alarm_is_late_and_never_early() {
    let filtered = std::thread::spawn(|| {
        for errno in [libc::EPERM, libc::ENOSYS] {
            ringmain_sys::seccomp::deny(&[libc::SYS_epoll_pwait2], errno).expect("a filter");
        }
        an_alarm_comes_once_and_never_early(scripted::epoll());
        an_alarm_holds_no_shutdown_up(scripted::epoll());
    });
    filtered.join().expect("the same holds");
}

/// Only a thread on which an alarm was set wakes up so often.
#[test]
fn the_first_alarm_sharpens_the_timers_of_its_worker_alone() {
    for config in [scripted::direct(), scripted::epoll()] {
        let config = Config {
            workers: Some(2),
            ..config
        };
        let server = serve(config, Setting::echo);
        server.set_alarm(HOUR);
        let slack = |_: &Cx| rustix::thread::current_timer_slack().unwrap();
        assert_eq!(server.on_worker(0, slack), 1000);
        assert!(server.on_worker(1, slack) > 1000);
    }
}
