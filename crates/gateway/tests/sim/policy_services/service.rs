//! A simulated service for policies: its connections, the way each response arrives or does not, and outages.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, PeerListener, World};

/// The protocol of a service.
pub(super) trait Trade {
    type Question;
    /// The effect of a response that was sent in full.
    type Told;

    /// Takes a whole question from the front.
    fn question(&mut self, kept: &mut Vec<u8>) -> Option<Self::Question>;

    /// A question has arrived.
    fn asked(&mut self, question: &Self::Question, now: Time);

    /// Counts the open connections that wait for a response at the end of a step.
    fn waiting(&mut self, _count: usize, _now: Time) {}

    /// The true answer.
    fn answer(
        &mut self,
        question: &Self::Question,
        now: Time,
        random: &mut fastrand::Rng,
    ) -> (Vec<u8>, Self::Told);

    /// A whole answer that says that it cannot answer.
    fn failure(&mut self, question: &Self::Question) -> Vec<u8>;

    /// An answer that is none.
    fn lie(&mut self, question: &Self::Question, random: &mut fastrand::Rng) -> Vec<u8>;

    /// All of a true answer is sent, so long after the question.
    fn told(&mut self, told: Self::Told, now: Time, took: Duration);

    /// Connections were cut: bytes sent on these may not have arrived.
    fn cut(&mut self) {}
}

/// The reliability of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// It answers, sometimes after some milliseconds.
    Good,
    /// It mostly fails to respond, or responds badly; it has outages.
    Bad,
    /// It is available, and takes seconds for every response.
    Late,
}

/// The way in which a response arrives.
enum How {
    Whole(Duration),
    Pieces,
    Lie,
    Cut { reset: bool },
    Mute,
    Failure,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Go,
    Close,
    Reset,
}

struct Due<T> {
    at: Time,
    bytes: Vec<u8>,
    then: Then,
    told: Option<T>,
}

struct Guest<T> {
    peer: Peer,
    kept: Vec<u8>,
    out: VecDeque<Due<T>>,
    /// Since when it waits for an answer.
    waits: Option<Time>,
    stuck: bool,
    done: bool,
}

/// The most outages of a service.
const FLAPS: u32 = 10;

/// See the module.
pub(super) struct Service<T: Trade> {
    world: World,
    addr: Addr,
    /// `None` while it is gone.
    listener: Option<PeerListener>,
    flap: Option<(Time, u32)>,
    random: fastrand::Rng,
    mood: Mood,
    guests: Vec<Guest<T::Told>>,
    pub(super) trade: T,
}

impl<T: Trade> Service<T> {
    pub(super) fn new(world: &World, addr: Addr, seed: u64, mood: Mood, trade: T) -> Service<T> {
        let mut random = fastrand::Rng::with_seed(seed);
        let flaps = mood == Mood::Bad && random.u32(0..2) == 0;
        let first = world.now().after(span(&mut random));
        Service {
            world: world.clone(),
            listener: Some(world.peer_listen(&addr)),
            addr,
            flap: flaps.then_some((first, FLAPS)),
            random,
            mood,
            guests: Vec::new(),
            trade,
        }
    }

    /// From now on it is like that, and stays there.
    pub(super) fn become_(&mut self, mood: Mood) {
        self.mood = mood;
        self.flap = None;
        if self.listener.is_none() {
            self.listener = Some(self.world.peer_listen(&self.addr));
        }
    }

    /// Returns the instant of its next action.
    pub(super) fn due(&self) -> Option<Time> {
        let now = self.world.now();
        let guests = self.guests.iter().filter_map(|guest| guest.due(now));
        guests.chain(self.flap.map(|(at, _)| at)).min()
    }

    /// Ends all connections and is gone.
    pub(super) fn close(&mut self) {
        self.flap = None;
        self.act();
        self.guests.drain(..).for_each(|guest| guest.peer.close());
        if let Some(listener) = self.listener.take() {
            listener.close();
        }
    }

    /// Performs all actions that are due.
    pub(super) fn act(&mut self) {
        self.come_or_go();
        while let Some(peer) = self.listener.as_ref().and_then(PeerListener::accept) {
            self.guests.push(Guest {
                peer,
                kept: Vec::new(),
                out: VecDeque::new(),
                waits: None,
                stuck: false,
                done: false,
            });
        }
        let now = self.world.now();
        for at in 0..self.guests.len() {
            let guest = &mut self.guests[at];
            if guest.peer.failed() {
                guest.done = true;
                guest.peer.close();
                continue;
            }
            let bytes = guest.peer.read(usize::MAX);
            guest.kept.extend_from_slice(&bytes);
            while let Some(question) = self.trade.question(&mut self.guests[at].kept) {
                self.trade.asked(&question, now);
                self.guests[at].waits = Some(now);
                self.answer(at, &question, now);
            }
            self.guests[at].write(now, &mut self.trade);
            let guest = &mut self.guests[at];
            if !guest.done && guest.peer.eof() {
                guest.done = true;
                guest.peer.close();
            }
        }
        self.guests.retain(|guest| !guest.done);
        let waiting = self.guests.iter().filter(|guest| guest.waits_now()).count();
        self.trade.waiting(waiting, now);
    }

