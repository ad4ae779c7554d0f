//! Bodies on HTTP/2 streams: handed to the task that reads them, or collected before a handler runs, within the worker's budget.

use std::rc::Rc;

use ringmain_engine::Conn;
use ringmain_wire::h1::FieldTable;
use ringmain_wire::h2::{Stream, load_request};

use super::receive::StreamRequest;
use super::{Session, Work};
use crate::http::error::Error;
use crate::limits;
use crate::server::connection::Connection;
use crate::server::memory_budget::Collected;
use crate::server::{Desk, Machine};

impl Machine {
    /// Handles part of a body. Returns true if it is collected and complete.
    pub(super) fn data_http2(
        &self,
        state: &Connection,
        (session, stream): (&Session, Stream),
        (data, end): (&[u8], bool),
        desk: &mut Desk,
    ) -> bool {
        if let Some((exchange, _)) = session.running(stream) {
            // Consumed when its handler takes it.
            let dropped = exchange.push_body(data, end);
            session
                .core
                .borrow_mut()
                .wire
                .consume(stream, dropped, &mut desk.out);
            return false;
        }
        let mut core = session.core.borrow_mut();
        core.wire.consume(stream, data.len(), &mut desk.out);
        let Some(lane) = core.lane(stream) else {
            return false;
        };
        lane.received += data.len() as u64;
        if !matches!(lane.work, Work::Collecting) {
            return false;
        }
        if lane.received > lane.most {
            let what = format!("expected a body of at most {} bytes, found more", lane.most);
            lane.work = Work::Answered;
            let (stored, began) = (std::mem::take(&mut lane.head), lane.began);
            let id = self.note_collected((state.origin.remote, began), 413, &stored);
            core.refuse(
                &self.local,
                &Error::new(413, what),
                (stream, id.as_ref()),
                &mut desk.out,
            );
            return false;
        }
        lane.body.extend_from_slice(data);
        let (held, most) = (lane.head.capacity() + lane.body.capacity(), lane.most);
        let collected = lane
            .collected
            .get_or_insert_with(|| Collected::new(&self.local.bodies, Some(&session.collected)));
        if !collected.grow(held, most) {
            lane.work = Work::Answered;
            let (stored, began) = (std::mem::take(&mut lane.head), lane.began);
            let id = self.note_collected((state.origin.remote, began), 503, &stored);
            let error = Error::new(503, "the server holds as many bodies as it may");
            let error = error.with_header("Retry-After", "1");
            core.refuse(&self.local, &error, (stream, id.as_ref()), &mut desk.out);
            return false;
        }
        end
    }

    /// Answers a request whose body is complete as if it had arrived at once.
    pub(super) fn collected(
        &self,
        conn: Conn<'_>,
        state: &Connection,
        session: &Rc<Session>,
        stream: Stream,
        (table, stored, desk): (&mut FieldTable, &mut Vec<u8>, &mut Desk),
    ) {
        let taken = {
            let mut core = session.core.borrow_mut();
            let lane = core
                .lane(stream)
                .filter(|lane| matches!(lane.work, Work::Collecting));
            lane.map(|lane| {
                lane.work = Work::Answered;
                (
                    std::mem::take(&mut lane.head),
                    std::mem::take(&mut lane.body),
                    lane.began,
                    lane.collected.take(),
                )
            })
        };
        // Counted until its memory is released or its task has a copy.
        let Some((head, body, began, _collected)) = taken else {
            return;
        };
        let Some(loaded) = load_request(&head, table) else {
            unreachable!("these bytes were stored on arrival");
        };
        let asked = StreamRequest {
            conn,
            session,
            stream,
            head: &loaded,
            content: &body,
            streams: None,
            began,
        };
        self.serve_http2(state, asked, (stored, desk));
        // The memory is reused.
        let mut core = session.core.borrow_mut();
        if let Some(lane) = core
            .lanes
            .get_mut(stream.slot())
            .filter(|lane| lane.head.capacity() == 0)
        {
            (lane.head, lane.body) = (head, body);
            lane.head.clear();
            lane.body.clear();
            lane.head.shrink_to(limits::LANE_BYTES);
            lane.body.shrink_to(limits::LANE_BYTES);
        }
    }
}
