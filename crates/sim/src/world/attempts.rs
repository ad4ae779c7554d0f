//! What each operation does when it gets its turn.
//!
//! Owns the effects and the choice of outcomes. Knows nothing of when completions become visible.

use std::io;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Completion, Op, RecvEnd, Slot, Socket};

use super::network::Owner;
use super::operations::Work;
use super::plan::Fault;
use super::state::{Event, Kind, State};

fn os(error: i32) -> io::Error {
    io::Error::from_raw_os_error(error)
}

impl State {
    /// Where an operation belongs.
    pub(super) fn place(&self, id: u64) -> (usize, Slot, u32) {
        let operation = &self.operations[&id];
        (operation.worker, operation.slot, operation.socket)
    }

    fn kind(&self, worker: usize, socket: u32) -> &Kind {
        &self.workers[worker]
            .sockets
            .get(&socket)
            .expect("it outlives its operations")
            .kind
    }

    fn end_of(&self, worker: usize, socket: u32) -> Option<u32> {
        match self.kind(worker, socket) {
            Kind::Stream(end) => Some(*end),
            _ => None,
        }
    }

    // ---- accept ----

    pub(super) fn attempt_accept(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        let Kind::Listener(listener_id) = *self.kind(worker, socket) else {
            unreachable!("accept begins on listeners only");
        };
        loop {
            let listener = &self.listeners[&listener_id];
            let fail = |error| Completion::AcceptEnded {
                slot,
                error: Some(os(error)),
            };
            if listener.shut {
                return self.push(id, fail(libc::EINVAL), true);
            }
            if listener.backlog.is_empty() {
                return;
            }
            if self.strikes(Fault::AcceptProcessLimit) {
                return self.push(id, fail(libc::EMFILE), true);
            }
            if self.strikes(Fault::AcceptSystemLimit) {
                return self.push(id, fail(libc::ENFILE), true);
            }
            let aborted = self.strikes(Fault::AcceptAborted);
            let listener = self.listeners.get_mut(&listener_id).expect("it was just read");
            let end = listener.backlog.pop_front().expect("it is not empty");
            if aborted {
                // What concerns one connection only is passed over.
                self.reset_end(end);
                continue;
            }
            let Some(number) = self.open_number(worker, Kind::Stream(end)) else {
                self.saw(Fault::AcceptProcessLimit);
                let listener = self.listeners.get_mut(&listener_id).expect("it was just read");
                listener.backlog.push_front(end);
                return self.push(id, fail(libc::EMFILE), true);
            };
            self.own(end, worker, number);
            self.push(
                id,
                Completion::Accepted {
                    slot,
                    socket: Socket::from_number(number),
                },
                false,
            );
            if matches!(self.operations[&id].work, Work::Accept { one: true }) {
                return self.push(id, Completion::AcceptEnded { slot, error: None }, true);
            }
            if self.random.coin() {
                return self.plan_attempt(id);
            }
        }
    }

    /// Takes one connection out of a listener's backlog, without faults: what waits is served at shutdown.
    pub(super) fn accept_now(&mut self, worker: usize, listener: u32) -> io::Result<Option<Socket>> {
        let Kind::Listener(id) = *self.kind(worker, listener) else {
            return Err(os(libc::EINVAL));
        };
        let taken = self.listeners.get_mut(&id).and_then(|l| l.backlog.pop_front());
        let Some(end) = taken else { return Ok(None) };
        let Some(number) = self.open_number(worker, Kind::Stream(end)) else {
            self.listeners
                .get_mut(&id)
                .expect("it was just read")
                .backlog
                .push_front(end);
            return Err(os(libc::EMFILE));
        };
        self.own(end, worker, number);
        Ok(Some(Socket::from_number(number)))
    }

    fn own(&mut self, end: u32, worker: usize, number: u32) {
        let end = self
            .ends
            .get_mut(&end)
            .expect("it stays while somebody waits for it");
        end.owner = Owner::Worker(worker, number);
    }

    // ---- streams ----

