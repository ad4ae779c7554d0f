//! Datagrams: multishot `recvmsg` into a buffer group of its own, and sends that own their memory, which is used again.

use std::io;

use io_uring::{cqueue, opcode, squeue, types};
use ringmain_sys::addr::{Addr, SockAddr};
use ringmain_sys::datagram::{CONTROL_BYTES, SendControl};

use super::Uring;
use super::buffers::Buffers;
use super::complete::{outcome, recv_end};
use super::user_data::{Kind, pack};
use crate::backend::{Completion, DatagramInfo, Lent, OutgoingDatagram, RecvEnd, Slot, Socket};
use crate::limits;

const GROUP: u16 = 1;
/// `struct io_uring_recvmsg_out`, which the kernel puts before the address and the payload.
const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = size_of::<libc::sockaddr_storage>();
/// The offset of the payload.
const PAYLOAD_OFFSET: usize = HEADER_BYTES + ADDRESS_BYTES + CONTROL_BYTES;
const BUFFER_BYTES: usize = (PAYLOAD_OFFSET + limits::DATAGRAM_BYTES).next_multiple_of(64);

#[derive(Default)]
pub(super) struct Datagrams {
    buffers: Option<Buffers>,
    /// Read by the kernel at submission only; the lengths are alike for all.
    header: Option<Box<libc::msghdr>>,
    sends: Vec<Option<Box<Sending>>>,
    /// Places of `sends` without a send in flight. Up to [`limits::DATAGRAM_SENDS_POOLED`] keep their memory.
    idle: Vec<u32>,
}

struct Sending {
    slot: Slot,
    address: SockAddr,
    control: SendControl,
    data: Vec<u8>,
    vector: libc::iovec,
    header: libc::msghdr,
}

fn address(bytes: &[u8]) -> Option<Addr> {
    // SAFETY: all-zero is a valid (empty) address.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = bytes.len().min(ADDRESS_BYTES);
    // SAFETY: both are at least `len` bytes long; any bytes are a valid address storage.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), std::ptr::from_mut(&mut storage).cast(), len) };
    SockAddr::from_raw(storage, len as u32).to_addr()
}

impl Datagrams {
    pub(super) fn give_back(&mut self, id: u16) {
        self.buffers
            .as_mut()
            .expect("a buffer of this group was lent")
            .give_back(id);
    }
}

impl Uring {
    pub(super) fn push_recv_from(&mut self, slot: Slot, socket: Socket) {
        if self.datagrams.buffers.is_none() {
            let ring = self.ring.io_uring();
            match Buffers::register(
                ring,
                GROUP,
                limits::DATAGRAM_BUFFERS,
                BUFFER_BYTES as u32,
                limits::DATAGRAM_BUFFERS,
            ) {
                Ok(buffers) => self.datagrams.buffers = Some(buffers),
                Err(error) => {
                    let end = RecvEnd::Failed(error);
                    self.ready.push_back(Completion::DatagramsEnded { slot, end });
                    return;
                }
            }
        }
        let header = self.datagrams.header.get_or_insert_with(|| {
            // SAFETY: all-zero is a valid msghdr: null pointers and zero lengths.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            header.msg_namelen = ADDRESS_BYTES as u32;
            header.msg_controllen = CONTROL_BYTES as _;
            Box::new(header)
        });
        let header = std::ptr::from_ref(&**header);
        let entry = with_fd!(socket, |fd| opcode::RecvMsgMulti::new(fd, header, GROUP).build());
        // SAFETY: the header lives as long as the ring; the buffers are the group's.
        unsafe { self.ring.push(entry.user_data(pack(Kind::RecvFrom, slot))) };
    }

