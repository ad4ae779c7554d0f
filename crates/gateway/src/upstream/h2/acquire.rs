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

use super::Lost;
use super::session::{Beginning, Session};
use super::stream::Channel;
use crate::fault::Fault;
use crate::limits;
use crate::model::UpstreamProtocol;
use crate::upstream::Permit;
use crate::upstream::pool::{End, Link, Local, Waited};

/// A worker's sessions with an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    list: RefCell<Vec<Rc<Session>>>,
    /// The number of dials in progress.
    dialling: Cell<u32>,
    /// Requests that wait for these dials.
    joined: RefCell<Vec<Waker>>,
    /// The number of finished dials, and the fault of the last one if it failed.
    dialled: Cell<(u64, Option<Fault>)>,
    /// The endpoint has selected another protocol than HTTP/2.
    is_plain: Cell<bool>,
}

/// A dial in progress.
struct Dialling<'e> {
    sessions: &'e Sessions,
    outcome: Option<Fault>,
}

impl Drop for Dialling<'_> {
    fn drop(&mut self) {
        let sessions = self.sessions;
        sessions.dialling.set(sessions.dialling.get() - 1);
        sessions.dialled.set((sessions.dialled.get().0 + 1, self.outcome));
        let joined = std::mem::take(&mut *sessions.joined.borrow_mut());
        joined.into_iter().for_each(Waker::wake);
    }
}

impl Sessions {
    /// Returns a stream of a session with room: of the first, so that as few sessions as possible stay open. `fresh`: skip sessions that
    /// have refused their last stream.
    pub(in crate::upstream) fn take(&self, fresh: bool) -> Option<Channel> {
        let list = self.list.borrow();
        let fits = |session: &&Rc<Session>| session.room() > 0 && !(fresh && session.refuses.get());
        list.iter().find(fits).map(Session::reserve)
    }

    /// Closes sessions that have been idle for at least `most`, or every session; removes closed sessions.
    pub(in crate::upstream) fn sweep(&self, now: Time, most: Duration, all: bool) {
        let list = self.list.borrow().clone();
        for session in list {
            if session.idle_for(now).is_some_and(|span| all || span >= most) {
                drop(session.close());
            }
        }
        self.list.borrow_mut().retain(|session| !session.is_closed());
    }

    /// Returns the number of idle sessions.
    pub(in crate::upstream) fn idle(&self) -> usize {
        let list = self.list.borrow();
        list.iter()
            .filter(|session| !session.is_closed() && session.is_idle())
            .count()
    }

    /// Closes an idle session in favor of another connection.
    pub(in crate::upstream) fn close_one(&self) -> Option<Permit> {
        let list = self.list.borrow();
        let idle = list
            .iter()
            .find(|session| !session.is_closed() && session.is_idle())?;
        let idle = Rc::clone(idle);
        drop(list);
        idle.close()
    }

    /// Moves the sessions to the endpoint as it is configured now.
    pub(in crate::upstream) fn hand_on(&self) -> Sessions {
        let next = Sessions::default();
        next.list.swap(&self.list);
        next.is_plain.set(self.is_plain.get());
        next
    }

    /// Closes each session when its requests have finished.
    pub(in crate::upstream) fn retire(&self) {
        let list = std::mem::take(&mut *self.list.borrow_mut());
        list.iter().for_each(|session| session.retire());
    }

    /// Returns whether a dial in progress will have room for one more request.
    fn joins(&self, streams: u32) -> bool {
        let room = self.dialling.get().saturating_mul(streams.saturating_sub(1));
        self.joined.borrow().len() < room as usize
    }

    fn dial(&self) -> Dialling<'_> {
        self.dialling.set(self.dialling.get() + 1);
        Dialling {
            sessions: self,
            outcome: None,
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.retire();
    }
}

impl Local {
    /// Returns whether an endpoint's connections are shared, as far as that is known.
    pub(crate) fn shares(&self, end: &End) -> bool {
        match self.protocol() {
            UpstreamProtocol::Http1 => false,
            UpstreamProtocol::Http2 => true,
            UpstreamProtocol::Auto => !end.sessions.is_plain.get(),
        }
    }

