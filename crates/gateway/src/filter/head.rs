//! Heads of requests and answers, as filters see and change them.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_web::{Note, Request};
use ringmain_wire::h1::{FieldBlock, Framing, allows_content};

use super::{Error, Want};
use crate::exchange::is_folded;
use crate::model::{HeaderName, Name};

/// Names that frame a message or belong to a connection, beside those that are refused where fields are written.
const CONNECTION: [&str; 7] = [
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
];

/// Refuses names that are the gateway's own to write.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    if CONNECTION.iter().any(|own| is_folded(name.as_bytes(), own)) {
        let why = "it frames the message or belongs to the connection: the gateway writes it";
        return Err(format!("the header `{name}` cannot be changed by a filter: {why}").into());
    }
    Ok(())
}

fn push(block: &mut FieldBlock, name: &str, value: &[u8]) -> Result<(), Error> {
    check_name(name)?;
    let pushed = block.push(name, value);
    pushed.map_err(|misuse| format!("the header `{}`: {misuse}", name.escape_debug()).into())
}

/// What is known of a request beside what it says.
#[derive(Debug)]
pub(crate) struct Whose {
    pub(crate) route: Name,
    pub(crate) client: Option<IpAddr>,
    pub(crate) identity: Option<Arc<str>>,
    /// The path that the rule was found by, where that is not the request's own.
    pub(crate) path: Option<Rc<str>>,
}

/// A request and where it belongs.
pub struct About<'h> {
    pub(crate) req: &'h Request<'h>,
    pub(crate) whose: &'h Whose,
}

impl<'h> About<'h> {
    /// The worker: its time, random numbers, sleeping, connecting, files, blocking work.
    #[must_use]
    pub fn cx(&self) -> &'h Cx {
        self.req.cx()
    }

    /// The method, as it came.
    #[must_use]
    pub fn method(&self) -> &'h str {
        self.req.method().as_str()
    }

    /// The path in the form by which a rule was found: decoded once, without dot segments; an encoded slash stands as U+0000.
    #[must_use]
    pub fn path(&self) -> &'h str {
        self.whose.path.as_deref().unwrap_or_else(|| self.req.path())
    }

    /// Path and query as the client has written them.
    #[must_use]
    pub fn target(&self) -> &'h str {
        self.req.target()
    }

    /// Host and perhaps port that the client asks for.
    #[must_use]
    pub fn host(&self) -> Option<&'h str> {
        self.req.host()
    }

    /// Whether it came by TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.req.scheme() == "https"
    }

    /// The client's address, as the listener's `client_address` has it; `None` on a Unix socket.
    #[must_use]
    pub fn client(&self) -> Option<IpAddr> {
        self.whose.client
    }

    /// Who asks, as far as a policy of the rule has found out.
    #[must_use]
    pub fn identity(&self) -> Option<&'h str> {
        self.whose.identity.as_deref()
    }

    /// The name of the route that has taken it.
    #[must_use]
    pub fn route(&self) -> &'h str {
        &self.whose.route
    }

    /// Has the access log say something of this request, once for each name.
    pub fn note(&self, name: &'static str, note: Note) {
        self.req.note(name, note);
    }
}

impl std::fmt::Debug for About<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} by route `{}`", self.req, self.whose.route)
    }
}

/// What filters have changed of a request's head. It comes last, whatever a configuration changes.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    dropped: Vec<Box<str>>,
    added: FieldBlock,
    /// Path and query.
    pub(crate) target: Option<String>,
    pub(crate) host: Option<String>,
    /// How the body is framed that they have left.
    pub(crate) framing: Option<Framing>,
}

impl Edits {
    /// Whether what others say in this field goes no further. Also one with `_` for `-`: to programs that read both alike it is the
    /// same field.
    pub(crate) fn drops(&self, name: &[u8]) -> bool {
        self.dropped.iter().any(|dropped| is_folded(name, dropped))
    }

    /// What they say themselves.
    pub(crate) fn added(&self) -> &FieldBlock {
        &self.added
    }

    /// What of a block goes further.
    pub(crate) fn left<'b>(&'b self, block: &'b FieldBlock) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        block.iter().filter(|(name, _)| !self.drops(name.as_bytes()))
    }

    /// Takes out of what follows a body what filters have set or removed in its head.
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

/// The head of a request, before it is sent on.
pub struct RequestHead<'h> {
    pub(crate) about: &'h About<'h>,
    /// What policies have written.
    pub(crate) written: &'h FieldBlock,
    /// What they take out of the client's.
    pub(crate) hidden: &'h [HeaderName],
    pub(crate) edits: &'h mut Edits,
    pub(crate) want: Want,
}

impl<'h> RequestHead<'h> {
    /// Whose it is.
    #[must_use]
    pub fn about(&self) -> &'h About<'h> {
        self.about
    }

