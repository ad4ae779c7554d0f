//! The response: its head through all filters that have processed the request, then its body.

use ringmain_web::limits::SEND_SHARE;
use ringmain_web::{Error, Method, Reply, Request};
use ringmain_wire::h1::Framing;

use super::call::Verdict;
use super::{Chain, Entry, Found, afresh, instead};
use crate::fault::Fault;
use crate::filter::body::Piece;
use crate::filter::{Answer, Hook, ResponseBody, ResponseHead, Want};
use crate::gateway::Worker;
use crate::policy::Cleared;
use crate::proxy::response_body::{Down, Unseen};
use crate::proxy::{Failure, local_response, log_fields};

/// The response of a filter that replaces the one passed to it.
type Instead = Option<Answer>;

impl Chain {
    /// Passes the received part of an upstream's response: its head, if that has not passed yet, then the received bytes of its body.
    pub(in crate::proxy) async fn answer(
        &self,
        req: &Request<'_>,
        down: &mut Down,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let Unseen {
            framing,
            bytes,
            trailers,
        } = down.take();
        if let Some(framing) = framing {
            self.head(req, framing, reply).await?;
        }
        if let Some(mut trailers) = trailers {
            let dropped = self.down.dropped.borrow();
            dropped.iter().for_each(|name| trailers.remove(name));
            reply.put_trailers(trailers);
        }
        self.piece(req, bytes, down.is_over, reply).await
    }

    /// Passes a response head, and starts the response, unless a filter requires the whole body first.
    pub(in crate::proxy) async fn head(
        &self,
        req: &Request<'_>,
        framing: Framing,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let has_body = framing != Framing::None && req.method() != Method::Head;
        if let Some(answer) = self.heads(req, (false, has_body), reply).await? {
            return Err(Failure::Instead(Box::new(answer)));
        }
        let passing = &self.all[..self.reached.get()];
        let wants = |want: Want| passing.iter().any(|entry| entry.down.want.get() == want);
        let changes = wants(Want::Change) || wants(Want::Whole);
        self.down.seen.set(has_body && (changes || wants(Want::Look)));
        if has_body && wants(Want::Whole) {
            // The length is not known yet, and trailers cannot follow.
            reply.remove_header("Trailer");
            self.down.whole.replace(Some(Vec::new()));
            return Ok(());
        }
        reply.put_head(match framing {
            Framing::Length(_) if changes && has_body => Framing::Chunked,
            // The length is unknown.
            Framing::Length(_) if changes => Framing::None,
            framing => framing,
        })?;
        Ok(())
    }

    /// Passes the reply's head to all filters. `Some`: a filter responds in its place.
    async fn heads(
        &self,
        req: &Request<'_>,
        (is_own, has_body): (bool, bool),
        reply: &mut Reply<'_>,
    ) -> Result<Instead, Failure> {
        let about = self.about(req);
        let mut head = ResponseHead {
            about: &about,
            status: reply.status_now(),
            fields: std::mem::take(reply.fields_mut()),
            is_own,
            has_body,
            want: Want::Nothing,
            dropped: Vec::new(),
        };
        for number in (0..self.reached.get()).rev() {
            let entry = &self.all[number];
            head.want = Want::Nothing;
            let verdict = self.call(entry, Hook::ResponseHead(&mut head)).await?;
            entry.down.want.set(head.want);
            if let Verdict::Answer(answer) = verdict {
                self.reached.set(number);
                return Ok(Some(answer));
            }
        }
        if head.status != reply.status_now() {
            reply.status(head.status);
        }
        reply.fields_mut().clear();
        reply.add_headers(&head.fields);
        self.down.dropped.replace(head.dropped);
        Ok(None)
    }

