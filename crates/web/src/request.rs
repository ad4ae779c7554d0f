//! What a handler is told: one request, borrowed from the connection's bytes.
//!
//! Reads only. Knows nothing of how it will be answered.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_tls::{Facts, Tls};
use ringmain_wire::h1::{Field, FieldBlock, Known, Method, RequestHead, Version};
use serde::Deserialize;

use crate::cookie::Cookies;
use crate::error::{Error, Result};
use crate::hidden::{HIDDEN, scrubbed};
use crate::json;
use crate::local::Local;
use crate::media_type;
use crate::note::{Note, Notes};
use crate::origin::Origin;
use crate::query::Query;
use crate::request_id::RequestId;
use crate::router::{Names, Params};
use crate::server::early::TicketId;
use crate::server::exchange::Exchange;
use crate::site::{Hooks, Site, Verdict};
use crate::text;
use crate::{accept, expected};

/// One request. For a plain handler its whole body is there; a streaming handler reads it piece by piece.
pub struct Request<'r> {
    pub(crate) head: &'r RequestHead<'r>,
    /// Normalised: what was matched.
    pub(crate) path: &'r str,
    pub(crate) params: Params,
    pub(crate) body: &'r [u8],
    pub(crate) site: &'r Site,
    pub(crate) local: &'r Local,
    hooks: &'r Hooks,
    id: Option<RequestId>,
    pub(crate) exchange: Option<&'r Exchange>,
    pub(crate) origin: Origin,
    pub(crate) extensions: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
    pub(crate) notes: Notes,
    /// Of parameters.
    names: &'r Names,
    /// Bytes of a streamed body that may still come; `None`: as the connection has it.
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
        site: &'r Site,
        local: &'r Local,
        verdict: &Verdict<'r>,
        origin: Origin,
        exchange: Option<&'r Exchange>,
    ) -> Request<'r> {
        let id = local.id_of(&head.fields);
        Request {
            id,
            head,
            path,
            params,
            body,
            site,
            local,
            hooks: verdict.hooks(site),
            exchange,
            origin,
            extensions: RefCell::new(Vec::new()),
            notes: Notes::default(),
            names: site.router.names(),
            left: Cell::new(None),
        }
    }

    /// The same request as an inner route sees it: with its own hooks, and so many bytes of a streamed body at most.
    pub(crate) fn inside<'a>(
        &'a self,
        path: &'a str,
        params: Params,
        body: &'a [u8],
        (hooks, most): (&'a Hooks, Option<u64>),
    ) -> Request<'a> {
        let inner = self.site.inner.as_ref();
        Request {
            head: self.head,
            path,
            params,
            body,
            site: self.site,
            local: self.local,
            hooks,
            id: self.id,
            exchange: self.exchange,
            origin: self.origin,
            extensions: RefCell::new(self.extensions.borrow().clone()),
            notes: Notes::default(),
            names: inner.map_or(self.names, |inner| inner.router.names()),
            left: Cell::new(most),
        }
    }

    pub(crate) fn hooks(&self) -> &'r Hooks {
        self.hooks
    }

    /// The head as it was parsed: for intermediaries, which pass it on.
    #[must_use]
    pub fn head(&self) -> &'r RequestHead<'r> {
        self.head
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method<'r> {
        self.head.method
    }

    /// The path as it was matched: decoded once, without dot segments and doubled slashes. An encoded slash
    /// stands as U+0000 here, so that it cannot be taken for a separator; [`Request::param`] gives it back as `/`.
    #[must_use]
    pub fn path(&self) -> &'r str {
        self.path
    }

    /// The target as it stood in the request line.
    #[must_use]
    pub fn target(&self) -> &'r str {
        self.head.target_text
    }

    /// The protocol version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// Host and perhaps port that the client asked (RFC 9110 §7.2).
    #[must_use]
    pub fn host(&self) -> Option<&'r str> {
        self.head.authority.map(|authority| authority.as_str())
    }

    /// The part of the path that stands at `{name}`, decoded.
    ///
    /// # Errors
    /// 500 if the route has no such parameter: a mistake of the program, which the log names.
    pub fn param(&self, name: &str) -> Result<Cow<'r, str>> {
        self.params.get(name, self.names, self.path).ok_or_else(|| {
            Error::internal(format!(
                "the route has no parameter {{{name}}}: check its pattern"
            ))
        })
    }

    /// The part of the path at `{name}` as a number or another type that reads from text.
    ///
    /// # Errors
    /// 400 if the text is none; as [`Request::param`].
    pub fn param_as<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let text = self.param(name)?;
        text.parse().map_err(|_| {
            let expected = expected::of_type::<T>().unwrap_or("another value");
            let found = text::cut(&text);
            Error::bad_request(format!(
                "`{name}` in the path: expected {expected}, found `{found}`"
            ))
        })
    }

    /// All parameters of the path in the order of the pattern, decoded.
    pub fn params(&self) -> impl Iterator<Item = (&str, Cow<'r, str>)> {
        self.params.iter(self.names, self.path)
    }

    /// The value of the first field of that name, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'r str> {
        let value = match Known::of(name.as_bytes()) {
            Some(known) => self.head.fields.known(known),
            None => self.head.fields.get(name),
        };
        value.and_then(|value| str::from_utf8(value).ok())
    }

    /// Returns the media type among `offers` that the client prefers (`Accept`, RFC 9110 §12.5.1): the highest quality, among
    /// equals the one that it named most closely, then the first. `None` if it takes none of them (`q=0`, or not named).
    #[must_use]
    pub fn preferred_type<'o>(&self, offers: &[&'o str]) -> Option<&'o str> {
        accept::preferred(self.head.fields.all_known(Known::Accept), offers)
    }

    /// All fields, as bytes.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = Field<'r>> + use<'r> {
        self.head.fields.iter()
    }

    /// The body, whole. Empty for a streaming handler, which [reads](Request::chunk) it.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.body
    }

    /// The body as text.
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

    /// The body as JSON. The client must say so in `Content-Type`.
    ///
    /// # Errors
    /// 415 for another content type; 400 for what is no JSON, not of this type, or nests too deep: the error says
    /// where.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        match self.head.fields.known(Known::ContentType) {
            Some(found) if json::is_json(found) => json::read(self.body, self.site.limits().json_depth),
            found => Err(Error::new(
                415,
                format!(
                    "expected `Content-Type: application/json`, found {}",
                    found.map_or_else(|| "none".into(), |found| format!("`{}`", text::shown(found)))
                ),
            )),
        }
    }

    /// The query of the target, the part behind `?`; empty if there is none.
    ///
    /// # Errors
    /// 400 if it is not well escaped or has too many pairs.
    pub fn query(&self) -> Result<Query<'r>> {
        Query::new(self.head.target.query().unwrap_or_default())
    }

    /// The body as a form (`application/x-www-form-urlencoded`).
    ///
    /// # Errors
    /// 415 for another content type; 400 as [`Request::query`].
    pub fn form(&self) -> Result<Query<'_>> {
        Query::form(self.head.fields.known(Known::ContentType), self.body)
    }

    /// The cookies that the client sends.
    #[must_use]
    pub fn cookies(&self) -> Cookies<'r> {
        Cookies::new(self.head.fields)
    }

    /// The next piece of the body; `None` after the last. For streaming handlers; for others there is none, their
    /// body is [whole](Request::body). Waits while nothing has arrived; the client is slowed down while nobody reads.
    ///
    /// # Errors
    /// The client broke off or broke a rule (what is wrong is in the error), or the body exceeds its limit (413).
    pub async fn chunk(&self) -> Result<Option<Bytes>> {
        self.chunk_within(&self.left).await
    }

    /// Returns a count that grows with each byte of the response that the client takes, up to date at the next call: two of them tell a
    /// rate. 0 in a handler that is not asynchronous.
    #[must_use]
    pub fn response_bytes_taken(&self) -> u64 {
        self.exchange.map_or(0, Exchange::taken)
    }

    /// Whether all of the body was received: its pieces are taken without waiting. False once it broke a rule.
    #[must_use]
    pub fn is_body_received(&self) -> bool {
        self.exchange.is_none_or(Exchange::body_is_over)
    }

    /// The same, as long as all of it is no longer than what is `left` (`None`: as the connection has it).
    pub(crate) async fn chunk_within(&self, left: &Cell<Option<u64>>) -> Result<Option<Bytes>> {
        let Some(exchange) = self.exchange else {
            return Ok(None);
        };
        let piece = exchange.chunk().await?;
        if let (Some(piece), Some(most)) = (&piece, left.get()) {
            let rest = most.checked_sub(piece.len() as u64);
            left.set(Some(rest.ok_or_else(|| {
                Error::new(413, "expected a shorter body: this is more than is taken here")
            })?));
        }
        Ok(piece)
    }

    /// Whether the client waits for `100 Continue` (RFC 9110 §10.1.1) and has sent nothing of its body. [`Request::chunk`] sends it that;
    /// an intermediary relays it by [`Reply::interim`](crate::Reply::interim).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.exchange.is_some_and(Exchange::expects_continue)
    }

    /// Waits until the client of a request that [expects `100 Continue`](Request::expects_continue) sends its body, or was told to.
    /// Never ends if the final response began before: then the client may send none.
    pub async fn body_begins(&self) {
        if let Some(exchange) = self.exchange {
            exchange.body_begins().await;
        }
    }

    /// Exempts a streamed body from the minimum rate ([`Limits::rate_bytes`](crate::Limits::rate_bytes)): its client has nothing to send at
    /// times. The handler must bound the wait itself. A chunk's size line and the trailers must be whole within
    /// [`Limits::header_timeout`](crate::Limits::header_timeout) of their first byte all the same: 408.
    pub fn wait_patiently(&self) {
        if let Some(exchange) = self.exchange {
            exchange.wait_patiently();
        }
    }

    /// Sets the bytes a second that this request's streamed body must bring and its response must be taken at, in place of
    /// [`Limits::rate_bytes`](crate::Limits::rate_bytes). 0: any number.
    pub fn set_minimum_rate(&self, bytes: u32) {
        if let Some(exchange) = self.exchange {
            exchange.set_minimum_rate(bytes);
        }
    }

    /// The fields that came behind the body (RFC 9110 §6.5): for streaming handlers, once the last [piece](Request::chunk) was
    /// taken; the second call has none. They were not merged into the head and must not be taken for it.
    #[must_use]
    pub fn trailers(&self) -> FieldBlock {
        self.exchange.map(Exchange::trailers).unwrap_or_default()
    }

    /// Whether the client reads fields behind the answer's body: then [`Reply::trailer`](crate::Reply::trailer) reaches it. By HTTP/2
    /// each does; by HTTP/1.1 who says so (RFC 9110 §10.1.4).
    #[must_use]
    pub fn takes_trailers(&self) -> bool {
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

    /// Shared state of that type, given to the application by [`App::state`](crate::App::state).
    ///
    /// # Errors
    /// 500 if there is none: a mistake of the program, which the log names.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&'r T> {
        self.site.state().ok_or_else(|| missing::<T>("App::state"))
    }

    /// This worker's own state of that type, made by [`App::per_worker`](crate::App::per_worker). No other
    /// thread sees it: a `RefCell` or `Cell` inside needs no lock.
    ///
    /// # Errors
    /// 500 if there is none: a mistake of the program, which the log names.
    pub fn local<T: 'static>(&self) -> Result<&'r T> {
        self.local.state().ok_or_else(|| missing::<T>("App::per_worker"))
    }

    /// Leaves a value for later hooks and the handler, one of each type: who was authenticated, for instance.
    pub fn extend<T: 'static>(&self, value: T) {
        let mut extensions = self.extensions.borrow_mut();
        extensions.retain(|(id, _)| *id != TypeId::of::<T>());
        extensions.push((TypeId::of::<T>(), Rc::new(value)));
    }

    /// What [`Request::extend`] left.
    ///
    /// # Errors
    /// 500 if nothing of that type was left: a mistake of the program, which the log names.
    pub fn extension<T: 'static>(&self) -> Result<Rc<T>> {
        let extensions = self.extensions.borrow();
        let found = extensions.iter().find(|(id, _)| *id == TypeId::of::<T>());
        let value = found.and_then(|(_, value)| Rc::clone(value).downcast().ok());
        value.ok_or_else(|| missing::<T>("Request::extend in a hook before this"))
    }

    /// Has the access log say something of this request, once for each name: a member of its JSON, a field of a
    /// [`Template`](crate::access_log::Template). Without an access log, and beyond [`limits::NOTES`](crate::limits::NOTES)
    /// names, nothing is kept.
    pub fn note(&self, name: &'static str, note: Note) {
        if self.is_logged() {
            self.notes.put(name, note);
        }
    }

    /// Whether what is noted is kept: there is an access log.
    #[must_use]
    pub fn is_logged(&self) -> bool {
        self.local.access.is_some()
    }

    /// Has the access log say that this is the client's address, and not the connection's: behind proxies that are believed.
    pub fn note_client(&self, client: std::net::IpAddr) {
        self.notes.put_client(client);
    }

    /// The request's id, if the application gives them ([`App::request_ids`](crate::App::request_ids)).
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// The number of the listener by which it came, in the order in which the engine was given them
    /// ([`Engine::listen`](ringmain_engine::Engine::listen)), from 0.
    #[must_use]
    pub fn listener(&self) -> u32 {
        self.origin.listener
    }

    /// `https` if it came encrypted, else `http`. What a proxy in front did is not known here.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.origin.secure { "https" } else { "http" }
    }

    /// What its connection's TLS agreed on (version, names, client certificates); `None` for one in the clear, and for one that
    /// is over.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<Facts>> {
        let conn = self.local.cx.conn(self.origin.conn);
        conn.layer(|tls: &mut Tls| tls.session().shared_facts()).flatten()
    }

    /// The connection on which it came: for what this crate does not offer. Writing to it would mix with answers.
    #[must_use]
    pub fn connection(&self) -> ringmain_engine::ConnId {
        self.origin.conn
    }

    /// What tells it from the worker's other requests until it is answered, as its [`Ticket`](crate::Ticket) did if somebody had that;
    /// `None` in a handler that is not asynchronous.
    #[must_use]
    pub fn ticket(&self) -> Option<TicketId> {
        self.exchange.map(TicketId::of)
    }

    /// The client's address; `None` on a Unix socket. Behind a proxy it is the proxy's.
    #[must_use]
    pub fn remote(&self) -> Option<std::net::SocketAddr> {
        self.origin.remote
    }

    /// The worker that runs this: sleeping, connecting, blocking work, files.
    #[must_use]
    pub fn cx(&self) -> &'r Cx {
        &self.local.cx
    }

    /// The application that answers this.
    #[must_use]
    pub fn site(&self) -> &'r Site {
        self.site
    }
}

#[cold]
fn missing<T>(how: &str) -> Error {
    Error::internal(format!(
        "no value of type {}: expected one from {how}",
        std::any::type_name::<T>()
    ))
}

/// As logs show it: without tokens.
impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let declared = self.site.redacted.names();
        let names: Vec<&str> = HIDDEN
            .into_iter()
            .chain(declared.iter().map(|name| &**name))
            .collect();
        let target = scrubbed(self.head.target_text.as_bytes(), &names);
        let target = String::from_utf8_lossy(&target);
        write!(f, "{} {target}", self.head.method.as_str())?;
        match &self.id {
            Some(id) => write!(f, " ({id})"),
            None => Ok(()),
        }
    }
}
