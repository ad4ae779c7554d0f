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
use super::filter_chain::Chain;
use super::grpc::Unwrapping;
use super::replay_buffer::ReplayBuffer;
use super::trailers::Sieve;
use crate::compile::plan::Changes;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::policy::Cleared;
use crate::upstream::client_share::ShareGuard;
use crate::upstream::h2::{BodyRefused, H2Stream};
use crate::upstream::pool::UpstreamConn;

/// The reason why a body was not sent completely.
#[derive(Debug)]
pub(super) enum NotSent {
    /// A failure of the client, or the rule's limit.
    Failure(Failure),
    /// The upstream accepts no more; it may have responded nevertheless.
    Refused,
}

impl From<BodyRefused> for NotSent {
    fn from(_: BodyRefused) -> NotSent {
        NotSent::Refused
    }
}

/// The unsent part of a request after its head.
pub(super) enum Unsent {
    /// No body.
    Nothing,
    /// A body in HTTP/1.1 framing.
    Encoded(BodyEncoder),
    /// A body in HTTP/2 frames.
    Framed,
}

/// The side that is waited for while a request body is sent, and the time of the last transferred byte.
///
/// ```text
/// waits for the client ── a piece arrives ──▶ waits for the upstream ── it is accepted ──▶ waits for the client
/// ```
#[derive(Debug)]
pub(super) struct Progress {
    /// Start of the current wait for the client; `None`: it is not waited for.
    waiting: Cell<Option<Time>>,
    /// Time spent waiting for the client before that.
    waited: Cell<Duration>,
    /// Time at which a byte was received from the client, or accepted by the upstream.
    moved: Cell<Time>,
    /// Bytes received from the client.
    received: Cell<u64>,
}

impl Progress {
    pub(super) fn new(now: Time) -> Progress {
        Progress {
            waiting: Cell::new(None),
            waited: Cell::new(Duration::ZERO),
            moved: Cell::new(now),
            received: Cell::new(0),
        }
    }

    /// Starts waiting for the client.
    fn wait(&self, now: Time) {
        self.waiting.set(Some(now));
    }

    /// Records bytes from the client, or the end of its body.
    fn receive(&self, now: Time, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
        self.waited.set(self.client_time(now));
        self.waiting.set(None);
        self.advance(now);
    }

    /// Records the transfer of a byte, in either direction.
    pub(super) fn advance(&self, now: Time) {
        self.moved.set(now);
    }

    /// Returns whether the client is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get().is_some()
    }

    /// Returns the total time spent waiting for the client.
    pub(super) fn client_time(&self, now: Time) -> Duration {
        let waits = self.waiting.get().map(|since| now.since(since));
        self.waited.get() + waits.unwrap_or_default()
    }

    /// Returns the number of bytes received from the client.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Returns the time of the last transferred byte.
    pub(super) fn moved(&self) -> Time {
        self.moved.get()
    }
}

/// The destination of a request body.
enum Outlet<'l> {
    Sole(&'l Stream, BodyEncoder),
    Shared(&'l H2Stream),
}

impl Outlet<'_> {
    /// Sends a piece as soon as there is room for it. Skips an empty one: an empty chunk would end the body.
    async fn piece(&mut self, worker: &Worker, bytes: Bytes) -> Result<(), NotSent> {
        match self {
            Outlet::Sole(stream, encoder) => {
                {
                    let out = &mut worker.desk.borrow_mut().out;
                    if !encoder.begin(out, bytes.len() as u64).map_err(broken)? {
                        return Ok(());
                    }
                    write(stream, out)?;
                }
                stream
                    .write_frame(bytes)
                    .await
                    .map_err(|_closed| NotSent::Refused)?;
                let out = &mut worker.desk.borrow_mut().out;
                encoder.end(out);
                write(stream, out)
            }
            Outlet::Shared(channel) => Ok(channel.send_body(&bytes).await?),
        }
    }

    /// Finishes the body, with these trailers.
    fn finish(&mut self, worker: &Worker, trailers: Option<&FieldBlock>) -> Result<(), NotSent> {
        match self {
            Outlet::Sole(stream, encoder) => {
                let out = &mut worker.desk.borrow_mut().out;
                match trailers.filter(|_| encoder.is_chunked()) {
                    None => encoder.finish(out).map_err(broken)?,
                    Some(trailers) => encoder.finish_with_trailers(out, trailers).map_err(broken)?,
                }
                write(stream, out)
            }
            Outlet::Shared(channel) => Ok(channel.finish_body(trailers.unwrap_or(&FieldBlock::new()))?),
        }
    }
}

