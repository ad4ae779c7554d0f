//! The readiness back-end: emulates completions on one epoll instance per worker.
//!
//! Owns the worker's epoll instance, its sockets, one receive buffer and the queue of completions.
//! Must not know connections, tasks or timers. Sockets are watched edge-triggered from their first
//! operation on; what the kernel said is kept in the table (`table`), so that a message costs a
//! receive, a send and its share of one `epoll_wait`, and no `epoll_ctl`. Completions are pulled:
//! `next` does the receive when it is asked, into the one buffer that it lends (`progress`).

mod clock;
mod mail;
mod poller;
mod progress;
mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ringmain_sys::addr::Addr;
use ringmain_sys::socket;

use super::{
    Backend, Completion, DatagramOptions, Job, Lent, Op, OutgoingDatagram, PoolFull, RecvEnd, RunJob, Slot,
    Socket, SocketOption, Time,
};
use crate::limits;

pub use mail::EpollGroup;

use clock::Clock;
use poller::{Poller, Watch};
use table::{Armed, Ready, Table};

/// One worker's epoll back-end. Made by [`EpollGroup::worker`] on the worker's own thread.
pub struct Epoll {
    poller: Poller,
    table: Table,
    /// Sockets with something to do, each at most once; new ones and those that yield join at the end.
    ready: VecDeque<u32>,
    /// How many of `ready` belong to this turn.
    ready_left: usize,
    completions: VecDeque<Completion>,
    /// How many completions this turn may still report.
    turn_left: usize,
    /// Waits in a row that had completions to report and so did not ask the kernel.
    skipped: u32,
    /// The receive buffer, [`limits::EPOLL_BUFFER_BYTES`] long.
    scratch: Box<[u8]>,
    /// Bytes of it that one receive uses.
    receipt: usize,
    lent: bool,
    clock: Clock,
    random: ringmain_sys::clock::Random,
    group: Arc<EpollGroup>,
    worker: usize,
    run_job: RunJob,
}

impl Epoll {
    fn new(group: Arc<EpollGroup>, worker: usize, run_job: RunJob) -> io::Result<Epoll> {
        let poller = Poller::new(group.mailbox(worker).event())?;
        Ok(Epoll {
            poller,
            table: Table::default(),
            ready: VecDeque::new(),
            ready_left: 0,
            completions: VecDeque::new(),
            turn_left: limits::COMPLETIONS_PER_TURN,
            skipped: 0,
            scratch: vec![0; limits::EPOLL_BUFFER_BYTES].into_boxed_slice(),
            receipt: limits::EPOLL_BUFFER_BYTES,
            lent: false,
            clock: Clock::new(group.start()),
            random: ringmain_sys::clock::Random::new(),
            group,
            worker,
            run_job,
        })
    }

    /// Watches the socket, if it is not yet, for what `watch` needs.
    fn watch(&mut self, socket: Socket, watch: Watch) -> io::Result<()> {
        let Some(record) = self.table.get_mut(socket.0) else {
            return Err(closed_name());
        };
        self.poller.watch(socket.0, record, watch)
    }

    /// Marks `op` as in flight under `slot` and lets it go on at once if the kernel has already
    /// said that it can.
    fn arm(&mut self, op: Armed, slot: Slot, socket: Socket) {
        self.table.bind(slot, socket.0);
        if let Some(record) = self.table.get_mut(socket.0) {
            record.armed.insert(op);
            self.enqueue_if_due(socket.0);
        }
    }

    fn begin_accept(&mut self, slot: Slot, listener: Socket, one: bool) {
        match self.watch(listener, Watch::Listener) {
            Ok(()) => {
                if let Some(record) = self.table.get_mut(listener.0) {
                    record.one = one;
                }
                self.arm(Armed::ACCEPT, slot, listener);
            }
            Err(error) => {
                let error = Some(error);
                self.completions
                    .push_back(Completion::AcceptEnded { slot, error });
            }
        }
    }

    fn enqueue_if_due(&mut self, index: u32) {
        if let Some(record) = self.table.get_mut(index)
            && record.due()
            && !record.queued
        {
            record.queued = true;
            record.share = limits::EPOLL_SHARE;
            self.ready.push_back(index);
        }
    }

