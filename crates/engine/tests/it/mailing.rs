//! Mail, wakers and timers between real threads: order, bounds, and nothing lost.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::scripted::{self, App, Letter, Server, Setting, Told, echo, serve};
use ringmain_engine::limits::{INBOX, MAIL_PER_PAIR};
use ringmain_engine::mail::PostError;
use ringmain_engine::{Config, Cx};
use ringmain_testkit::wait::give_way;

on_every_backend!(
    mail_from_worker_to_worker_keeps_its_order,
    mail_to_a_worker_that_is_full_comes_back,
    the_inbox_keeps_each_senders_order,
    a_full_inbox_returns_the_letter,
    an_ended_worker_takes_no_mail,
    a_thread_wakes_a_task,
    timers_fire_in_order_under_load,
    ten_thousand_sleeping_tasks_wake,
);

fn number(told: Told) -> Option<u64> {
    match told {
        Told::Number(number) => Some(number),
        _ => None,
    }
}

fn hold(server: &Server, worker: usize) -> Sender<()> {
    let (release, released) = channel();
    let (begun, begins) = channel();
    let block = move |_: &Cx| {
        begun.send(()).unwrap();
        // Ends when the sender goes.
        let _ = released.recv();
    };
    let letter = Letter::Run(Box::new(block));
    assert!(server.running.inbox(worker).post(letter).is_ok());
    begins.recv_timeout(scripted::PATIENCE).unwrap();
    release
}

/// A timer with key `n` posts `n` numbers to worker 1, as many as it takes; what comes back is noted.
fn posts(setting: Setting) -> App {
    let (post, tell) = (setting.post.clone(), setting.tell.clone());
    let mut app = setting.echo();
    app.timer = Box::new(move |_, count| {
        for number in 0..count {
            match post.send(1, Letter::Number(number)) {
                Ok(()) => {}
                Err(PostError::Full(Letter::Number(back))) => {
                    assert_eq!(back, number, "the letter itself comes back");
                    tell.send((0, Told::Note("full"))).unwrap();
                }
                Err(_) => panic!("full or nothing"),
            }
        }
        tell.send((0, Told::Note("posted"))).unwrap();
    });
    app
}

fn two(config: Config) -> Config {
    Config {
        workers: Some(2),
        stall: Duration::from_secs(3600),
        ..config
    }
}

fn begin_posting(server: &Server, count: u64) {
    server.on_worker(0, move |cx| assert!(cx.timer(Duration::ZERO, count)));
}

fn mail_from_worker_to_worker_keeps_its_order(config: Config) {
    let server = serve(two(config), posts);
    for _ in 0..20 {
        begin_posting(&server, 500);
        for expected in 0..500 {
            assert_eq!(server.until(|_, told| number(told)), expected);
        }
    }
}

fn mail_to_a_worker_that_is_full_comes_back(config: Config) {
    let server = serve(two(config), posts);
    let release = hold(&server, 1);
    begin_posting(&server, MAIL_PER_PAIR as u64 + 3);
    let mut returned = 0;
    server.until(|_, told| {
        returned += usize::from(told == Told::Note("full"));
        (told == Told::Note("posted")).then_some(())
    });
    assert_eq!(returned, 3);
    drop(release);
    for expected in 0..MAIL_PER_PAIR as u64 {
        assert_eq!(server.until(|_, told| number(told)), expected);
    }
}

fn the_inbox_keeps_each_senders_order(config: Config) {
    const EACH: u64 = 20_000;
    let server = serve(config, Setting::echo);
    let senders: Vec<_> = (0..4_u64)
        .map(|sender| {
            let inbox = server.running.inbox(0).clone();
            std::thread::spawn(move || {
                for count in 0..EACH {
                    let mut letter = Letter::Number(sender << 32 | count);
                    while let Err(error) = inbox.post(letter) {
                        letter = error.into_message();
                        give_way();
                    }
                }
            })
        })
        .collect();
    let mut next: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..4 * EACH {
        let number = server.until(|_, told| number(told));
        let expected = next.entry(number >> 32).or_default();
        assert_eq!(number & 0xffff_ffff, *expected);
        *expected += 1;
    }
    for sender in senders {
        sender.join().unwrap();
    }
}

