//! The response: its head through all filters that have processed the request, then its body.

use ringmain_web::limits::SEND_CHUNK_BYTES;
use ringmain_web::{Error, Method, Reply, Request};
use ringmain_wire::h1::Framing;

use super::call::CallResult;
use super::{ChainEntry, FilterChain, RequestRoute, reset_reply, send_filter_response};
use crate::fault::Fault;
use crate::filter::body::BodyPiece;
use crate::filter::{BodyAccess, FilterResponse, Hook, ResponseBody, ResponseHead};
use crate::gateway::Worker;
use crate::policy::Cleared;
use crate::proxy::response_body::{self, UnfilteredParts};
use crate::proxy::{Failure, local_response, log_fields};

/// The response of a filter that replaces the one passed to it.
type Replacement = Option<FilterResponse>;

impl FilterChain {
    /// Passes the received part of an upstream's response: its head, if that has not passed yet, then the received bytes of its body.
    pub(in crate::proxy) async fn filter_received(
        &self,
        req: &Request<'_>,
        body: &mut response_body::ResponseBody,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let UnfilteredParts {
            framing,
            bytes,
            trailers,
        } = body.take_unfiltered();
        if let Some(framing) = framing {
            self.filter_head(req, framing, reply).await?;
        }
        if let Some(mut trailers) = trailers {
            let dropped = self.response_state.dropped.borrow();
            dropped.iter().for_each(|name| trailers.remove(name));
            reply.set_trailers(trailers);
        }
        self.filter_piece(req, bytes, body.is_finished, reply).await
    }

    /// Passes a response head, and starts the response, unless a filter requires the whole body first.
    pub(in crate::proxy) async fn filter_head(
        &self,
        req: &Request<'_>,
        framing: Framing,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let has_body = framing != Framing::None && req.method() != Method::Head;
        if let Some(response) = self.pass_head(req, false, has_body, reply).await? {
            return Err(Failure::FilterResponse(Box::new(response)));
        }
        let passing = &self.entries[..self.reached.get()];
        let wants = |want: BodyAccess| passing.iter().any(|entry| entry.response_body.want.get() == want);
        let changes = wants(BodyAccess::Modify) || wants(BodyAccess::Buffer);
        self.response_state
            .has_body_filter
            .set(has_body && (changes || wants(BodyAccess::Read)));
        if has_body && wants(BodyAccess::Buffer) {
            // The length is not known yet, and trailers cannot follow.
            reply.remove_header("Trailer");
            self.response_state.buffered.replace(Some(Vec::new()));
            return Ok(());
        }
        reply.write_head_buffered(match framing {
            Framing::Length(_) if changes && has_body => Framing::Chunked,
            // The length is unknown.
            Framing::Length(_) if changes => Framing::None,
            framing => framing,
        })?;
        Ok(())
    }

    /// Passes the reply's head to all filters. `Some`: a filter responds in its place.
    async fn pass_head(
        &self,
        req: &Request<'_>,
        is_own: bool,
        has_body: bool,
        reply: &mut Reply<'_>,
    ) -> Result<Replacement, Failure> {
        let info = self.request_info(req);
        let mut head = ResponseHead {
            about: &info,
            status: reply.current_status(),
            fields: std::mem::take(reply.fields_mut()),
            is_own,
            has_body,
            want: BodyAccess::Nothing,
            dropped: Vec::new(),
        };
        for number in (0..self.reached.get()).rev() {
            let entry = &self.entries[number];
            head.want = BodyAccess::Nothing;
            let result = self.call_filter(entry, Hook::ResponseHead(&mut head)).await?;
            entry.response_body.want.set(head.want);
            if let CallResult::Respond(response) = result {
                self.reached.set(number);
                return Ok(Some(response));
            }
        }
        if head.status != reply.current_status() {
            reply.status(head.status);
        }
        reply.fields_mut().clear();
        reply.add_headers(&head.fields);
        self.response_state.dropped.replace(head.dropped);
        Ok(None)
    }

