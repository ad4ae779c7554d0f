//! The bare relay on epoll: level-triggered, one receive and one send each way.
//!
//! Must not know of the io_uring one. A send that does not fit the socket buffer ends the process.

use super::{answer_length, connect, is_one_head};
use std::ptr::null_mut;

const EVENTS: usize = 512;
const RECEIVE_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Closed,
    Client,
    Upstream,
}

/// A connection, by its descriptor.
#[derive(Clone, Copy)]
struct Connection {
    kind: Kind,
    /// Whom it is exchanging with, -1 if nobody.
    other: i32,
    /// Bytes of the answer that have not come.
    left: usize,
}

const CLOSED: Connection = Connection {
    kind: Kind::Closed,
    other: -1,
    left: 0,
};

struct Relay {
    ep: i32,
    upstream: u16,
    connections: Vec<Connection>,
    idle: Vec<i32>,
}

/// Serves until the process is ended.
pub fn run(listener: i32, upstream: u16) -> ! {
    let mut buffer = vec![0u8; RECEIVE_BYTES];
    // SAFETY: plain calls on descriptors of this process; every buffer outlives its call.
    unsafe {
        let mut relay = Relay {
            ep: libc::epoll_create1(libc::EPOLL_CLOEXEC),
            upstream,
            connections: vec![CLOSED; 20_000],
            idle: Vec::new(),
        };
        make_non_blocking(listener);
        relay.watch(listener);
        let mut events: Vec<libc::epoll_event> = vec![std::mem::zeroed(); EVENTS];
        loop {
            let n = libc::epoll_wait(relay.ep, events.as_mut_ptr(), EVENTS as i32, 1000).max(0);
            for event in &events[..n as usize] {
                let fd = event.u64 as i32;
                if fd == listener {
                    relay.accept_all(listener);
                } else {
                    relay.receive(fd, &mut buffer);
                }
            }
        }
    }
}

/// # Safety
/// `fd` is a descriptor that this thread owns.
unsafe fn make_non_blocking(fd: i32) {
    let flags = libc::fcntl(fd, libc::F_GETFL);
    libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
}

impl Relay {
    /// # Safety
    /// `fd` is a descriptor that this thread owns; so it is in all that follows.
    unsafe fn watch(&self, fd: i32) {
        let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
        let mut event = libc::epoll_event {
            events,
            u64: fd as u64,
        };
        libc::epoll_ctl(self.ep, libc::EPOLL_CTL_ADD, fd, &mut event);
    }

    fn at(&mut self, fd: i32) -> &mut Connection {
        &mut self.connections[fd as usize]
    }

    unsafe fn accept_all(&mut self, listener: i32) {
        loop {
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let fd = libc::accept4(listener, null_mut(), null_mut(), flags);
            if fd < 0 {
                return;
            }
            *self.at(fd) = Connection {
                kind: Kind::Client,
                ..CLOSED
            };
            self.watch(fd);
        }
    }

    unsafe fn receive(&mut self, fd: i32, buffer: &mut [u8]) {
        let received = libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0);
        if received <= 0 {
            if received == 0 || *libc::__errno_location() != libc::EAGAIN {
                self.close(fd);
            }
            return;
        }
        let data = &buffer[..received as usize];
        match self.at(fd).kind {
            Kind::Client if is_one_head(data) => self.ask(fd, data),
            Kind::Upstream => self.answer(fd, data),
            _ => self.close(fd),
        }
    }

    unsafe fn ask(&mut self, client: i32, data: &[u8]) {
        let upstream = match self.idle.pop() {
            Some(upstream) => upstream,
            None => {
                let upstream = connect(self.upstream);
                make_non_blocking(upstream);
                self.at(upstream).kind = Kind::Upstream;
                self.watch(upstream);
                upstream
            }
        };
        self.at(upstream).other = client;
        self.at(client).other = upstream;
        send(upstream, data);
    }

    unsafe fn answer(&mut self, upstream: i32, data: &[u8]) {
        let connection = self.at(upstream);
        let client = connection.other;
        if client < 0 {
            return;
        }
        if connection.left == 0 {
            connection.left = answer_length(data).expect("a head with a length in one receive");
        }
        connection.left -= data.len();
        let is_over = connection.left == 0;
        send(client, data);
        if is_over {
            self.at(upstream).other = -1;
            self.at(client).other = -1;
            self.idle.push(upstream);
        }
    }

    unsafe fn close(&mut self, fd: i32) {
        if self.at(fd).kind == Kind::Upstream {
            self.idle.retain(|idle| *idle != fd);
        }
        let other = self.at(fd).other;
        for fd in [fd, other] {
            if fd >= 0 {
                *self.at(fd) = CLOSED;
                libc::close(fd);
            }
        }
    }
}

/// # Safety
/// `fd` is a connection that this thread owns.
unsafe fn send(fd: i32, data: &[u8]) {
    let sent = libc::send(fd, data.as_ptr().cast(), data.len(), libc::MSG_NOSIGNAL);
    assert_eq!(sent, data.len() as isize, "a send that fits");
}
