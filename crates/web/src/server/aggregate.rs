//! Bodies that are collected before their handler runs, within the worker's budget.

use ringmain_engine::Conn;
use ringmain_wire::h1::{self, BodyDecoder, BodyEvent, PeerFault};

use super::connection::{BodyAggregator, ConnPhase, Connection};
use super::dispatch::IncomingRequest;
use super::memory_budget::BodyReservation;
use super::receive::{ReceiveStep, step};
use super::rejected::RejectedRequest;
use super::{HttpServer, NextAction, WorkerScratch};
use crate::http::error::Error;
use crate::limits;
use crate::stats::Rejection;

impl HttpServer {
    /// Collects more of a body; once complete, its request is answered as if it had arrived at once.
    pub(super) fn aggregate_body(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        input: &[u8],
        scratch: &mut WorkerScratch,
    ) -> ReceiveStep {
        let client = state.client();
        let ConnPhase::Aggregating(aggregator) = &mut state.phase else {
            return step(0, NextAction::Wait);
        };
        let consumed = match decode_into(aggregator, input) {
            Ok((consumed, true)) => consumed,
            // The rest is part of a line: more must arrive.
            Ok((consumed, false)) => {
                if !self.fits_budget(aggregator) {
                    self.worker.stats.rejected(Rejection::BufferedBodies);
                    let error = Error::new(503, "too many buffered request bodies");
                    let error = error.with_header("Retry-After", "1");
                    let head = self.reparse_head(&aggregator.head, &mut scratch.table);
                    let rejected = RejectedRequest::from_head(&self.worker, &head);
                    let next = self.reject(
                        client,
                        &error,
                        aggregator.exchange,
                        &rejected,
                        &mut scratch.buffers.out,
                    );
                    return step(input.len(), next);
                }
                return step(consumed, NextAction::Wait);
            }
            Err(fault) => {
                let head = self.reparse_head(&aggregator.head, &mut scratch.table);
                let rejected = RejectedRequest::from_head(&self.worker, &head);
                let next = self.reject_fault(
                    client,
                    &fault,
                    aggregator.exchange,
                    &rejected,
                    &mut scratch.buffers.out,
                );
                return step(input.len(), next);
            }
        };
        let ConnPhase::Aggregating(aggregator) = std::mem::replace(&mut state.phase, ConnPhase::Head) else {
            return step(consumed, NextAction::Wait);
        };
        let head = self.reparse_head(&aggregator.head, &mut scratch.table);
        let incoming = IncomingRequest {
            head: &head,
            bytes: &aggregator.head,
            content: &aggregator.body,
            decoder: None,
            unread: consumed < input.len(),
        };
        let next = self.serve(conn, state, &incoming, &mut scratch.buffers);
        self.recycle_aggregator(aggregator);
        step(consumed, next)
    }

    /// Returns true if the worker's budget allows the collected bytes.
    fn fits_budget(&self, aggregator: &mut BodyAggregator) -> bool {
        let reserved = aggregator.head.capacity() + aggregator.body.capacity();
        let bodies = &self.worker.bodies;
        let collected = aggregator
            .collected
            .get_or_insert_with(|| BodyReservation::new(bodies, None));
        collected.grow(reserved, u64::MAX)
    }

    pub(super) fn new_aggregator(
        &self,
        head: &[u8],
        decoder: BodyDecoder,
        exchange: h1::Exchange,
    ) -> Box<BodyAggregator> {
        let mut aggregator = match self.aggregators.borrow_mut().pop() {
            Some(mut idle) => {
                idle.decoder = decoder;
                idle.exchange = exchange;
                idle
            }
            None => Box::new(BodyAggregator {
                head: Vec::new(),
                body: Vec::new(),
                collected: None,
                decoder,
                exchange,
            }),
        };
        aggregator.head.extend_from_slice(head);
        aggregator
    }

    pub(super) fn recycle_aggregator(&self, mut aggregator: Box<BodyAggregator>) {
        let mut idle = self.aggregators.borrow_mut();
        aggregator.collected = None;
        if idle.len() < limits::IDLE_AGGREGATORS {
            for buffer in [&mut aggregator.head, &mut aggregator.body] {
                buffer.clear();
                buffer.shrink_to(limits::SCRATCH_BYTES);
            }
            idle.push(aggregator);
        }
    }
}

/// Appends the body's part of `input`; returns its length and whether the body is complete.
fn decode_into(aggregator: &mut BodyAggregator, input: &[u8]) -> Result<(usize, bool), PeerFault> {
    let mut consumed = 0;
    loop {
        let step = aggregator.decoder.decode(&input[consumed..])?;
        consumed += step.consumed;
        match step.event {
            BodyEvent::Data(data) => aggregator.body.extend_from_slice(data),
            BodyEvent::Trailers(_) => {}
            BodyEvent::NeedMore => return Ok((consumed, false)),
            BodyEvent::End => return Ok((consumed, true)),
        }
    }
}