    pub(super) fn attempt_recv(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        let ended = |end| Completion::RecvEnded { slot, end };
        let Some(end_id) = self.end_of(worker, socket) else {
            return self.push(id, ended(RecvEnd::Failed(os(libc::ENOTCONN))), true);
        };
        let eager = match &mut self.operations.get_mut(&id).expect("the caller has it").work {
            Work::Recv { missed: true, .. } => return,
            Work::Recv { eager, .. } => std::mem::take(eager),
            _ => unreachable!("only a receive is tried here"),
        };
        loop {
            let no_buffer = self.workers[worker].buffers.free() == 0;
            let end = self.ends.get_mut(&end_id).expect("an open socket has its end");
            if end.receive.is_empty() {
                if let Some(error) = end.error.take() {
                    return self.push(id, ended(RecvEnd::Failed(os(error))), true);
                }
                if end.dead && end.send_told {
                    // A send had the error. Linux says end of data then, behind that send's completion; here completions of the
                    // two come in any order, and an end in order it is not.
                    return self.push(id, ended(RecvEnd::Failed(os(libc::ECONNRESET))), true);
                }
                if end.eof || end.dead {
                    return self.push(id, ended(RecvEnd::Eof), true);
                }
                // Linux reports the lack of buffers at once unless told to poll first.
                if eager && no_buffer {
                    self.saw(Fault::NoBuffers);
                    return self.push(id, ended(RecvEnd::NoBuffers), true);
                }
                return;
            }
            if no_buffer {
                self.saw(Fault::NoBuffers);
            }
            if no_buffer || self.strikes(Fault::NoBuffers) {
                return self.push(id, ended(RecvEnd::NoBuffers), true);
            }
            let more = self.receive_some(id, end_id);
            if !more || self.misses_reset(id, end_id) {
                return;
            }
            if self.random.coin() {
                return self.plan_attempt(id);
            }
        }
    }

    /// The bytes that were just received were the last before a reset, and the receive does not report it.
    fn misses_reset(&mut self, id: u64, end: u32) -> bool {
        let end = &self.ends[&end];
        let is_reset = end.receive.is_empty() && end.dead;
        if !is_reset || !self.strikes(Fault::MissedReset) {
            return false;
        }
        let operation = self.operations.get_mut(&id).expect("the caller has it");
        if let Work::Recv { missed, .. } = &mut operation.work {
            *missed = true;
        }
        true
    }

    /// Moves received bytes into a lent buffer. Returns whether the operation goes on.
    fn receive_some(&mut self, id: u64, end: u32) -> bool {
        let (worker, slot, _) = self.place(id);
        let possible = self.ends[&end].receive.len().min(self.plan.buffer_bytes);
        let cut = possible > 1 && self.strikes(Fault::CutRead);
        let count = if cut {
            1 + self.random.index(possible - 1)
        } else {
            possible
        };
        let bytes = self.take_received(end, count);
        let data = self.workers[worker].buffers.fill(&mut self.random, &bytes);
        let more = !self.strikes(Fault::ReceiveStops);
        self.push(id, Completion::Received { slot, data, more }, !more);
        more
    }

    pub(super) fn attempt_send(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        self.check_memory(id);
        let Work::Send(sending) = &self.operations[&id].work else {
            unreachable!("only a send is tried here");
        };
        if sending.reported {
            return self.push(id, Completion::Released { slot }, true);
        }
        let (done, left) = (sending.done, sending.total - sending.done);
        let fail = |error| Completion::Sent {
            slot,
            result: Err(os(error)),
            held: false,
        };
        let Some(end_id) = self.end_of(worker, socket) else {
            return self.push(id, fail(libc::ENOTCONN), true);
        };
        let end = self.ends.get_mut(&end_id).expect("an open socket has its end");
        let room = end.send_room();
        if let Some(error) = end.take_send_error() {
            if done == 0 {
                return self.push(id, fail(error), true);
            }
            // A partly done send reports its part; the error is for the next operation.
            end.error = (error != libc::EPIPE).then_some(error);
            return self.end_send(id, done);
        }
        if room == 0 && left > 0 {
            return self.saw(Fault::PendingSend);
        }
        let possible = room.min(left);
        let short = possible > 1 && self.strikes(Fault::ShortSend);
        let count = if short {
            1 + self.random.index(possible - 1)
        } else {
            possible
        };
        let Some(Work::Send(sending)) = self.operations.get_mut(&id).map(|op| &mut op.work) else {
            unreachable!("it was just read");
        };
        let bytes = sending.gather(count);
        sending.done += count;
        let (done, more) = (sending.done, sending.wait_all && sending.done < sending.total);
        self.ends
            .get_mut(&end_id)
            .expect("it was just read")
            .send
            .extend(bytes);
        self.arm_wire(end_id);
        if !more {
            self.end_send(id, done);
        } else if count < room {
            self.plan_attempt(id);
        }
    }

