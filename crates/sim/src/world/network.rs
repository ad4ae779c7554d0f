//! The simulated network: listeners, and streams as pairs of ends with bounded queues.
//!
//! Owns what a kernel and a wire do between two calls. Knows nothing of completions: when
//! something changes for an end it only says so (`stir`).
//!
//! An end's bytes go `send` → wire event → the other end's `receive`. Closing with unread bytes
//! resets, as Linux does. After a reset the bytes already received can still be read, then the error
//! comes once, then end of file.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringmain_engine::Addr;
use ringmain_engine::backend::{Op, SocketOption};

use super::plan::Fault;
use super::state::{Event, State};

/// Who uses an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A worker, under this number of its socket table.
    Worker(usize, u32),
    /// A [`super::Peer`] of the test.
    Peer,
    /// It waits to be accepted.
    Backlog,
    /// Closed; only what it still has to send keeps it.
    Orphan,
}

/// One end of a stream.
#[derive(Debug)]
pub(super) struct End {
    pub(super) other: u32,
    pub(super) owner: Owner,
    pub(super) local: Option<Addr>,
    pub(super) remote: Option<Addr>,
    pub(super) send: VecDeque<u8>,
    pub(super) send_limit: usize,
    pub(super) receive: VecDeque<u8>,
    pub(super) receive_limit: usize,
    /// Our direction ends after what `send` holds.
    pub(super) fin: bool,
    pub(super) fin_sent: bool,
    /// The other direction has ended behind what `receive` holds.
    pub(super) eof: bool,
    /// Reset; nothing moves any more.
    pub(super) dead: bool,
    /// A send had the error.
    pub(super) send_told: bool,
    /// Told to the first operation that asks.
    pub(super) error: Option<i32>,
    pub(super) reset_on_close: bool,
    wire_armed: bool,
}

impl End {
    /// Bytes that a send could hand over now.
    pub(super) fn send_room(&self) -> usize {
        self.send_limit.saturating_sub(self.send.len())
    }

    /// What a send finds wrong before it looks for room.
    pub(super) fn take_send_error(&mut self) -> Option<i32> {
        match self.error.take() {
            Some(error) => {
                self.send_told = true;
                Some(error)
            }
            None if self.fin || self.dead => Some(libc::EPIPE),
            None => None,
        }
    }

    pub(super) fn apply(&mut self, option: SocketOption) {
        let doubled = |bytes: u32| (bytes as usize * 2).max(64);
        match option {
            SocketOption::SendBuffer(bytes) => self.send_limit = doubled(bytes),
            SocketOption::ReceiveBuffer(bytes) => self.receive_limit = doubled(bytes),
            SocketOption::ResetOnClose => self.reset_on_close = true,
            SocketOption::NoDelay(_)
            | SocketOption::NotSentLowWater(_)
            | SocketOption::KeepAlive(_)
            | SocketOption::UserTimeout(_) => {}
        }
    }
}

/// A listener; several with one address form a group.
#[derive(Debug)]
pub(super) struct Listener {
    /// The worker and its number for it; `None` for a test's own listener.
    pub(super) owner: Option<(usize, u32)>,
    pub(super) addr: Addr,
    pub(super) backlog: VecDeque<u32>,
    pub(super) shut: bool,
    /// It never answers, as behind a firewall.
    pub(super) silent: bool,
    pub(super) options: Vec<SocketOption>,
}

impl State {
    /// Opens a listener; port 0 is replaced by a free one.
    pub(super) fn open_listener(&mut self, owner: Option<(usize, u32)>, addr: &Addr) -> u32 {
        let addr = match addr {
            Addr::Inet(at) => Addr::Inet(self.with_port(*at)),
            other => other.clone(),
        };
        let id = self.fresh_id();
        let listener = Listener {
            owner,
            addr,
            backlog: VecDeque::new(),
            shut: false,
            silent: false,
            options: Vec::new(),
        };
        self.listeners.insert(id, listener);
        id
    }

    /// Closes a listener; who waits there is reset.
    pub(super) fn close_listener(&mut self, id: u32) {
        let listener = self
            .listeners
            .remove(&id)
            .expect("only an open listener is closed");
        for end in listener.backlog {
            self.reset_end(end);
        }
    }

    /// The address with port 0 replaced by one that nobody uses.
    pub(super) fn with_port(&mut self, at: SocketAddr) -> SocketAddr {
        if at.port() != 0 {
            return at;
        }
        self.next_port = self.next_port.wrapping_add(1).max(20_000);
        SocketAddr::new(at.ip(), self.next_port)
    }

