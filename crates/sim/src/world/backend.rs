//! One worker's view of the world: the contract, call by call.
//!
//! Owns nothing but the worker's number; each call is checked, noted and passed on to the state.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{
    Backend, Completion, DatagramOptions, Job, Lent, Op, OutgoingDatagram, PoolFull, Slot, Socket,
    SocketOption, Time,
};
use ringmain_engine::limits::SEND_PIECES;

use super::operations::{Sending, Work};
use super::plan::Fault;
use super::state::{Advance, Event, Kind, State};

/// The back-end of one simulated worker.
pub struct Sim {
    state: Rc<RefCell<State>>,
    worker: usize,
}

impl Sim {
    pub(super) fn new(state: Rc<RefCell<State>>, worker: usize) -> Sim {
        let taken = std::mem::replace(&mut state.borrow_mut().workers[worker].taken, true);
        assert!(!taken, "the back-end of worker {worker} was taken before");
        Sim { state, worker }
    }

    /// Moves the world until this worker has something to see, for [`super::Plan::self_driving`].
    fn drive(&self) {
        loop {
            let advance = self.state.borrow_mut().advance();
            match advance {
                Advance::Nothing => {
                    let state = self.state.borrow();
                    let what = "wait() without a timeout while nothing is on its way";
                    state.misuse(self.worker, what);
                }
                Advance::Done => {}
                Advance::Run(job) => job(),
            }
            if self.state.borrow().is_runnable(self.worker) {
                return;
            }
        }
    }

    /// Checks that a socket that is named in a call without completion is open.
    fn check_open(&self, state: &State, socket: Socket, call: &str) {
        match state.workers[self.worker].sockets.get(&socket.number()) {
            Some(entry) if !entry.leaving => {}
            Some(_) => {
                let what = format!("{call}() on socket {} after close() or give()", socket.number());
                state.misuse(self.worker, &what);
            }
            None => {
                let what = format!("{call}() on socket {}, which is not open here", socket.number());
                state.misuse(self.worker, &what);
            }
        }
    }
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn now(&self) -> Time {
        Time(self.state.borrow().workers[self.worker].clock)
    }

    /// Moves within a turn only when the test says so, by [`super::World::jump`]: as if the handler had computed.
    fn clock(&self) -> Time {
        Time(self.state.borrow().now)
    }

    fn wall(&self) -> Duration {
        self.state.borrow().workers[self.worker].wall
    }

    fn random(&mut self) -> u64 {
        self.state.borrow_mut().workers[self.worker].random.next()
    }