    /// Passes a piece of a response body, and sends the result to the client.
    pub(in crate::proxy) async fn piece(
        &self,
        req: &Request<'_>,
        mut bytes: Vec<u8>,
        is_end: bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        if self.down.over.replace(is_end) {
            return Ok(());
        }
        if self.down.seen.get() {
            let most = self.reached.get();
            for number in (0..most).rev() {
                bytes = match self
                    .show((number, &self.all[number]), bytes, is_end, (req, reply))
                    .await?
                {
                    Ok(bytes) => bytes,
                    Err(answer) => {
                        self.reached.set(number);
                        return Err(Failure::Instead(Box::new(answer)));
                    }
                };
            }
        }
        if let Some(whole) = &mut *self.down.whole.borrow_mut() {
            // Bounded: the whole was held within the limit of the filter that requires it.
            whole.extend_from_slice(&bytes);
            bytes.clear();
        }
        if is_end && let Some(whole) = self.down.whole.take() {
            bytes = whole;
            reply.put_head(Framing::Length(bytes.len() as u64))?;
        }
        for share in bytes.chunks(SEND_SHARE) {
            reply.put(share)?;
            reply.flush().await?;
        }
        Ok(())
    }

    /// Passes received bytes to one filter. The inner error is a response that replaces the current one.
    async fn show(
        &self,
        (number, entry): (usize, &Entry),
        bytes: Vec<u8>,
        is_end: bool,
        (req, reply): (&Request<'_>, &mut Reply<'_>),
    ) -> Result<Result<Vec<u8>, Answer>, Failure> {
        debug_assert!(number < self.all.len(), "the index of a filter");
        let want = entry.down.want.get();
        if want == Want::Nothing {
            return Ok(Ok(bytes));
        }
        let full = Fault::ResponseTooLarge;
        let Some(bytes) = entry.gather(&entry.down, bytes, is_end, full)? else {
            return Ok(Ok(Vec::new()));
        };
        let came = bytes.len();
        let about = self.about(req);
        let is_own = !reply.is_forwarded();
        let open = !reply.is_streaming();
        let head = open.then(|| ResponseHead {
            about: &about,
            status: reply.status_now(),
            fields: std::mem::take(reply.fields_mut()),
            is_own,
            has_body: true,
            want: Want::Nothing,
            dropped: Vec::new(),
        });
        let mut body = ResponseBody {
            piece: Piece {
                about: &about,
                bytes,
                is_end,
                want,
            },
            head,
        };
        let verdict = self.call(entry, Hook::ResponseBody(&mut body)).await?;
        if let Some(head) = body.head.take() {
            if head.status != reply.status_now() {
                reply.status(head.status);
            }
            reply.fields_mut().clear();
            reply.add_headers(&head.fields);
        }
        let bytes = body.piece.bytes;
        match verdict {
            Verdict::Hold if !is_end => {
                entry
                    .hold(&entry.down, bytes, full)
                    .map_err(|fault| self.failed(fault))?;
                Ok(Ok(Vec::new()))
            }
            Verdict::Continue | Verdict::Hold => {
                entry
                    .check(came, bytes.len())
                    .map_err(|fault| self.failed(fault))?;
                Ok(Ok(bytes))
            }
            Verdict::Answer(answer) => Ok(Err(answer)),
        }
    }

    /// Passes a local response, which the reply has completely.
    pub(in crate::proxy) async fn own(
        &self,
        worker: &Worker,
        found: &Found<'_>,
        cleared: &Cleared,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Error> {
        loop {
            let answer = match self.own_once(req, reply).await {
                Ok(answer) => answer,
                Err(Failure::Fault(fault)) => {
                    log_fields::fault(worker, req, fault);
                    afresh(found, cleared, reply);
                    return local_response::fault(reply, &found.matched, fault);
                }
                Err(Failure::Web(error)) => return Err(error),
                Err(Failure::Instead(answer)) => Some(*answer),
            };
            // Each replacement is processed by fewer filters, so the loop ends.
            match answer {
                None => return Ok(()),
                Some(answer) => instead(found, cleared, &answer, reply)?,
            }
        }
    }

    async fn own_once(&self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<Instead, Failure> {
        for entry in &self.all {
            entry.down.held.borrow_mut().clear();
        }
        let has_body = !reply.body().is_empty();
        if let Some(answer) = self.heads(req, (true, has_body), reply).await? {
            return Ok(Some(answer));
        }
        if !has_body {
            return Ok(None);
        }
        let mut bytes = std::mem::take(reply.body());
        for number in (0..self.reached.get()).rev() {
            match self
                .show((number, &self.all[number]), bytes, true, (req, reply))
                .await?
            {
                Ok(shown) => bytes = shown,
                Err(answer) => {
                    self.reached.set(number);
                    return Ok(Some(answer));
                }
            }
        }
        *reply.body() = bytes;
        Ok(None)
    }
}
