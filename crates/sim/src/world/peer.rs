//! The test's side of the simulated network: clients, upstream servers, datagram sockets.
//!
//! Owns handles only; nothing here blocks, and nothing here is subject to a worker's rules.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use ringmain_engine::Addr;

use super::network::Owner;
use super::state::State;

/// One stream end that the test holds. Dropping it leaves the connection open; use [`Peer::close`].
#[derive(Clone)]
pub struct Peer {
    state: Rc<RefCell<State>>,
    end: u32,
}

impl Peer {
    pub(super) fn connect(state: &Rc<RefCell<State>>, to: &Addr, from: Option<Addr>) -> io::Result<Peer> {
        let end = state.borrow_mut().dial(to, from, Owner::Peer);
        match end {
            Ok(end) => Ok(Peer {
                state: Rc::clone(state),
                end,
            }),
            Err(error) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Names this connection in traces, and orders peers.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.end
    }

    /// Hands over as many bytes as there is room for, perhaps none, and returns how many.
    ///
    /// # Errors
    /// The connection's failure (once), then `EPIPE`; `ENOTCONN` after close.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state.borrow_mut();
        let Some(end) = state
            .ends
            .get_mut(&self.end)
            .filter(|end| end.owner == Owner::Peer)
        else {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        };
        if let Some(error) = end.take_send_error() {
            return Err(io::Error::from_raw_os_error(error));
        }
        let count = bytes.len().min(end.send_room());
        end.send.extend(&bytes[..count]);
        if count > 0 {
            state.note("peer writes", u64::from(self.end), count as u64, 0);
        }
        state.arm_wire(self.end);
        Ok(count)
    }

    /// Takes what has arrived, at most `limit` bytes; empty if nothing has.
    #[must_use]
    pub fn read(&self, limit: usize) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        if !state.ends.contains_key(&self.end) {
            return Vec::new();
        }
        let bytes = state.take_received(self.end, limit);
        if !bytes.is_empty() {
            state.note("peer reads", u64::from(self.end), bytes.len() as u64, 0);
        }
        bytes
    }

    /// Bytes that a read would find.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.with_end(|end| end.receive.len()).unwrap_or(0)
    }

    /// Bytes that the other side has not received yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.with_end(|end| end.send.len()).unwrap_or(0)
    }

    /// Whether the other side has ended its direction and all of it has been read.
    #[must_use]
    pub fn eof(&self) -> bool {
        self.with_end(|end| end.eof && !end.dead && end.receive.is_empty())
            .unwrap_or(false)
    }

    /// Whether the connection was reset, by the other side or by the network.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.with_end(|end| end.dead).unwrap_or(false)
    }

    /// Our own address; `None` for a Unix socket or after close.
    #[must_use]
    pub fn local_addr(&self) -> Option<Addr> {
        self.with_end(|end| end.local.clone()).flatten()
    }

    /// Ends our direction after what was written.
    pub fn shutdown_write(&self) {
        let mut state = self.state.borrow_mut();
        if state.ends.contains_key(&self.end) {
            state.note("peer ends", u64::from(self.end), 0, 0);
            state.end_sending(self.end);
        }
    }

    /// Closes as `close(2)` does: with unread bytes this resets the connection.
    pub fn close(&self) {
        let mut state = self.state.borrow_mut();
        if state
            .ends
            .get(&self.end)
            .is_some_and(|end| end.owner == Owner::Peer)
        {
            state.note("peer closes", u64::from(self.end), 0, 0);
            state.close_end(self.end);
        }
    }

    /// Resets the connection; bytes on their way are lost.
    pub fn reset(&self) {
        self.state.borrow_mut().reset_end(self.end);
    }

    fn with_end<T>(&self, ask: impl FnOnce(&super::network::End) -> T) -> Option<T> {
        let state = self.state.borrow();
        state
            .ends
            .get(&self.end)
            .filter(|end| end.owner == Owner::Peer)
            .map(ask)
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Peer {{ end: {} }}", self.end)
    }
}

/// A listener of the test, for what workers connect to. It stays open as long as the world.
pub struct PeerListener {
    state: Rc<RefCell<State>>,
    id: u32,
}

impl PeerListener {
    pub(super) fn new(state: &Rc<RefCell<State>>, addr: &Addr) -> PeerListener {
        let id = state.borrow_mut().open_listener(None, addr);
        PeerListener {
            state: Rc::clone(state),
            id,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> Addr {
        self.state.borrow().listeners[&self.id].addr.clone()
    }

    /// The oldest connection that waits.
    #[must_use]
    pub fn accept(&self) -> Option<Peer> {
        let mut state = self.state.borrow_mut();
        let listener = state
            .listeners
            .get_mut(&self.id)
            .expect("only this handle could close it");
        let end = listener.backlog.pop_front()?;
        state.ends.get_mut(&end).expect("who waits is there").owner = Owner::Peer;
        Some(Peer {
            state: Rc::clone(&self.state),
            end,
        })
    }

    /// Stops listening, as a process that ends: who waits is reset, who comes is refused.
    pub fn close(self) {
        self.state.borrow_mut().close_listener(self.id);
    }
}

impl std::fmt::Debug for PeerListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerListener {{ addr: {:?} }}", self.addr())
    }
}

/// A datagram socket of the test.
pub struct PeerDatagrams {
    state: Rc<RefCell<State>>,
    local: SocketAddr,
}

impl PeerDatagrams {
    pub(super) fn new(state: &Rc<RefCell<State>>, local: SocketAddr) -> PeerDatagrams {
        let local = state.borrow_mut().with_port(local);
        state.borrow_mut().outside.insert(local, VecDeque::new());
        PeerDatagrams {
            state: Rc::clone(state),
            local,
        }
    }

    /// Where it is bound.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends one datagram, which the network may lose, double or let others overtake.
    pub fn send_to(&self, to: SocketAddr, data: &[u8]) {
        self.state
            .borrow_mut()
            .send_datagram(self.local, to, data.to_vec());
    }

    /// The oldest datagram that arrived, and who sent it.
    #[must_use]
    pub fn recv_from(&self) -> Option<(SocketAddr, Vec<u8>)> {
        self.state.borrow_mut().outside.get_mut(&self.local)?.pop_front()
    }
}

impl Drop for PeerDatagrams {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.outside.remove(&self.local);
        }
    }
}

impl std::fmt::Debug for PeerDatagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PeerDatagrams {{ local: {} }}", self.local)
    }
}