    /// Never blocks: notes until when the worker would sleep, for the scheduler.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let (shows, drive) = {
            let mut state = self.state.borrow_mut();
            (state.wait(self.worker, timeout), state.plan.self_driving)
        };
        if !shows && drive {
            self.drive();
            self.state.borrow_mut().wait(self.worker, timeout);
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Completion> {
        self.state.borrow_mut().take(self.worker)
    }

    fn give_back(&mut self, data: Lent) {
        let mut state = self.state.borrow_mut();
        if let Err(what) = state.workers[self.worker].buffers.give_back(data) {
            state.misuse(self.worker, &what);
        }
    }

    fn buffers_free(&self) -> usize {
        self.state.borrow().workers[self.worker].buffers.free()
    }

    fn adopt(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        drop(fd);
        let what = "the simulated network has no descriptors: open listeners with World::listen";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    fn adopt_listener(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        self.adopt(fd)
    }

    fn accept_now(&mut self, listener: Socket) -> io::Result<Option<Socket>> {
        let mut state = self.state.borrow_mut();
        self.check_open(&state, listener, "accept_now");
        state.accept_now(self.worker, listener.number())
    }

    fn open_stream(&mut self, _to: &Addr, source: Option<&Addr>) -> io::Result<Socket> {
        let kind = Kind::Unconnected(source.cloned());
        self.state.borrow_mut().open_socket(self.worker, kind)
    }

    fn open_datagram(&mut self, local: SocketAddr, options: DatagramOptions) -> io::Result<Socket> {
        let mut state = self.state.borrow_mut();
        let local = state.with_port(local);
        let kind = Kind::Datagram {
            local,
            options,
            peer: None,
            queue: VecDeque::new(),
            error: None,
            shut: false,
        };
        state.open_socket(self.worker, kind)
    }

    fn accept(&mut self, slot: Slot, listener: Socket) {
        self.state
            .borrow_mut()
            .begin(self.worker, slot, listener.number(), Work::Accept { one: false });
    }

    fn accept_one(&mut self, slot: Slot, listener: Socket) {
        let work = Work::Accept { one: true };
        self.state
            .borrow_mut()
            .begin(self.worker, slot, listener.number(), work);
    }

    fn may_miss_resets(&self) -> bool {
        true
    }

    fn recv(&mut self, slot: Slot, socket: Socket, poll_first: bool) {
        let work = Work::Recv {
            eager: !poll_first,
            missed: false,
        };
        self.state
            .borrow_mut()
            .begin(self.worker, slot, socket.number(), work);
    }

    unsafe fn send(&mut self, slot: Slot, socket: Socket, pieces: &[io::IoSlice<'_>]) {
        let mut state = self.state.borrow_mut();
        if pieces.len() > SEND_PIECES {
            let what = format!("send() with {} pieces; at most {SEND_PIECES}", pieces.len());
            state.misuse(self.worker, &what);
        }
        if pieces.iter().all(|piece| piece.is_empty()) {
            state.misuse(self.worker, "send() of nothing");
        }
        let wait_all = state.random.coin();
        // SAFETY: the caller promises that the memory stays until the final completion.
        let sending = unsafe { Sending::new(pieces, wait_all) };
        state.begin(self.worker, slot, socket.number(), Work::Send(sending));
    }

    fn connect(&mut self, slot: Slot, socket: Socket, to: &Addr) {
        let work = Work::Connect {
            to: to.clone(),
            doomed: false,
        };
        self.state
            .borrow_mut()
            .begin(self.worker, slot, socket.number(), work);
    }

    fn recv_from(&mut self, slot: Slot, socket: Socket) {
        self.state
            .borrow_mut()
            .begin(self.worker, slot, socket.number(), Work::RecvFrom);
    }

    fn send_to(&mut self, slot: Slot, socket: Socket, datagram: &OutgoingDatagram<'_>) {
        let mut state = self.state.borrow_mut();
        self.check_open(&state, socket, "send_to");
        let entry = &state.workers[self.worker].sockets[&socket.number()];
        let Kind::Datagram { local, .. } = &entry.kind else {
            let what = format!("send_to() on socket {}, a {:?}", socket.number(), entry.kind);
            state.misuse(self.worker, &what);
        };
        let work = Work::SendTo {
            from: SocketAddr::new(datagram.source.unwrap_or(local.ip()), local.port()),
            to: datagram.to,
            segment: datagram.segment,
            data: datagram.data.to_vec(),
        };
        state.begin(self.worker, slot, socket.number(), work);
    }

    fn cancel(&mut self, op: Op, slot: Slot) {
        self.state.borrow_mut().cancel(self.worker, op, slot);
    }

    fn shutdown_write(&mut self, socket: Socket) {
        let mut state = self.state.borrow_mut();
        self.check_open(&state, socket, "shutdown_write");
        state.note(
            "shutdown write",
            self.worker as u64,
            u64::from(socket.number()),
            0,
        );
        if let Kind::Stream(end) = state.workers[self.worker].sockets[&socket.number()].kind {
            state.end_sending(end);
        }
    }

    fn shutdown_both(&mut self, socket: Socket) {
        let mut state = self.state.borrow_mut();
        self.check_open(&state, socket, "shutdown_both");
        state.note("shutdown both", self.worker as u64, u64::from(socket.number()), 0);
        state.shut_both(self.worker, socket.number());
    }

    fn close(&mut self, slot: Slot, socket: Socket) {
        self.state
            .borrow_mut()
            .begin(self.worker, slot, socket.number(), Work::Close);
    }

    fn give(&mut self, slot: Slot, socket: Socket, worker: usize, tag: u32) {
        let work = Work::Give { to: worker, tag };
        self.state
            .borrow_mut()
            .begin(self.worker, slot, socket.number(), work);
    }

    fn peer_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        let state = self.state.borrow();
        self.check_open(&state, socket, "peer_addr");
        match state.stream_addrs(self.worker, socket.number()) {
            Some([_, remote]) => Ok(remote),
            None => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
        }
    }

    fn local_addr(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        let state = self.state.borrow();
        self.check_open(&state, socket, "local_addr");
        Ok(match &state.workers[self.worker].sockets[&socket.number()].kind {
            Kind::Listener(id) => Some(state.listeners[id].addr.clone()),
            Kind::Datagram { local, .. } => Some(Addr::Inet(*local)),
            Kind::Unconnected(source) => source.clone(),
            Kind::Stream(end) => state.ends[end].local.clone(),
            Kind::Gone => None,
        })
    }

    fn set_option(&mut self, socket: Socket, option: SocketOption) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        self.check_open(&state, socket, "set_option");
        match state.workers[self.worker].sockets[&socket.number()].kind {
            Kind::Stream(end) => {
                state
                    .ends
                    .get_mut(&end)
                    .expect("an open socket has its end")
                    .apply(option);
                state.stir(end, Op::Send);
            }
            // Linux copies a listener's options to what it accepts.
            Kind::Listener(id) => {
                let listener = state.listeners.get_mut(&id).expect("an open listener is listed");
                listener.options.push(option);
            }
            Kind::Unconnected(_) | Kind::Datagram { .. } | Kind::Gone => {}
        }
        Ok(())
    }

    fn run_blocking(&mut self, job: Job) -> Result<(), PoolFull> {
        let mut state = self.state.borrow_mut();
        let full = state.jobs.len() >= state.plan.jobs;
        if full {
            state.saw(Fault::PoolFull);
        }
        if full || state.strikes(Fault::PoolFull) {
            return Err(PoolFull(job));
        }
        let id = state.fresh_operation();
        state.jobs.insert(id, job);
        let late = state.strikes(Fault::LateCompletion);
        state.later(Event::Job(id), late);
        Ok(())
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.state.borrow().workers[self.worker].cell))
    }

    fn wake_peer(&mut self, worker: usize) {
        // A number that is no worker is ignored.
        if let Some(peer) = self.state.borrow().workers.get(worker) {
            peer.cell.wake_by_ref();
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // A panic within a call may still hold the state; then nobody schedules any more.
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.worker_ends(self.worker);
        }
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sim {{ worker: {} }}", self.worker)
    }
}