    /// Returns a stream to an endpoint within `span`; a whole connection if the endpoint does not support HTTP/2. With a greeting, the stream
    /// is on a new connection for this request alone.
    pub(in crate::upstream) async fn link_shared(
        &self,
        end: &Rc<End>,
        fresh: bool,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Link, Fault> {
        let until = self.cx.now().after(span);
        let _linking = self.common.linking();
        loop {
            let left = until.since(self.cx.now());
            // The configuration may have changed during the wait.
            let end = &self.present(end);
            let sessions = &end.sessions;
            if self.protocol() == UpstreamProtocol::Http1 {
                // The protocol has changed during the wait.
                return self.link_whole(end, fresh, greeting, left).await;
            }
            let alone = !greeting.is_empty();
            if !self.shares(end) {
                if !(fresh || alone)
                    && let Some(sole) = self.take_kept(end)
                {
                    return Ok(Link::Sole(sole));
                }
            } else if !alone {
                if let Some(channel) = sessions.take(fresh) {
                    return Ok(Link::Shared(channel));
                }
                let streams = self.streams().min(limits::UPSTREAM_STREAMS_ASSUMED);
                if sessions.joins(streams) {
                    self.join(sessions, left).await?;
                    continue;
                }
            }
            let most = self.most_connections();
            let permit = match self.shared.begin_connection(most) {
                Ok(permit) => permit,
                Err(_) => {
                    let alone = alone || fresh && !self.shares(end);
                    match self.wait(end, alone, most, left).await? {
                        Waited::Permit(permit) => permit,
                        Waited::Kept(link) => return Ok(link),
                    }
                }
            };
            let left = until.since(self.cx.now());
            return self.begin_session(end, permit, greeting, left).await;
        }
    }

    /// Waits for a dial of another request.
    async fn join(&self, sessions: &Sessions, span: Duration) -> Result<(), Fault> {
        let (before, _) = sessions.dialled.get();
        let mut sleep = pin!(self.cx.sleep(span));
        let mut is_in = false;
        poll_fn(|context| {
            let (now, outcome) = sessions.dialled.get();
            if now != before {
                return Poll::Ready(outcome.map_or(Ok(()), Err));
            }
            if !is_in {
                is_in = true;
                sessions.joined.borrow_mut().push(context.waker().clone());
            }
            sleep.as_mut().poll(context).map(|()| Err(Fault::ConnectTimeout))
        })
        .await
    }

    /// Opens a connection with the protocol that the upstream has at that time.
    pub(in crate::upstream) async fn begin_session(
        &self,
        end: &Rc<End>,
        permit: Permit,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Link, Fault> {
        // A connection with a greeting is for one client: other requests cannot join.
        let mut dialling = greeting.is_empty().then(|| end.sessions.dial());
        let begun = self.begin(end, permit, greeting, span).await;
        if let (Err(fault), Some(dialling)) = (&begun, &mut dialling) {
            dialling.outcome = Some(*fault);
        }
        begun
    }

    async fn begin(
        &self,
        end: &Rc<End>,
        permit: Permit,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Link, Fault> {
        let until = self.cx.now().after(span);
        let tls = self.tls();
        let secure = tls.is_some();
        let shared = self.protocol() == UpstreamProtocol::Http2;
        let sole = self.dial(end, permit, greeting, tls, span).await?;
        let is_shared = match secure {
            true if is_agreed(&sole.stream) => true,
            true if shared => return Err(Fault::NoHttp2),
            // Without TLS there is no negotiation: the protocol is known in advance.
            secure => shared && !secure,
        };
        end.sessions.is_plain.set(!is_shared);
        if !is_shared {
            return Ok(Link::Sole(sole));
        }
        let (stream, permit) = sole.into_parts();
        let alone = !greeting.is_empty();
        let beginning = Beginning {
            stream,
            permit: Some(permit),
            secure,
            toward: end.endpoint.toward(),
            streams: self.streams(),
            lifetime: if alone { Some(1) } else { self.lifetime() },
        };
        let session = Session::new(&self.cx, &self.common, beginning);
        // Reserved first, so that the session is not taken for an idle one.
        let channel = session.reserve();
        if !alone && !end.is_gone() {
            end.sessions.list.borrow_mut().push(Rc::clone(&session));
        }
        if let Err(fault) = self.heard(&session, until).await {
            if fault == Fault::ConnectTimeout {
                self.connect_failed(end, fault, span);
            }
            return Err(fault);
        }
        if !session.has_room_for_reserved() {
            // The endpoint accepts no streams, or no more: nothing was sent.
            session.retire();
            return Err(Fault::StreamRefused);
        }
        Ok(Link::Shared(channel))
    }

    /// Waits until the endpoint has sent its limit of streams.
    async fn heard(&self, session: &Session, until: Time) -> Result<(), Fault> {
        let left = until.since(self.cx.now());
        let mut sleep = pin!(self.cx.sleep(left));
        let begun = poll_fn(|context| match session.poll_begun(context) {
            Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Lost::Late)),
            begun => begun,
        });
        begun
            .await
            .map_err(|lost| lost.before_head(|| Fault::ConnectTimeout))
    }
}

/// Returns whether both sides have negotiated HTTP/2.
pub(crate) fn is_agreed(stream: &Stream) -> bool {
    let alpn = stream.layer(|tls: &mut Tls| tls.facts().and_then(|facts| facts.alpn.clone()));
    alpn.flatten().is_some_and(|alpn| alpn == b"h2")
}
