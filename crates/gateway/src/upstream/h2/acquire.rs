//! Acquisition of a stream: on a session with room, on one that is being dialled, or on a new one.
//!
//! ```text
//! room in a session ─▶ Channel
//!   none, a dial has room for more ─▶ joined ─ established or failed ─▶ again, or the same fault
//!   none, no dial in progress ─▶ a permit, or waiting for one ─▶ dialled ─▶ Channel, and room for those that joined
//! ```
//!
//! A new session has room once the endpoint has sent its limit of streams: streams beyond the limit would be refused, and body bytes
//! sent on them may not be available for a retry.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_tls::Tls;

use super::StreamError;
use super::session::{H2Session, SessionParams};
use super::stream::H2Stream;
use crate::fault::Fault;
use crate::limits;
use crate::model::UpstreamProtocol;
use crate::upstream::ConnectionPermit;
use crate::upstream::pool::{PoolEndpoint, UpstreamConn, UpstreamPool, WaitOutcome};

/// A worker's sessions with an endpoint.
#[derive(Debug, Default)]
pub(crate) struct SessionList {
    sessions: RefCell<Vec<Rc<H2Session>>>,
    /// The number of dials in progress.
    dials: Cell<u32>,
    /// Requests that wait for these dials.
    dial_waiters: RefCell<Vec<Waker>>,
    /// The number of finished dials, and the fault of the last one if it failed.
    last_dial: Cell<(u64, Option<Fault>)>,
    /// The endpoint has selected another protocol than HTTP/2.
    is_http1: Cell<bool>,
}

/// A dial in progress.
struct DialGuard<'e> {
    sessions: &'e SessionList,
    outcome: Option<Fault>,
}

