//! The request that a handler receives, borrowed from the connection's bytes.
//!
//! Owns read access to the request. Knows nothing about how the response is written.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_tls::{Facts, Tls};
use ringmain_wire::h1::{Field, FieldBlock, Known, Method, RequestHead, Version};
use serde::Deserialize;

use crate::app::compiled::{CompiledApp, Hooks, RouteMatch};
use crate::http::client_text;
use crate::http::cookie::Cookies;
use crate::http::error::{Error, Result};
use crate::http::expected_type;
use crate::http::json;
use crate::http::media_type;
use crate::http::negotiation;
use crate::http::query::Query;
use crate::http::request_id::RequestId;
use crate::logging::log_field::{LogField, LogFields};
use crate::logging::redact::{REDACTED_PARAMS, redacted_target};
use crate::router::{ParamNames, Params};
use crate::server::exchange::Exchange;
use crate::server::fast_path::ResponderId;
use crate::server::peer::PeerInfo;
use crate::server::worker_context::WorkerContext;

/// An HTTP request. A plain handler receives it with the whole body; a streaming handler reads the body in chunks.
pub struct Request<'r> {
    pub(crate) head: &'r RequestHead<'r>,
    /// The normalized path that the router matched.
    pub(crate) path: &'r str,
    pub(crate) params: Params,
    pub(crate) body: &'r [u8],
    pub(crate) app: &'r CompiledApp,
    pub(crate) worker: &'r WorkerContext,
    hooks: &'r Hooks,
    id: Option<RequestId>,
    pub(crate) exchange: Option<&'r Exchange>,
    pub(crate) peer: PeerInfo,
    pub(crate) extensions: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
    pub(crate) log_fields: LogFields,
    /// Names of the path parameters.
    names: &'r ParamNames,
    /// Bytes of a streamed body that may still arrive; `None`: only the connection's own limit applies.
    left: Cell<Option<u64>>,
}

