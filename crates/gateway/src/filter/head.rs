//! Heads of requests and responses, as filters read and change them.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_web::{LogField, Request};
use ringmain_wire::h1::{FieldBlock, Framing, allows_content};

use super::{BodyAccess, FilterError};
use crate::model::{HeaderName, Name};
use crate::proxy::eq_folded;

/// Names that frame a message or belong to a connection, besides those that a [`FieldBlock`] rejects.
const CONNECTION: [&str; 7] = [
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
];

/// Rejects names of fields that the gateway writes itself.
pub(super) fn check_name(name: &str) -> Result<(), FilterError> {
    if CONNECTION.iter().any(|own| eq_folded(name.as_bytes(), own)) {
        let reason = "it frames the message or belongs to the connection: the gateway writes it";
        return Err(format!("the header `{name}` cannot be changed by a filter: {reason}").into());
    }
    Ok(())
}

fn push(block: &mut FieldBlock, name: &str, value: &[u8]) -> Result<(), FilterError> {
    check_name(name)?;
    let pushed = block.push(name, value);
    pushed.map_err(|misuse| format!("the header `{}`: {misuse}", name.escape_debug()).into())
}

/// Facts about a request that its head does not contain.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) route: Name,
    pub(crate) client: Option<IpAddr>,
    pub(crate) identity: Option<Arc<str>>,
    /// The path that the rule was matched with, if it differs from the request's own.
    pub(crate) path: Option<Rc<str>>,
}

/// A request and its context.
pub struct RequestInfo<'h> {
    pub(crate) req: &'h Request<'h>,
    pub(crate) whose: &'h RequestContext,
}

impl<'h> RequestInfo<'h> {
    /// Returns the worker's context: time, random numbers, sleeping, connecting, files, blocking work.
    #[must_use]
    pub fn cx(&self) -> &'h Cx {
        self.req.cx()
    }

    /// Returns the method as received.
    #[must_use]
    pub fn method(&self) -> &'h str {
        self.req.method().as_str()
    }

    /// Returns the path that the rule was matched with: decoded once, without dot segments; an encoded slash is U+0000.
    #[must_use]
    pub fn path(&self) -> &'h str {
        self.whose.path.as_deref().unwrap_or_else(|| self.req.path())
    }

    /// Returns path and query as the client sent them.
    #[must_use]
    pub fn target(&self) -> &'h str {
        self.req.target()
    }

    /// Returns the requested host, with its port if there is one.
    #[must_use]
    pub fn host(&self) -> Option<&'h str> {
        self.req.host()
    }

    /// Returns whether the request was received over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.req.scheme() == "https"
    }

    /// Returns the client's address, as the listener's `client_address` determines it; `None` on a Unix socket.
    #[must_use]
    pub fn client(&self) -> Option<IpAddr> {
        self.whose.client
    }

    /// Returns the identity of the client, if a policy of the rule has established one.
    #[must_use]
    pub fn identity(&self) -> Option<&'h str> {
        self.whose.identity.as_deref()
    }

    /// Returns the name of the matched route.
    #[must_use]
    pub fn route(&self) -> &'h str {
        &self.whose.route
    }

    /// Adds a field to the access log entry of this request, once for each name.
    pub fn note(&self, name: &'static str, note: LogField) {
        self.req.log_field(name, note);
    }
}

impl std::fmt::Debug for RequestInfo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} by route `{}`", self.req, self.whose.route)
    }
}

/// The changes of filters to a request head. They apply after those of the configuration.
#[derive(Debug, Default)]
pub(crate) struct FilterEdits {
    dropped: Vec<Box<str>>,
    added: FieldBlock,
    /// Path and query.
    pub(crate) target: Option<String>,
    pub(crate) host: Option<String>,
    /// The framing of the body that the filters leave.
    pub(crate) framing: Option<Framing>,
}

impl FilterEdits {
    /// Returns whether a field from elsewhere is dropped. A name with `_` in place of `-` counts as the same, since some programs treat
    /// both alike.
    pub(crate) fn drops(&self, name: &[u8]) -> bool {
        self.dropped.iter().any(|dropped| eq_folded(name, dropped))
    }

    /// Returns the fields that filters add.
    pub(crate) fn added(&self) -> &FieldBlock {
        &self.added
    }

    /// Returns the fields of a block that are not dropped.
    pub(crate) fn left<'b>(&'b self, block: &'b FieldBlock) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        block.iter().filter(|(name, _)| !self.drops(name.as_bytes()))
    }

    /// Removes from the trailers the fields that filters have set or removed in the head.
    pub(crate) fn sift(&self, trailers: &mut FieldBlock) {
        self.dropped.iter().for_each(|name| trailers.remove(name));
    }

    fn remove(&mut self, name: &str) {
        self.added.remove(name);
        if !self.drops(name.as_bytes()) {
            self.dropped.push(name.into());
        }
    }
}

/// The head of a request, before it is forwarded.
pub struct RequestHead<'h> {
    pub(crate) about: &'h RequestInfo<'h>,
    /// Fields that policies have written.
    pub(crate) written: &'h FieldBlock,
    /// Fields of the client that policies remove.
    pub(crate) hidden: &'h [HeaderName],
    pub(crate) edits: &'h mut FilterEdits,
    pub(crate) want: BodyAccess,
}

impl<'h> RequestHead<'h> {
    /// Returns the request that it belongs to.
    #[must_use]
    pub fn about(&self) -> &'h RequestInfo<'h> {
        self.about
    }

