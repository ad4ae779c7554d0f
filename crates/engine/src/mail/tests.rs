//! Order, fairness, fullness and the ends of mail; then both ways under real threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use super::{Inbox, Mailbox, PostError, grid};
use crate::limits;
use crate::wake::Doorbell;

fn doorbells(workers: usize) -> Vec<Arc<Doorbell>> {
    (0..workers).map(|_| Arc::new(Doorbell::new())).collect()
}

fn workers(workers: usize, capacity: usize) -> Vec<Mailbox<u32>> {
    grid(&doorbells(workers), capacity, capacity)
}

fn all<M: Send>(mailbox: &mut Mailbox<M>) -> Vec<M> {
    let mut messages = Vec::new();
    assert!(!mailbox.drain(usize::MAX, |m| messages.push(m)));
    assert!(mailbox.is_empty());
    messages
}

#[test]
fn every_pair_is_connected_and_keeps_order() {
    let mut mail = workers(3, 8);
    for (from, mailbox) in mail.iter_mut().enumerate() {
        for to in 0..3 {
            for n in 0..2 {
                let message = (from * 100 + to * 10 + n) as u32;
                assert_eq!(mailbox.post(to, message), Ok(false));
            }
        }
    }
    for (to, mailbox) in mail.iter_mut().enumerate() {
        assert_eq!(mailbox.worker(), to);
        assert!(!mailbox.is_empty());
        let t = to as u32 * 10;
        assert_eq!(all(mailbox), [t, t + 1, 100 + t, 101 + t, 200 + t, 201 + t]);
    }
}

#[test]
fn a_full_queue_gives_the_message_back_and_harms_no_other() {
    let mut mail = workers(2, 2);
    assert_eq!(mail[0].post(1, 1), Ok(false));
    assert_eq!(mail[0].post(1, 2), Ok(false));
    let refused = mail[0].post(1, 3).expect_err("two fit");
    assert!(refused.to_string().contains("full"), "{refused}");
    assert_eq!(refused.into_message(), 3);
    assert_eq!(mail[1].post(1, 4), Ok(false), "another pair");
    let inbox = mail[1].inbox();
    assert_eq!(inbox.post(5), Ok(()));
    assert_eq!(inbox.post(6), Ok(()));
    assert_eq!(inbox.post(7), Err(PostError::Full(7)));
    assert_eq!(all(&mut mail[1]), [1, 2, 4, 5, 6]);
    assert_eq!(mail[0].post(1, 3), Ok(false), "room again");
    assert_eq!(inbox.post(7), Ok(()));
}

#[test]
fn a_busy_sender_does_not_starve_the_others() {
    let mut mail = workers(3, 1000);
    for _ in 0..1000 {
        mail[0].post(2, 0).expect("room");
    }
    mail[1].post(2, 1).expect("room");
    mail[2].inbox().post(2).expect("room");
    let mut got = Vec::new();
    assert!(mail[2].drain(limits::MAIL_IN_A_ROW + 2, |m| got.push(m)));
    assert_eq!(got[limits::MAIL_IN_A_ROW..], [1, 2]);
    // Turns go on across calls: budgets of one give each sender its share too.
    mail[1].post(2, 1).expect("room");
    got.clear();
    for _ in 0..limits::MAIL_IN_A_ROW + 1 {
        mail[2].drain(1, |m| got.push(m));
    }
    assert!(got.contains(&1), "{got:?}");
    // A sender that is alone is not slowed down.
    assert_eq!(all(&mut mail[2]).len(), 1000 - 2 * limits::MAIL_IN_A_ROW);
}

#[test]
fn a_sleeping_receiver_is_rung_once() {
    let bells = doorbells(2);
    let mut mail: Vec<Mailbox<u32>> = grid(&bells, 8, 8);
    for bell in &bells {
        bell.install(Waker::noop().clone()).expect("the first waker");
    }
    bells[1].prepare_sleep();
    assert_eq!(mail[0].post(1, 1), Ok(true), "this caller has to wake it");
    assert_eq!(mail[0].post(1, 2), Ok(false));
    bells[0].prepare_sleep();
    assert_eq!(mail[0].post(0, 3), Ok(false), "a worker that posts is awake");
}

