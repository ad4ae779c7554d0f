//! Places are bounded in checks and bytes, and clients take turns.

use std::net::IpAddr;

use super::ClientAddr;
use super::queue::{CheckQueue, SlotRequest};
use crate::limits;

const MIB: u64 = 1 << 20;

fn client(number: u8) -> ClientAddr {
    Some(IpAddr::from([192, 0, 2, number]))
}

fn queued(queue: &mut CheckQueue, number: u8, bytes: u64) -> u64 {
    match queue.request_slot(client(number), bytes) {
        SlotRequest::Queued { ticket, .. } => ticket,
        joined => panic!("{joined:?}"),
    }
}

#[test]
fn a_cap_in_bytes_and_one_in_checks() {
    let mut queue = CheckQueue::default();
    let large = limits::PASSWORD_BYTES / 4;
    for _ in 0..4 {
        assert_eq!(queue.request_slot(client(1), large), SlotRequest::Granted);
    }
    queued(&mut queue, 2, large);
    let mut queue = CheckQueue::default();
    for _ in 0..limits::PASSWORD_CHECKS {
        assert_eq!(queue.request_slot(client(1), 1), SlotRequest::Granted);
    }
    queued(&mut queue, 2, 1);
    // One that is larger than all runs alone.
    let mut queue = CheckQueue::default();
    assert_eq!(
        queue.request_slot(client(1), 2 * limits::PASSWORD_BYTES),
        SlotRequest::Granted
    );
    queued(&mut queue, 2, 1);
}

#[test]
fn clients_take_turns() {
    let mut queue = CheckQueue::default();
    assert_eq!(
        queue.request_slot(client(1), limits::PASSWORD_BYTES),
        SlotRequest::Granted
    );
    let flood: Vec<u64> = (0..8)
        .map(|_| queued(&mut queue, 1, limits::PASSWORD_BYTES))
        .collect();
    let other = queued(&mut queue, 2, limits::PASSWORD_BYTES);
    let third = queued(&mut queue, 3, limits::PASSWORD_BYTES);
    let mut order = Vec::new();
    for _ in 0..10 {
        order.extend(queue.release(limits::PASSWORD_BYTES));
    }
    assert_eq!(order[..4], [flood[0], other, third, flood[1]]);
    assert_eq!(order.len(), 10);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_large_check_is_not_overtaken() {
    let mut queue = CheckQueue::default();
    let half = limits::PASSWORD_BYTES / 2;
    assert_eq!(queue.request_slot(client(1), half), SlotRequest::Granted);
    assert_eq!(queue.request_slot(client(1), half), SlotRequest::Granted);
    let large = queued(&mut queue, 2, limits::PASSWORD_BYTES);
    let small = queued(&mut queue, 3, MIB);
    assert!(
        queue.release(half).is_empty(),
        "the large one waits for all of it"
    );
    assert_eq!(queue.release(half), [large]);
    assert_eq!(queue.release(limits::PASSWORD_BYTES), [small]);
}

#[test]
fn a_client_has_a_queue_of_its_own_and_the_longest_makes_room() {
    let mut queue = CheckQueue::default();
    assert_eq!(
        queue.request_slot(client(0), limits::PASSWORD_BYTES),
        SlotRequest::Granted
    );
    for _ in 0..limits::PASSWORDS_WAITING_CLIENT {
        queued(&mut queue, 0, MIB);
    }
    assert_eq!(queue.request_slot(client(0), MIB), SlotRequest::Refused);
    for number in 1..=u8::MAX {
        for _ in 0..limits::PASSWORDS_WAITING_CLIENT {
            if queue.waiting() < limits::PASSWORDS_WAITING {
                queued(&mut queue, number, MIB);
            }
        }
    }
    assert_eq!(queue.waiting(), limits::PASSWORDS_WAITING);
    let newcomer = Some(IpAddr::from([198, 51, 100, 1]));
    let SlotRequest::Queued { evicted, .. } = queue.request_slot(newcomer, MIB) else {
        panic!("the longest queue makes room");
    };
    assert!(evicted.is_some());
    assert_eq!(queue.waiting(), limits::PASSWORDS_WAITING);
}

#[test]
fn nothing_is_lost_whatever_the_order() {
    let seed = 7;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut queue = CheckQueue::default();
    let mut running: Vec<u64> = Vec::new();
    let mut waiting: Vec<(u64, ClientAddr, u64)> = Vec::new();
    let grant = |granted: Vec<u64>, waiting: &mut Vec<(u64, ClientAddr, u64)>, running: &mut Vec<u64>| {
        for ticket in granted {
            let at = waiting.iter().position(|entry| entry.0 == ticket);
            running.push(waiting.remove(at.expect("it waits")).2);
        }
    };
    for _ in 0..20_000 {
        match random.u32(0..4) {
            0 | 1 => {
                let (who, bytes) = (client(random.u8(0..20)), random.u64(1..=limits::PASSWORD_BYTES));
                match queue.request_slot(who, bytes) {
                    SlotRequest::Granted => running.push(bytes),
                    SlotRequest::Queued { ticket, evicted } => {
                        waiting.retain(|entry| Some(entry.0) != evicted);
                        waiting.push((ticket, who, bytes));
                    }
                    SlotRequest::Refused => {}
                }
            }
            2 if !running.is_empty() => {
                let bytes = running.swap_remove(random.usize(..running.len()));
                grant(queue.release(bytes), &mut waiting, &mut running);
            }
            3 if !waiting.is_empty() => {
                let (ticket, who, _) = waiting.swap_remove(random.usize(..waiting.len()));
                grant(queue.remove_entry(who, ticket), &mut waiting, &mut running);
            }
            _ => {}
        }
        let bytes: u64 = running.iter().sum();
        assert_eq!(queue.running(), (running.len() as u32, bytes), "seed {seed}");
        assert_eq!(queue.waiting(), waiting.len(), "seed {seed}");
        assert!(bytes <= limits::PASSWORD_BYTES, "seed {seed}");
        assert!(!running.is_empty() || waiting.is_empty(), "seed {seed}");
    }
}
