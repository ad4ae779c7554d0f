//! Simulated clients: each sends bytes like no other's, in a manner of its own, and checks what comes back.

use std::collections::VecDeque;

use ringmain_sim::{Peer, PeerListener, World};

use crate::courier::{RECORD, Way};

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Steady,
    /// Reads a few bytes at a time.
    Slow,
    /// Does nothing for a while, now and then.
    Stalls,
    /// Resets in the middle.
    Resets,
    /// Closes in the middle, perhaps with bytes unread.
    Leaves,
    /// Reads nothing, and resets in the end.
    Deaf,
}

impl Manner {
    pub(crate) fn draw(world: &World) -> Manner {
        match world.below(12) {
            0 => Manner::Resets,
            1 => Manner::Leaves,
            2 => Manner::Deaf,
            3 | 4 => Manner::Slow,
            5 | 6 => Manner::Stalls,
            _ => Manner::Steady,
        }
    }

    /// Whether it stays until it has every byte.
    pub(crate) fn stays(self) -> bool {
        matches!(self, Manner::Steady | Manner::Slow | Manner::Stalls)
    }
}

pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) way: Way,
    /// The number of its listener.
    pub(crate) tag: u32,
    pub(crate) manner: Manner,
    key: u64,
    total: usize,
    written: usize,
    checked: usize,
    ended: bool,
    pub(crate) done: bool,
    /// Steps for which it does nothing.
    stall: usize,
    /// Bytes or steps after which it leaves.
    limit: usize,
    /// Bytes at the end that are not written yet.
    held: usize,
}

impl Client {
    pub(crate) fn new(world: &World, peer: Peer, key: u64, tag: u32, way: Way, total: usize) -> Client {
        let manner = Manner::draw(world);
        let limit = match manner {
            Manner::Deaf => 500,
            _ => world.below(total + 1),
        };
        Client {
            peer,
            way,
            tag,
            manner,
            key,
            // The first byte chooses the way, so there is one.
            total: match way {
                Way::Records => total.max(1).next_multiple_of(RECORD),
                _ => total.max(1),
            },
            written: 0,
            checked: 0,
            ended: false,
            done: false,
            stall: 0,
            limit,
            held: 0,
        }
    }

    /// With a manner of the test's choice; `limit` as there.
    pub(crate) fn patient(mut self, manner: Manner, limit: usize) -> Client {
        self.manner = manner;
        self.limit = limit;
        self
    }

    /// It keeps its last byte until [`Client::let_go`].
    pub(crate) fn holding(mut self) -> Client {
        self.held = 1;
        self
    }

    pub(crate) fn let_go(&mut self) {
        self.held = 0;
    }

    pub(crate) fn checked(&self) -> usize {
        self.checked
    }

    pub(crate) fn written(&self) -> usize {
        self.written
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.checked == self.total
    }

    /// Byte `position` of this client's stream.
    fn byte(&self, position: usize) -> u8 {
        if position == 0 {
            let at = Way::ALL.iter().position(|way| *way == self.way);
            return at.expect("every way is listed") as u8;
        }
        let mut mix = (self.key << 32 | position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mix = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mix >> 56) as u8
    }

    /// One step. Panics if a byte comes back that was not sent.
    pub(crate) fn act(&mut self, world: &World) {
        if self.done || self.stalls(world) {
            return;
        }
        self.write(world);
        if self.manner != Manner::Deaf {
            self.read(world);
        }
        self.leave();
        if self.written == self.total && !self.ended {
            self.ended = true;
            self.peer.shutdown_write();
        }
        if self.peer.eof() || self.peer.failed() && self.peer.readable() == 0 {
            self.done = true;
            self.peer.close();
        }
    }

    fn stalls(&mut self, world: &World) -> bool {
        if self.manner == Manner::Stalls && self.stall == 0 && world.below(40) == 0 {
            self.stall = world.below(200);
        }
        self.stall = self.stall.saturating_sub(1);
        self.stall > 0
    }

    fn write(&mut self, world: &World) {
        let left = self.total - self.held - self.written;
        if left == 0 || world.below(2) == 0 {
            return;
        }
        let most = if self.total > 10_000 { 9000 } else { 700 };
        let count = 1 + world.below(left.min(most));
        let bytes: Vec<u8> = (self.written..self.written + count)
            .map(|at| self.byte(at))
            .collect();
        self.written += self.peer.write(&bytes).unwrap_or(0);
    }

    fn read(&mut self, world: &World) {
        if world.below(3) > 0 {
            return;
        }
        let most = match self.manner {
            Manner::Slow => 1 + self.total / 200,
            _ if self.total > 10_000 => 12_000,
            _ => 900,
        };
        for byte in self.peer.read(1 + world.below(most)) {
            let (key, at) = (self.key, self.checked);
            assert!(at < self.written, "client {key}: more came back than was sent");
            assert_eq!(byte, self.byte(at), "client {key} ({:?}): byte {at}", self.way);
            self.checked += 1;
        }
    }

    fn leave(&mut self) {
        match self.manner {
            Manner::Resets if self.written >= self.limit => self.peer.reset(),
            Manner::Leaves if self.written >= self.limit => self.peer.close(),
            Manner::Deaf => {
                self.limit = self.limit.saturating_sub(1);
                if self.limit > 0 {
                    return;
                }
                self.peer.reset();
            }
            _ => return,
        }
        self.done = true;
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (peer, way) = (&self.peer, self.way);
        write!(
            f,
            "{:?} {peer:?} {way:?} by {}: {} back of {} written of {}; {} readable, {} not yet there",
            self.manner,
            self.tag,
            self.checked,
            self.written,
            self.total,
            peer.readable(),
            peer.unsent()
        )
    }
}

/// A server outside the cluster that sends everything back.
pub(crate) struct Upstream {
    listener: PeerListener,
    peers: Vec<(Peer, VecDeque<u8>, bool)>,
}

impl Upstream {
    pub(crate) fn new(listener: PeerListener) -> Upstream {
        Upstream {
            listener,
            peers: Vec::new(),
        }
    }

    pub(crate) fn act(&mut self) {
        while let Some(peer) = self.listener.accept() {
            self.peers.push((peer, VecDeque::new(), false));
        }
        self.peers.retain_mut(|(peer, waiting, ended)| {
            if waiting.len() < 10_000 {
                waiting.extend(peer.read(5000));
            }
            if let Ok(count) = peer.write(waiting.make_contiguous()) {
                waiting.drain(..count);
            }
            if peer.eof() && waiting.is_empty() && !*ended {
                *ended = true;
                peer.shutdown_write();
                // Closed as well: both directions have ended.
                peer.close();
            }
            !*ended && !peer.failed()
        });
    }
}
