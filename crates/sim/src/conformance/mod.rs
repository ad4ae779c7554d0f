//! The completion contract as tests, generic over the back-end.
//!
//! Owns the cases ([`cases`]), the [`Driver`] that runs them and checks every completion against
//! what is in flight, and [`Harness`], the seam to the far side of the connections. Must not know
//! any one back-end: what differs between them lives in their `Harness`.
//! The rules are those of `docs/contract.md`, and a case names the rule it shows.

pub mod cases;
mod driver;
mod monitor;
mod real;
mod simulated;

use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Socket};

pub use driver::{Driver, Event};
pub use monitor::Monitor;
pub use real::RealHarness;
pub use simulated::SimHarness;

/// How the far side of a connection sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarState {
    /// More bytes may come.
    Open,
    /// Our side has sent its last byte.
    Eof,
    /// The connection was reset, or is broken in another way.
    Reset,
}

/// Two workers of one back-end and the world around them.
///
/// None of the calls blocks but [`Harness::wait`]; in a simulation they take no virtual time
/// and take effect, at the latest, while a worker waits.
pub trait Harness {
    /// The back-end under test.
    type Backend: Backend;
    /// The far end of a stream.
    type Peer;
    /// A far listener, for [`Backend::connect`].
    type Listener;
    /// A far datagram socket.
    type Datagram;

    /// Worker 0 or 1.
    fn worker(&mut self, index: usize) -> &mut Self::Backend;

    /// As [`Backend::wait`] on that worker; a simulation moves its world on.
    fn wait(&mut self, worker: usize, timeout: Option<Duration>);

    /// A new listening stream socket of `worker`, and where to dial it.
    fn listen(&mut self, worker: usize) -> (Socket, Addr);

    /// Connects to a listener of [`Harness::listen`].
    fn dial(&mut self, to: &Addr) -> Self::Peer;

    /// The far end's own address, as [`Backend::peer_addr`] should report it.
    fn peer_addr(&mut self, peer: &Self::Peer) -> Option<Addr>;

    /// Writes what fits; the number of bytes taken, 0 when full or broken.
    fn peer_write(&mut self, peer: &mut Self::Peer, data: &[u8]) -> usize;

    /// Appends what has arrived to `into`.
    fn peer_read(&mut self, peer: &mut Self::Peer, into: &mut Vec<u8>) -> FarState;

    /// Ends the far end's direction (FIN).
    fn peer_shutdown(&mut self, peer: &mut Self::Peer);

    /// Closes with RST.
    fn peer_reset(&mut self, peer: Self::Peer);

    /// A far listener and its address.
    fn far_listen(&mut self) -> (Self::Listener, Addr);

    /// The next connection of a far listener, if one is there.
    fn far_accept(&mut self, listener: &mut Self::Listener) -> Option<Self::Peer>;

    /// An address where nobody listens.
    fn refusing_addr(&mut self) -> Addr;

    /// An address that never answers a connection attempt. What keeps it so lives in the harness.
    fn silent_addr(&mut self) -> Addr;

    /// Where [`Backend::open_datagram`] can bind so that a far datagram socket reaches it.
    fn datagram_local(&mut self) -> SocketAddr;

    /// A far datagram socket and its address.
    fn far_datagram(&mut self) -> (Self::Datagram, SocketAddr);

    /// Sends one datagram from the far side.
    fn far_send(&mut self, from: &mut Self::Datagram, to: SocketAddr, data: &[u8]);

    /// The next datagram at the far side, if one is there.
    fn far_recv(&mut self, at: &mut Self::Datagram) -> Option<(Vec<u8>, SocketAddr)>;

    /// Calls `waker` soon from outside the worker (another thread, or an event of the simulation).
    fn wake_soon(&mut self, waker: Waker);
}

/// Makes one `#[test]` of every case: `conformance!(uring, || RealHarness::new(…));`
///
/// The second argument is an expression that gives a fresh [`Harness`] at each call.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $make:expr) => {
        $crate::conformance_cases!($module, $make);
    };
}
