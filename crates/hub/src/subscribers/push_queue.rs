//! What waits for connections: a list for each, all in one table, so that in the long run nothing is allocated for a push.
//! Knows no connection and no rule.

use bytes::Bytes;

use crate::limits::PLACES_KEPT;
use crate::mail::Slow;

/// No place.
const NONE: u32 = u32::MAX;

/// A push that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) topic: u32,
    pub(super) slow: Slow,
    /// It is overtaken by the next of its topic.
    pub(super) is_state: bool,
    pub(super) frame: Bytes,
}

/// One connection's, the oldest first.
#[derive(Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

/// Where all lists lie.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Place>,
    /// The free places are a list, too.
    free: u32,
    used: usize,
}

#[derive(Debug)]
struct Place {
    /// `None` where it is free.
    waiting: Option<Waiting>,
    next: u32,
}

impl List {
    pub(super) const EMPTY: List = List {
        first: NONE,
        last: NONE,
    };
}

impl Table {
    pub(super) fn new() -> Table {
        Table {
            places: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    /// Puts a push behind the others.
    pub(super) fn push(&mut self, list: &mut List, waiting: Waiting) {
        let place = Place {
            waiting: Some(waiting),
            next: NONE,
        };
        let at = match self.places.get_mut(self.free as usize) {
            Some(free) => {
                let at = std::mem::replace(&mut self.free, free.next);
                *free = place;
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        self.used += 1;
        match self.places.get_mut(list.last as usize) {
            Some(last) => last.next = at,
            None => list.first = at,
        }
        list.last = at;
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<Waiting> {
        let at = list.first;
        list.first = self.places.get(at as usize)?.next;
        if list.first == NONE {
            list.last = NONE;
        }
        Some(self.free(at))
    }

    /// Takes those out that are not to stay; asks about each, the oldest first.
    pub(super) fn retain(&mut self, list: &mut List, mut stays: impl FnMut(&Waiting) -> bool) {
        let (mut at, mut before) = (list.first, NONE);
        while let Some(place) = self.places.get(at as usize) {
            let next = place.next;
            if place.waiting.as_ref().is_some_and(&mut stays) {
                before = at;
            } else {
                match self.places.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => list.first = next,
                }
                if next == NONE {
                    list.last = before;
                }
                self.free(at);
            }
            at = next;
        }
    }

    /// Whether one of the `most` oldest is such a one.
    pub(super) fn any(&self, list: &List, most: usize, mut is_such: impl FnMut(&Waiting) -> bool) -> bool {
        let mut at = list.first;
        for _ in 0..most {
            let Some(place) = self.places.get(at as usize) else {
                break;
            };
            if place.waiting.as_ref().is_some_and(&mut is_such) {
                return true;
            }
            at = place.next;
        }
        false
    }

    /// The youngest of a topic.
    pub(super) fn last_of(&mut self, list: &List, topic: u32) -> Option<&mut Waiting> {
        let (mut at, mut found) = (list.first, NONE);
        while let Some(place) = self.places.get(at as usize) {
            if place
                .waiting
                .as_ref()
                .is_some_and(|waiting| waiting.topic == topic)
            {
                found = at;
            }
            at = place.next;
        }
        self.places.get_mut(found as usize)?.waiting.as_mut()
    }

    fn free(&mut self, at: u32) -> Waiting {
        let place = &mut self.places[at as usize];
        let waiting = place.waiting.take().expect("what is in a list is not free");
        place.next = std::mem::replace(&mut self.free, at);
        self.used -= 1;
        if self.used == 0 && self.places.capacity() > PLACES_KEPT {
            (self.places, self.free) = (Vec::new(), NONE);
        }
        waiting
    }
}

#[cfg(test)]
mod tests;
