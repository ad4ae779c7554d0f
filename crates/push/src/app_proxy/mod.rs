//! What the application is asked about clients: whether they may come in, stay, listen and publish, and what they call it for.
//!
//! ```text
//! command ─▶ (its channel waits for an answer: held) ─▶ question ─▶ task ─▶ Application ─▶ answer ─▶ carried out, answered
//!                                                                                             └─▶ what was held
//! ```
//!
//! Questions and answers are those of Centrifugo's proxy, in JSON (`requests.rs`, `responses.rs`), so that an application need not
//! change what it says. Knows nothing of how an application is reached: that is its [`Application`].

mod client;
mod handlers;
mod requests;
pub(crate) mod responses;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

pub(crate) use client::{InFlightLimit, ProxyClient, channel_of};

use crate::limits;

/// What the application is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A client without a token connects: who is it, and what is it given?
    Connect,
    /// A connection's time is over: does it go on?
    Refresh,
    /// A client calls the application.
    Rpc,
    /// A client subscribes to a channel of a namespace with [`subscribe_proxy`](crate::Namespace::subscribe_proxy).
    Subscribe,
    /// A client publishes in a channel of a namespace with [`publish_proxy`](crate::Namespace::publish_proxy).
    Publish,
    /// The time of a subscription is over, in a namespace with [`sub_refresh_proxy`](crate::Namespace::sub_refresh_proxy).
    SubRefresh,
}

impl Event {
    /// All that there are.
    pub const ALL: [Event; 6] = [
        Event::Connect,
        Event::Refresh,
        Event::Rpc,
        Event::Subscribe,
        Event::Publish,
        Event::SubRefresh,
    ];

    /// As settings and logs call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Event::Connect => "connect",
            Event::Refresh => "refresh",
            Event::Rpc => "rpc",
            Event::Subscribe => "subscribe",
            Event::Publish => "publish",
            Event::SubRefresh => "sub_refresh",
        }
    }
}

/// What the application is asked about, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// What it is asked about, and for how long an answer is waited: more than nothing, and at most
    /// [`PROXY_TIMEOUT_MAX`](limits::PROXY_TIMEOUT_MAX). A client that waits longer is told that something is wrong
    /// ([`Fault::INTERNAL`](ringmain_hub::protocol::Fault::INTERNAL)), and tries again.
    pub events: BTreeMap<Event, Duration>,
    /// Data of clients are bytes, told in base64 (`b64data`). Else they are JSON (`data`), and what is not is refused.
    pub binary: bool,
    /// Names of headers that a client may say with its connection since it cannot set them (`headers` of the SDKs). Whatever it
    /// says there is its own word. Others are forgotten.
    pub emulated: Vec<String>,
}

impl Proxy {
    /// What is wrong with it.
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (event, within) in &self.events {
            if within.is_zero() || *within > limits::PROXY_TIMEOUT_MAX {
                let most = limits::PROXY_TIMEOUT_MAX;
                let event = event.name();
                return Err(format!(
                    "expected a time for answers to `{event}` of more than nothing and at most {most:?}, found {within:?}"
                ));
            }
        }
        Ok(())
    }

    /// Whether it is asked about that.
    pub(crate) fn is_enabled(&self, event: Event) -> bool {
        self.events.contains_key(&event)
    }
}

/// What an application is asked.
#[derive(Debug)]
pub struct ProxyRequest {
    /// About what.
    pub event: Event,
    /// The question as Centrifugo's proxy asks it, in JSON: `{"client":"…","transport":"websocket",…}`.
    pub body: Vec<u8>,
    /// Of [`Proxy::emulated`] those that the client has said, as it has written their names.
    pub emulated: Rc<BTreeMap<String, String>>,
    /// For how long an answer is waited.
    pub within: Duration,
}

/// An answer in JSON of at most [`PROXY_RESPONSE_BYTES`](limits::PROXY_RESPONSE_BYTES): `{"result": …}`, `{"error": …}` or `{"disconnect": …}`.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, ProxyError>>>>;

/// Why there is no answer, for the owner's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProxyError(pub String);

/// Who is asked about the client of one session, on its worker. PendingSubscribe in a task of its own, of which a worker has at most
/// [`PROXY_REQUESTS_PER_WORKER`](limits::PROXY_REQUESTS_PER_WORKER); one that is dropped is not waited for any longer.
pub trait Application {
    /// Asks it. Nothing is done until the answer is polled.
    fn send(&self, request: ProxyRequest) -> ResponseFuture;
}

/// Whom the session that comes of a request asks. It is left with the request before push has it:
/// [`Request::extend`](ringmain_web::Request::extend). A session without one has nobody to ask: what it would ask about is
/// answered with [`Fault::NOT_AVAILABLE`](ringmain_hub::protocol::Fault::NOT_AVAILABLE).
#[derive(Clone)]
pub struct Backend(pub Rc<dyn Application>);

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backend")
    }
}
