//! What a handler says: status, fields and body, or a stream of pieces.
//!
//! Nothing is sent before the handler returns, so that an error can still become the answer; a streamed reply
//! is sent from its first piece on. Knows nothing of framing: the codec writes lengths and chunks.

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::ws::HandshakeFault;
use serde::Serialize;

use crate::cookie::SetCookie;
use crate::error::{Error, Result};
use crate::json;
use crate::limits;
use crate::location;
use crate::media_type;
use crate::preamble::Omitted;
use crate::request::Request;
use crate::server::stream::Outgoing;
use crate::site::Hooks;
use crate::ws::Upgrade;

/// The reply to one request.
pub struct Reply<'r> {
    pub(crate) request: &'r Request<'r>,
    /// Behind the handler; the request's, unless it was led to an inner route.
    pub(crate) hooks: &'r Hooks,
    pub(crate) status: u16,
    pub(crate) kind: Kind,
    /// Fields of every response that this one goes without.
    pub(crate) omitted: Omitted,
    /// The `Content-Type` among the fields was set with the body ([`Reply::bytes`]) and is replaced with it.
    typed_by_body: bool,
    /// The connection ends with it.
    pub(crate) closes: bool,
    /// The head is another server's.
    pub(crate) forwarded: bool,
    pub(crate) fields: &'r mut FieldBlock,
    pub(crate) body: &'r mut Vec<u8>,
    /// Instead of `body`.
    pub(crate) frame: Option<Bytes>,
    /// Body bytes that were sent, or handed over to be.
    pub(crate) sent: u64,
    /// Where a streamed reply goes; only asynchronous handlers have it.
    pub(crate) outgoing: Option<Outgoing<'r>>,
    /// The request becomes a WebSocket.
    pub(crate) upgrade: Option<Box<Upgrade>>,
    /// Why it does not, if its handshake was at fault.
    pub(crate) handshake: Option<HandshakeFault>,
}

/// What `Content-Type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    Json,
    Text,
    Html,
    Problem,
    /// It stands among the handler's fields.
    Own,
}

impl Kind {
    pub(crate) const COUNT: usize = 6;

    /// By [`Kind::index`].
    pub(crate) const CONTENT_TYPES: [Option<&str>; Kind::COUNT] = [
        None,
        Some(media_type::JSON),
        Some(media_type::TEXT),
        Some(media_type::HTML),
        Some(media_type::PROBLEM),
        None,
    ];

    #[inline]
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl<'r> Reply<'r> {
    pub(crate) fn new(
        request: &'r Request<'r>,
        fields: &'r mut FieldBlock,
        body: &'r mut Vec<u8>,
    ) -> Reply<'r> {
        fields.clear();
        body.clear();
        Reply {
            request,
            hooks: request.hooks(),
            status: 200,
            kind: Kind::None,
            omitted: Omitted::default(),
            typed_by_body: false,
            closes: false,
            forwarded: false,
            fields,
            body,
            frame: None,
            sent: 0,
            outgoing: None,
            upgrade: None,
            handshake: None,
        }
    }

    /// Sets the status, 200 to 599. Another one is a mistake of the program: 500 is sent and the log names it.
    pub fn status(&mut self, status: u16) -> &mut Self {
        self.status = if (200..=599).contains(&status) {
            status
        } else {
            log::error!(
                "{:?}: a handler set status {status}: expected 200 to 599",
                self.request
            );
            500
        };
        self
    }

    /// The status as it stands.
    #[must_use]
    pub fn status_now(&self) -> u16 {
        self.status
    }

    /// Sets a field, in place of those of that name.
    ///
    /// # Errors
    /// 500 if the name is no token, the value has control characters (it would split the reply), or the field belongs
    /// to the framing, which is not the handler's.
    pub fn header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<&mut Self> {
        self.remove_header(name);
        self.add_header(name, value)
    }