    /// All fields: the client's, without those that policies take out, with those that policies and filters have written. What
    /// the gateway says of itself (`X-Forwarded-For`, `Via`) and what the configuration changes comes later and is not among them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let hidden = |name: &str| {
            self.hidden
                .iter()
                .any(|own| is_folded(name.as_bytes(), own.as_str()))
        };
        let sent = self.about.req.headers().filter_map(|field| {
            // Names are tokens.
            let name = str::from_utf8(field.name).ok()?;
            Some((name, field.value))
        });
        let sent = sent.filter(move |(name, _)| !hidden(name) && !self.edits.drops(name.as_bytes()));
        sent.chain(self.edits.left(self.written))
            .chain(self.edits.added().iter())
    }

    /// The value of the first field of that name, in any case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Sets a field, in place of those of that name.
    ///
    /// # Errors
    /// The name is none, or the gateway's own to write (`Host`, `Content-Length`, `Connection` and the like); the value has control
    /// characters. Nothing was changed.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut one = FieldBlock::new();
        push(&mut one, name, value.as_ref())?;
        self.edits.remove(name);
        self.edits.added.append(&one);
        Ok(())
    }

    /// Adds a field beside those of that name.
    ///
    /// # Errors
    /// As [`RequestHead::set`].
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        push(&mut self.edits.added, name, value.as_ref())
    }

    /// Takes fields out, whoever has written them.
    pub fn remove(&mut self, name: &str) {
        self.edits.remove(name);
    }

    /// Has another path and query asked for, in place of the client's and of what the configuration makes of it. The rule stays
    /// the one that was found.
    ///
    /// # Errors
    /// It does not begin with `/`, or has bytes that no target has: spaces, `#`, anything but visible ASCII.
    pub fn set_target(&mut self, target: &str) -> Result<(), Error> {
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

    /// Has another host told (`Host`), in place of the client's and of the configuration's. Who answers stays.
    ///
    /// # Errors
    /// It is no host, with or without a port.
    pub fn set_host(&mut self, host: &str) -> Result<(), Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_plain) {
            return Err(format!("expected a host, found `{}`", host.escape_debug()).into());
        }
        self.edits.host = Some(host.to_owned());
        Ok(())
    }

    /// Whether the request has a body, if perhaps an empty one. One that has none gets none.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.about.req.head().framing != Framing::None
    }

    /// Has the body shown to [`request_body`](super::Filter::request_body), if there is one and it is read: an upstream's is, and
    /// with [`Want::Whole`] everyone's.
    pub fn want_body(&mut self, want: Want) {
        self.want = want;
    }
}

impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestHead of {:?}", self.about)
    }
}

/// The head of an answer, before its client sees it.
pub struct ResponseHead<'h> {
    pub(crate) about: &'h About<'h>,
    pub(crate) status: u16,
    pub(crate) fields: FieldBlock,
    pub(crate) is_own: bool,
    /// It has, or could have, a body.
    pub(crate) has_body: bool,
    pub(crate) want: Want,
    /// What was set or removed: nothing of it is to follow the body.
    pub(crate) dropped: Vec<Box<str>>,
}

impl<'h> ResponseHead<'h> {
    /// The request that it answers.
    #[must_use]
    pub fn about(&self) -> &'h About<'h> {
        self.about
    }

    /// Whether the gateway itself answers: by the rule, with a fault, or by another filter.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Sets the status, from 200 to 599.
    ///
    /// # Errors
    /// It is none of these, or it is one without a body (204, 205, 304) and there is a body.
    pub fn set_status(&mut self, status: u16) -> Result<(), Error> {
        if !(200..=599).contains(&status) {
            return Err(format!("expected a status from 200 to 599, found {status}").into());
        }
        if !allows_content(status) && self.has_body {
            return Err(format!("expected a status of an answer with a body, found {status}").into());
        }
        self.status = status;
        Ok(())
    }

    /// All fields but those of the connection and the framing.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter()
    }

    /// The value of the first field of that name, in any case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Sets a field, in place of those of that name.
    ///
    /// # Errors
    /// As [`RequestHead::set`].
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let mut one = FieldBlock::new();
        push(&mut one, name, value.as_ref())?;
        self.remove(name);
        self.fields.append(&one);
        Ok(())
    }

    /// Adds a field beside those of that name.
    ///
    /// # Errors
    /// As [`RequestHead::set`].
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), Error> {
        push(&mut self.fields, name, value.as_ref())
    }

    /// Takes fields out.
    pub fn remove(&mut self, name: &str) {
        self.fields.remove(name);
        self.dropped.push(name.into());
    }

    /// Whether the answer has a body, if perhaps an empty one: not one to HEAD, nor 204 and 304.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.has_body
    }

    /// Has the body shown to [`response_body`](super::Filter::response_body), if there is one. A filter that changes it takes out
    /// what is said of the bytes that come (`ETag`, `Content-Digest`, `Accept-Ranges`); `Content-Length` is the gateway's.
    pub fn want_body(&mut self, want: Want) {
        self.want = want;
    }
}

impl std::fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResponseHead {} of {:?}", self.status, self.about)
    }
}
