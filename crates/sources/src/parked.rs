//! Records that are finished except for their dead letters: later records pass them, commits do not.
//!
//! ```text
//! records   1 2 [3] 4 5 [6] 7       [ ]: its dead letter waits
//! done      2                       3 was sent: 5, then 6: 7
//! passed    7
//! ```

use std::collections::VecDeque;

/// The finished records of a partition. `P` is the position that is committed.
#[derive(Debug)]
pub(crate) struct Parked<P> {
    letters: VecDeque<Letter<P>>,
    done: Option<P>,
    passed: Option<P>,
}

#[derive(Debug)]
struct Letter<P> {
    record: u64,
    is_sent: bool,
    /// The newest finished record before the next letter.
    last: P,
}

impl<P: Clone> Parked<P> {
    pub(crate) fn new() -> Parked<P> {
        Parked {
            letters: VecDeque::new(),
            done: None,
            passed: None,
        }
    }

    /// Adds the next record: all of its publications are done, and its dead letter may wait.
    pub(crate) fn add(&mut self, record: u64, position: P, has_letter: bool) {
        self.passed = Some(position.clone());
        if has_letter {
            self.letters.push_back(Letter {
                record,
                is_sent: false,
                last: position,
            });
            return;
        }
        match self.letters.back_mut() {
            Some(letter) => letter.last = position,
            None => self.done = Some(position),
        }
    }

    /// Notes that a letter was sent.
    pub(crate) fn set_sent(&mut self, record: u64) {
        if let Ok(index) = self.letters.binary_search_by_key(&record, |letter| letter.record) {
            self.letters[index].is_sent = true;
        }
        while let Some(sent) = self.letters.pop_front_if(|first| first.is_sent) {
            self.done = Some(sent.last);
        }
    }

    /// Returns whether the letter of a record waits.
    pub(crate) fn contains(&self, record: u64) -> bool {
        let found = self.letters.binary_search_by_key(&record, |letter| letter.record);
        found.is_ok_and(|index| !self.letters[index].is_sent)
    }

    pub(crate) fn len(&self) -> usize {
        self.letters.len()
    }

    /// Returns the newest position up to which all records are done, once.
    pub(crate) fn take_done(&mut self) -> Option<P> {
        self.done.take()
    }

    /// Returns the newest position up to which all records are done except for those that are [contained](Parked::contains), once.
    pub(crate) fn take_passed(&mut self) -> Option<P> {
        self.passed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::Parked;

    #[test]
    fn records_pass_letters_and_commits_do_not() {
        let mut parked = Parked::new();
        for record in 1..=7 {
            parked.add(record, record * 10, [3, 6].contains(&record));
        }
        assert_eq!((parked.take_done(), parked.take_passed()), (Some(20), Some(70)));
        assert!(parked.contains(3) && parked.contains(6) && !parked.contains(4));
        parked.set_sent(6);
        assert_eq!((parked.take_done(), parked.len()), (None, 2));
        assert!(!parked.contains(6));
        parked.add(8, 80, false);
        parked.set_sent(3);
        assert_eq!((parked.take_done(), parked.len()), (Some(80), 0));
        parked.add(9, 90, false);
        assert_eq!(parked.take_done(), Some(90));
    }

    #[test]
    fn the_first_letter_holds_all() {
        let mut parked = Parked::new();
        parked.add(0, 1, true);
        parked.add(1, 2, false);
        assert_eq!((parked.take_done(), parked.take_passed()), (None, Some(2)));
        parked.set_sent(0);
        assert_eq!(parked.take_done(), Some(2));
    }
}
