//! Letters that wait, across partitions and connections.

use std::cell::Cell;
use std::sync::Arc;

use super::Letters;
use crate::feed::{DeadLetter, Record};
use crate::limits;
use crate::status::{DeadReason, Status};

fn letter(bytes: usize) -> DeadLetter {
    DeadLetter {
        reason: DeadReason::BadFormat,
        record: Record {
            value: Some(vec![b'x'; bytes].into()),
            ..Record::default()
        },
    }
}

fn letters() -> (Arc<Letters>, Arc<Status>) {
    let status = Arc::<Status>::default();
    (Letters::new("s", "kafka", &status), status)
}

/// Makes an attempt with each of the letters that wait.
fn deliver(letters: &Letters, is_sent: impl Fn(&DeadLetter) -> bool) {
    let waiting = letters.queue().waiting.len();
    for _ in 0..waiting {
        let (ticket, letter) = letters.first().expect("a letter");
        let outcome = if is_sent(&letter) {
            Ok(())
        } else {
            Err("no".to_owned())
        };
        assert_eq!(letters.finish_attempt(ticket, outcome.clone()), outcome.is_ok());
    }
}

#[test]
fn letters_that_fail_do_not_hold_up_the_others() {
    let (letters, status) = letters();
    let partition = letters.add_partition();
    for record in 0..3 {
        letters.add((partition, record), letter(record as usize + 1));
    }
    deliver(&letters, |letter| letter.bytes() != 1);
    assert_eq!(letters.take_sent(partition), [1, 2]);
    assert_eq!(letters.take_sent(partition), [0; 0], "once");
    let report = status.report(&Arc::from("s"), "kafka");
    // The last attempt succeeded.
    assert_eq!((report.letters_waiting, report.letters_fail), (1, false));
    deliver(&letters, |_| false);
    assert!(status.report(&Arc::from("s"), "kafka").letters_fail);
    assert_eq!(report.letter_failures, 1);
    deliver(&letters, |_| true);
    assert_eq!(letters.take_sent(partition), [0]);
    let report = status.report(&Arc::from("s"), "kafka");
    assert_eq!((report.letters_waiting, report.letters_fail), (0, false));
}

#[test]
fn letters_whose_records_are_read_again_are_dropped_and_the_others_are_sent() {
    let (letters, _) = letters();
    let (first, second) = (letters.add_partition(), letters.add_partition());
    letters.add((first, 0), letter(1));
    letters.add((second, 0), letter(2));
    letters.remove_partition(first, true);
    letters.remove_partition(second, false);
    let sent = Cell::new(0);
    let count = |letter: &DeadLetter| {
        sent.set(sent.get() + letter.bytes());
        true
    };
    deliver(&letters, count);
    assert_eq!(sent.get(), 2);
    assert_eq!(letters.take_sent(second), [0; 0], "its partition is gone");
    letters.add((second, 1), letter(4));
    letters.start_session(false);
    deliver(&letters, count);
    assert_eq!(sent.get(), 6);
    letters.add((second, 2), letter(8));
    letters.start_session(true);
    deliver(&letters, count);
    assert_eq!(sent.get(), 6);
}

#[test]
fn letters_are_limited_by_their_bytes() {
    let (letters, _) = letters();
    let partition = letters.add_partition();
    letters.add((partition, 0), letter(limits::DEAD_LETTER_BYTES - 1));
    assert!(!letters.is_full());
    letters.add((partition, 1), letter(1));
    assert!(letters.is_full());
    deliver(&letters, |_| true);
    assert!(!letters.is_full());
}