    /// Tells a send's outcome, and by chance keeps its memory for a while longer.
    fn end_send(&mut self, id: u64, done: usize) {
        let slot = self.operations[&id].slot;
        let held = self.strikes(Fault::HeldSend);
        self.push(
            id,
            Completion::Sent {
                slot,
                result: Ok(done),
                held,
            },
            !held,
        );
        if held {
            let Some(Work::Send(sending)) = self.operations.get_mut(&id).map(|op| &mut op.work) else {
                unreachable!("only a send ends here");
            };
            sending.reported = true;
            self.plan_attempt(id);
        }
    }

    pub(super) fn attempt_connect(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        let Work::Connect { to, doomed } = &self.operations[&id].work else {
            unreachable!("only a connect is tried here");
        };
        let (to, doomed) = (to.clone(), *doomed);
        let outcome = |result| Completion::Connected { slot, result };
        let entry = self.workers[worker].sockets.get_mut(&socket);
        if let (Some(Kind::Datagram { peer, .. }), Addr::Inet(to)) = (entry.map(|e| &mut e.kind), &to) {
            // No packet is sent, so nothing can go wrong.
            *peer = Some(*to);
            return self.push(id, outcome(Ok(())), true);
        }
        if doomed {
            return self.push(id, outcome(Err(os(libc::ETIMEDOUT))), true);
        }
        if self.strikes(Fault::ConnectTimeout) {
            if let Work::Connect { doomed, .. } =
                &mut self.operations.get_mut(&id).expect("the caller has it").work
            {
                *doomed = true;
            }
            return self.later(Event::Attempt(id), true);
        }
        if self.strikes(Fault::ConnectRefused) {
            return self.push(id, outcome(Err(os(libc::ECONNREFUSED))), true);
        }
        let Kind::Unconnected(source) = self.kind(worker, socket) else {
            return self.push(id, outcome(Err(os(libc::EISCONN))), true);
        };
        let source = source.clone();
        match self.dial(&to, source, Owner::Worker(worker, socket)) {
            Ok(end) => {
                let entry = self.workers[worker].sockets.get_mut(&socket);
                entry.expect("it outlives its operations").kind = Kind::Stream(end);
                self.push(id, outcome(Ok(())), true);
            }
            // Nobody answers, and the kernel gives up later than any worker.
            Err(libc::EINPROGRESS) => {}
            // The backlog is full: the first packet is sent again later.
            Err(libc::EAGAIN) => self.later(Event::Attempt(id), true),
            Err(error) => self.push(id, outcome(Err(os(error))), true),
        }
    }

