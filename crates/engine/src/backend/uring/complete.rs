//! Turns completion queue entries into completions.
//!
//! Owns the reading of results and flags. Knows nothing of why an operation was asked for.

use std::io;

use io_uring::cqueue;

use super::user_data::{Kind, unpack};
use super::{Accepting, DIRECT, Uring};
use crate::backend::{Completion, RecvEnd, Slot, Socket};

const NOTIF_USAGE_COPIED: i32 = 1 << 31;

impl Uring {
    /// `None` for entries that concern only the back-end itself.
    pub(super) fn complete(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        let (kind, slot) = unpack(entry.user_data());
        match kind {
            Kind::Recv => Some(self.received(slot, entry)),
            Kind::Send => Some(self.sent(slot, entry)),
            Kind::Accept => self.accepted(slot, entry),
            Kind::Close => Some(Completion::Closed { slot }),
            Kind::Connect => Some(Completion::Connected {
                slot,
                result: outcome(entry).map(drop),
            }),
            Kind::RecvFrom => Some(self.datagram(slot, entry)),
            Kind::SendTo => Some(self.datagram_sent(slot.index, entry)),
            Kind::Give => Some(self.given(slot.index, entry)),
            Kind::Adopt => self.adopted(slot.generation, entry),
            Kind::Bell => {
                if !cqueue::more(entry.flags()) {
                    self.arm_bell();
                }
                self.canary.came_back(self.now);
                self.take_gifts();
                self.ready.pop_front()
            }
            Kind::Wake | Kind::Ignored => None,
            Kind::Call => unreachable!("`Ring::call` takes its own result"),
        }
    }

    fn received(&mut self, slot: Slot, entry: &cqueue::Entry) -> Completion {
        let more = cqueue::more(entry.flags());
        let buffer = cqueue::buffer_select(entry.flags());
        match (entry.result(), buffer) {
            (len @ 1.., Some(id)) => {
                self.buffers.note_receipt(slot.index);
                Completion::Received {
                    slot,
                    data: self.buffers.lend(id, 0, len as usize),
                    more,
                }
            }
            (result, buffer) => {
                if let Some(id) = buffer {
                    // A buffer was picked although nothing came (EOF on some kernels).
                    let unused = self.buffers.lend(id, 0, 0);
                    self.buffers.give_back(unused.id() as u16);
                }
                let end = recv_end(result);
                if matches!(end, RecvEnd::NoBuffers) {
                    self.buffers.note_shortage();
                }
                Completion::RecvEnded { slot, end }
            }
        }
    }

    fn sent(&mut self, slot: Slot, entry: &cqueue::Entry) -> Completion {
        if cqueue::notif(entry.flags()) {
            let copied = entry.result() & NOTIF_USAGE_COPIED != 0;
            self.copied_sends = if copied {
                self.copied_sends.saturating_add(1)
            } else {
                0
            };
            return Completion::Released { slot };
        }
        let result = outcome(entry).map(|n| n as usize);
        Completion::Sent {
            slot,
            result,
            held: cqueue::more(entry.flags()),
        }
    }

    fn accepted(&mut self, slot: Slot, entry: &cqueue::Entry) -> Option<Completion> {
        let position = self.accepts.iter().position(|a| a.slot == slot);
        let position = position.expect("every accept in flight is in the list");
        let result = outcome(entry);
        let Accepting {
            listener,
            cancelled,
            one,
            ..
        } = self.accepts[position];
        if !cqueue::more(entry.flags()) {
            match &result {
                Ok(_) if !cancelled && !one => self.push_accept(slot, listener, false),
                Ok(_) => {
                    self.accepts.swap_remove(position);
                    self.ready
                        .push_back(Completion::AcceptEnded { slot, error: None });
                }
                Err(error) if is_lost_connection(error) && !cancelled => {
                    self.push_accept(slot, listener, one);
                    return None;
                }
                Err(_) => drop(self.accepts.swap_remove(position)),
            }
        }
        Some(match result {
            Ok(name) => Completion::Accepted {
                slot,
                socket: self.socket_of(name),
            },
            Err(_) if cancelled => Completion::AcceptEnded { slot, error: None },
            Err(error) => Completion::AcceptEnded {
                slot,
                error: Some(error),
            },
        })
    }

    fn adopted(&mut self, tag: u32, entry: &cqueue::Entry) -> Option<Completion> {
        // The giver sees the error, if there was one, and keeps the socket.
        let index = u32::try_from(entry.result()).ok()?;
        Some(Completion::Adopted {
            tag,
            socket: Socket(index | DIRECT),
        })
    }

    pub(super) fn socket_of(&self, result: i32) -> Socket {
        Socket(result as u32 | if self.direct { DIRECT } else { 0 })
    }
}

pub(super) fn outcome(entry: &cqueue::Entry) -> io::Result<i32> {
    match entry.result() {
        error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
        result => Ok(result),
    }
}

pub(super) fn recv_end(result: i32) -> RecvEnd {
    match -result {
        0 => RecvEnd::Eof,
        libc::ENOBUFS => RecvEnd::NoBuffers,
        libc::ECANCELED => RecvEnd::Cancelled,
        error => RecvEnd::Failed(io::Error::from_raw_os_error(error)),
    }
}

/// The connection was gone before it was accepted: accept(2) says to try again.
pub(super) fn is_lost_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECONNABORTED | libc::EPROTO | libc::EINTR)
    )
}