fn a_full_inbox_returns_the_letter(config: Config) {
    let server = serve(two(config), Setting::echo);
    let release = hold(&server, 0);
    for number in 0..INBOX as u64 {
        assert!(server.running.inbox(0).post(Letter::Number(number)).is_ok());
    }
    let refused = server.running.inbox(0).post(Letter::Number(77));
    assert!(matches!(refused, Err(PostError::Full(Letter::Number(77)))));
    drop(release);
    for expected in 0..INBOX as u64 {
        assert_eq!(server.until(|_, told| number(told)), expected);
    }
}

fn an_ended_worker_takes_no_mail(config: Config) {
    let server = serve(config, Setting::echo);
    let inbox = server.running.inbox(0).clone();
    server.running.stop();
    server.running.join().unwrap();
    assert!(matches!(
        inbox.post(Letter::Number(7)),
        Err(PostError::Gone(Letter::Number(7)))
    ));
}

fn a_thread_wakes_a_task(config: Config) {
    let server = serve(config, Setting::echo);
    let place: Arc<Mutex<Option<Waker>>> = Arc::default();
    let go = Arc::new(AtomicBool::new(false));
    let (give, take) = channel();
    let (waits, flag) = (Arc::clone(&place), Arc::clone(&go));
    server.on_worker(0, move |cx| {
        let rounds = async move {
            for round in 0..1000 {
                poll_fn(|context| {
                    *waits.lock().unwrap() = Some(context.waker().clone());
                    if flag.swap(false, Ordering::AcqRel) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
                give.send(round).unwrap();
            }
        };
        cx.spawn(rounds).unwrap();
    });
    for round in 0..1000 {
        go.store(true, Ordering::Release);
        loop {
            if let Some(waker) = place.lock().unwrap().take() {
                waker.wake();
                break;
            }
            give_way();
        }
        assert_eq!(take.recv_timeout(scripted::PATIENCE), Ok(round));
    }
}

fn timers_fire_in_order_under_load(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.timer = Box::new(|cx, key| {
            if key > 0 {
                assert!(cx.timer(Duration::from_millis(1), key - 1));
            }
        });
        app
    });
    let done = Arc::new(AtomicBool::new(false));
    let (stop, mut client) = (Arc::clone(&done), server.client());
    let load = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            echo(&mut client, &[7; 10_000]);
        }
    });
    server.on_worker(0, |cx| assert!(cx.timer(Duration::from_millis(1), 50)));
    for expected in (0..=50).rev() {
        let key = server.until(|_, told| match told {
            Told::Timer(key) => Some(key),
            _ => None,
        });
        assert_eq!(key, expected);
    }
    // Of two set together the earlier one comes first.
    server.on_worker(0, |cx| {
        assert!(cx.timer(Duration::from_millis(30), 0) && cx.timer(Duration::from_millis(10), 0));
    });
    server.expect(&Told::Timer(0));
    server.expect(&Told::Timer(0));
    done.store(true, Ordering::Relaxed);
    load.join().unwrap();
    assert_eq!(server.running.report().workers[0].panics, 0);
}

fn ten_thousand_sleeping_tasks_wake(config: Config) {
    const TASKS: u64 = 10_000;
    let server = serve(config, Setting::echo);
    let (give, take) = channel();
    server.on_worker(0, move |cx| {
        for task in 0..TASKS {
            let (inner, give) = (cx.clone(), give.clone());
            let until = cx.now().after(Duration::from_millis(task % 200));
            cx.spawn(async move {
                inner.sleep(Duration::from_millis(task % 200)).await;
                give.send((task, inner.now() >= until)).unwrap();
            })
            .unwrap();
        }
    });
    echo(&mut server.client(), b"others go on");
    let mut seen = vec![false; TASKS as usize];
    for _ in 0..TASKS {
        let (task, late_enough) = take.recv_timeout(scripted::PATIENCE).unwrap();
        assert!(late_enough, "task {task} woke early");
        assert!(!std::mem::replace(&mut seen[task as usize], true));
    }
}