impl<'r> Request<'r> {
    #[expect(
        clippy::too_many_arguments,
        reason = "a request is made of these, in two places"
    )]
    pub(crate) fn new(
        head: &'r RequestHead<'r>,
        path: &'r str,
        params: Params,
        body: &'r [u8],
        app: &'r CompiledApp,
        worker: &'r WorkerContext,
        route_match: &RouteMatch<'r>,
        peer: PeerInfo,
        exchange: Option<&'r Exchange>,
    ) -> Request<'r> {
        let id = worker.request_id_for(&head.fields);
        Request {
            id,
            head,
            path,
            params,
            body,
            app,
            worker,
            hooks: route_match.hooks(app),
            exchange,
            peer,
            extensions: RefCell::new(Vec::new()),
            log_fields: LogFields::default(),
            names: app.router.names(),
            left: Cell::new(None),
        }
    }

    /// Returns the same request for a delegate route, with that route's hooks and limit on the bytes of a streamed body.
    pub(crate) fn delegated<'a>(
        &'a self,
        path: &'a str,
        params: Params,
        body: &'a [u8],
        hooks: &'a Hooks,
        body_limit: Option<u64>,
    ) -> Request<'a> {
        let inner = self.app.delegate.as_ref();
        Request {
            head: self.head,
            path,
            params,
            body,
            app: self.app,
            worker: self.worker,
            hooks,
            id: self.id,
            exchange: self.exchange,
            peer: self.peer,
            extensions: RefCell::new(self.extensions.borrow().clone()),
            log_fields: LogFields::default(),
            names: inner.map_or(self.names, |inner| inner.router.names()),
            left: Cell::new(body_limit),
        }
    }

    pub(crate) fn hooks(&self) -> &'r Hooks {
        self.hooks
    }

    /// Returns the head as parsed, for intermediaries that forward it.
    #[must_use]
    pub fn head(&self) -> &'r RequestHead<'r> {
        self.head
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> Method<'r> {
        self.head.method
    }

    /// Returns the path that was matched: decoded once, without dot segments and duplicate slashes. An encoded slash appears as
    /// U+0000, so that it cannot be mistaken for a separator; [`Request::param`] returns it as `/`.
    #[must_use]
    pub fn path(&self) -> &'r str {
        self.path
    }

    /// Returns the target exactly as in the request line.
    #[must_use]
    pub fn target(&self) -> &'r str {
        self.head.target_text
    }

    /// Returns the protocol version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Returns the host, and the port if present, that the client requested (RFC 9110 §7.2).
    #[must_use]
    pub fn host(&self) -> Option<&'r str> {
        self.head.authority.map(|authority| authority.as_str())
    }

    /// Returns the decoded part of the path that `{name}` matched.
    ///
    /// # Errors
    /// 500 if the route has no such parameter. That is a mistake in the program; the log names the parameter.
    pub fn param(&self, name: &str) -> Result<Cow<'r, str>> {
        self.params.get(name, self.names, self.path).ok_or_else(|| {
            Error::internal(format!(
                "the route has no parameter {{{name}}}: check its pattern"
            ))
        })
    }

    /// Parses the part of the path that `{name}` matched, for instance as a number.
    ///
    /// # Errors
    /// 400 if the text does not parse; otherwise as [`Request::param`].
    pub fn param_as<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let text = self.param(name)?;
        text.parse().map_err(|_| {
            let expected = expected_type::describe::<T>().unwrap_or("another value");
            let found = client_text::truncate(&text);
            Error::bad_request(format!(
                "`{name}` in the path: expected {expected}, found `{found}`"
            ))
        })
    }

    /// Returns all path parameters, decoded, in the order of the pattern.
    pub fn params(&self) -> impl Iterator<Item = (&str, Cow<'r, str>)> {
        self.params.iter(self.names, self.path)
    }

    /// Returns the value of the first field with this name; `None` if it is absent or not UTF-8.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'r str> {
        let value = match Known::of(name.as_bytes()) {
            Some(known) => self.head.fields.known(known),
            None => self.head.fields.get(name),
        };
        value.and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns the media type among `offers` that the client prefers (`Accept`, RFC 9110 §12.5.1): the highest quality, then the
    /// most specific range, then the first offer. `None` if the client accepts none (`q=0`, or not listed).
    #[must_use]
    pub fn preferred_type<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        negotiation::preferred(self.head.fields.all_known(Known::Accept), offers)
    }

    /// Returns all fields, as bytes.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = Field<'r>> + use<'r> {
        self.head.fields.iter()
    }

    /// Returns the whole body. Empty for a streaming handler, which reads it with [`Request::chunk`].
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.body
    }

    /// Returns the body as text.
    ///
    /// # Errors
    /// 400 if it is not UTF-8.
    pub fn text(&self) -> Result<&str> {
        str::from_utf8(self.body).map_err(|error| {
            Error::bad_request(format!(
                "expected UTF-8 text, found another byte at {}",
                error.valid_up_to()
            ))
        })
    }

    /// Parses the body as JSON. The client must send a JSON `Content-Type`.
    ///
    /// # Errors
    /// 415 for another content type; 400 if the body is not JSON, does not match the type, or nests too deeply. The error says
    /// where.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        match self.head.fields.known(Known::ContentType) {
            Some(found) if json::is_json(found) => json::read(self.body, self.app.limits().json_depth),
            found => Err(Error::new(
                415,
                format!(
                    "expected `Content-Type: application/json`, found {}",
                    found.map_or_else(
                        || "none".into(),
                        |found| format!("`{}`", client_text::escape_value(found))
                    )
                ),
            )),
        }
    }

    /// Parses the query of the target, the part after `?`; empty if there is none.
    ///
    /// # Errors
    /// 400 if the percent-encoding is invalid or the query has more than [`limits::QUERY_PAIRS`](crate::limits::QUERY_PAIRS) pairs.
    pub fn query(&self) -> Result<Query<'r>> {
        Query::new(self.head.target.query().unwrap_or_default())
    }

    /// Parses the body as a form (`application/x-www-form-urlencoded`).
    ///
    /// # Errors
    /// 415 for another content type; 400 as for [`Request::query`].
    pub fn form(&self) -> Result<Query<'_>> {
        Query::form(self.head.fields.known(Known::ContentType), self.body)
    }

    /// Returns the cookies that the client sent.
    #[must_use]
    pub fn cookies(&self) -> Cookies<'r> {
        Cookies::new(self.head.fields)
    }

    /// Returns the next chunk of the body; `None` after the last, and always in handlers that receive the [whole
    /// body](Request::body). Waits while nothing has arrived. Without reads the queue fills and the client is slowed down.
    ///
    /// # Errors
    /// The client disconnected or violated the protocol (the error names the violation), or the body exceeds its limit (413).
    pub async fn chunk(&self) -> Result<Option<Bytes>> {
        self.chunk_within(&self.left).await
    }

    /// Returns the number of response bytes that the client has taken, up to date at the next call: two calls give a rate. 0 in a
    /// handler that is not asynchronous.
    #[must_use]
    pub fn response_bytes_sent(&self) -> u64 {
        self.exchange.map_or(0, Exchange::bytes_taken)
    }

    /// Returns true once the whole body was received, so that [`Request::chunk`] does not wait. False if the body violated the
    /// protocol.
    #[must_use]
    pub fn is_body_received(&self) -> bool {
        self.exchange.is_none_or(Exchange::is_body_complete)
    }

    /// Returns the next chunk of the body and subtracts its length from `left`; fails with 413 when the body exceeds it. `None`:
    /// only the connection's own limit applies.
    pub(crate) async fn chunk_within(&self, left: &Cell<Option<u64>>) -> Result<Option<Bytes>> {
        let Some(exchange) = self.exchange else {
            return Ok(None);
        };
        let piece = exchange.chunk().await?;
        if let (Some(piece), Some(limit)) = (&piece, left.get()) {
            let rest = limit.checked_sub(piece.len() as u64);
            left.set(Some(rest.ok_or_else(|| {
                Error::new(413, "request body is longer than this route allows")
            })?));
        }
        Ok(piece)
    }

    /// Returns true if the client waits for `100 Continue` (RFC 9110 §10.1.1) and has sent none of its body. [`Request::chunk`]
    /// sends the 100; an intermediary relays it with [`Reply::send_interim`](crate::Reply::send_interim).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.exchange.is_some_and(Exchange::expects_continue)
    }

    /// Returns true if the client has sent its last byte: it has shut down its side of the connection, or closed it. Those that only shut
    /// down their side still read the response. On HTTP/2 only of the connection as a whole.
    #[must_use]
    pub fn has_client_ended(&self) -> bool {
        self.exchange.is_some_and(Exchange::has_client_ended)
    }

    /// As [`Request::has_client_ended`]; otherwise wakes the task of `context`, which must be that of the handler, when the client ends.
    pub fn poll_client_ended(&self, context: &Context<'_>) -> Poll<()> {
        match self.exchange {
            Some(exchange) if exchange.has_client_ended() => Poll::Ready(()),
            Some(exchange) => exchange.wait(context),
            None => Poll::Pending,
        }
    }

    /// Waits until the client of a request that [expects `100 Continue`](Request::expects_continue) sends its body, or until the
    /// 100 was sent. Never completes once the final response has started: the client may then send no body.
    pub async fn body_started(&self) {
        if let Some(exchange) = self.exchange {
            exchange.body_started().await;
        }
    }

    /// Exempts a streamed body from the minimum rate ([`Limits::rate_bytes`](crate::Limits::rate_bytes)), for clients that have
    /// nothing to send at times. The handler must bound the wait itself. A chunk's size line and the trailers must still be
    /// complete within [`Limits::header_timeout`](crate::Limits::header_timeout) of their first byte; later: 408.
    pub fn disable_body_rate(&self) {
        if let Some(exchange) = self.exchange {
            exchange.disable_body_rate();
        }
    }

    /// Sets the minimum rate in bytes per second for this request's streamed body and for its response, in place of
    /// [`Limits::rate_bytes`](crate::Limits::rate_bytes). 0: no minimum.
    pub fn set_minimum_rate(&self, bytes: u32) {
        if let Some(exchange) = self.exchange {
            exchange.set_minimum_rate(bytes);
        }
    }

    /// Takes the trailer fields of the body (RFC 9110 §6.5). For streaming handlers, after the last [chunk](Request::chunk); a
    /// second call returns none. Trailers are not merged into the head and must not be treated as its fields.
    #[must_use]
    pub fn trailers(&self) -> FieldBlock {
        self.exchange.map(Exchange::trailers).unwrap_or_default()
    }

    /// Returns true if the client accepts trailers, so that [`Reply::trailer`](crate::Reply::trailer) reaches it: every HTTP/2
    /// client, and an HTTP/1.1 client that sends `TE: trailers` (RFC 9110 §10.1.4).
    #[must_use]
    pub fn accepts_trailers(&self) -> bool {
        let mut members = self
            .head
            .fields
            .all_known(Known::Te)
            .flat_map(|value| value.split(|&byte| byte == b','));
        match self.head.version {
            Version::Http2 => true,
            Version::Http11 => {
                members.any(|member| media_type::essence(member).eq_ignore_ascii_case(b"trailers"))
            }
            Version::Http10 => false,
        }
    }

    /// Returns the shared state of this type, registered with [`App::state`](crate::App::state).
    ///
    /// # Errors
    /// 500 if there is none. That is a mistake in the program; the log names the type.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&'r T> {
        self.app.state().ok_or_else(|| missing::<T>("App::state"))
    }

    /// Returns this worker's own state of this type, built by [`App::per_worker`](crate::App::per_worker). No other thread has
    /// access: a `RefCell` or `Cell` inside needs no lock.
    ///
    /// # Errors
    /// 500 if there is none. That is a mistake in the program; the log names the type.
    pub fn local<T: 'static>(&self) -> Result<&'r T> {
        self.worker.state().ok_or_else(|| missing::<T>("App::per_worker"))
    }

    /// Stores a value for later hooks and the handler, for instance the authenticated user. One value per type; a second replaces
    /// the first.
    pub fn extend<T: 'static>(&self, value: T) {
        let mut extensions = self.extensions.borrow_mut();
        extensions.retain(|(id, _)| *id != TypeId::of::<T>());
        extensions.push((TypeId::of::<T>(), Rc::new(value)));
    }

    /// Returns the value that [`Request::extend`] stored.
    ///
    /// # Errors
    /// 500 if there is none of this type. That is a mistake in the program; the log names the type.
    pub fn extension<T: 'static>(&self) -> Result<Rc<T>> {
        let extensions = self.extensions.borrow();
        let found = extensions.iter().find(|(id, _)| *id == TypeId::of::<T>());
        let value = found.and_then(|(_, value)| Rc::clone(value).downcast().ok());
        value.ok_or_else(|| missing::<T>("Request::extend in a hook before this"))
    }

    /// Adds a value to this request's line in the access log, once per name: a member in JSON, a field in a
    /// [`Template`](crate::access_log::Template). Discarded without an access log, and beyond
    /// [`limits::LOG_FIELDS`](crate::limits::LOG_FIELDS) names.
    pub fn log_field(&self, name: &'static str, value: LogField) {
        if self.is_logged() {
            self.log_fields.set(name, value);
        }
    }

    /// Returns true if there is an access log, so that log fields are retained.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.worker.access.is_some()
    }

    /// Sets the client address that the access log shows in place of the connection's, for clients behind trusted proxies.
    pub fn log_client(&self, client: std::net::IpAddr) {
        self.log_fields.set_client(client);
    }

    /// Returns the request's id; `None` without [`App::request_ids`](crate::App::request_ids).
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// Returns the number of the listener that accepted the connection, from 0, in the order of the calls of
    /// [`Engine::listen`](ringmain_engine::Engine::listen).
    #[must_use]
    pub fn listener(&self) -> u32 {
        self.peer.listener
    }

    /// Returns `https` on an encrypted connection, else `http`. A proxy in front may have terminated TLS; that is unknown here.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.peer.secure { "https" } else { "http" }
    }

    /// Returns the negotiated TLS parameters (version, names, client certificates); `None` on an unencrypted or closed connection.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<Facts>> {
        let conn = self.worker.cx.conn(self.peer.conn);
        conn.layer(|tls: &mut Tls| tls.session().shared_facts()).flatten()
    }

    /// Returns the id of the request's connection, for features that this crate does not offer. Bytes written to it would be mixed
    /// with responses.
    #[must_use]
    pub fn connection(&self) -> ringmain_engine::ConnId {
        self.peer.conn
    }

    /// Returns the id that identifies this request among the worker's requests until its response is complete; the same as that of
    /// its [`Responder`](crate::Responder). `None` in a handler that is not asynchronous.
    #[must_use]
    pub fn responder_id(&self) -> Option<ResponderId> {
        self.exchange.map(ResponderId::of)
    }

    /// Returns the client's address; `None` on a Unix socket. Behind a proxy it is the proxy's.
    #[must_use]
    pub fn remote(&self) -> Option<std::net::SocketAddr> {
        self.peer.remote
    }

    /// Returns the handle of the worker that runs this request, for timers, connections, blocking work and files.
    #[must_use]
    pub fn cx(&self) -> &'r Cx {
        &self.worker.cx
    }

    /// Returns the application that serves this request.
    #[must_use]
    pub fn app(&self) -> &'r CompiledApp {
        self.app
    }
}

#[cold]
fn missing<T>(hint: &str) -> Error {
    Error::internal(format!(
        "no value of type {}: expected one from {hint}",
        std::any::type_name::<T>()
    ))
}

/// Omits tokens, as logs do.
impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let declared = self.app.redacted.names();
        let names: Vec<&str> = REDACTED_PARAMS
            .into_iter()
            .chain(declared.iter().map(|name| &**name))
            .collect();
        let target = redacted_target(self.head.target_text.as_bytes(), &names);
        let target = String::from_utf8_lossy(&target);
        write!(f, "{} {target}", self.head.method.as_str())?;
        match &self.id {
            Some(id) => write!(f, " ({id})"),
            None => Ok(()),
        }
    }
}