impl Drop for DialGuard<'_> {
    fn drop(&mut self) {
        let sessions = self.sessions;
        sessions.dials.set(sessions.dials.get() - 1);
        sessions
            .last_dial
            .set((sessions.last_dial.get().0 + 1, self.outcome));
        let wakers = std::mem::take(&mut *sessions.dial_waiters.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl SessionList {
    /// Returns a stream of a session with room: of the first, so that as few sessions as possible stay open. `fresh`: skip sessions that
    /// have refused their last stream.
    pub(in crate::upstream) fn try_acquire_stream(&self, fresh: bool) -> Option<H2Stream> {
        let list = self.sessions.borrow();
        let fits =
            |session: &&Rc<H2Session>| session.stream_capacity() > 0 && !(fresh && session.is_refusing.get());
        list.iter().find(fits).map(H2Session::reserve_stream)
    }

    /// Closes sessions that have been idle for at least `idle_limit`, or every session; removes closed sessions.
    pub(in crate::upstream) fn sweep(&self, now: Time, idle_limit: Duration, all: bool) {
        let list = self.sessions.borrow().clone();
        for session in list {
            if session
                .idle_for(now)
                .is_some_and(|span| all || span >= idle_limit)
            {
                drop(session.close());
            }
        }
        self.sessions.borrow_mut().retain(|session| !session.is_closed());
    }

    /// Returns the number of idle sessions.
    pub(in crate::upstream) fn idle_count(&self) -> usize {
        let list = self.sessions.borrow();
        list.iter()
            .filter(|session| !session.is_closed() && session.is_idle())
            .count()
    }

    /// Closes an idle session in favor of another connection.
    pub(in crate::upstream) fn close_idle(&self) -> Option<ConnectionPermit> {
        let list = self.sessions.borrow();
        let idle = list
            .iter()
            .find(|session| !session.is_closed() && session.is_idle())?;
        let idle = Rc::clone(idle);
        drop(list);
        idle.close()
    }

    /// Moves the sessions to the endpoint as it is configured now.
    pub(in crate::upstream) fn move_to_successor(&self) -> SessionList {
        let next = SessionList::default();
        next.sessions.swap(&self.sessions);
        next.is_http1.set(self.is_http1.get());
        next
    }

    /// Closes each session when its requests have finished.
    pub(in crate::upstream) fn retire_all(&self) {
        let list = std::mem::take(&mut *self.sessions.borrow_mut());
        list.iter().for_each(|session| session.retire());
    }

    /// Returns whether a dial in progress will have room for one more request.
    fn dial_has_capacity(&self, streams: u32) -> bool {
        let capacity = self.dials.get().saturating_mul(streams.saturating_sub(1));
        self.dial_waiters.borrow().len() < capacity as usize
    }

    fn start_dial(&self) -> DialGuard<'_> {
        self.dials.set(self.dials.get() + 1);
        DialGuard {
            sessions: self,
            outcome: None,
        }
    }
}

impl Drop for SessionList {
    fn drop(&mut self) {
        self.retire_all();
    }
}

impl UpstreamPool {
    /// Returns whether an endpoint's connections are shared, as far as that is known.
    pub(crate) fn is_multiplexed(&self, end: &PoolEndpoint) -> bool {
        match self.protocol() {
            UpstreamProtocol::Http1 => false,
            UpstreamProtocol::Http2 => true,
            UpstreamProtocol::Auto => !end.sessions.is_http1.get(),
        }
    }

    /// Returns a stream to an endpoint within `span`; an HTTP/1.1 connection if the endpoint does not support HTTP/2. With a PROXY header,
    /// the stream is on a new connection for this request alone.
    pub(in crate::upstream) async fn acquire_h2(
        &self,
        end: &Rc<PoolEndpoint>,
        fresh: bool,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<UpstreamConn, Fault> {
        let deadline = self.cx.now().after(span);
        let _guard = self.h2.start_acquire();
        loop {
            let remaining = deadline.since(self.cx.now());
            // The configuration may have changed during the wait.
            let end = &self.current_endpoint(end);
            let sessions = &end.sessions;
            if self.protocol() == UpstreamProtocol::Http1 {
                // The protocol has changed during the wait.
                return self.acquire_http1(end, fresh, proxy_header, remaining).await;
            }
            let exclusive = !proxy_header.is_empty();
            if !self.is_multiplexed(end) {
                if !(fresh || exclusive)
                    && let Some(pooled) = self.try_acquire_idle(end)
                {
                    return Ok(UpstreamConn::Http1(pooled));
                }
            } else if !exclusive {
                if let Some(channel) = sessions.try_acquire_stream(fresh) {
                    return Ok(UpstreamConn::H2(channel));
                }
                let streams = self
                    .streams_per_connection()
                    .min(limits::UPSTREAM_STREAMS_ASSUMED);
                if sessions.dial_has_capacity(streams) {
                    self.wait_for_dial(sessions, remaining).await?;
                    continue;
                }
            }
            let limit = self.connection_limit();
            let permit = match self.upstream.acquire_connection(limit) {
                Ok(permit) => permit,
                Err(_) => {
                    let exclusive = exclusive || fresh && !self.is_multiplexed(end);
                    match self.wait_for_connection(end, exclusive, limit, remaining).await? {
                        WaitOutcome::Permit(permit) => permit,
                        WaitOutcome::Connection(conn) => return Ok(conn),
                    }
                }
            };
            let remaining = deadline.since(self.cx.now());
            return self.open_session(end, permit, proxy_header, remaining).await;
        }
    }

    /// Waits for a dial of another request.
    async fn wait_for_dial(&self, sessions: &SessionList, span: Duration) -> Result<(), Fault> {
        let (before, _) = sessions.last_dial.get();
        let mut sleep = pin!(self.cx.sleep(span));
        let mut is_registered = false;
        poll_fn(|context| {
            let (now, outcome) = sessions.last_dial.get();
            if now != before {
                return Poll::Ready(outcome.map_or(Ok(()), Err));
            }
            if !is_registered {
                is_registered = true;
                sessions.dial_waiters.borrow_mut().push(context.waker().clone());
            }
            sleep.as_mut().poll(context).map(|()| Err(Fault::ConnectTimeout))
        })
        .await
    }

    /// Opens a connection with the protocol that the upstream has at that time.
    pub(in crate::upstream) async fn open_session(
        &self,
        end: &Rc<PoolEndpoint>,
        permit: ConnectionPermit,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<UpstreamConn, Fault> {
        // A connection with a PROXY header is for one client: other requests cannot join.
        let mut dial = proxy_header.is_empty().then(|| end.sessions.start_dial());
        let result = self.open_negotiated(end, permit, proxy_header, span).await;
        if let (Err(fault), Some(dial)) = (&result, &mut dial) {
            dial.outcome = Some(*fault);
        }
        result
    }

    async fn open_negotiated(
        &self,
        end: &Rc<PoolEndpoint>,
        permit: ConnectionPermit,
        proxy_header: &[u8],
        span: Duration,
    ) -> Result<UpstreamConn, Fault> {
        let deadline = self.cx.now().after(span);
        let tls = self.http_tls();
        let secure = tls.is_some();
        let is_http2 = self.protocol() == UpstreamProtocol::Http2;
        let pooled = self.open_connection(end, permit, proxy_header, tls, span).await?;
        let is_shared = if secure {
            let negotiated = negotiated_h2(&pooled.stream);
            if is_http2 && !negotiated {
                return Err(Fault::NoHttp2);
            }
            negotiated
        } else {
            // Without TLS there is no negotiation: the protocol is known in advance.
            is_http2
        };
        end.sessions.is_http1.set(!is_shared);
        if !is_shared {
            return Ok(UpstreamConn::Http1(pooled));
        }
        let (stream, permit) = pooled.into_parts();
        let exclusive = !proxy_header.is_empty();
        let params = SessionParams {
            stream,
            permit: Some(permit),
            secure,
            endpoint: end.endpoint.endpoint_id(),
            streams: self.streams_per_connection(),
            lifetime: if exclusive {
                Some(1)
            } else {
                self.requests_per_connection()
            },
        };
        let session = H2Session::new(&self.cx, &self.h2, params);
        // Reserved first, so that the session is not taken for an idle one.
        let channel = session.reserve_stream();
        if !exclusive && !end.is_removed() {
            end.sessions.sessions.borrow_mut().push(Rc::clone(&session));
        }
        if let Err(fault) = self.wait_for_settings(&session, deadline).await {
            if fault == Fault::ConnectTimeout {
                self.record_connect_failure(end, fault, span);
            }
            return Err(fault);
        }
        if !session.can_open_reserved() {
            // The endpoint accepts no streams, or no more: nothing was sent.
            session.retire();
            return Err(Fault::StreamRefused);
        }
        Ok(UpstreamConn::H2(channel))
    }

    /// Waits until the endpoint has sent its limit of streams.
    async fn wait_for_settings(&self, session: &H2Session, deadline: Time) -> Result<(), Fault> {
        let remaining = deadline.since(self.cx.now());
        let mut sleep = pin!(self.cx.sleep(remaining));
        let settings = poll_fn(|context| match session.poll_settings(context) {
            Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(StreamError::TimedOut)),
            settings => settings,
        });
        settings
            .await
            .map_err(|error| error.fault_before_head(|| Fault::ConnectTimeout))
    }
}

/// Returns whether both sides have negotiated HTTP/2.
pub(crate) fn negotiated_h2(stream: &Stream) -> bool {
    let alpn = stream.layer(|tls: &mut Tls| tls.facts().and_then(|facts| facts.alpn.clone()));
    alpn.flatten().is_some_and(|alpn| alpn == b"h2")
}