    /// Connects a new pair of ends; the caller's one is returned, the other waits in a backlog.
    ///
    /// # Errors
    /// `ECONNREFUSED` or `ENOENT` if nobody listens, `EAGAIN` if the backlog is full, `EINPROGRESS` if
    /// there will be no answer.
    pub(super) fn dial(&mut self, to: &Addr, from: Option<Addr>, owner: Owner) -> Result<u32, i32> {
        let group: Vec<u32> = self
            .listeners
            .iter()
            .filter(|(_, listener)| !listener.shut && reaches(to, &listener.addr))
            .map(|(id, _)| *id)
            .collect();
        if group.is_empty() {
            return Err(if matches!(to, Addr::Unix(_)) {
                libc::ENOENT
            } else {
                libc::ECONNREFUSED
            });
        }
        let id = group[self.random.index(group.len())];
        if self.listeners[&id].silent {
            return Err(libc::EINPROGRESS);
        }
        if self.listeners[&id].backlog.len() >= self.plan.backlog {
            return Err(libc::EAGAIN);
        }
        let from = from.or_else(|| self.source_for(to));
        let (near, far) = (self.fresh_id(), self.fresh_id());
        self.ends
            .insert(near, self.end(far, owner, from.clone(), Some(to.clone())));
        let mut arrived = self.end(near, Owner::Backlog, Some(to.clone()), from);
        let listener = self.listeners.get_mut(&id).expect("it was just found");
        for option in &listener.options {
            arrived.apply(*option);
        }
        listener.backlog.push_back(far);
        let waiting = listener.owner;
        self.ends.insert(far, arrived);
        self.note("dial", u64::from(near), u64::from(far), u64::from(id));
        if let Some((worker, socket)) = waiting {
            self.stir_socket(worker, socket, Op::Accept);
        }
        Ok(near)
    }

    fn end(&self, other: u32, owner: Owner, local: Option<Addr>, remote: Option<Addr>) -> End {
        End {
            other,
            owner,
            local,
            remote,
            send: VecDeque::new(),
            send_limit: self.plan.send_bytes,
            receive: VecDeque::new(),
            receive_limit: self.plan.receive_bytes,
            fin: false,
            fin_sent: false,
            eof: false,
            dead: false,
            send_told: false,
            error: None,
            reset_on_close: false,
            wire_armed: false,
        }
    }

