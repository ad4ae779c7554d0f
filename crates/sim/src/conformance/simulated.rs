//! The far side of the conformance cases, in a simulated world.
//!
//! Owns the world and two workers whose waits move it.

use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Socket};

use super::{FarState, Harness};
use crate::{Peer, PeerDatagrams, PeerListener, Plan, Sim, World};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Two simulated workers.
#[derive(Debug)]
pub struct SimHarness {
    world: World,
    workers: [Sim; 2],
}

impl SimHarness {
    /// A fresh world; the plan must leave out the faults that a case takes for failures.
    #[must_use]
    pub fn new(seed: u64, mut plan: Plan) -> SimHarness {
        plan.self_driving = true;
        let world = World::new(seed, plan, 2);
        let workers = [world.backend(0), world.backend(1)];
        SimHarness { world, workers }
    }
}

impl Harness for SimHarness {
    type Backend = Sim;
    type Peer = Peer;
    type Listener = PeerListener;
    type Datagram = PeerDatagrams;

    fn worker(&mut self, index: usize) -> &mut Sim {
        &mut self.workers[index]
    }

    fn wait(&mut self, worker: usize, timeout: Option<Duration>) {
        self.workers[worker]
            .wait(timeout)
            .expect("a simulated wait never fails");
    }

    fn listen(&mut self, worker: usize) -> (Socket, Addr) {
        let socket = self.world.listen(worker, &Addr::Inet(LOOPBACK));
        let at = self.workers[worker].local_addr(socket);
        let at = at.expect("it is open").expect("a listener has an address");
        (socket, at)
    }

    fn dial(&mut self, to: &Addr) -> Peer {
        self.world.connect(to).expect("the backlog has room")
    }

    fn peer_addr(&mut self, peer: &Peer) -> Option<Addr> {
        peer.local_addr()
    }

    fn peer_write(&mut self, peer: &mut Peer, data: &[u8]) -> usize {
        peer.write(data).unwrap_or(0)
    }

    fn peer_read(&mut self, peer: &mut Peer, into: &mut Vec<u8>) -> FarState {
        into.extend(peer.read(usize::MAX));
        match (peer.failed(), peer.eof()) {
            (true, _) => FarState::Reset,
            (false, true) => FarState::Eof,
            (false, false) => FarState::Open,
        }
    }

    fn peer_shutdown(&mut self, peer: &mut Peer) {
        peer.shutdown_write();
    }

    fn peer_reset(&mut self, peer: Peer) {
        peer.reset();
    }

    fn far_listen(&mut self) -> (PeerListener, Addr) {
        let listener = self.world.peer_listen(&Addr::Inet(LOOPBACK));
        let at = listener.addr();
        (listener, at)
    }

    fn far_accept(&mut self, listener: &mut PeerListener) -> Option<Peer> {
        listener.accept()
    }

    fn refusing_addr(&mut self) -> Addr {
        // Below the ports that the world hands out.
        Addr::Inet(SocketAddr::new(LOOPBACK.ip(), 1))
    }

    fn silent_addr(&mut self) -> Addr {
        let at = Addr::Inet(SocketAddr::new(LOOPBACK.ip(), 2));
        self.world.silence(&at);
        at
    }

    fn datagram_local(&mut self) -> SocketAddr {
        LOOPBACK
    }

    fn far_datagram(&mut self) -> (PeerDatagrams, SocketAddr) {
        let socket = self.world.peer_datagrams(LOOPBACK);
        let at = socket.local_addr();
        (socket, at)
    }

    fn far_send(&mut self, from: &mut PeerDatagrams, to: SocketAddr, data: &[u8]) {
        from.send_to(to, data);
    }

    fn far_recv(&mut self, at: &mut PeerDatagrams) -> Option<(Vec<u8>, SocketAddr)> {
        at.recv_from().map(|(from, data)| (data, from))
    }

    fn wake_soon(&mut self, waker: Waker) {
        self.world.run_outside(Box::new(move || waker.wake()));
    }
}