    /// Adds a field beside those of that name.
    ///
    /// # Errors
    /// As [`Reply::header`].
    pub fn add_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<&mut Self> {
        if name.eq_ignore_ascii_case("content-type") {
            self.kind = Kind::Own;
            self.typed_by_body = false;
        }
        self.omitted.note(name);
        self.fields
            .push(name, value.as_ref())
            .map_err(|misuse| Error::internal(format!("field `{}`: {misuse}", name.escape_debug())))?;
        Ok(self)
    }

    /// Adds fields that were checked before beside those of their names. `Server`, `Date` and `Content-Type` take the place of the
    /// server's own.
    pub fn add_headers(&mut self, fields: &FieldBlock) -> &mut Self {
        for (name, _) in fields.iter() {
            self.omitted.note(name);
            if name.eq_ignore_ascii_case("content-type") {
                self.kind = Kind::Own;
            }
        }
        self.fields.append(fields);
        self
    }

    /// Removes a field that was set before. `Server` and `Date`, which the server sets, are then missing from the response.
    pub fn remove_header(&mut self, name: &str) -> &mut Self {
        self.fields.remove(name);
        self.omitted.note(name);
        if name.eq_ignore_ascii_case("content-type") {
            self.kind = Kind::None;
            self.typed_by_body = false;
        }
        self
    }

    /// Returns the value of the first field of that name as it is set now, in any case; `Content-Type` also where the body
    /// method chose it. Fields that are added when the head is encoded (`Date`, `Server`, `Content-Length`) are not among them.
    #[must_use]
    pub fn header_value(&self, name: &str) -> Option<&[u8]> {
        if name.eq_ignore_ascii_case("content-type") && self.kind != Kind::Own {
            return Kind::CONTENT_TYPES[self.kind.index()].map(str::as_bytes);
        }
        let mut fields = self.fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// A value as JSON. `Content-Type` is `application/json` unless it was set.
    ///
    /// # Errors
    /// 500 if the value cannot be written as JSON (a map with keys that are no text, for instance).
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.begin(Kind::Json);
        json::write(self.body, value)
    }

    /// Text. `Content-Type` is `text/plain; charset=utf-8` unless it was set.
    ///
    /// # Errors
    /// None; the type lets it end a handler.
    pub fn text(&mut self, text: impl AsRef<str>) -> Result {
        self.begin(Kind::Text);
        self.body.extend_from_slice(text.as_ref().as_bytes());
        Ok(())
    }

    /// A page. `Content-Type` is `text/html; charset=utf-8` unless it was set.
    ///
    /// # Errors
    /// None; the type lets it end a handler.
    pub fn html(&mut self, page: impl AsRef<str>) -> Result {
        self.begin(Kind::Html);
        self.body.extend_from_slice(page.as_ref().as_bytes());
        Ok(())
    }

    /// Shared bytes, sent without a copy if they are many. `content_type` is theirs: a body method called after this sets
    /// its own.
    ///
    /// # Errors
    /// 500 if `content_type` is no field value.
    pub fn bytes(&mut self, content_type: &str, bytes: impl Into<Bytes>) -> Result {
        self.header("Content-Type", content_type)?;
        self.begin(Kind::Own);
        self.typed_by_body = true;
        self.frame = Some(bytes.into());
        Ok(())
    }

    /// 204: done, and nothing to say.
    ///
    /// # Errors
    /// None; the type lets it end a handler.
    pub fn no_content(&mut self) -> Result {
        self.begin(Kind::None);
        self.status = 204;
        Ok(())
    }

    /// Sets a status and discards the body with its type; other fields stay.
    pub(crate) fn drop_content(&mut self, status: u16) {
        self.begin(Kind::None);
        self.remove_header("Content-Type");
        self.status = status;
    }

    /// Sends the client elsewhere: 301, 302, 303, 307 or 308 (RFC 9110 §15.4).
    ///
    /// # Errors
    /// 500 for another status, or a location that is no field value.
    pub fn redirect(&mut self, status: u16, location: &str) -> Result {
        let target = location::of_redirect(status, location)?;
        self.begin(Kind::None);
        self.header("Location", target)?;
        self.status = status;
        Ok(())
    }