    /// Takes what the kernel reported over into the table and the ready list.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let events = self.poller.wait(timeout)?;
        for at in 0..events {
            let (index, life, flags) = self.poller.event(at);
            if let Some(record) = self.table.get_mut(index)
                && record.life == life
            {
                record.ready.insert(Ready::from(flags));
                self.enqueue_if_due(index);
            }
        }
        if self.group.mailbox(self.worker).was_woken() {
            while let Some(parcel) = self.group.mailbox(self.worker).take() {
                let socket = self.table.insert(parcel.fd, parcel.probe);
                self.completions.push_back(Completion::Adopted {
                    tag: parcel.tag,
                    socket,
                });
            }
        }
        Ok(())
    }

    fn insert(&mut self, fd: OwnedFd, probe: bool) -> Socket {
        self.table.insert(fd, probe)
    }

    /// Lends the first `count` bytes of the receive buffer.
    fn lend(&mut self, count: usize) -> Lent {
        self.lent = true;
        let start = NonNull::from(&mut *self.scratch).cast();
        // SAFETY: the bytes are initialised. The buffer is heap memory that lives as long as `self` and
        // is not touched while `lent`: `next` and `wait` insist on its return.
        unsafe { Lent::new(start, count as u32, 0) }
    }

    fn assert_nothing_lent(&self) {
        assert!(
            !self.lent,
            "the last lent buffer was not given back (docs/contract.md, M2)"
        );
    }
}

/// The answer to an operation on a name that is no open socket.
fn closed_name() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

