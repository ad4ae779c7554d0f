//! Endpoints that respond as their callers request, each connection with a behavior of its own.

use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_sim::{Peer, PeerListener, World};

use super::{HEADER, Header, KINDS, Kind, Ledger, hello};

/// The behavior of a parrot on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Steady,
    /// A few bytes at a time, in its own time.
    Slow,
    /// Closes its side after its last byte, while the caller may still send.
    EndsFirst,
    /// From here on, nothing that a good one does: after so many bytes.
    Resets(usize),
    Closes(usize),
    /// Stops, and does not even read.
    Stalls(usize),
    /// Closes the connection after accepting it.
    Leaves,
}

struct Guest {
    peer: Peer,
    way: Way,
    received: Vec<u8>,
    /// Bytes of the first message of TLS.
    first: usize,
    asked: Option<(Header, Vec<u8>, Vec<u8>)>,
    written: usize,
    next: Time,
    ended: bool,
    heard_end: bool,
    stuck: bool,
    done: bool,
}

/// An endpoint that responds as its caller requests.
pub(crate) struct Parrot {
    world: World,
    listener: PeerListener,
    ledger: Ledger,
    /// The kinds of connections that it serves.
    kinds: &'static [Kind],
    random: fastrand::Rng,
    bad: bool,
    guests: Vec<Guest>,
}

impl Parrot {
    pub(crate) fn new(
        world: &World,
        addr: &Addr,
        ledger: &Ledger,
        kinds: &'static [Kind],
        seed: u64,
        bad: bool,
    ) -> Parrot {
        Parrot {
            world: world.clone(),
            listener: world.peer_listen(addr),
            ledger: Rc::clone(ledger),
            kinds,
            random: fastrand::Rng::with_seed(seed),
            bad,
            guests: Vec::new(),
        }
    }

    /// Returns the instant of its next action.
    pub(crate) fn due(&self) -> Option<Time> {
        let now = self.world.now();
        self.guests.iter().filter_map(|guest| guest.due(now)).min()
    }

    /// Returns whether it acts before time advances.
    pub(crate) fn is_busy(&self) -> bool {
        self.due().is_some_and(|at| at <= self.world.now())
    }

    /// Ends all connections.
    pub(crate) fn close_all(&mut self) {
        self.act();
        self.guests.iter().for_each(|guest| guest.peer.close());
        self.guests.clear();
    }

    /// Performs all actions that are due.
    pub(crate) fn act(&mut self) {
        let now = self.world.now();
        while let Some(peer) = self.listener.accept() {
            let after = self.random.usize(0..3000);
            let way = match self.random.u32(0..10) {
                0 if self.bad => Way::Resets(after),
                1 if self.bad => Way::Closes(after),
                2 if self.bad => Way::Stalls(after),
                3 if self.bad => Way::Leaves,
                4 | 5 => Way::Slow,
                6 | 7 => Way::EndsFirst,
                _ => Way::Steady,
            };
            self.guests.push(Guest {
                peer,
                way,
                received: Vec::new(),
                first: 0,
                asked: None,
                written: 0,
                next: now,
                ended: false,
                heard_end: false,
                stuck: false,
                done: false,
            });
        }
        for guest in &mut self.guests {
            guest.act(now, &self.ledger, self.kinds, self.bad, &mut self.random);
        }
        self.guests.retain(|guest| !guest.done);
    }
}

impl Guest {
    fn is_deaf(&self) -> bool {
        matches!(self.way, Way::Stalls(after) if self.written >= after)
    }

    fn due(&self, now: Time) -> Option<Time> {
        let hears = !self.is_deaf() && (self.peer.readable() > 0 || self.peer.eof() && !self.heard_end);
        if hears || self.peer.failed() || self.way == Way::Leaves {
            return Some(now);
        }
        let (.., answer) = self.asked.as_ref()?;
        let writes = self.written < answer.len() && !self.stuck && !self.is_deaf();
        writes.then_some(self.next)
    }