    /// Ends both directions of whatever the socket is.
    pub(super) fn shut_both(&mut self, worker: usize, socket: u32) {
        match self.kind(worker, socket) {
            Kind::Stream(end) => {
                let end_id = *end;
                let end = self.ends.get_mut(&end_id);
                end.expect("an open socket has its end").eof = true;
                self.end_sending(end_id);
                self.stir(end_id, Op::Recv);
            }
            Kind::Listener(id) => {
                let id = *id;
                let listener = self.listeners.get_mut(&id).expect("an open listener is listed");
                listener.shut = true;
                for end in std::mem::take(&mut listener.backlog) {
                    self.reset_end(end);
                }
                self.stir_socket(worker, socket, Op::Accept);
            }
            Kind::Unconnected(_) => self.abort_connect(worker, socket),
            Kind::Datagram { .. } => {
                let entry = self.workers[worker].sockets.get_mut(&socket);
                if let Some(Kind::Datagram { shut, .. }) = entry.map(|entry| &mut entry.kind) {
                    *shut = true;
                }
                self.stir_socket(worker, socket, Op::RecvFrom);
            }
            Kind::Gone => {}
        }
    }

    fn abort_connect(&mut self, worker: usize, socket: u32) {
        let entry = self.workers[worker]
            .sockets
            .get(&socket)
            .expect("the caller has checked");
        let Some(id) = entry.operations[Op::Connect as usize] else {
            return;
        };
        if !self.operations[&id].ended {
            let slot = self.operations[&id].slot;
            let result = Err(os(libc::ECONNABORTED));
            self.push(id, Completion::Connected { slot, result }, true);
        }
    }

    // ---- leaving ----

    pub(super) fn attempt_close(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        self.leave(worker, socket);
        self.push(id, Completion::Closed { slot }, true);
    }

    pub(super) fn attempt_give(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        let Work::Give { to, tag } = self.operations[&id].work else {
            unreachable!("only a give is tried here");
        };
        let refuse = |error| Completion::Given {
            slot,
            result: Err(os(error)),
        };
        let Some(target) = self.workers.get(to) else {
            return self.push(id, refuse(libc::EBADF), true);
        };
        if !target.taken || target.gone {
            return self.give_to_nobody(id);
        }
        if self.strikes(Fault::GiveRefused) {
            return self.push(id, refuse(libc::EAGAIN), true);
        }
        let end = self.end_of(worker, socket).expect("only streams are given");
        let Some(number) = self.open_number(to, Kind::Stream(end)) else {
            self.saw(Fault::GiveRefused);
            return self.push(id, refuse(libc::ENFILE), true);
        };
        self.own(end, to, number);
        let entry = self.workers[worker].sockets.get_mut(&socket);
        entry.expect("it outlives its operations").kind = Kind::Gone;
        self.push_adopted(
            to,
            number,
            Completion::Adopted {
                tag,
                socket: Socket::from_number(number),
            },
        );
        self.push(id, Completion::Given { slot, result: Ok(()) }, true);
    }

    /// A worker that has ended: its mail may still take the connection, which is then closed.
    fn give_to_nobody(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        let result = if self.random.coin() {
            self.leave(worker, socket);
            Ok(())
        } else {
            Err(os(libc::EBADF))
        };
        self.push(id, Completion::Given { slot, result }, true);
    }

    /// Closes whatever a number stands for; the number stays taken.
    pub(super) fn leave(&mut self, worker: usize, socket: u32) {
        let entry = self.workers[worker].sockets.get_mut(&socket);
        let kind = &mut entry.expect("it outlives its operations").kind;
        match std::mem::replace(kind, Kind::Gone) {
            Kind::Stream(end) => self.close_end(end),
            Kind::Listener(listener) => self.close_listener(listener),
            Kind::Unconnected(_) | Kind::Datagram { .. } | Kind::Gone => {}
        }
    }

    /// A new socket number for opening, which may fail.
    pub(super) fn open_socket(&mut self, worker: usize, kind: Kind) -> io::Result<Socket> {
        if self.strikes(Fault::OpenFails) {
            return Err(os(libc::EMFILE));
        }
        self.open_number(worker, kind)
            .map(Socket::from_number)
            .ok_or_else(|| os(libc::ENFILE))
    }

    /// The addresses of an open stream: local, then remote.
    pub(super) fn stream_addrs(&self, worker: usize, socket: u32) -> Option<[Option<Addr>; 2]> {
        let end = &self.ends[&self.end_of(worker, socket)?];
        Some([end.local.clone(), end.remote.clone()])
    }
}