fn would_block(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

impl Backend for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn clock(&self) -> Time {
        self.clock.precise()
    }

    fn rough_clock(&self) -> Time {
        self.clock.rough()
    }

    fn give_memory_back(&mut self) {
        ringmain_sys::memory::give_back();
    }

    fn set_frugal(&mut self, frugal: bool) {
        self.receipt = if frugal {
            limits::FRUGAL_RECEIPT
        } else {
            limits::EPOLL_BUFFER_BYTES
        };
    }

    fn wall(&self) -> Duration {
        self.clock.wall()
    }

    fn random(&mut self) -> u64 {
        self.random.draw()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.assert_nothing_lent();
        let pending = !self.completions.is_empty();
        if pending && self.skipped < limits::EPOLL_SKIPS {
            self.skipped += 1;
        } else {
            self.skipped = 0;
            let idle = !pending && self.ready.is_empty();
            self.poll(if idle { timeout } else { Some(Duration::ZERO) })?;
        }
        self.clock.read();
        self.ready_left = self.ready.len();
        self.turn_left = limits::COMPLETIONS_PER_TURN;
        Ok(())
    }

    fn exact_timeouts(&mut self) {
        super::sharpen_timers();
        self.poller.exact = true;
    }

    fn next(&mut self) -> Option<Completion> {
        self.assert_nothing_lent();
        if self.turn_left == 0 {
            return None;
        }
        let completion = match self.completions.pop_front() {
            Some(completion) => completion,
            None => self.progress()?,
        };
        self.turn_left -= 1;
        Some(completion)
    }

    fn give_back(&mut self, data: Lent) {
        debug_assert_eq!(data.id(), 0);
        self.lent = false;
    }

    fn buffers_free(&self) -> usize {
        usize::from(!self.lent)
    }

    fn adopt(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let probe = rustix::net::sockopt::socket_domain(&fd)? == rustix::net::AddressFamily::UNIX;
        Ok(self.insert(fd, probe))
    }

    fn adopt_listener(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        self.adopt(fd)
    }

    fn accept_now(&mut self, listener: Socket) -> io::Result<Option<Socket>> {
        self.accept_one(listener)
    }

    fn open_stream(&mut self, to: &Addr, source: Option<&Addr>) -> io::Result<Socket> {
        let fd = socket::stream(to, source)?;
        Ok(self.insert(fd, !matches!(to, Addr::Inet(_))))
    }

    fn open_datagram(&mut self, local: SocketAddr, options: DatagramOptions) -> io::Result<Socket> {
        let fd = ringmain_sys::datagram::open(local, options)?;
        Ok(self.insert(fd, true))
    }

    fn accept(&mut self, slot: Slot, listener: Socket) {
        self.begin_accept(slot, listener, false);
    }

    fn accept_one(&mut self, slot: Slot, listener: Socket) {
        self.begin_accept(slot, listener, true);
    }

    fn recv(&mut self, slot: Slot, socket: Socket, _poll_first: bool) {
        // No first try in any case: the first watch reports what is there, later ones know it.
        match self.watch(socket, Watch::Read) {
            Ok(()) => self.arm(Armed::RECV, slot, socket),
            Err(error) => {
                self.completions.push_back(Completion::RecvEnded {
                    slot,
                    end: RecvEnd::Failed(error),
                });
            }
        }
    }

    unsafe fn send(&mut self, slot: Slot, socket: Socket, pieces: &[io::IoSlice<'_>]) {
        if let Some(result) = self.send_or_wait(slot, socket, pieces) {
            self.completions.push_back(Completion::Sent {
                slot,
                result,
                held: false,
            });
        }
    }

    fn connect(&mut self, slot: Slot, socket: Socket, to: &Addr) {
        if let Some(result) = self.connect_or_wait(slot, socket, to) {
            self.completions.push_back(Completion::Connected { slot, result });
        }
    }

    fn recv_from(&mut self, slot: Slot, socket: Socket) {
        match self.watch(socket, Watch::Read) {
            Ok(()) => self.arm(Armed::RECV_FROM, slot, socket),
            Err(error) => {
                let end = RecvEnd::Failed(error);
                self.completions
                    .push_back(Completion::DatagramsEnded { slot, end });
            }
        }
    }

    fn send_to(&mut self, slot: Slot, socket: Socket, datagram: &OutgoingDatagram<'_>) {
        if let Some(result) = self.send_to_or_wait(slot, socket, datagram) {
            self.completions
                .push_back(Completion::DatagramSent { slot, result });
        }
    }

    fn cancel(&mut self, op: Op, slot: Slot) {
        self.cancel_armed(op, slot);
    }

    fn shutdown_write(&mut self, socket: Socket) {
        if let Some(fd) = self.table.fd(socket.0) {
            // Only ENOTCONN can come: the connection is gone and receiving says so.
            let _ = socket::shutdown_write(fd);
        }
    }

    fn shutdown_both(&mut self, socket: Socket) {
        if let Some(fd) = self.table.fd(socket.0) {
            // As above.
            let _ = socket::shutdown_both(fd);
        }
    }

    fn close(&mut self, slot: Slot, socket: Socket) {
        self.close_now(slot, socket);
    }

    fn give(&mut self, slot: Slot, socket: Socket, worker: usize, tag: u32) {
        let result = self.give_now(socket, worker, tag);
        self.completions.push_back(Completion::Given { slot, result });
    }

    fn peer_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        socket::peer_addr(self.table.fd(socket.0).ok_or_else(closed_name)?)
    }

    fn local_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        socket::local_addr(self.table.fd(socket.0).ok_or_else(closed_name)?)
    }

    fn set_option(&mut self, socket: Socket, option: SocketOption) -> io::Result<()> {
        let fd = self.table.fd(socket.0).ok_or_else(closed_name)?;
        match option {
            SocketOption::NoDelay(on) => socket::set_nodelay(fd, on),
            SocketOption::NotSentLowWater(bytes) => socket::set_notsent_lowat(fd, bytes),
            SocketOption::SendBuffer(bytes) => socket::set_send_buffer(fd, bytes),
            SocketOption::ReceiveBuffer(bytes) => socket::set_receive_buffer(fd, bytes),
            SocketOption::KeepAlive(on) => socket::set_keepalive(fd, on),
            SocketOption::UserTimeout(millis) => socket::set_user_timeout(fd, millis),
            SocketOption::ResetOnClose => socket::set_reset_on_close(fd),
        }
    }

    fn run_blocking(&mut self, job: Job) -> Result<(), PoolFull> {
        (self.run_job)(job)
    }

    fn waker(&self) -> Waker {
        self.group.mailbox(self.worker).waker()
    }

    fn wake_peer(&mut self, worker: usize) {
        if worker < self.group.len() {
            self.group.mailbox(worker).wake();
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        self.group.mailbox(self.worker).shut();
    }
}
