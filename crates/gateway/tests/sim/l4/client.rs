//! Clients of forwarded connections: each sends bytes unlike any other's, and checks the response.

use std::rc::Rc;

use ringmain_sim::{Peer, World};

use super::{Account, Header, KINDS, Kind, Ledger, hello};
use crate::clients::Weather;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Steady,
    /// A few bytes at a time.
    Slow,
    /// Does nothing for some steps, now and then.
    Stalls,
    Resets,
    /// Closes in the middle, perhaps with bytes unread.
    Leaves,
}

/// A client.
pub(crate) struct Caller {
    peer: Peer,
    ledger: Ledger,
    header: Header,
    manner: Manner,
    bytes: Vec<u8>,
    written: usize,
    limit: usize,
    expected: Vec<u8>,
    received: Vec<u8>,
    ended: bool,
    heard_end: bool,
    stall: usize,
    stuck: bool,
    /// It has had all, in order.
    pub(crate) whole: bool,
    pub(crate) done: bool,
}

impl Caller {
    pub(crate) fn new(
        world: &World,
        peer: Peer,
        ledger: &Ledger,
        id: u64,
        kind: usize,
        most: usize,
        calm: bool,
    ) -> Caller {
        let header = Header {
            id,
            kind: kind as u8,
            last: world.below(2) == 0,
            up: world.below(most + 1) as u32,
            down: world.below(most + 1) as u32,
        };
        let first = match KINDS[kind] {
            Kind::Tcp => Vec::new(),
            Kind::Named(name) => hello(name),
        };
        let bytes = [first, header.write(), header.body()].concat();
        ledger.borrow_mut().accounts.insert(id, Account::default());
        Caller {
            peer,
            ledger: Rc::clone(ledger),
            manner: match world.below(10) {
                0 if !calm => Manner::Resets,
                1 if !calm => Manner::Leaves,
                2 | 3 => Manner::Slow,
                4 | 5 => Manner::Stalls,
                _ => Manner::Steady,
            },
            limit: world.below(bytes.len() + 1),
            bytes,
            written: 0,
            expected: header.answer(),
            header,
            received: Vec::new(),
            ended: false,
            heard_end: false,
            stall: 0,
            stuck: false,
            whole: false,
            done: false,
        }
    }

    fn may_write(&self) -> usize {
        if self.ended {
            0
        } else {
            self.bytes.len() - self.written
        }
    }

    /// Returns whether it acts before time advances.
    pub(crate) fn is_busy(&self) -> bool {
        let reads = self.peer.readable() > 0 || self.peer.eof() && !self.heard_end || self.peer.failed();
        !self.done && (self.stall > 0 || reads || self.may_write() > 0 && !self.stuck)
    }

    /// One step.
    pub(crate) fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if self.done {
            return Ok(());
        }
        if self.manner == Manner::Stalls && self.stall == 0 && world.below(40) == 0 {
            self.stall = world.below(100);
        }
        self.stall = self.stall.saturating_sub(1);
        if self.stall > 0 {
            return Ok(());
        }
        self.write(world);
        if world.below(3) > 0 {
            let most = if self.manner == Manner::Slow { 200 } else { 20_000 };
            let bytes = self.peer.read(1 + world.below(most));
            self.received.extend_from_slice(&bytes);
        }
        self.look()?;
        if self.leave() {
            self.done = true;
            return Ok(());
        }
        if self.peer.failed() {
            self.done = true;
            return if weather.broken {
                Ok(())
            } else {
                Err("it was broken off".to_owned())
            };
        }
        if self.peer.eof() {
            self.end()?;
        }
        Ok(())
    }

    fn write(&mut self, world: &World) {
        let left = self.may_write();
        if left > 0 && world.below(2) == 0 {
            let count = match self.manner {
                Manner::Slow => left.min(1 + world.below(100)),
                _ => left,
            };
            let bytes = &self.bytes[self.written..][..count];
            let count = self.peer.write(bytes).unwrap_or(0);
            self.stuck = count == 0;
            self.written += count;
            self.account(|account| account.up += count);
        }
        let waits = self.header.last && !self.peer.eof();
        if !self.ended && self.written == self.bytes.len() && !waits {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.ended = true;
        self.account(|account| account.up_ended = true);
        self.peer.shutdown_write();
    }

    fn account(&self, change: impl FnOnce(&mut Account)) {
        change(self.ledger.borrow_mut().of(self.header.id));
    }

    /// Checks that all bytes received are those of its own connection: a rejected one is reset without a byte.
    fn look(&self) -> Result<(), String> {
        if self.expected.starts_with(&self.received) {
            Ok(())
        } else {
            Err("bytes that are not its own".to_owned())
        }
    }

    /// Leaves before its time, if that is its manner.
    fn leave(&mut self) -> bool {
        if self.written < self.limit || self.ended {
            return false;
        }
        match self.manner {
            Manner::Resets => self.peer.reset(),
            Manner::Leaves => {
                // With bytes unread it is a reset.
                let ends = self.peer.readable() == 0;
                self.account(|account| account.up_ended = ends);
                self.peer.close();
            }
            _ => return false,
        }
        true
    }

    /// Handles the orderly end of the other side: did it close in order, and did all bytes arrive?
    fn end(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.heard_end, true) {
            self.check_end()?;
        }
        if !self.ended && self.written == self.bytes.len() {
            self.finish();
        }
        if self.ended {
            self.whole = self.received.len() == self.expected.len();
            self.peer.close();
            self.done = true;
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        let mut ledger = self.ledger.borrow_mut();
        let left = self.received.is_empty() && ledger.left > 0;
        let account = ledger.of(self.header.id);
        if left && !account.arrived {
            ledger.left -= 1;
        } else if !account.down_ended || account.down != self.received.len() {
            let found = self.received.len();
            return Err(format!(
                "an end behind {found} bytes that nobody has sent: {account:?}"
            ));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {:?} {:?}: {} of {} written, {} of {} read, ended: {}",
            self.manner,
            self.peer,
            self.header,
            self.written,
            self.bytes.len(),
            self.received.len(),
            self.expected.len(),
            self.ended
        )
    }
}