    pub(super) fn datagram(&mut self, slot: Slot, entry: &cqueue::Entry) -> Completion {
        let more = cqueue::more(entry.flags());
        let (Some(id), Ok(len)) = (cqueue::buffer_select(entry.flags()), outcome(entry)) else {
            return Completion::DatagramsEnded {
                slot,
                end: recv_end(entry.result()),
            };
        };
        let header = self
            .datagrams
            .header
            .as_deref()
            .expect("made when receiving began");
        let buffers = self
            .datagrams
            .buffers
            .as_mut()
            .expect("registered when receiving began");
        let parsed = types::RecvMsgOut::parse(buffers.peek(id, len as usize), header);
        let parsed = parsed.expect("the kernel writes the whole header before it completes");
        let from = address(parsed.name_data());
        let info = DatagramInfo::parse(parsed.control_data());
        let payload = parsed.payload_data().len();
        let data: Lent = buffers.lend(id, PAYLOAD_OFFSET, payload);
        let from = match from {
            Some(Addr::Inet(address)) => Some(address),
            _ => None,
        };
        Completion::Datagram {
            slot,
            data,
            from,
            info,
            more,
        }
    }

    pub(super) fn push_send_to(&mut self, slot: Slot, socket: Socket, outgoing: &OutgoingDatagram<'_>) {
        let address = match Addr::Inet(outgoing.to).to_sockaddr() {
            Ok(address) => address,
            Err(error) => {
                self.ready.push_back(Completion::DatagramSent {
                    slot,
                    result: Err(error),
                });
                return;
            }
        };
        let index = self.datagrams.idle.pop().unwrap_or_else(|| {
            self.datagrams.sends.push(None);
            self.datagrams.sends.len() as u32 - 1
        });
        let sending = self.datagrams.sends[index as usize].get_or_insert_with(|| {
            // SAFETY: all-zero is valid for both: null pointers and zero lengths.
            let (vector, header) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
            Box::new(Sending {
                slot,
                address,
                control: SendControl::default(),
                data: Vec::new(),
                vector,
                header,
            })
        });
        sending.slot = slot;
        sending.address = address;
        sending.control = SendControl::new(outgoing.to, outgoing.source, outgoing.segment);
        sending.data.clear();
        sending.data.extend_from_slice(outgoing.data);
        sending.vector = libc::iovec {
            iov_base: sending.data.as_mut_ptr().cast(),
            iov_len: sending.data.len(),
        };
        sending.header.msg_name = sending.address.as_ptr().cast_mut().cast();
        sending.header.msg_namelen = sending.address.len();
        sending.header.msg_iov = std::ptr::from_mut(&mut sending.vector);
        sending.header.msg_iovlen = 1;
        sending.header.msg_control = std::ptr::null_mut();
        sending.header.msg_controllen = sending.control.len() as _;
        if !sending.control.is_empty() {
            sending.header.msg_control = sending.control.as_ptr().cast_mut();
        }
        let header = std::ptr::from_ref(&sending.header);
        let name = pack(Kind::SendTo, Slot { index, generation: 0 });
        let flags = libc::MSG_NOSIGNAL as u32;
        let entry: squeue::Entry =
            with_fd!(socket, |fd| opcode::SendMsg::new(fd, header).flags(flags).build());
        // SAFETY: the boxed record holds all that the entry points to, and is not changed before its completion.
        unsafe { self.ring.push(entry.user_data(name)) };
    }

    pub(super) fn datagram_sent(&mut self, index: u32, entry: &cqueue::Entry) -> Completion {
        let place = &mut self.datagrams.sends[index as usize];
        let sending = place.as_ref().expect("a send that completes once");
        let slot = sending.slot;
        let is_small = sending.data.capacity() <= limits::DATAGRAM_SENDS_POOLED_BYTES;
        if !is_small || self.datagrams.idle.len() >= limits::DATAGRAM_SENDS_POOLED {
            *place = None;
        }
        self.datagrams.idle.push(index);
        let result: io::Result<usize> = outcome(entry).map(|n| n as usize);
        Completion::DatagramSent { slot, result }
    }
}
