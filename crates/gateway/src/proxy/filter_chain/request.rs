//! The request: its head through all filters, then its body, piece by piece or whole.

use bytes::Bytes;
use ringmain_web::Request;
use ringmain_web::limits::SEND_CHUNK_BYTES;
use ringmain_wire::h1::{FieldBlock, Framing};

use super::call::CallResult;
use super::{ChainEntry, FilterChain, RequestRoute};
use crate::fault::Fault;
use crate::filter::body::BodyPiece;
use crate::filter::{BodyAccess, FilterEdits, Hook, RequestBody, RequestHead, RequestInfo};
use crate::limits;
use crate::model::HeaderName;
use crate::policy::Cleared;
use crate::proxy::Failure;

/// The fields of a head before the changes of filters.
struct UnfilteredHead<'c> {
    written: &'c FieldBlock,
    hidden: &'c [HeaderName],
}

impl UnfilteredHead<'_> {
    fn head<'h>(&'h self, info: &'h RequestInfo<'h>, edits: &'h mut FilterEdits) -> RequestHead<'h> {
        RequestHead {
            about: info,
            written: self.written,
            hidden: self.hidden,
            edits,
            want: BodyAccess::Nothing,
        }
    }
}

impl FilterChain {
    /// Passes the head through all filters, and the body if one requires it whole.
    pub(super) async fn filter_request(
        &self,
        route: &RequestRoute<'_>,
        cleared: &mut Cleared,
        req: &Request<'_>,
    ) -> Result<(), Failure> {
        let mut edits = FilterEdits::default();
        let plan = route.matched.plan().map_err(|_error| Fault::BrokenRule)?;
        let sent = UnfilteredHead {
            written: cleared.upstream_headers(),
            hidden: plan.policies.consumed_headers(),
        };
        let info = self.request_info(req);
        for (number, entry) in self.entries.iter().enumerate() {
            let mut head = sent.head(&info, &mut edits);
            let result = self.call_filter(entry, Hook::RequestHead(&mut head)).await?;
            entry.request_body.want.set(head.want);
            if let CallResult::Respond(answer) = result {
                self.reached.set(number);
                return Err(Failure::FilterResponse(Box::new(answer)));
            }
            self.reached.set(number + 1);
        }
        let wants = |want: BodyAccess| {
            self.entries
                .iter()
                .any(|entry| entry.request_body.want.get() == want)
        };
        if req.head().framing != Framing::None {
            let buffered = wants(BodyAccess::Buffer);
            self.request_state
                .has_body_filter
                .set(buffered || wants(BodyAccess::Read) || wants(BodyAccess::Modify));
            if buffered {
                self.collect_body(&sent, &mut edits, req).await?;
            } else if wants(BodyAccess::Modify) {
                edits.framing = Some(Framing::Chunked);
            }
        }
        cleared.set_edits(edits);
        Ok(())
    }

    /// Receives the whole body from the client.
    async fn collect_body(
        &self,
        sent: &UnfilteredHead<'_>,
        edits: &mut FilterEdits,
        req: &Request<'_>,
    ) -> Result<(), Failure> {
        let limit = limits::FILTER_HELD_BYTES;
        if matches!(req.head().framing, Framing::Length(length) if length > limit as u64) {
            return Err(Fault::RequestTooLarge.into());
        }
        let mut buffered = Vec::new();
        while !self.request_state.is_finished.get() {
            let piece = self.filter_request_piece(Some((sent, edits)), req).await?;
            self.request_state.is_partial.set(false);
            // Bounded: the whole was held within the limit of the filter that requires it.
            if buffered.is_empty() {
                buffered = piece;
            } else {
                buffered.extend_from_slice(&piece);
            }
        }
        edits.framing = Some(Framing::Length(buffered.len() as u64));
        *self.request_state.ready.borrow_mut() = buffered.into();
        Ok(())
    }

    /// Returns the next piece of the body to send; `None`: the end of the body.
    pub(in crate::proxy) async fn next_piece(&self, req: &Request<'_>) -> Result<Option<Bytes>, Failure> {
        loop {
            {
                let ready = &mut *self.request_state.ready.borrow_mut();
                if !ready.is_empty() {
                    return Ok(Some(ready.split_to(ready.len().min(SEND_CHUNK_BYTES))));
                }
            }
            if self.request_state.is_finished.get() {
                return Ok(None);
            }
            let piece = self.filter_request_piece(None, req).await?;
            self.request_state.is_partial.set(false);
            *self.request_state.ready.borrow_mut() = piece.into();
        }
    }

    /// Returns whether another attempt finds all unsent bytes of the body.
    pub(in crate::proxy) fn can_replay(&self) -> bool {
        !self.request_state.is_partial.get()
    }

    /// Receives the next piece from the client, and passes it through the filters.
    async fn filter_request_piece(
        &self,
        mut head: Option<(&UnfilteredHead<'_>, &mut FilterEdits)>,
        req: &Request<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let chunk = req.chunk().await.map_err(Failure::from_body_error)?;
        self.request_state.is_partial.set(true);
        let is_end = chunk.is_none();
        let mut bytes = chunk.map(Vec::from).unwrap_or_default();
        self.request_state
            .received
            .set(self.request_state.received.get() + bytes.len() as u64);
        if self
            .request_state
            .limit
            .is_some_and(|limit| self.request_state.received.get() > limit)
        {
            return Err(Fault::RequestTooLarge.into());
        }
        self.request_state.is_finished.set(is_end);
        if !self.request_state.has_body_filter.get() {
            return Ok(bytes);
        }
        for (number, entry) in self.entries.iter().enumerate() {
            if entry.request_body.want.get() == BodyAccess::Nothing {
                continue;
            }
            let head = head.as_mut().map(|(sent, edits)| (*sent, &mut **edits));
            bytes = self
                .pass_to_request_filter(number, entry, head, bytes, is_end, req)
                .await?;
        }
        Ok(bytes)
    }

    async fn pass_to_request_filter(
        &self,
        number: usize,
        entry: &ChainEntry,
        head: Option<(&UnfilteredHead<'_>, &mut FilterEdits)>,
        bytes: Vec<u8>,
        is_end: bool,
        req: &Request<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let full = Fault::RequestTooLarge;
        let Some(bytes) = entry.gather_bytes(&entry.request_body, bytes, is_end, full)? else {
            return Ok(Vec::new());
        };
        let received = bytes.len();
        let info = self.request_info(req);
        let mut body = RequestBody {
            piece: BodyPiece {
                about: &info,
                bytes,
                is_end,
                want: entry.request_body.want.get(),
            },
            head: head.map(|(sent, edits)| sent.head(&info, edits)),
        };
        let result = self.call_filter(entry, Hook::RequestBody(&mut body)).await?;
        let bytes = body.piece.bytes;
        match result {
            CallResult::Hold if !is_end => {
                entry
                    .hold_bytes(&entry.request_body, bytes, full)
                    .map_err(|fault| self.record_failure(fault))?;
                Ok(Vec::new())
            }
            CallResult::Continue | CallResult::Hold => {
                entry
                    .check_growth(received, bytes.len())
                    .map_err(|fault| self.record_failure(fault))?;
                Ok(bytes)
            }
            CallResult::Respond(answer) => {
                self.reached.set(self.reached.get().min(number));
                Err(Failure::FilterResponse(Box::new(answer)))
            }
        }
    }
}