    /// Has the client keep a cookie.
    ///
    /// # Errors
    /// 500 if the cookie is none that clients would keep: what is wrong is in the log.
    pub fn cookie(&mut self, cookie: &SetCookie<'_>) -> Result<&mut Self> {
        let mut value = Vec::with_capacity(limits::USUAL_COOKIE_BYTES);
        cookie.write(&mut value)?;
        self.add_header("Set-Cookie", value)
    }

    /// Returns the body as it is now, to be changed or appended to, by the handler and by `after` hooks; its `Content-Type`
    /// stays. Shared bytes ([`Reply::bytes`]) are copied into it first, once; code that only reads calls
    /// [`Reply::body_bytes`], and code that replaces all of it [`Reply::set_body`], which copy nothing.
    ///
    /// In a hook of a streamed reply ([`Reply::is_whole`] is `false`) it is the part that precedes the first piece.
    pub fn body(&mut self) -> &mut Vec<u8> {
        if let Some(frame) = self.frame.take() {
            if frame.len() <= limits::COPIED_BODY {
                self.body.clear();
                self.body.extend_from_slice(&frame);
            } else {
                *self.body = Vec::from(frame);
            }
        }
        self.body
    }

    /// Returns the body as it is now, whatever method wrote it. For hooks that hash or sign it.
    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        self.frame.as_deref().unwrap_or(self.body)
    }

    /// Replaces the body; its `Content-Type` stays. For hooks that compress or rewrite it.
    pub fn set_body(&mut self, bytes: impl Into<Bytes>) -> &mut Self {
        self.body.clear();
        self.frame = Some(bytes.into());
        self
    }

    /// Whether the body at hand is all of it: `false` once the reply is streamed, and in its hooks, which run before its head
    /// is sent.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.outgoing.as_ref().is_none_or(Outgoing::is_whole)
    }

    /// The fields as they stand, but for those that are not the handler's. For intermediaries.
    pub fn fields_mut(&mut self) -> &mut FieldBlock {
        self.fields
    }

    /// Whether it was made another server's ([`Reply::forward`]).
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.forwarded
    }

    /// Forgets all that was said, unless something was sent.
    pub fn forget(&mut self) {
        if !self.is_streaming() {
            self.kind = Kind::None;
            self.omitted = Omitted::default();
            self.fields.clear();
            self.begin(Kind::None);
            self.status = 200;
            self.forwarded = false;
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.forget();
            }
        }
    }

    /// Closes the connection behind this response (`Connection: close`). Over HTTP/2 nothing happens: other streams have responses of
    /// their own.
    pub fn close_connection(&mut self) -> &mut Self {
        self.closes = true;
        self
    }

    /// The request that this answers.
    #[must_use]
    pub fn request(&self) -> &'r Request<'r> {
        self.request
    }

    /// Whether anything was sent: then status and fields are final.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.outgoing.as_ref().is_some_and(Outgoing::has_begun)
    }

    /// Discards the body written so far, and the type that was set with it.
    pub(crate) fn begin(&mut self, kind: Kind) {
        self.body.clear();
        self.frame = None;
        if self.typed_by_body {
            self.remove_header("Content-Type");
        }
        if self.kind != Kind::Own {
            self.kind = kind;
        }
    }

    /// Answers with an error as if the handler had returned it: what was set before is gone. Nothing happens once anything was sent.
    pub fn problem(&mut self, error: &Error) {
        if !self.is_streaming() {
            self.fail(error);
        }
    }

    /// Makes an error the answer, in place of what was said so far.
    pub(crate) fn fail(&mut self, error: &Error) {
        // Other statuses are the application's own decisions.
        if error.status() == 500 || error.cause().is_some() {
            log::error!("{:?}: {error}", self.request);
        } else {
            log::debug!("{:?}: {error}", self.request);
        }
        self.kind = Kind::None;
        self.omitted = Omitted::default();
        self.fields.clear();
        self.begin(Kind::Problem);
        self.status = error.status();
        error.write_problem(self.body);
        if let Some((name, value)) = error.field() {
            // Checked when the error was made.
            let _ = self.fields.push(name, value.as_bytes());
        }
    }
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply {} to {:?}", self.status, self.request)
    }
}