    /// Passes a piece of a response body, and sends the result to the client.
    pub(in crate::proxy) async fn filter_piece(
        &self,
        req: &Request<'_>,
        mut bytes: Vec<u8>,
        is_end: bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        if self.response_state.is_finished.replace(is_end) {
            return Ok(());
        }
        if self.response_state.has_body_filter.get() {
            let most = self.reached.get();
            for number in (0..most).rev() {
                bytes = match self
                    .pass_to_filter(number, &self.entries[number], bytes, is_end, req, reply)
                    .await?
                {
                    Ok(bytes) => bytes,
                    Err(response) => {
                        self.reached.set(number);
                        return Err(Failure::FilterResponse(Box::new(response)));
                    }
                };
            }
        }
        if let Some(whole) = &mut *self.response_state.buffered.borrow_mut() {
            // Bounded: the whole was held within the limit of the filter that requires it.
            whole.extend_from_slice(&bytes);
            bytes.clear();
        }
        if is_end && let Some(whole) = self.response_state.buffered.take() {
            bytes = whole;
            reply.write_head_buffered(Framing::Length(bytes.len() as u64))?;
        }
        for chunk in bytes.chunks(SEND_CHUNK_BYTES) {
            reply.write_buffered(chunk)?;
            reply.flush().await?;
        }
        Ok(())
    }

    /// Passes received bytes to one filter. The inner error is a response that replaces the current one.
    async fn pass_to_filter(
        &self,
        number: usize,
        entry: &ChainEntry,
        bytes: Vec<u8>,
        is_end: bool,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Result<Vec<u8>, FilterResponse>, Failure> {
        debug_assert!(number < self.entries.len(), "the index of a filter");
        let want = entry.response_body.want.get();
        if want == BodyAccess::Nothing {
            return Ok(Ok(bytes));
        }
        let full = Fault::ResponseTooLarge;
        let Some(bytes) = entry.gather_bytes(&entry.response_body, bytes, is_end, full)? else {
            return Ok(Ok(Vec::new()));
        };
        let received = bytes.len();
        let info = self.request_info(req);
        let is_own = !reply.is_forwarded();
        let open = !reply.is_streaming();
        let head = open.then(|| ResponseHead {
            about: &info,
            status: reply.current_status(),
            fields: std::mem::take(reply.fields_mut()),
            is_own,
            has_body: true,
            want: BodyAccess::Nothing,
            dropped: Vec::new(),
        });
        let mut body = ResponseBody {
            piece: BodyPiece {
                about: &info,
                bytes,
                is_end,
                want,
            },
            head,
        };
        let result = self.call_filter(entry, Hook::ResponseBody(&mut body)).await?;
        if let Some(head) = body.head.take() {
            if head.status != reply.current_status() {
                reply.status(head.status);
            }
            reply.fields_mut().clear();
            reply.add_headers(&head.fields);
        }
        let bytes = body.piece.bytes;
        match result {
            CallResult::Hold if !is_end => {
                entry
                    .hold_bytes(&entry.response_body, bytes, full)
                    .map_err(|fault| self.record_failure(fault))?;
                Ok(Ok(Vec::new()))
            }
            CallResult::Continue | CallResult::Hold => {
                entry
                    .check_growth(received, bytes.len())
                    .map_err(|fault| self.record_failure(fault))?;
                Ok(Ok(bytes))
            }
            CallResult::Respond(response) => Ok(Err(response)),
        }
    }

    /// Passes a local response, which the reply has completely.
    pub(in crate::proxy) async fn filter_local(
        &self,
        worker: &Worker,
        route: &RequestRoute<'_>,
        cleared: &Cleared,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Error> {
        loop {
            let response = match self.filter_local_once(req, reply).await {
                Ok(response) => response,
                Err(Failure::Fault(fault)) => {
                    log_fields::log_fault(worker, req, fault);
                    reset_reply(route, cleared, reply);
                    return local_response::send_fault(reply, &route.matched, fault);
                }
                Err(Failure::Web(error)) => return Err(error),
                Err(Failure::FilterResponse(response)) => Some(*response),
            };
            // Each replacement is processed by fewer filters, so the loop ends.
            match response {
                None => return Ok(()),
                Some(response) => send_filter_response(route, cleared, &response, reply)?,
            }
        }
    }

    async fn filter_local_once(
        &self,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Replacement, Failure> {
        for entry in &self.entries {
            entry.response_body.held.borrow_mut().clear();
        }
        let has_body = !reply.body().is_empty();
        if let Some(response) = self.pass_head(req, true, has_body, reply).await? {
            return Ok(Some(response));
        }
        if !has_body {
            return Ok(None);
        }
        let mut bytes = std::mem::take(reply.body());
        for number in (0..self.reached.get()).rev() {
            match self
                .pass_to_filter(number, &self.entries[number], bytes, true, req, reply)
                .await?
            {
                Ok(encoded) => bytes = encoded,
                Err(response) => {
                    self.reached.set(number);
                    return Ok(Some(response));
                }
            }
        }
        *reply.body() = bytes;
        Ok(None)
    }
}
