//! The relay of a request body to the upstream, with back-pressure: its framing there, and the time spent waiting for either side.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_web::{Error, Request};
use ringmain_wire::h1::{BodyEncoder, FieldBlock, Misuse};

use super::Failure;
use super::expect_continue;
use super::filter_chain::FilterChain;
use super::grpc::RequestTextDecoder;
use super::replay_buffer::ReplayBuffer;
use super::trailers::TrailerFilter;
use crate::compile::plan::HeaderEdits;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::policy::Cleared;
use crate::upstream::client_share::ShareGuard;
use crate::upstream::h2::{BodyRefused, H2Stream};
use crate::upstream::pool::UpstreamConn;

/// The reason why a body was not sent completely.
#[derive(Debug)]
pub(super) enum UploadError {
    /// A failure of the client, or the rule's limit.
    Failure(Failure),
    /// The upstream accepts no more; it may have responded nevertheless.
    Refused,
}

impl From<BodyRefused> for UploadError {
    fn from(_: BodyRefused) -> UploadError {
        UploadError::Refused
    }
}

/// The unsent part of a request after its head.
pub(super) enum UnsentRequest {
    /// No body.
    Nothing,
    /// A body in HTTP/1.1 framing.
    Http1(BodyEncoder),
    /// A body in HTTP/2 frames.
    H2,
}

/// The side that is waited for while a request body is sent, and the time of the last transferred byte.
///
/// ```text
/// waits for the client ── a piece arrives ──▶ waits for the upstream ── it is accepted ──▶ waits for the client
/// ```
#[derive(Debug)]
pub(super) struct UploadProgress {
    /// Start of the current wait for the client; `None`: it is not waited for.
    waiting: Cell<Option<Time>>,
    /// Time spent waiting for the client before that.
    waited: Cell<Duration>,
    /// Time at which a byte was received from the client, or accepted by the upstream.
    moved: Cell<Time>,
    /// Bytes received from the client.
    received: Cell<u64>,
}

impl UploadProgress {
    pub(super) fn new(now: Time) -> UploadProgress {
        UploadProgress {
            waiting: Cell::new(None),
            waited: Cell::new(Duration::ZERO),
            moved: Cell::new(now),
            received: Cell::new(0),
        }
    }

    /// Starts waiting for the client.
    fn start_client_wait(&self, now: Time) {
        self.waiting.set(Some(now));
    }

    /// Records bytes from the client, or the end of its body.
    fn record_received(&self, now: Time, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
        self.waited.set(self.client_time(now));
        self.waiting.set(None);
        self.record_transfer(now);
    }

    /// Records the transfer of a byte, in either direction.
    pub(super) fn record_transfer(&self, now: Time) {
        self.moved.set(now);
    }

    /// Returns whether the client is waited for.
    pub(super) fn is_waiting_for_client(&self) -> bool {
        self.waiting.get().is_some()
    }

    /// Returns the total time spent waiting for the client.
    pub(super) fn client_time(&self, now: Time) -> Duration {
        let waited = self.waiting.get().map(|since| now.since(since));
        self.waited.get() + waited.unwrap_or_default()
    }

    /// Returns the number of bytes received from the client.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Returns the time of the last transferred byte.
    pub(super) fn last_transfer(&self) -> Time {
        self.moved.get()
    }
}

/// The destination of a request body.
enum RequestSink<'l> {
    Http1(&'l Stream, BodyEncoder),
    H2(&'l H2Stream),
}

impl RequestSink<'_> {
    /// Sends a piece as soon as there is room for it. Skips an empty one: an empty chunk would end the body.
    async fn send_piece(&mut self, worker: &Worker, bytes: Bytes) -> Result<(), UploadError> {
        match self {
            RequestSink::Http1(stream, encoder) => {
                {
                    let out = &mut worker.scratch.borrow_mut().out;
                    if !encoder.begin(out, bytes.len() as u64).map_err(encode_error)? {
                        return Ok(());
                    }
                    write_out(stream, out)?;
                }
                stream
                    .write_frame(bytes)
                    .await
                    .map_err(|_closed| UploadError::Refused)?;
                let out = &mut worker.scratch.borrow_mut().out;
                encoder.end(out);
                write_out(stream, out)
            }
            RequestSink::H2(channel) => Ok(channel.send_body(&bytes).await?),
        }
    }

    /// Finishes the body, with these trailers.
    fn finish(&mut self, worker: &Worker, trailers: Option<&FieldBlock>) -> Result<(), UploadError> {
        match self {
            RequestSink::Http1(stream, encoder) => {
                let out = &mut worker.scratch.borrow_mut().out;
                match trailers.filter(|_| encoder.is_chunked()) {
                    None => encoder.finish(out).map_err(encode_error)?,
                    Some(trailers) => encoder
                        .finish_with_trailers(out, trailers)
                        .map_err(encode_error)?,
                }
                write_out(stream, out)
            }
            RequestSink::H2(channel) => Ok(channel.finish_body(trailers.unwrap_or(&FieldBlock::new()))?),
        }
    }
}

