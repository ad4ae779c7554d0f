//! The epoll floor: level-triggered, one receive and one send per message.
//!
//! Must not know of the io_uring floor. A send that does not fit the socket buffer closes
//! the connection: the load of the benchmark never fills one.

use crate::app::{self, App};
use std::ptr::null_mut;

const EVENTS: usize = 512;
const RECEIVE_BYTES: usize = 64 * 1024;

#[derive(Clone, Default)]
struct Connection {
    /// What the send reads from.
    out: Vec<u8>,
    /// The beginning of a request that has not arrived whole.
    rest: Vec<u8>,
}

/// Serves until the process is ended.
pub fn run(listener: i32, mut app: impl App) -> ! {
    let mut buffer = vec![0u8; RECEIVE_BYTES];
    let mut connections = vec![Connection::default(); 20_000];
    // SAFETY: plain calls on descriptors of this process; every buffer outlives its call.
    unsafe {
        let flags = libc::fcntl(listener, libc::F_GETFL);
        libc::fcntl(listener, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let ep = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        watch(ep, listener);
        let mut events: Vec<libc::epoll_event> = vec![std::mem::zeroed(); EVENTS];
        loop {
            let n = libc::epoll_wait(ep, events.as_mut_ptr(), EVENTS as i32, 1000).max(0);
            app.begin_turn();
            for event in &events[..n as usize] {
                let fd = event.u64 as i32;
                if fd == listener {
                    accept_all(ep, listener, &mut connections);
                } else {
                    answer(fd, &app, &mut buffer, &mut connections[fd as usize]);
                }
            }
        }
    }
}

/// # Safety
/// Both are descriptors that this thread owns.
unsafe fn watch(ep: i32, fd: i32) {
    let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
    let mut event = libc::epoll_event {
        events,
        u64: fd as u64,
    };
    libc::epoll_ctl(ep, libc::EPOLL_CTL_ADD, fd, &mut event);
}

/// # Safety
/// Both are descriptors that this thread owns.
unsafe fn accept_all(ep: i32, listener: i32, connections: &mut [Connection]) {
    loop {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = libc::accept4(listener, null_mut(), null_mut(), flags);
        if fd < 0 {
            return;
        }
        connections[fd as usize].rest.clear();
        watch(ep, fd);
    }
}

/// # Safety
/// `fd` is a connection that this thread owns.
unsafe fn answer(fd: i32, app: &impl App, buffer: &mut [u8], connection: &mut Connection) {
    loop {
        let received = libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0);
        if received <= 0 {
            if received == 0 || *libc::__errno_location() != libc::EAGAIN {
                libc::close(fd);
            }
            return;
        }
        // The copy into the connection's own buffer is what any server that may have to
        // wait for the peer does; the floor pays it too.
        let Connection { out, rest } = &mut *connection;
        out.clear();
        app::take(app, rest, &buffer[..received as usize], out);
        if !out.is_empty() {
            let sent = libc::send(fd, out.as_ptr().cast(), out.len(), libc::MSG_NOSIGNAL);
            if sent != out.len() as isize {
                libc::close(fd);
                return;
            }
        }
        if (received as usize) < buffer.len() {
            return;
        }
    }
}