fn broken(misuse: Misuse) -> NotSent {
    NotSent::Failure(Error::internal(misuse).into())
}

fn write(stream: &Stream, out: &mut Vec<u8>) -> Result<(), NotSent> {
    let written = stream.write_now(out);
    out.clear();
    written.map_err(|_closed| NotSent::Refused)
}

/// A body that is sent by one attempt.
pub(super) struct Upload<'a, 'r> {
    pub(super) worker: &'a Worker,
    pub(super) req: &'a Request<'r>,
    pub(super) link: &'a UpstreamConn,
    /// The rule's limit of the body, bytes.
    pub(super) most: Option<u64>,
    pub(super) chain: Option<&'a Chain>,
    /// The rule's edits, which also apply to trailers.
    pub(super) changes: &'a Changes,
    /// The result of the policies, and the changes of filters.
    pub(super) cleared: &'a Cleared,
    /// The buffer of bytes that were taken from the client, for the first and further attempts.
    pub(super) kept: &'a ReplayBuffer,
    pub(super) web: &'a Unwrapping,
    pub(super) progress: &'a Progress,
    /// The account that its slot is charged to.
    pub(super) held: &'a RefCell<Option<ShareGuard>>,
}

impl Upload<'_, '_> {
    /// Sends the body as far as the upstream accepts it, after the bytes that an earlier attempt has taken.
    pub(super) async fn run(&self, unsent: Unsent) -> Result<(), NotSent> {
        let mut outlet = match (self.link, unsent) {
            (UpstreamConn::Http1(sole), Unsent::Encoded(encoder)) => Outlet::Sole(&sole.stream, encoder),
            (UpstreamConn::H2(channel), Unsent::Framed) => Outlet::Shared(channel),
            _ => return Ok(()),
        };
        let cx = &self.worker.cx;
        let taken = self.kept.to_bytes();
        let mut total = taken.len() as u64;
        outlet.piece(self.worker, taken).await?;
        expect_continue::wait(cx, self.req).await;
        while let Some(bytes) = self.next().await? {
            self.kept.take(&bytes);
            total += bytes.len() as u64;
            if total >= limits::WORTH_BYTES as u64 {
                self.held.take();
            }
            // With filters the limit applies to the bytes of the client, which the filters count.
            if self.chain.is_none() && self.most.is_some_and(|most| total > most) {
                return Err(NotSent::Failure(Fault::RequestTooLarge.into()));
            }
            outlet.piece(self.worker, bytes).await?;
            self.progress.advance(cx.now());
        }
        self.held.take();
        self.kept.end(self.req.trailers());
        let trailers = self.kept.trailers();
        if trailers.is_empty() {
            return outlet.finish(self.worker, None);
        }
        let mut sifted = Sieve::of(&self.req.head().fields, self.changes).sift_block(&trailers);
        self.cleared.sift(&mut sifted);
        outlet.finish(self.worker, Some(&sifted))
    }

    /// Receives the next piece from the client; `None`: the end of the body.
    async fn next(&self) -> Result<Option<Bytes>, NotSent> {
        let cx = &self.worker.cx;
        self.progress.wait(cx.now());
        let chunk = next_piece(self.req, self.chain, self.web).await;
        let bytes = chunk.as_ref().ok().and_then(Option::as_ref);
        self.progress.receive(cx.now(), bytes.map_or(0, Bytes::len));
        chunk.map_err(NotSent::Failure)
    }
}

/// Receives the next piece of a body from the client, processed by filters, and decoded from base64 where the upstream speaks only gRPC.
pub(super) async fn next_piece(
    req: &Request<'_>,
    chain: Option<&Chain>,
    web: &Unwrapping,
) -> Result<Option<Bytes>, Failure> {
    let piece = match chain {
        None => req.chunk().await.map_err(Failure::of_body)?,
        // Boxed, so that the future of requests without filters has no room for it.
        Some(chain) => Box::pin(chain.chunk(req)).await?,
    };
    web.piece(piece)
}