#[test]
fn an_ended_receiver_refuses_and_drops_what_waits() {
    let mut mail: Vec<Mailbox<Arc<()>>> = grid(&doorbells(2), 8, 8);
    let probe = Arc::new(());
    let inbox = mail[1].inbox();
    mail[0].post(1, Arc::clone(&probe)).expect("room");
    inbox.post(Arc::clone(&probe)).expect("room");
    drop(mail.pop());
    assert_eq!(Arc::strong_count(&probe), 1, "a message was kept");
    let by_worker = mail[0].post(1, Arc::clone(&probe));
    assert!(matches!(by_worker, Err(PostError::Gone(_))), "{by_worker:?}");
    let by_thread = inbox.post(probe);
    assert!(matches!(by_thread, Err(PostError::Gone(_))), "{by_thread:?}");
}

#[derive(Default)]
struct Sleep {
    woken: Mutex<bool>,
    changed: Condvar,
    wakes: AtomicUsize,
}

impl Sleep {
    fn wait(&self) {
        let woken = self.woken.lock().expect("no panic under the lock");
        let limit = Duration::from_secs(30);
        let (mut woken, timeout) = self
            .changed
            .wait_timeout_while(woken, limit, |woken| !*woken)
            .expect("as above");
        assert!(!timeout.timed_out(), "mail waits and nobody woke its receiver");
        *woken = false;
    }
}

impl Wake for Sleep {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        *self.woken.lock().expect("no panic under the lock") = true;
        self.changed.notify_one();
    }
}

/// Receives until `expected` messages are in, sleeping whenever there are none.
///
/// Messages are sender << 32 | count, and each sender's counts must come without a gap.
fn receive(mailbox: &mut Mailbox<u64>, bell: &Doorbell, sleep: &Sleep, senders: usize, each: u64) {
    let mut counts = vec![0; senders];
    let mut left = senders as u64 * each;
    while left > 0 {
        bell.prepare_sleep();
        if mailbox.is_empty() {
            sleep.wait();
        }
        bell.cancel_sleep();
        mailbox.drain(64, |message| {
            let (sender, count) = ((message >> 32) as usize, message & 0xFFFF_FFFF);
            assert_eq!(count, counts[sender], "sender {sender}");
            counts[sender] += 1;
            left -= 1;
        });
    }
}

/// Posts counts `0..each`, trying again while the queue is full.
fn send(sender: u64, each: u64, mut post: impl FnMut(u64) -> Result<(), PostError<u64>>) {
    for count in 0..each {
        let mut message = sender << 32 | count;
        while let Err(refused) = post(message) {
            assert!(matches!(refused, PostError::Full(_)), "{refused}");
            message = refused.into_message();
            ringmain_testkit::wait::give_way();
        }
    }
}

#[test]
fn nothing_is_lost_or_reordered_between_threads() {
    const EACH: u64 = 20_000;
    let bells = doorbells(3);
    let sleep = Arc::new(Sleep::default());
    bells[0]
        .install(Waker::from(Arc::clone(&sleep)))
        .expect("the first waker");
    let mut mail: Vec<Mailbox<u64>> = grid(&bells, 16, 16);
    let mut receiver = mail.remove(0);
    let inbox: Inbox<u64> = receiver.inbox();
    thread::scope(|scope| {
        for mut mailbox in mail {
            let sleep = Arc::clone(&sleep);
            scope.spawn(move || {
                send(mailbox.worker() as u64, EACH, |message| {
                    if mailbox.post(0, message)? {
                        // Stands in for Backend::wake_peer.
                        Wake::wake(Arc::clone(&sleep));
                    }
                    Ok(())
                });
            });
        }
        for sender in [0, 3] {
            let inbox = inbox.clone();
            scope.spawn(move || send(sender, EACH, |message| inbox.post(message)));
        }
        receive(&mut receiver, &bells[0], &sleep, 4, EACH);
        // Senders stuck on a full queue after a failure above would see `Gone` and end.
        drop(receiver);
    });
    println!(
        "{} wakes for {} messages",
        sleep.wakes.load(Ordering::Relaxed),
        4 * EACH
    );
}
