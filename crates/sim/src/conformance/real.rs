//! The far side on the kernel's own sockets, for the back-ends that talk to the kernel.
//!
//! Owns loopback sockets and the threads that wake workers. Knows no back-end's inside.

#![allow(clippy::disallowed_methods, reason = "wakes come from real threads")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Socket};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::{FarState, Harness};

/// A fixed size: a buffer that the kernel grows by itself lets a stalled send continue although the peer does not read.
const SOCKET_BUFFER: usize = 64 * 1024;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Two workers of a real back-end on this thread.
pub struct RealHarness<B: Backend> {
    workers: [B; 2],
    /// Sockets that only have to exist: deaf ports and full backlogs.
    kept: Vec<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Backend> RealHarness<B> {
    /// The two workers must know each other as 0 and 1.
    pub fn new(workers: [B; 2]) -> RealHarness<B> {
        RealHarness {
            workers,
            kept: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// A bound stream socket that does not listen (yet).
    fn bound() -> (OwnedFd, SocketAddr) {
        let fd = stream_socket(SocketFlags::CLOEXEC);
        rustix::net::bind(&fd, &LOOPBACK).expect("a port of the kernel's choice");
        let addr = rustix::net::getsockname(&fd).expect("bound");
        let addr = SocketAddr::try_from(addr).expect("an internet address");
        (fd, addr)
    }
}

fn stream_socket(flags: SocketFlags) -> OwnedFd {
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket")
}

impl<B: Backend> Harness for RealHarness<B> {
    type Backend = B;
    type Peer = TcpStream;
    type Listener = TcpListener;
    type Datagram = UdpSocket;

    fn worker(&mut self, index: usize) -> &mut B {
        &mut self.workers[index]
    }

    fn wait(&mut self, worker: usize, timeout: Option<Duration>) {
        self.workers[worker].wait(timeout).expect("the back-end works");
    }

    fn listen(&mut self, worker: usize) -> (Socket, Addr) {
        let listener = TcpListener::bind(LOOPBACK).expect("a port");
        // Accepted sockets inherit it.
        sockopt::set_socket_send_buffer_size(&listener, SOCKET_BUFFER).expect("a socket");
        let at = listener.local_addr().expect("bound");
        let socket = self.workers[worker]
            .adopt_listener(OwnedFd::from(listener))
            .expect("adopted");
        (socket, Addr::Inet(at))
    }

    fn dial(&mut self, to: &Addr) -> TcpStream {
        let Addr::Inet(to) = to else {
            panic!("listen() gave an internet address")
        };
        let peer = TcpStream::connect(to).expect("the backlog has room");
        sockopt::set_socket_recv_buffer_size(&peer, SOCKET_BUFFER).expect("a socket");
        peer.set_nonblocking(true).expect("a socket");
        peer
    }

    fn peer_addr(&mut self, peer: &TcpStream) -> Option<Addr> {
        Some(Addr::Inet(peer.local_addr().expect("connected")))
    }

    fn peer_write(&mut self, peer: &mut TcpStream, data: &[u8]) -> usize {
        peer.write(data).unwrap_or(0)
    }

    fn peer_read(&mut self, peer: &mut TcpStream, into: &mut Vec<u8>) -> FarState {
        let mut block = [0; 16 * 1024];
        loop {
            match peer.read(&mut block) {
                Ok(0) => return FarState::Eof,
                Ok(count) => into.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return FarState::Open,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return FarState::Reset,
            }
        }
    }

    fn peer_shutdown(&mut self, peer: &mut TcpStream) {
        peer.shutdown(std::net::Shutdown::Write).expect("connected");
    }

    fn peer_reset(&mut self, peer: TcpStream) {
        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("a socket");
    }

    fn far_listen(&mut self) -> (TcpListener, Addr) {
        let listener = TcpListener::bind(LOOPBACK).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let at = listener.local_addr().expect("bound");
        (listener, Addr::Inet(at))
    }

    fn far_accept(&mut self, listener: &mut TcpListener) -> Option<TcpStream> {
        let (peer, _) = listener.accept().ok()?;
        peer.set_nonblocking(true).expect("a socket");
        Some(peer)
    }

    fn refusing_addr(&mut self) -> Addr {
        // Bound but not listening: the port is ours, so nobody else can start to listen on it.
        let (fd, at) = Self::bound();
        self.kept.push(fd);
        Addr::Inet(at)
    }

    fn silent_addr(&mut self) -> Addr {
        // A full backlog: the kernel drops further connection attempts in silence.
        let (fd, at) = Self::bound();
        rustix::net::listen(&fd, 0).expect("bound");
        self.kept.push(fd);
        for _ in 0..4 {
            let filler = stream_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let started = rustix::net::connect(&filler, &at);
            assert_eq!(started, Err(rustix::io::Errno::INPROGRESS));
            self.kept.push(filler);
        }
        Addr::Inet(at)
    }

    fn datagram_local(&mut self) -> SocketAddr {
        LOOPBACK
    }

    fn far_datagram(&mut self) -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(LOOPBACK).expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        let at = socket.local_addr().expect("bound");
        (socket, at)
    }

    fn far_send(&mut self, from: &mut UdpSocket, to: SocketAddr, data: &[u8]) {
        assert_eq!(from.send_to(data, to).expect("loopback takes it"), data.len());
    }

    fn far_recv(&mut self, at: &mut UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
        let mut block = vec![0; 64 * 1024];
        let (count, from) = at.recv_from(&mut block).ok()?;
        block.truncate(count);
        // The far side knows us by the loopback address even where we bound the wildcard.
        Some((block, from))
    }

    fn wake_soon(&mut self, waker: Waker) {
        self.threads.push(std::thread::spawn(move || waker.wake()));
    }
}

impl<B: Backend> Drop for RealHarness<B> {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // A waker does not panic; if it did, the case has failed by waiting in vain.
            let _ = thread.join();
        }
    }
}
