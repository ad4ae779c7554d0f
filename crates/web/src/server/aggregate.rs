//! Bodies that are collected before their handler runs, within the worker's budget.

use ringmain_engine::Conn;
use ringmain_wire::h1::{self, BodyDecoder, BodyEvent, PeerFault};

use super::connection::{Collector, Connection, Phase};
use super::memory_budget::Collected;
use super::receive::{Arrived, Step, step};
use super::rejected::Refused;
use super::{Machine, Scratch, Then};
use crate::http::error::Error;
use crate::limits;

impl Machine {
    /// Collects more of a body; once complete, its request is answered as if it had arrived at once.
    pub(super) fn collect(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        input: &[u8],
        scratch: &mut Scratch,
    ) -> Step {
        let client = state.client();
        let Phase::Collecting(collector) = &mut state.phase else {
            return step(0, Then::Wait);
        };
        let consumed = match fill(collector, input) {
            Ok((consumed, true)) => consumed,
            // The rest is part of a line: more must arrive.
            Ok((consumed, false)) => {
                if !self.affords(collector) {
                    let error = Error::new(503, "the server holds as many bodies as it may");
                    let error = error.with_header("Retry-After", "1");
                    let head = self.reread(&collector.head, &mut scratch.table);
                    let refused = Refused::of_head(&self.local, &head);
                    let about = (collector.exchange, &refused);
                    let then = self.refuse(client, &error, about, &mut scratch.desk.out);
                    return step(input.len(), then);
                }
                return step(consumed, Then::Wait);
            }
            Err(fault) => {
                let head = self.reread(&collector.head, &mut scratch.table);
                let refused = Refused::of_head(&self.local, &head);
                let about = (collector.exchange, &refused);
                let then = self.refuse_fault(client, &fault, about, &mut scratch.desk.out);
                return step(input.len(), then);
            }
        };
        let Phase::Collecting(collector) = std::mem::replace(&mut state.phase, Phase::Head) else {
            return step(consumed, Then::Wait);
        };
        let head = self.reread(&collector.head, &mut scratch.table);
        let arrived = Arrived {
            head: &head,
            bytes: &collector.head,
            content: &collector.body,
            decoder: None,
            unread: consumed < input.len(),
        };
        let then = self.serve(conn, state, &arrived, &mut scratch.desk);
        self.put_collector(collector);
        step(consumed, then)
    }

    /// Returns true if the worker's budget allows the collected bytes.
    fn affords(&self, collector: &mut Collector) -> bool {
        let held = collector.head.capacity() + collector.body.capacity();
        let bodies = &self.local.bodies;
        let collected = collector
            .collected
            .get_or_insert_with(|| Collected::new(bodies, None));
        collected.grow(held, u64::MAX)
    }

    pub(super) fn collector(
        &self,
        head: &[u8],
        decoder: BodyDecoder,
        exchange: h1::Exchange,
    ) -> Box<Collector> {
        let mut collector = match self.collectors.borrow_mut().pop() {
            Some(mut idle) => {
                idle.decoder = decoder;
                idle.exchange = exchange;
                idle
            }
            None => Box::new(Collector {
                head: Vec::new(),
                body: Vec::new(),
                collected: None,
                decoder,
                exchange,
            }),
        };
        collector.head.extend_from_slice(head);
        collector
    }

    pub(super) fn put_collector(&self, mut collector: Box<Collector>) {
        let mut idle = self.collectors.borrow_mut();
        collector.collected = None;
        if idle.len() < limits::IDLE_COLLECTORS {
            for buffer in [&mut collector.head, &mut collector.body] {
                buffer.clear();
                buffer.shrink_to(limits::SCRATCH_BYTES);
            }
            idle.push(collector);
        }
    }
}

/// Appends the body's part of `input`; returns its length and whether the body is complete.
fn fill(collector: &mut Collector, input: &[u8]) -> Result<(usize, bool), PeerFault> {
    let mut consumed = 0;
    loop {
        let step = collector.decoder.decode(&input[consumed..])?;
        consumed += step.consumed;
        match step.event {
            BodyEvent::Data(data) => collector.body.extend_from_slice(data),
            BodyEvent::Trailers(_) => {}
            BodyEvent::NeedMore => return Ok((consumed, false)),
            BodyEvent::End => return Ok((consumed, true)),
        }
    }
}
