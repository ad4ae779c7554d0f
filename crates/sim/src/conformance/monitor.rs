//! Checks each completion against what is in flight, in every case and whatever the case is about.
//!
//! Owns the bookkeeping of one worker's operations. Knows neither harness nor back-end, so that
//! other tests can put it between a worker and its back-end as well.

use std::collections::BTreeMap;

use ringmain_engine::backend::{Completion, Op, RecvEnd, Slot};

/// What is in flight for one slot.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flying {
    generation: u32,
    accept: bool,
    recv: bool,
    send: bool,
    held: bool,
    connect: bool,
    recv_from: bool,
    datagrams: usize,
    give: bool,
    close: bool,
}

impl Flying {
    fn op(&mut self, op: Op) -> &mut bool {
        match op {
            Op::Accept => &mut self.accept,
            Op::Recv => &mut self.recv,
            Op::Send => &mut self.send,
            Op::Connect => &mut self.connect,
            Op::RecvFrom => &mut self.recv_from,
        }
    }

    fn idle(&self) -> bool {
        *self
            == Flying {
                generation: self.generation,
                ..Flying::default()
            }
    }
}

/// The operations of one worker. Panics at the first breach, naming it.
#[derive(Debug, Default)]
pub struct Monitor {
    slots: BTreeMap<u32, Flying>,
}

impl Monitor {
    /// Notes the start of an operation.
    pub fn start(&mut self, op: Op, slot: Slot) {
        let flag = self.begin(slot).op(op);
        assert!(!*flag, "misuse: second {op:?} on {slot:?}");
        *flag = true;
    }

    /// Notes a `send_to`.
    pub fn start_datagram(&mut self, slot: Slot) {
        self.begin(slot).datagrams += 1;
    }

    /// Notes a `give`: the socket must be idle.
    pub fn start_give(&mut self, slot: Slot) {
        let flying = self.begin(slot);
        assert!(
            flying.idle(),
            "misuse: give of a busy socket {slot:?}: {flying:?}"
        );
        flying.give = true;
    }

    /// Notes a `close`: no operation may be in flight but `send_to`.
    pub fn start_close(&mut self, slot: Slot) {
        let flying = self.begin(slot);
        let datagrams = std::mem::take(&mut flying.datagrams);
        assert!(
            flying.idle(),
            "misuse: close with operations in flight on {slot:?}: {flying:?}"
        );
        flying.datagrams = datagrams;
        flying.close = true;
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.slots.values().all(Flying::idle)
    }

    /// Checks `completion` and notes what it ends; the slot whose send memory it frees, if any.
    pub fn check(&mut self, completion: &Completion) -> Option<Slot> {
        match completion {
            Completion::Accepted { slot, .. } => self.going_on(Op::Accept, *slot),
            Completion::AcceptEnded { slot, .. } => self.end(Op::Accept, *slot),
            Completion::Adopted { .. } => {}
            Completion::Given { slot, .. } => {
                let flying = self.of(*slot, "Given");
                assert!(std::mem::take(&mut flying.give), "Given without a give: {slot:?}");
            }
            Completion::Received { slot, data, more } => {
                assert!(!data.is_empty(), "an empty receipt must be RecvEnded: {slot:?}");
                if *more {
                    self.going_on(Op::Recv, *slot)
                } else {
                    self.end(Op::Recv, *slot)
                }
            }
            Completion::RecvEnded { slot, .. } => self.end(Op::Recv, *slot),
            Completion::Sent { slot, held, .. } => {
                self.end(Op::Send, *slot);
                // Until Released the operation still counts as in flight.
                let flying = self.of(*slot, "Sent");
                flying.send = *held;
                flying.held = *held;
                return (!held).then_some(*slot);
            }
            Completion::Released { slot } => {
                let flying = self.of(*slot, "Released");
                assert!(
                    std::mem::take(&mut flying.held),
                    "Released without a held Sent: {slot:?}"
                );
                flying.send = false;
                return Some(*slot);
            }
            Completion::Connected { slot, .. } => self.end(Op::Connect, *slot),
            Completion::Closed { slot } => {
                let flying = self.of(*slot, "Closed");
                assert!(
                    std::mem::take(&mut flying.close),
                    "Closed without a close: {slot:?}"
                );
            }
            Completion::Datagram { slot, more, .. } => {
                if *more {
                    self.going_on(Op::RecvFrom, *slot)
                } else {
                    self.end(Op::RecvFrom, *slot)
                }
            }
            Completion::DatagramsEnded { slot, end } => {
                assert!(
                    !matches!(end, RecvEnd::Eof),
                    "datagrams know no end of file: {slot:?}"
                );
                self.end(Op::RecvFrom, *slot);
            }
            Completion::DatagramSent { slot, .. } => {
                let flying = self.of(*slot, "DatagramSent");
                assert!(flying.datagrams > 0, "DatagramSent without a send_to: {slot:?}");
                flying.datagrams -= 1;
            }
        }
        None
    }

    /// A slot's record for a new operation; a new life may only begin when the last one is over.
    fn begin(&mut self, slot: Slot) -> &mut Flying {
        let flying = self.slots.entry(slot.index).or_default();
        if flying.generation != slot.generation {
            assert!(
                flying.idle(),
                "misuse: {slot:?} reused while in flight: {flying:?}"
            );
            *flying = Flying {
                generation: slot.generation,
                ..Flying::default()
            };
        }
        assert!(
            !flying.close && !flying.give,
            "misuse: operation on a leaving socket: {slot:?}"
        );
        flying
    }

    fn of(&mut self, slot: Slot, what: &str) -> &mut Flying {
        let flying = self.slots.get_mut(&slot.index);
        let flying = flying.unwrap_or_else(|| panic!("{what} for a slot never used: {slot:?}"));
        assert_eq!(
            flying.generation, slot.generation,
            "{what} of a former life: {slot:?}"
        );
        flying
    }

    fn going_on(&mut self, op: Op, slot: Slot) {
        let flag = *self.of(slot, "completion").op(op);
        assert!(flag, "completion of {op:?} on {slot:?}, which is not in flight");
    }

    fn end(&mut self, op: Op, slot: Slot) {
        self.going_on(op, slot);
        *self.of(slot, "completion").op(op) = false;
    }
}
