//! A request's body on its way to the upstream, held back by it: how it is framed there, and whose time passes meanwhile.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_web::{Error, Request};
use ringmain_wire::h1::{BodyEncoder, FieldBlock, Misuse};

use super::Failure;
use super::expect;
use super::filtered::Chain;
use super::grpc::Unwrapping;
use super::kept::Kept;
use super::trailers::Sieve;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::limits;
use crate::plan::Changes;
use crate::policy::Cleared;
use crate::upstream::h2::{Channel, Refused};
use crate::upstream::local::Link;
use crate::upstream::share::Held;

/// Why a body did not get to the upstream.
#[derive(Debug)]
pub(super) enum NotSent {
    /// The client's doing, or the rule's limit.
    Failure(Failure),
    /// The upstream takes no more; it may have answered all the same.
    Refused,
}

impl From<Refused> for NotSent {
    fn from(_: Refused) -> NotSent {
        NotSent::Refused
    }
}

/// What is left to send of a request behind its head.
pub(super) enum Unsent {
    /// There is no body.
    Nothing,
    /// A body in the framing of HTTP/1.1.
    Encoded(BodyEncoder),
    /// A body in frames.
    Framed,
}

/// Whose time passes while a request's body is sent, and when a byte of it moved last.
///
/// ```text
/// waits for the client ── a piece is received ──▶ waits for the upstream ── it is taken ──▶ waits for the client
/// ```
#[derive(Debug)]
pub(super) struct Progress {
    /// Since when the client is waited for; `None`: it is not.
    waiting: Cell<Option<Time>>,
    /// How long it was before that.
    waited: Cell<Duration>,
    /// When a byte was received from the client, or taken by the upstream.
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

    /// The client is waited for from now on.
    fn wait(&self, now: Time) {
        self.waiting.set(Some(now));
    }

    /// Bytes of the client were received, or its end.
    fn receive(&self, now: Time, bytes: usize) {
        self.received.set(self.received.get() + bytes as u64);
        self.waited.set(self.client_time(now));
        self.waiting.set(None);
        self.advance(now);
    }

    /// A byte moved, in either direction.
    pub(super) fn advance(&self, now: Time) {
        self.moved.set(now);
    }

    /// Returns whether the client is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.get().is_some()
    }

    /// Returns how long the client was waited for in all.
    pub(super) fn client_time(&self, now: Time) -> Duration {
        let waits = self.waiting.get().map(|since| now.since(since));
        self.waited.get() + waits.unwrap_or_default()
    }

    /// Returns how many bytes were received from the client.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Returns when a byte moved last.
    pub(super) fn moved(&self) -> Time {
        self.moved.get()
    }
}

/// Where a request's body goes.
enum Outlet<'l> {
    Sole(&'l Stream, BodyEncoder),
    Shared(&'l Channel),
}

impl Outlet<'_> {
    /// Sends a piece, as soon as there is room for it. An empty one is no chunk: that would end the body.
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
            Outlet::Shared(channel) => Ok(channel.send(&bytes).await?),
        }
    }

    /// Ends it, with these fields behind it.
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
            Outlet::Shared(channel) => Ok(channel.finish(trailers.unwrap_or(&FieldBlock::new()))?),
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
    pub(super) link: &'a Link,
    /// Bytes that the rule lets pass.
    pub(super) most: Option<u64>,
    pub(super) chain: Option<&'a Chain>,
    /// What becomes of its trailers.
    pub(super) changes: &'a Changes,
    /// That policies let it pass, and what filters have changed.
    pub(super) cleared: &'a Cleared,
    /// What was taken from the client before; also what may be sent again.
    pub(super) kept: &'a Kept,
    pub(super) web: &'a Unwrapping,
    pub(super) progress: &'a Progress,
    /// On whose account its place is held.
    pub(super) held: &'a RefCell<Option<Held>>,
}

impl Upload<'_, '_> {
    /// Sends the body as far as the upstream takes it, after what an attempt before this has taken of it.
    pub(super) async fn run(&self, unsent: Unsent) -> Result<(), NotSent> {
        let mut outlet = match (self.link, unsent) {
            (Link::Sole(sole), Unsent::Encoded(encoder)) => Outlet::Sole(&sole.stream, encoder),
            (Link::Shared(channel), Unsent::Framed) => Outlet::Shared(channel),
            _ => return Ok(()),
        };
        let cx = &self.worker.cx;
        let taken = self.kept.to_bytes();
        let mut total = taken.len() as u64;
        outlet.piece(self.worker, taken).await?;
        expect::wait(cx, self.req).await;
        while let Some(bytes) = self.next().await? {
            self.kept.take(&bytes);
            total += bytes.len() as u64;
            if total >= limits::WORTH_BYTES as u64 {
                self.held.take();
            }
            // With filters it is what the client has sent that is limited, which they count.
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

    /// The next piece from the client; `None`: all of it was received.
    async fn next(&self) -> Result<Option<Bytes>, NotSent> {
        let cx = &self.worker.cx;
        self.progress.wait(cx.now());
        let chunk = next_piece(self.req, self.chain, self.web).await;
        let bytes = chunk.as_ref().ok().and_then(Option::as_ref);
        self.progress.receive(cx.now(), bytes.map_or(0, Bytes::len));
        chunk.map_err(NotSent::Failure)
    }
}

/// Takes the next piece of a body from the client, as filters leave it, out of base64 where the upstream speaks gRPC alone.
pub(super) async fn next_piece(
    req: &Request<'_>,
    chain: Option<&Chain>,
    web: &Unwrapping,
) -> Result<Option<Bytes>, Failure> {
    let piece = match chain {
        None => req.chunk().await.map_err(Failure::of_body)?,
        // Apart, so that requests without it have no room for it.
        Some(chain) => Box::pin(chain.chunk(req)).await?,
    };
    web.piece(piece)
}