    fn act(&mut self, now: Time, ledger: &Ledger, kinds: &[Kind], bad: bool, random: &mut fastrand::Rng) {
        if self.peer.failed() {
            assert!(bad, "a connection that was broken off in a calm world");
            self.done = true;
        }
        if self.way == Way::Leaves && !self.done {
            self.done = true;
            // With bytes unread it is a reset.
            ledger.borrow_mut().left += usize::from(self.peer.readable() == 0);
        }
        if self.done {
            return self.peer.close();
        }
        if self.is_deaf() {
            return;
        }
        let most = if self.way == Way::Slow { 300 } else { usize::MAX };
        let bytes = self.peer.read(most);
        self.received.extend_from_slice(&bytes);
        self.check(ledger, kinds);
        self.write(now, ledger, random);
        if self.done {
            return;
        }
        if self.peer.eof() && !self.heard_end {
            self.heard_end = true;
            self.check_end(ledger);
        }
        if self.ended && self.heard_end {
            self.done = true;
            self.peer.close();
        }
    }

    /// Checks that the received bytes are those of one caller whose kind belongs here.
    fn check(&mut self, ledger: &Ledger, kinds: &[Kind]) {
        if self.asked.is_none() {
            if self.received.first() == Some(&22) {
                let Some(length) = self.received.get(3..5) else {
                    return;
                };
                self.first = 5 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
            let Some(header) = self.received.get(self.first..).and_then(Header::read) else {
                return;
            };
            let kind = KINDS[usize::from(header.kind)];
            assert!(kinds.contains(&kind), "{kind:?} does not belong to {kinds:?}");
            let expected = match kind {
                Kind::Tcp => Vec::new(),
                Kind::Named(name) => hello(name),
            };
            assert_eq!(
                &self.received[..self.first],
                expected,
                "the first message as it was"
            );
            let mut ledger = ledger.borrow_mut();
            let account = ledger.of(header.id);
            assert!(!account.arrived, "{header:?} came twice");
            account.arrived = true;
            self.asked = Some((header, header.body(), header.answer()));
        }
        let Some((header, body, _)) = &self.asked else {
            return;
        };
        let said = &self.received[self.first + HEADER..];
        assert!(body.starts_with(said), "bytes that are not those of {header:?}");
    }

    fn write(&mut self, now: Time, ledger: &Ledger, random: &mut fastrand::Rng) {
        let Some((header, _, answer)) = &self.asked else {
            return;
        };
        let mut ledger = ledger.borrow_mut();
        let account = ledger.of(header.id);
        if now >= self.next && !self.ended {
            let left = answer.len() - self.written;
            let count = match self.way {
                Way::Slow => {
                    self.next = now.after(Duration::from_micros(random.u64(10..2_000)));
                    left.min(random.usize(1..3000))
                }
                Way::Resets(after) | Way::Closes(after) | Way::Stalls(after) => {
                    left.min(after.saturating_sub(self.written))
                }
                _ => left,
            };
            let count = self.peer.write(&answer[self.written..][..count]).unwrap_or(0);
            self.stuck = count == 0;
            self.written += count;
            account.down += count;
        }
        match self.way {
            Way::Resets(after) if self.written >= after => {
                self.done = true;
                return self.peer.reset();
            }
            Way::Closes(after) if self.written >= after => {
                // With bytes unread it is a reset.
                account.down_ended |= self.peer.readable() == 0;
                self.done = true;
                return self.peer.close();
            }
            _ => {}
        }
        let ends = header.last || self.way == Way::EndsFirst || self.peer.eof();
        if !self.ended && self.written == answer.len() && ends {
            self.ended = true;
            account.down_ended = true;
            self.peer.shutdown_write();
        }
    }

    /// Checks the orderly end of the caller: did it close in order, and did all bytes arrive?
    fn check_end(&self, ledger: &Ledger) {
        let Some((header, ..)) = &self.asked else { return };
        let mut ledger = ledger.borrow_mut();
        let account = ledger.of(header.id);
        assert!(
            account.up_ended && account.up == self.received.len(),
            "an end behind {} bytes that nobody has sent: {header:?} {account:?}",
            self.received.len()
        );
    }
}