    /// A source address that no other connection has; none for Unix sockets.
    fn source_for(&mut self, to: &Addr) -> Option<Addr> {
        let Addr::Inet(to) = to else { return None };
        self.next_source += 1;
        let [a, b, c, d] = self.next_source.to_be_bytes();
        let ip = match to.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(10, b, c, d)),
            IpAddr::V6(_) => {
                let low = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
                IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, low[0], low[1]))
            }
        };
        Some(Addr::Inet(SocketAddr::new(ip, 40_000)))
    }

    /// Plans the next movement of what this end has to send, if it can move.
    pub(super) fn arm_wire(&mut self, id: u32) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        let room = match self.ends.get(&end.other) {
            Some(other) => other.receive.len() < other.receive_limit,
            None => true,
        };
        let work = (!end.send.is_empty() && room) || (end.send.is_empty() && end.fin && !end.fin_sent);
        if end.wire_armed || end.dead || !work {
            return;
        }
        self.ends.get_mut(&id).expect("it was just found").wire_armed = true;
        let slow = self.strikes(Fault::SlowWire);
        self.later(Event::Wire(id), slow);
    }

    /// Moves some of what an end has to send.
    pub(super) fn wire(&mut self, id: u32) {
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        end.wire_armed = false;
        if end.dead {
            return;
        }
        let other_id = end.other;
        if !end.send.is_empty() {
            if self
                .ends
                .get(&other_id)
                .is_none_or(|other| other.owner == Owner::Orphan)
            {
                self.note("wire to closed", u64::from(id), 0, 0);
                self.forget_end(other_id);
                self.kill(id, libc::ECONNRESET);
                return;
            }
            if self.strikes(Fault::Reset) {
                self.note("network reset", u64::from(id), u64::from(other_id), 0);
                self.kill(id, libc::ECONNRESET);
                self.kill(other_id, libc::ECONNRESET);
                return;
            }
            self.carry(id, other_id);
        }
        let end = self.ends.get_mut(&id).expect("carrying removes nobody");
        if end.send.is_empty() && end.fin && !end.fin_sent {
            // Half of the time the end of the stream comes with the last bytes, else after them.
            if self.random.coin() {
                self.finish(id, other_id);
            }
        }
        self.arm_wire(id);
        self.reap(id);
    }

    /// Moves bytes from one end's send queue to the other's receive queue.
    fn carry(&mut self, id: u32, other_id: u32) {
        let other = &self.ends[&other_id];
        let room = other.receive_limit.saturating_sub(other.receive.len());
        let possible = room.min(self.ends[&id].send.len());
        if possible == 0 {
            return;
        }
        let count = if self.plan.whole || self.random.coin() {
            possible
        } else {
            1 + self.random.index(possible)
        };
        let end = self.ends.get_mut(&id).expect("the caller has it");
        let bytes = take_front(&mut end.send, count);
        let other = self.ends.get_mut(&other_id).expect("it was just read");
        other.receive.extend(bytes);
        self.note("wire", u64::from(id), u64::from(other_id), count as u64);
        self.stir(id, Op::Send);
        self.stir(other_id, Op::Recv);
    }

    /// Delivers the end of the stream.
    fn finish(&mut self, id: u32, other_id: u32) {
        self.ends.get_mut(&id).expect("the caller has it").fin_sent = true;
        self.note("wire end", u64::from(id), u64::from(other_id), 0);
        if let Some(other) = self.ends.get_mut(&other_id) {
            other.eof = true;
            self.stir(other_id, Op::Recv);
        }
    }

    /// Takes up to `limit` received bytes and lets the sender go on.
    pub(super) fn take_received(&mut self, id: u32, limit: usize) -> Vec<u8> {
        let end = self.ends.get_mut(&id).expect("only an open end is read");
        let count = limit.min(end.receive.len());
        let bytes = take_front(&mut end.receive, count);
        let other = end.other;
        self.arm_wire(other);
        bytes
    }

    /// Ends one direction once what is queued has gone.
    pub(super) fn end_sending(&mut self, id: u32) {
        let end = self.ends.get_mut(&id).expect("only an open end is shut down");
        end.fin = true;
        self.stir(id, Op::Send);
        self.arm_wire(id);
    }

    /// Closes an end as `close(2)` does.
    pub(super) fn close_end(&mut self, id: u32) {
        let end = self.ends.get_mut(&id).expect("only an open end is closed");
        if end.dead {
            self.ends.remove(&id);
        } else if end.reset_on_close || !end.receive.is_empty() {
            self.reset_end(id);
        } else {
            end.owner = Owner::Orphan;
            end.fin = true;
            self.arm_wire(id);
            self.reap(id);
        }
    }

    /// Drops an end at once; the other one hears of it later.
    pub(super) fn reset_end(&mut self, id: u32) {
        if let Some(end) = self.ends.remove(&id) {
            self.note("reset", u64::from(id), u64::from(end.other), 0);
            if !end.dead {
                self.later(Event::Kill(end.other), false);
            }
        }
    }

    /// Marks an end as failed: nothing more goes out, what has come in can be read.
    pub(super) fn kill(&mut self, id: u32, error: i32) {
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        if end.dead {
            return;
        }
        end.dead = true;
        end.error = Some(error);
        end.send.clear();
        if !end.receive.is_empty() && self.strikes(Fault::ResetLosesBytes) {
            self.ends.get_mut(&id).expect("it was just read").receive.clear();
        }
        if self.ends[&id].owner == Owner::Orphan {
            self.forget_end(id);
            return;
        }
        self.stir(id, Op::Recv);
        self.stir(id, Op::Send);
    }

    /// Removes a closed end that has nothing left to send.
    fn reap(&mut self, id: u32) {
        if self
            .ends
            .get(&id)
            .is_some_and(|end| end.owner == Owner::Orphan && end.fin_sent)
        {
            self.forget_end(id);
        }
    }

    fn forget_end(&mut self, id: u32) {
        self.ends.remove(&id);
    }

    /// Something changed for an end: an operation that waits there looks again.
    pub(super) fn stir(&mut self, id: u32, op: Op) {
        if let Some(Owner::Worker(worker, socket)) = self.ends.get(&id).map(|end| end.owner) {
            self.stir_socket(worker, socket, op);
        }
    }
}

/// Whether a connection to `to` arrives at a listener on `at`; an unspecified address hears all.
pub(super) fn reaches(to: &Addr, at: &Addr) -> bool {
    match (to, at) {
        (Addr::Inet(to), Addr::Inet(at)) => reaches_inet(*to, *at),
        (to, at) => to == at,
    }
}

/// As [`reaches`], for datagrams.
pub(super) fn reaches_inet(to: SocketAddr, at: SocketAddr) -> bool {
    let heard = at.ip() == to.ip() || (at.ip().is_unspecified() && (at.is_ipv6() || to.is_ipv4()));
    to.port() == at.port() && heard
}

/// The first bytes of a queue, of which there are as many. Not one by one: simulations spend their time on better things.
fn take_front(queue: &mut VecDeque<u8>, count: usize) -> Vec<u8> {
    let (one, two) = queue.as_slices();
    let mut bytes = Vec::with_capacity(count);
    bytes.extend_from_slice(&one[..count.min(one.len())]);
    bytes.extend_from_slice(&two[..count - bytes.len()]);
    queue.drain(..count);
    bytes
}
