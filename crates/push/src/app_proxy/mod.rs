//! Requests to the application about clients: whether they may connect, remain, subscribe and publish, and their RPCs.
//!
//! ```text
//! command ─▶ (a request about its channel is in flight: held) ─▶ request ─▶ task ─▶ Application ─▶ response ─▶ executed, replied
//!                                                                                                     └─▶ held commands
//! ```
//!
//! Requests and responses are those of Centrifugo's proxy, in JSON (`requests.rs`, `responses.rs`), so that an application works unchanged.
//! The transport of requests belongs to the [`Application`].

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

/// An event that the application decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyEvent {
    /// A client without a token connects: the application identifies it.
    Connect,
    /// A connection has expired: the application renews it.
    Refresh,
    /// A client calls the application.
    Rpc,
    /// A client subscribes to a channel of a namespace with [`subscribe_proxy`](crate::Namespace::subscribe_proxy).
    Subscribe,
    /// A client publishes in a channel of a namespace with [`publish_proxy`](crate::Namespace::publish_proxy).
    Publish,
    /// A subscription has expired, in a namespace with [`sub_refresh_proxy`](crate::Namespace::sub_refresh_proxy).
    SubRefresh,
}

impl ProxyEvent {
    /// All events.
    pub const ALL: [ProxyEvent; 6] = [
        ProxyEvent::Connect,
        ProxyEvent::Refresh,
        ProxyEvent::Rpc,
        ProxyEvent::Subscribe,
        ProxyEvent::Publish,
        ProxyEvent::SubRefresh,
    ];

    /// Returns the name in settings and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ProxyEvent::Connect => "connect",
            ProxyEvent::Refresh => "refresh",
            ProxyEvent::Rpc => "rpc",
            ProxyEvent::Subscribe => "subscribe",
            ProxyEvent::Publish => "publish",
            ProxyEvent::SubRefresh => "sub_refresh",
        }
    }
}

/// The events that are forwarded to the application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// The timeout of each event: more than zero, and at most [`PROXY_TIMEOUT_MAX`](limits::PROXY_TIMEOUT_MAX). After it a client receives
    /// [`Fault::INTERNAL`](ringmain_hub::protocol::Fault::INTERNAL), and retries.
    pub events: BTreeMap<ProxyEvent, Duration>,
    /// Sends data of clients as base64 (`b64data`). Otherwise it is sent as JSON (`data`), and other data is rejected.
    pub binary: bool,
    /// Names of headers that a client may emulate in its connect request (`headers` of the SDKs) since it cannot set them. Their values are
    /// not verified. Others are dropped.
    pub emulated: Vec<String>,
}

impl Proxy {
    /// Checks the timeouts.
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (event, within) in &self.events {
            if within.is_zero() || *within > limits::PROXY_TIMEOUT_MAX {
                let limit = limits::PROXY_TIMEOUT_MAX;
                let event = event.name();
                return Err(format!(
                    "expected a timeout of more than zero and at most {limit:?} for `{event}`, found {within:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether the application is requested for an event.
    pub(crate) fn is_enabled(&self, event: ProxyEvent) -> bool {
        self.events.contains_key(&event)
    }
}

/// A request to the application.
#[derive(Debug)]
pub struct ProxyRequest {
    /// The event.
    pub event: ProxyEvent,
    /// The body as in Centrifugo's proxy, in JSON: `{"client":"…","transport":"websocket",…}`.
    pub body: Vec<u8>,
    /// The [emulated headers](Proxy::emulated) of the client, with its spelling of their names.
    pub emulated: Rc<BTreeMap<String, String>>,
    /// The timeout of the response.
    pub timeout: Duration,
}

/// A response in JSON of at most [`PROXY_RESPONSE_BYTES`](limits::PROXY_RESPONSE_BYTES): `{"result": …}`, `{"error": …}` or `{"disconnect":
/// …}`.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>, ProxyError>>>>;

/// The reason for a missing response, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProxyError(pub String);

/// The application of one session, on its worker. Each request runs in a task of its own; a worker has at most
/// [`PROXY_REQUESTS_PER_WORKER`](limits::PROXY_REQUESTS_PER_WORKER). A dropped request is cancelled.
pub trait Application {
    /// Sends a request. Nothing is done until the response is polled.
    fn send(&self, request: ProxyRequest) -> ResponseFuture;
}

/// The application for the session of a request. Attached to the request before push receives it:
/// [`Request::extend`](ringmain_web::Request::extend). For a session without one, commands that need the application fail with
/// [`Fault::NOT_AVAILABLE`](ringmain_hub::protocol::Fault::NOT_AVAILABLE).
#[derive(Clone)]
pub struct Backend(pub Rc<dyn Application>);

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Backend")
    }
}
