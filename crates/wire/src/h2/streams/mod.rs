//! The streams of a connection that are not over: a slot for each, and slots by stream number.
//!
//! ```text
//! number ─▶ places: linear probing, twice as many as streams at least ─▶ slot ─▶ records
//! ```
//!
//! Slots are used again, lowest last; an idle connection has neither. Knows no frame.

/// A stream that a connection has told of: for its caller to name it by. A stale one is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    pub(super) slot: u32,
    pub(super) id: u32,
}

impl Stream {
    /// Its number (RFC 9113 §5.1.1).
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }

    /// A small number that no other open stream of the connection has: an index for the caller's own records.
    #[must_use]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// How far one side of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its head is still to come.
    Idle,
    Open,
    /// END_STREAM was there.
    Ended,
}

/// What is kept of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// 0: the slot is free.
    pub(super) id: u32,
    pub(super) remote: Side,
    pub(super) local: Side,
    /// The answer to it has no body, whatever it says (HEAD).
    pub(super) bodiless: bool,
    /// Bytes that may be sent; below 0 when the peer has made its windows smaller.
    pub(super) send: i32,
    /// Bytes that the peer may send still.
    pub(super) receive: i32,
    /// Bytes consumed of which the peer was not told.
    pub(super) consumed: u32,
    /// Bytes that came and were not consumed.
    pub(super) held: u32,
    /// The next free slot.
    next: u32,
    /// Bytes of body still to come, if that was said; `UNKNOWN` else.
    pub(super) expected: u64,
}

/// See [`Record::expected`].
pub(super) const UNKNOWN: u64 = u64::MAX;

const NONE: u32 = u32::MAX;

/// Records that an idle connection keeps.
const KEPT: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Place {
    /// 0: free.
    id: u32,
    slot: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Streams {
    records: Vec<Record>,
    places: Vec<Place>,
    free: u32,
    open: u32,
}

impl Streams {
    pub(super) fn new() -> Streams {
        Streams {
            records: Vec::new(),
            places: Vec::new(),
            free: NONE,
            open: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open as usize
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.records.capacity() * size_of::<Record>() + self.places.capacity() * size_of::<Place>()
    }

    pub(super) fn insert(&mut self, record: Record) -> Stream {
        if (self.open as usize + 1) * 2 > self.places.len() {
            self.grow();
        }
        let slot = if self.free == NONE {
            self.records.push(record);
            self.records.len() as u32 - 1
        } else {
            let slot = self.free;
            let place = &mut self.records[slot as usize];
            self.free = place.next;
            *place = record;
            slot
        };
        self.open += 1;
        self.put(Place { id: record.id, slot });
        Stream { slot, id: record.id }
    }

    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<Stream> {
        let mask = self.places.len().checked_sub(1)?;
        let mut at = home(id, mask);
        loop {
            let place = self.places[at];
            if place.id == id {
                return Some(Stream { slot: place.slot, id });
            }
            if place.id == 0 {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    pub(super) fn get(&self, stream: Stream) -> Option<&Record> {
        self.records
            .get(stream.slot as usize)
            .filter(|record| record.id == stream.id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, stream: Stream) -> Option<&mut Record> {
        self.records
            .get_mut(stream.slot as usize)
            .filter(|record| record.id == stream.id)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.records.iter_mut().filter(|record| record.id != 0)
    }

    /// All open streams.
    pub(super) fn iter(&self) -> impl Iterator<Item = Stream> {
        let records = self.records.iter().enumerate();
        records
            .filter(|(_, record)| record.id != 0)
            .map(|(slot, record)| Stream {
                slot: slot as u32,
                id: record.id,
            })
    }

    pub(super) fn remove(&mut self, stream: Stream) {
        if self.get(stream).is_none() {
            return;
        }
        self.take_place(stream.id);
        self.open -= 1;
        if self.open == 0 {
            // Many streams at once are rare: their memory goes with the last of them.
            self.records.clear();
            self.free = NONE;
            if self.records.capacity() > KEPT {
                self.records = Vec::new();
                self.places = Vec::new();
            }
            return;
        }
        let record = &mut self.records[stream.slot as usize];
        record.id = 0;
        record.next = self.free;
        self.free = stream.slot;
    }

    fn grow(&mut self) {
        let most = (self.places.len() * 2).max(KEPT);
        let old = std::mem::replace(&mut self.places, vec![Place { id: 0, slot: 0 }; most]);
        for place in old {
            if place.id != 0 {
                self.put(place);
            }
        }
    }

    fn put(&mut self, place: Place) {
        let mask = self.places.len() - 1;
        let mut at = home(place.id, mask);
        while self.places[at].id != 0 {
            at = (at + 1) & mask;
        }
        self.places[at] = place;
    }

    /// Frees a place, and moves those behind it that would not be found any more.
    fn take_place(&mut self, id: u32) {
        let mask = self.places.len() - 1;
        let mut gap = home(id, mask);
        while self.places[gap].id != id {
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place.id == 0 {
                break;
            }
            // It may stand in the gap if that is not in front of its home.
            let from_home = at.wrapping_sub(home(place.id, mask)) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.places[gap] = place;
                gap = at;
            }
        }
        self.places[gap].id = 0;
    }
}

impl Record {
    pub(super) fn new(id: u32, send: i32, receive: i32) -> Record {
        Record {
            id,
            remote: Side::Idle,
            local: Side::Idle,
            bodiless: false,
            send,
            receive,
            consumed: 0,
            held: 0,
            next: NONE,
            expected: UNKNOWN,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.remote == Side::Ended && self.local == Side::Ended
    }
}

/// Numbers follow one another by two: so do their places.
#[inline]
fn home(id: u32, mask: usize) -> usize {
    (id >> 1) as usize & mask
}

#[cfg(test)]
mod tests;