    /// Returns all fields: the client's, without those that policies remove, and those that policies and filters have written. The
    /// gateway's own fields (`X-Forwarded-For`, `Via`) and the edits of the configuration are applied later and are not included.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let hidden = |name: &str| {
            self.hidden
                .iter()
                .any(|own| eq_folded(name.as_bytes(), own.as_str()))
        };
        let sent = self.about.req.headers().filter_map(|field| {
            // Names are tokens, and so UTF-8.
            let name = str::from_utf8(field.name).ok()?;
            Some((name, field.value))
        });
        let sent = sent.filter(move |(name, _)| !hidden(name) && !self.edits.drops(name.as_bytes()));
        sent.chain(self.edits.left(self.written))
            .chain(self.edits.added().iter())
    }

    /// Returns the value of the first field of this name, which is case-insensitive.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Sets a field, replacing all of this name.
    ///
    /// # Errors
    /// The name is not a token, or the gateway writes the field itself (`Host`, `Content-Length`, `Connection` and the like); the value has
    /// control characters. The head is unchanged then.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FilterError> {
        let mut one = FieldBlock::new();
        push(&mut one, name, value.as_ref())?;
        self.edits.remove(name);
        self.edits.added.append(&one);
        Ok(())
    }

    /// Adds a field, next to others of this name.
    ///
    /// # Errors
    /// As [`RequestHead::set`].
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FilterError> {
        push(&mut self.edits.added, name, value.as_ref())
    }

    /// Removes all fields of this name, from whichever source.
    pub fn remove(&mut self, name: &str) {
        self.edits.remove(name);
    }

    /// Replaces the path and query that the upstream receives, overriding the configuration. The matched rule does not change.
    ///
    /// # Errors
    /// The target does not begin with `/`, or has bytes that no target has: spaces, `#`, anything but visible ASCII.
    pub fn set_target(&mut self, target: &str) -> Result<(), FilterError> {
        let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !target.starts_with('/') || !is_plain {
            let found = target.escape_debug();
            return Err(
                format!("expected a path and query, escaped, that begin with `/`, found `{found}`").into(),
            );
        }
        self.edits.target = Some(target.to_owned());
        Ok(())
    }

    /// Replaces the `Host` that the upstream receives, overriding the configuration. The upstream does not change.
    ///
    /// # Errors
    /// It is not a host, with or without a port.
    pub fn set_host(&mut self, host: &str) -> Result<(), FilterError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_plain) {
            return Err(format!("expected a host, found `{}`", host.escape_debug()).into());
        }
        self.edits.host = Some(host.to_owned());
        Ok(())
    }

    /// Returns whether the request has a body, possibly an empty one. A filter cannot add a body to a request without one.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.about.req.head().framing != Framing::None
    }

    /// Requests that the body be passed to [`request_body`](super::Filter::request_body), if there is one and it is read: if it is
    /// forwarded to an upstream, or in any case with [`BodyAccess::Buffer`].
    pub fn want_body(&mut self, want: BodyAccess) {
        self.want = want;
    }
}

impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestHead of {:?}", self.about)
    }
}

/// The head of a response, before it is sent to the client.
pub struct ResponseHead<'h> {
    pub(crate) about: &'h RequestInfo<'h>,
    pub(crate) status: u16,
    pub(crate) fields: FieldBlock,
    pub(crate) is_own: bool,
    /// Set if it has, or could have, a body.
    pub(crate) has_body: bool,
    pub(crate) want: BodyAccess,
    /// Names that were set or removed, which trailers must not contain.
    pub(crate) dropped: Vec<Box<str>>,
}

impl<'h> ResponseHead<'h> {
    /// Returns the request that it responds to.
    #[must_use]
    pub fn about(&self) -> &'h RequestInfo<'h> {
        self.about
    }

    /// Returns whether the gateway produced the response: by the rule, for a fault, or by another filter.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Sets the status, 200 to 599.
    ///
    /// # Errors
    /// It is out of range, or a status without a body (204, 205, 304) although there is a body.
    pub fn set_status(&mut self, status: u16) -> Result<(), FilterError> {
        if !(200..=599).contains(&status) {
            return Err(format!("expected a status from 200 to 599, found {status}").into());
        }
        if !allows_content(status) && self.has_body {
            return Err(format!("expected a status of an answer with a body, found {status}").into());
        }
        self.status = status;
        Ok(())
    }

    /// Returns all fields but those of the connection and the framing.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter()
    }

    /// Returns the value of the first field of this name, which is case-insensitive.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Sets a field, replacing all of this name.
    ///
    /// # Errors
    /// As [`RequestHead::set`].
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FilterError> {
        let mut one = FieldBlock::new();
        push(&mut one, name, value.as_ref())?;
        self.remove(name);
        self.fields.append(&one);
        Ok(())
    }

    /// Adds a field, next to others of this name.
    ///
    /// # Errors
    /// As [`RequestHead::set`].
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FilterError> {
        push(&mut self.fields, name, value.as_ref())
    }

    /// Removes all fields of this name.
    pub fn remove(&mut self, name: &str) {
        self.fields.remove(name);
        self.dropped.push(name.into());
    }

    /// Returns whether the response has a body, possibly an empty one: not for HEAD, 204 and 304.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// Requests that the body be passed to [`response_body`](super::Filter::response_body), if there is one. A filter that changes it
    /// removes the fields that describe the original bytes (`ETag`, `Content-Digest`, `Accept-Ranges`); the gateway handles
    /// `Content-Length`.
    pub fn want_body(&mut self, want: BodyAccess) {
        self.want = want;
    }
}

impl std::fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResponseHead {} of {:?}", self.status, self.about)
    }
}