    fn how(&mut self) -> How {
        let random = &mut self.random;
        let soon = Duration::from_micros(random.u64(10..40));
        let late = Duration::from_micros(random.u64(10..20_000));
        match self.mood {
            Mood::Late => How::Whole(Duration::from_millis(random.u64(1_000..8_000))),
            Mood::Good => match random.u32(0..4) {
                0 => How::Whole(late),
                1 => How::Pieces,
                _ => How::Whole(soon),
            },
            Mood::Bad => match random.u32(0..16) {
                0 | 1 => How::Lie,
                2 => How::Cut { reset: false },
                3 => How::Cut { reset: true },
                4 => How::Mute,
                5 | 6 => How::Failure,
                7 => How::Pieces,
                8 => How::Whole(Duration::from_millis(random.u64(20..8_000))),
                9 => How::Whole(late),
                _ => How::Whole(soon),
            },
        }
    }

    fn answer(&mut self, at: usize, question: &T::Question, now: Time) {
        let how = self.how();
        let random = &mut self.random;
        let soon = now.after(Duration::from_micros(random.u64(10..40)));
        let out = &mut self.guests[at].out;
        let mut say = |at: Time, bytes: Vec<u8>, then: Then, told: Option<T::Told>| {
            out.push_back(Due {
                at,
                bytes,
                then,
                told,
            });
        };
        match how {
            How::Mute => {}
            How::Whole(span) => {
                let (bytes, told) = self.trade.answer(question, now, random);
                let at = now.after(span);
                say(at, bytes, Then::Go, Some(told));
                // It closes idle connections, sometimes at the instant at which one is used.
                if self.mood == Mood::Bad && random.u32(0..4) == 0 {
                    let idle = Duration::from_micros(random.u64(0..3_000));
                    say(at.after(idle), Vec::new(), Then::Close, None);
                }
            }
            How::Pieces => {
                let (bytes, told) = self.trade.answer(question, now, random);
                let pieces: Vec<&[u8]> = bytes.chunks(random.usize(1..60)).collect();
                let mut told = Some(told);
                for (number, piece) in pieces.iter().enumerate() {
                    let last = number + 1 == pieces.len();
                    let at = soon.after(Duration::from_micros(number as u64));
                    say(at, piece.to_vec(), Then::Go, told.take_if(|_| last));
                }
            }
            How::Lie => {
                let then = if random.bool() { Then::Go } else { Then::Close };
                say(soon, self.trade.lie(question, random), then, None);
            }
            How::Failure => say(soon, self.trade.failure(question), Then::Go, None),
            How::Cut { reset } => {
                let (bytes, _) = self.trade.answer(question, now, random);
                let part = bytes[..random.usize(..bytes.len())].to_vec();
                let then = if reset { Then::Reset } else { Then::Close };
                say(soon, part, then, None);
            }
        }
    }

    /// Goes down, with its connections or for new ones only, or recovers.
    fn come_or_go(&mut self) {
        let now = self.world.now();
        let Some((_, left)) = self.flap.filter(|(at, _)| *at <= now) else {
            return;
        };
        let next = now.after(span(&mut self.random));
        self.flap = (left > 1).then_some((next, left - 1));
        let Some(listener) = self.listener.take() else {
            self.listener = Some(self.world.peer_listen(&self.addr));
            return;
        };
        listener.close();
        match self.random.u32(0..3) {
            0 => {
                self.trade.cut();
                self.guests.drain(..).for_each(|guest| guest.peer.reset());
            }
            1 => self.guests.drain(..).for_each(|guest| guest.peer.close()),
            _ => {}
        }
    }
}

/// Draws the duration of an outage or of the time between two.
fn span(random: &mut fastrand::Rng) -> Duration {
    Duration::from_micros(random.u64(10..200_000))
}

impl<T> Guest<T> {
    fn due(&self, now: Time) -> Option<Time> {
        if self.peer.readable() > 0 || self.peer.eof() || self.peer.failed() {
            return Some(now);
        }
        let due = self.out.front()?;
        (!self.stuck).then_some(due.at)
    }

    /// It still waits for a response.
    fn waits_now(&self) -> bool {
        self.waits.is_some() && !self.peer.eof() && !self.peer.failed()
    }

    fn write(&mut self, now: Time, trade: &mut impl Trade<Told = T>) {
        self.stuck = false;
        while let Some(due) = self.out.front_mut() {
            if due.at > now {
                return;
            }
            let Ok(count) = self.peer.write(&due.bytes) else {
                self.done = true;
                return self.peer.close();
            };
            due.bytes.drain(..count);
            if !due.bytes.is_empty() {
                self.stuck = true;
                return;
            }
            let (then, told) = (due.then, due.told.take());
            self.out.pop_front();
            let asked = self.waits.filter(|_| self.out.is_empty() || told.is_some());
            if let Some(told) = told {
                let took = asked.map_or(Duration::ZERO, |asked| now.since(asked));
                trade.told(told, now, took);
            }
            if asked.is_some() {
                self.waits = None;
            }
            match then {
                Then::Go => {}
                Then::Close => {
                    self.done = true;
                    return self.peer.close();
                }
                Then::Reset => {
                    self.done = true;
                    self.peer.reset();
                    return self.peer.close();
                }
            }
        }
    }
}