fn encode_error(misuse: Misuse) -> UploadError {
    UploadError::Failure(Error::internal(misuse).into())
}

fn write_out(stream: &Stream, out: &mut Vec<u8>) -> Result<(), UploadError> {
    let written = stream.write_now(out);
    out.clear();
    written.map_err(|_closed| UploadError::Refused)
}

/// A body that is sent by one attempt.
pub(super) struct RequestUpload<'a, 'r> {
    pub(super) worker: &'a Worker,
    pub(super) req: &'a Request<'r>,
    pub(super) conn: &'a UpstreamConn,
    /// The rule's limit of the body, bytes.
    pub(super) most: Option<u64>,
    pub(super) chain: Option<&'a FilterChain>,
    /// The rule's edits, which also apply to trailers.
    pub(super) changes: &'a HeaderEdits,
    /// The result of the policies, and the changes of filters.
    pub(super) cleared: &'a Cleared,
    /// The buffer of bytes that were taken from the client, for the first and further attempts.
    pub(super) replay: &'a ReplayBuffer,
    pub(super) grpc_web: &'a RequestTextDecoder,
    pub(super) progress: &'a UploadProgress,
    /// The account that its slot is charged to.
    pub(super) share: &'a RefCell<Option<ShareGuard>>,
}

impl RequestUpload<'_, '_> {
    /// Sends the body as far as the upstream accepts it, after the bytes that an earlier attempt has taken.
    pub(super) async fn run(&self, unsent: UnsentRequest) -> Result<(), UploadError> {
        let mut sink = match (self.conn, unsent) {
            (UpstreamConn::Http1(pooled), UnsentRequest::Http1(encoder)) => {
                RequestSink::Http1(&pooled.stream, encoder)
            }
            (UpstreamConn::H2(channel), UnsentRequest::H2) => RequestSink::H2(channel),
            _ => return Ok(()),
        };
        let cx = &self.worker.cx;
        let buffered = self.replay.to_bytes();
        let mut total = buffered.len() as u64;
        sink.send_piece(self.worker, buffered).await?;
        expect_continue::wait_for_continue(cx, self.req).await;
        while let Some(bytes) = self.receive_piece().await? {
            self.replay.push(&bytes);
            total += bytes.len() as u64;
            if total >= limits::WORTH_BYTES as u64 {
                self.share.take();
            }
            // With filters the limit applies to the bytes of the client, which the filters count.
            if self.chain.is_none() && self.most.is_some_and(|most| total > most) {
                return Err(UploadError::Failure(Fault::RequestTooLarge.into()));
            }
            sink.send_piece(self.worker, bytes).await?;
            self.progress.record_transfer(cx.now());
        }
        self.share.take();
        self.replay.finish(self.req.trailers());
        let trailers = self.replay.trailers();
        if trailers.is_empty() {
            return sink.finish(self.worker, None);
        }
        let mut filtered =
            TrailerFilter::for_head(&self.req.head().fields, self.changes).filter_request(&trailers);
        self.cleared.filter_trailers(&mut filtered);
        sink.finish(self.worker, Some(&filtered))
    }

    /// Receives the next piece from the client; `None`: the end of the body.
    async fn receive_piece(&self) -> Result<Option<Bytes>, UploadError> {
        let cx = &self.worker.cx;
        self.progress.start_client_wait(cx.now());
        let chunk = next_piece(self.req, self.chain, self.grpc_web).await;
        let bytes = chunk.as_ref().ok().and_then(Option::as_ref);
        self.progress
            .record_received(cx.now(), bytes.map_or(0, Bytes::len));
        chunk.map_err(UploadError::Failure)
    }
}

/// Receives the next piece of a body from the client, processed by filters, and decoded from base64 where the upstream speaks only gRPC.
pub(super) async fn next_piece(
    req: &Request<'_>,
    chain: Option<&FilterChain>,
    web: &RequestTextDecoder,
) -> Result<Option<Bytes>, Failure> {
    let piece = match chain {
        None => req.chunk().await.map_err(Failure::from_body_error)?,
        // Boxed, so that the future of requests without filters has no room for it.
        Some(chain) => Box::pin(chain.next_piece(req)).await?,
    };
    web.decode_piece(piece)
}
