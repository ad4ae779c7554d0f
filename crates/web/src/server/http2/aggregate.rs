//! Bodies on HTTP/2 streams: handed to the task that reads them, or collected before a handler runs, within the worker's budget.

use std::rc::Rc;

use ringmain_engine::Conn;
use ringmain_wire::h2::{Stream, load_request};

use super::receive::{StreamRequest, StreamScratch};
use super::{H2Session, StreamPhase};
use crate::http::error::Error;
use crate::limits;
use crate::server::connection::Connection;
use crate::server::memory_budget::BodyReservation;
use crate::server::{HttpServer, ReplyBuffers};
use crate::stats::Rejection;

impl HttpServer {
    /// Handles part of a body. Returns true if it is collected and complete.
    pub(super) fn data_http2(
        &self,
        state: &Connection,
        session: &H2Session,
        stream: Stream,
        data: &[u8],
        end: bool,
        buffers: &mut ReplyBuffers,
    ) -> bool {
        if let Some((exchange, _)) = session.running(stream) {
            // Consumed when its handler takes it.
            let dropped = exchange.push_body(data, end);
            session
                .core
                .borrow_mut()
                .wire
                .consume(stream, dropped, &mut buffers.out);
            return false;
        }
        let mut core = session.core.borrow_mut();
        core.wire.consume(stream, data.len(), &mut buffers.out);
        let Some(entry) = core.entry(stream) else {
            return false;
        };
        entry.received += data.len() as u64;
        if !matches!(entry.phase, StreamPhase::Aggregating) {
            return false;
        }
        if entry.received > entry.most {
            let message = format!("expected a body of at most {} bytes, found more", entry.most);
            entry.phase = StreamPhase::Done;
            let (stored, started_at) = (std::mem::take(&mut entry.head), entry.started_at);
            let id = self.log_rejected_body(state.client_since(started_at), 413, &stored);
            core.reject(
                &self.worker,
                &Error::new(413, message),
                stream,
                id.as_ref(),
                &mut buffers.out,
            );
            return false;
        }
        entry.body.extend_from_slice(data);
        let (reserved, most) = (entry.head.capacity() + entry.body.capacity(), entry.most);
        let collected = entry
            .collected
            .get_or_insert_with(|| BodyReservation::new(&self.worker.bodies, Some(&session.collected)));
        if !collected.grow(reserved, most) {
            entry.phase = StreamPhase::Done;
            let (stored, started_at) = (std::mem::take(&mut entry.head), entry.started_at);
            let id = self.log_rejected_body(state.client_since(started_at), 503, &stored);
            self.worker.stats.rejected(Rejection::BufferedBodies);
            let error = Error::new(503, "too many buffered request bodies");
            let error = error.with_header("Retry-After", "1");
            core.reject(&self.worker, &error, stream, id.as_ref(), &mut buffers.out);
            return false;
        }
        end
    }

    /// Answers a request whose body is complete as if it had arrived at once.
    pub(super) fn collected(
        &self,
        conn: Conn<'_>,
        state: &Connection,
        session: &Rc<H2Session>,
        stream: Stream,
        scratch: StreamScratch<'_>,
    ) {
        let StreamScratch {
            table,
            stored,
            buffers,
        } = scratch;
        let taken = {
            let mut core = session.core.borrow_mut();
            let entry = core
                .entry(stream)
                .filter(|entry| matches!(entry.phase, StreamPhase::Aggregating));
            entry.map(|entry| {
                entry.phase = StreamPhase::Done;
                (
                    std::mem::take(&mut entry.head),
                    std::mem::take(&mut entry.body),
                    entry.started_at,
                    entry.collected.take(),
                )
            })
        };
        // Counted until its memory is released or its task has a copy.
        let Some((head, body, started_at, _collected)) = taken else {
            return;
        };
        let Some(loaded) = load_request(&head, table) else {
            unreachable!("these bytes were stored on arrival");
        };
        let stream_request = StreamRequest {
            conn,
            session,
            stream,
            head: &loaded,
            content: &body,
            body_limit: None,
            started_at,
        };
        self.serve_http2(state, stream_request, stored, buffers);
        // The memory is reused.
        let mut core = session.core.borrow_mut();
        if let Some(entry) = core
            .streams
            .get_mut(stream.slot())
            .filter(|entry| entry.head.capacity() == 0)
        {
            (entry.head, entry.body) = (head, body);
            entry.head.clear();
            entry.body.clear();
            entry.head.shrink_to(limits::STREAM_RECORD_BYTES);
            entry.body.shrink_to(limits::STREAM_RECORD_BYTES);
        }
    }
}
