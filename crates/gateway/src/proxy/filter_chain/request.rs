//! The request: its head through all filters, then its body, piece by piece or whole.

use bytes::Bytes;
use ringmain_web::Request;
use ringmain_web::limits::SEND_SHARE;
use ringmain_wire::h1::{FieldBlock, Framing};

use super::call::Verdict;
use super::{Chain, Entry, Found};
use crate::fault::Fault;
use crate::filter::body::Piece;
use crate::filter::{About, Edits, Hook, RequestBody, RequestHead, Want};
use crate::limits;
use crate::model::HeaderName;
use crate::policy::Cleared;
use crate::proxy::Failure;

/// The fields of a head before the changes of filters.
struct Sent<'c> {
    written: &'c FieldBlock,
    hidden: &'c [HeaderName],
}

impl Sent<'_> {
    fn head<'h>(&'h self, about: &'h About<'h>, edits: &'h mut Edits) -> RequestHead<'h> {
        RequestHead {
            about,
            written: self.written,
            hidden: self.hidden,
            edits,
            want: Want::Nothing,
        }
    }
}

impl Chain {
    /// Passes the head through all filters, and the body if one requires it whole.
    pub(super) async fn request(
        &self,
        found: &Found<'_>,
        cleared: &mut Cleared,
        req: &Request<'_>,
    ) -> Result<(), Failure> {
        let mut edits = Edits::default();
        let plan = found.matched.plan().map_err(|_why| Fault::BrokenRule)?;
        let sent = Sent {
            written: cleared.upstream(),
            hidden: plan.policies.drops(),
        };
        let about = self.about(req);
        for (number, entry) in self.all.iter().enumerate() {
            let mut head = sent.head(&about, &mut edits);
            let verdict = self.call(entry, Hook::RequestHead(&mut head)).await?;
            entry.up.want.set(head.want);
            if let Verdict::Answer(answer) = verdict {
                self.reached.set(number);
                return Err(Failure::Instead(Box::new(answer)));
            }
            self.reached.set(number + 1);
        }
        let wants = |want: Want| self.all.iter().any(|entry| entry.up.want.get() == want);
        if req.head().framing != Framing::None {
            let whole = wants(Want::Whole);
            self.up
                .seen
                .set(whole || wants(Want::Look) || wants(Want::Change));
            if whole {
                self.collect(&sent, &mut edits, req).await?;
            } else if wants(Want::Change) {
                edits.framing = Some(Framing::Chunked);
            }
        }
        cleared.edit(edits);
        Ok(())
    }

    /// Receives the whole body from the client.
    async fn collect(&self, sent: &Sent<'_>, edits: &mut Edits, req: &Request<'_>) -> Result<(), Failure> {
        let most = limits::FILTER_HELD_BYTES;
        if matches!(req.head().framing, Framing::Length(length) if length > most as u64) {
            return Err(Fault::RequestTooLarge.into());
        }
        let mut whole = Vec::new();
        while !self.up.over.get() {
            let piece = self.piece_up(Some((sent, edits)), req).await?;
            self.up.midway.set(false);
            // Bounded: the whole was held within the limit of the filter that requires it.
            if whole.is_empty() {
                whole = piece;
            } else {
                whole.extend_from_slice(&piece);
            }
        }
        edits.framing = Some(Framing::Length(whole.len() as u64));
        *self.up.ready.borrow_mut() = whole.into();
        Ok(())
    }

    /// Returns the next piece of the body to send; `None`: the end of the body.
    pub(in crate::proxy) async fn chunk(&self, req: &Request<'_>) -> Result<Option<Bytes>, Failure> {
        loop {
            {
                let ready = &mut *self.up.ready.borrow_mut();
                if !ready.is_empty() {
                    return Ok(Some(ready.split_to(ready.len().min(SEND_SHARE))));
                }
            }
            if self.up.over.get() {
                return Ok(None);
            }
            let piece = self.piece_up(None, req).await?;
            self.up.midway.set(false);
            *self.up.ready.borrow_mut() = piece.into();
        }
    }

    /// Returns whether another attempt finds all unsent bytes of the body.
    pub(in crate::proxy) fn can_replay(&self) -> bool {
        !self.up.midway.get()
    }

    /// Receives the next piece from the client, and passes it through the filters.
    async fn piece_up(
        &self,
        mut head: Option<(&Sent<'_>, &mut Edits)>,
        req: &Request<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let chunk = req.chunk().await.map_err(Failure::of_body)?;
        self.up.midway.set(true);
        let is_end = chunk.is_none();
        let mut bytes = chunk.map(Vec::from).unwrap_or_default();
        self.up.came.set(self.up.came.get() + bytes.len() as u64);
        if self.up.most.is_some_and(|most| self.up.came.get() > most) {
            return Err(Fault::RequestTooLarge.into());
        }
        self.up.over.set(is_end);
        if !self.up.seen.get() {
            return Ok(bytes);
        }
        for (number, entry) in self.all.iter().enumerate() {
            if entry.up.want.get() == Want::Nothing {
                continue;
            }
            let head = head.as_mut().map(|(sent, edits)| (*sent, &mut **edits));
            bytes = self.show_up((number, entry), head, bytes, is_end, req).await?;
        }
        Ok(bytes)
    }

    async fn show_up(
        &self,
        (number, entry): (usize, &Entry),
        head: Option<(&Sent<'_>, &mut Edits)>,
        bytes: Vec<u8>,
        is_end: bool,
        req: &Request<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let full = Fault::RequestTooLarge;
        let Some(bytes) = entry.gather(&entry.up, bytes, is_end, full)? else {
            return Ok(Vec::new());
        };
        let came = bytes.len();
        let about = self.about(req);
        let mut body = RequestBody {
            piece: Piece {
                about: &about,
                bytes,
                is_end,
                want: entry.up.want.get(),
            },
            head: head.map(|(sent, edits)| sent.head(&about, edits)),
        };
        let verdict = self.call(entry, Hook::RequestBody(&mut body)).await?;
        let bytes = body.piece.bytes;
        match verdict {
            Verdict::Hold if !is_end => {
                entry
                    .hold(&entry.up, bytes, full)
                    .map_err(|fault| self.failed(fault))?;
                Ok(Vec::new())
            }
            Verdict::Continue | Verdict::Hold => {
                entry
                    .check(came, bytes.len())
                    .map_err(|fault| self.failed(fault))?;
                Ok(bytes)
            }
            Verdict::Answer(answer) => {
                self.reached.set(self.reached.get().min(number));
                Err(Failure::Instead(Box::new(answer)))
            }
        }
    }
}
