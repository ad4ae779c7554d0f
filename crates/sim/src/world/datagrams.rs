//! Datagrams of the simulated network: their sends, their ways, joined ones, and ICMP errors.
//!
//! Knows no streams.

use std::io;
use std::net::{IpAddr, SocketAddr};

use ringmain_engine::backend::{Completion, DatagramInfo, Op, RecvEnd};

use super::network::reaches_inet;
use super::operations::Work;
use super::plan::Fault;
use super::state::{Event, Kind, QueuedDatagram, State};

/// The largest payload of a UDP datagram over IPv4, in bytes.
const DATAGRAM_BYTES: usize = 65_507;

fn os(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl State {
    pub(super) fn attempt_recv_from(&mut self, id: u64) {
        let (worker, slot, socket) = self.place(id);
        let ended = |end| Completion::DatagramsEnded { slot, end };
        loop {
            let no_buffer = self.workers[worker].buffers.free() == 0;
            let entry = self.workers[worker].sockets.get_mut(&socket);
            let Kind::Datagram {
                queue, error, shut, ..
            } = &mut entry.expect("it outlives its operations").kind
            else {
                unreachable!("recv_from begins on datagram sockets only");
            };
            if *shut {
                return self.push(id, ended(RecvEnd::Failed(os(libc::ENOTCONN))), true);
            }
            if let Some(error) = error.take() {
                return self.push(id, ended(RecvEnd::Failed(os(error))), true);
            }
            if queue.is_empty() {
                return;
            }
            if no_buffer {
                self.saw(Fault::NoBuffers);
            }
            if no_buffer || self.strikes(Fault::NoBuffers) {
                return self.push(id, ended(RecvEnd::NoBuffers), true);
            }
            let entry = self.workers[worker].sockets.get_mut(&socket);
            let Some(Kind::Datagram { queue, options, .. }) = entry.map(|entry| &mut entry.kind) else {
                unreachable!("it was just read");
            };
            let arrived = queue.pop_front().expect("it is not empty");
            let info = DatagramInfo {
                local: options.local_address.then_some(arrived.to.ip()),
                segment: arrived.segment,
            };
            let data = self.workers[worker].buffers.fill(&mut self.random, &arrived.data);
            let more = !self.strikes(Fault::ReceiveStops);
            self.push(
                id,
                Completion::Datagram {
                    slot,
                    data,
                    from: Some(arrived.from),
                    info,
                    more,
                },
                !more,
            );
            if !more {
                return;
            }
        }
    }

    pub(super) fn attempt_send_to(&mut self, id: u64) {
        let (_, slot, _) = self.place(id);
        let work = &mut self.operations.get_mut(&id).expect("the caller has it").work;
        let Work::SendTo {
            from,
            to,
            segment,
            data,
        } = work
        else {
            unreachable!("only a datagram is sent here");
        };
        let (from, to, segment, data) = (*from, *to, *segment, std::mem::take(data));
        let count = data.len();
        let result = if count > DATAGRAM_BYTES {
            Err(os(libc::EMSGSIZE))
        } else if self.strikes(Fault::DatagramRefused) {
            Err(os(libc::ENOBUFS))
        } else {
            match segment {
                Some(size) => data
                    .chunks(usize::from(size))
                    .for_each(|one| self.send_datagram(from, to, one.to_vec())),
                None => self.send_datagram(from, to, data),
            }
            Ok(count)
        };
        self.push(id, Completion::DatagramSent { slot, result }, true);
    }

    /// Puts a datagram on the wire, where it may be lost, doubled or overtaken.
    pub(super) fn send_datagram(&mut self, from: SocketAddr, to: SocketAddr, data: Vec<u8>) {
        if self.strikes(Fault::DatagramLost) {
            return;
        }
        if self.strikes(Fault::DatagramTwice) {
            self.later(
                Event::Datagram {
                    from,
                    to,
                    data: data.clone(),
                },
                false,
            );
        }
        let slow = self.strikes(Fault::SlowWire);
        self.later(Event::Datagram { from, to, data }, slow);
    }

    pub(super) fn datagram_arrives(&mut self, from: SocketAddr, to: SocketAddr, data: Vec<u8>) {
        self.note("datagram arrives", data.len() as u64, u64::from(to.port()), 0);
        if let Some(queue) = self.outside.get_mut(&to) {
            queue.push_back((from, data));
            return;
        }
        let mut group: Vec<(usize, u32)> = Vec::new();
        for (worker, state) in self.workers.iter().enumerate() {
            for (number, entry) in &state.sockets {
                if matches!(&entry.kind, Kind::Datagram { local, peer, .. }
                    if reaches_inet(to, *local) && peer.is_none_or(|peer| peer == from))
                {
                    group.push((worker, *number));
                }
            }
        }
        if group.is_empty() {
            return self.datagram_unreachable(from, to);
        }
        // As the kernel does: the datagrams of one sender to one address reach the same socket of a group.
        let source = match from.ip() {
            IpAddr::V4(ip) => ip.to_bits().into(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let chosen = (source.wrapping_mul(31) + u128::from(from.port())) % group.len() as u128;
        let (worker, number) = group[chosen as usize];
        let joins = self.random.coin();
        let (limit, buffer_bytes) = (self.plan.datagrams, self.plan.buffer_bytes);
        let entry = self.workers[worker]
            .sockets
            .get_mut(&number)
            .expect("it was just found");
        let Kind::Datagram { queue, options, .. } = &mut entry.kind else {
            unreachable!("it was just found");
        };
        if options.coalesce
            && joins
            && let Some(last) = queue.back_mut()
            && joins_segments(last, from, to, data.len(), buffer_bytes)
        {
            last.segment.get_or_insert(last.data.len() as u16);
            last.data.extend_from_slice(&data);
            return;
        }
        if queue.len() >= limit {
            self.saw(Fault::DatagramLost);
            return;
        }
        queue.push_back(QueuedDatagram {
            from,
            to,
            data,
            segment: None,
        });
        self.stir_socket(worker, number, Op::RecvFrom);
    }

    /// No socket has the destination: a sender with that peer alone receives the ICMP error.
    fn datagram_unreachable(&mut self, from: SocketAddr, to: SocketAddr) {
        self.note(
            "datagram unreachable",
            u64::from(to.port()),
            u64::from(from.port()),
            0,
        );
        let mut sender = None;
        for (worker, state) in self.workers.iter_mut().enumerate() {
            for (number, entry) in &mut state.sockets {
                if let Kind::Datagram {
                    local, peer, error, ..
                } = &mut entry.kind
                    && *peer == Some(to)
                    && reaches_inet(from, *local)
                {
                    *error = Some(libc::ECONNREFUSED);
                    sender = Some((worker, *number));
                }
            }
        }
        if let Some((worker, number)) = sender {
            self.stir_socket(worker, number, Op::RecvFrom);
        }
    }
}

/// Returns whether a datagram can be joined to the last of a queue: all but the last segment have one size.
fn joins_segments(
    last: &QueuedDatagram,
    from: SocketAddr,
    to: SocketAddr,
    bytes: usize,
    room: usize,
) -> bool {
    let size = last.segment.map_or(last.data.len(), usize::from);
    let is_whole = size > 0 && last.data.len().is_multiple_of(size);
    (last.from, last.to) == (from, to)
        && is_whole
        && (1..=size).contains(&bytes)
        && last.data.len() + bytes <= room
}
