//! The response of a handler: status, fields and body, or a stream of chunks.
//!
//! Nothing is sent before the handler returns, so that an error can still replace the response; a streamed reply is sent from its
//! first chunk on. Knows nothing of framing: the codec writes lengths and chunks.

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::ws::HandshakeFault;
use serde::Serialize;

use crate::app::compiled::Hooks;
use crate::http::cookie::SetCookie;
use crate::http::error::{Error, Result};
use crate::http::json;
use crate::http::location;
use crate::http::media_type;
use crate::http::request::Request;
use crate::limits;
use crate::server::preamble::Omitted;
use crate::server::response_stream::Outgoing;
use crate::ws::Upgrade;

/// The response to one request.
pub struct Reply<'r> {
    pub(crate) request: &'r Request<'r>,
    /// The hooks that run after the handler: the request's, unless it was delegated.
    pub(crate) hooks: &'r Hooks,
    pub(crate) status: u16,
    pub(crate) kind: ContentKind,
    /// Default fields that this response omits.
    pub(crate) omitted: Omitted,
    /// The `Content-Type` among the fields was set with the body ([`Reply::bytes`]) and is replaced with it.
    typed_by_body: bool,
    /// The connection closes after this response.
    pub(crate) closes_after: bool,
    /// The head was received from another server.
    pub(crate) forwarded: bool,
    pub(crate) fields: &'r mut FieldBlock,
    pub(crate) body: &'r mut Vec<u8>,
    /// The body if it is shared; then `body` is unused.
    pub(crate) frame: Option<Bytes>,
    /// Body bytes sent, or handed over to be sent.
    pub(crate) sent: u64,
    /// The destination of a streamed reply; only asynchronous handlers have one.
    pub(crate) outgoing: Option<Outgoing<'r>>,
    /// The request is upgraded to a WebSocket.
    pub(crate) upgrade: Option<Box<Upgrade>>,
    /// The reason why the upgrade failed, if the handshake was at fault.
    pub(crate) handshake: Option<HandshakeFault>,
}

/// The source of `Content-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentKind {
    None,
    Json,
    Text,
    Html,
    Problem,
    /// Among the handler's fields.
    Own,
}

impl ContentKind {
    pub(crate) const COUNT: usize = 6;

    /// Values by [`ContentKind::index`].
    pub(crate) const CONTENT_TYPES: [Option<&str>; ContentKind::COUNT] = [
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
            kind: ContentKind::None,
            omitted: Omitted::default(),
            typed_by_body: false,
            closes_after: false,
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

    /// Sets the status, 200 to 599. Another one is a mistake in the program: 500 is sent and the log names it.
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

    /// Returns the current status.
    #[must_use]
    pub fn current_status(&self) -> u16 {
        self.status
    }

    /// Sets a field and replaces those with the same name.
    ///
    /// # Errors
    /// 500 if the name is not a token, the value has control characters (it would split the response), or the field belongs to the
    /// framing, which is not the handler's.
    pub fn header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<&mut Self> {
        self.remove_header(name);
        self.add_header(name, value)
    }

    /// Adds a field without replacing others with the same name.
    ///
    /// # Errors
    /// As [`Reply::header`].
    pub fn add_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<&mut Self> {
        if name.eq_ignore_ascii_case("content-type") {
            self.kind = ContentKind::Own;
            self.typed_by_body = false;
        }
        self.omitted.record(name);
        self.fields
            .push(name, value.as_ref())
            .map_err(|misuse| Error::internal(format!("field `{}`: {misuse}", name.escape_debug())))?;
        Ok(self)
    }

    /// Adds fields that were validated before, without replacing others. `Server`, `Date` and `Content-Type` replace the server's
    /// own.
    pub fn add_headers(&mut self, fields: &FieldBlock) -> &mut Self {
        for (name, _) in fields.iter() {
            self.omitted.record(name);
            if name.eq_ignore_ascii_case("content-type") {
                self.kind = ContentKind::Own;
            }
        }
        self.fields.append(fields);
        self
    }

    /// Removes a field that was set before. `Server` and `Date`, which the server sets, are then omitted from the response.
    pub fn remove_header(&mut self, name: &str) -> &mut Self {
        self.fields.remove(name);
        self.omitted.record(name);
        if name.eq_ignore_ascii_case("content-type") {
            self.kind = ContentKind::None;
            self.typed_by_body = false;
        }
        self
    }

    /// Returns the current value of the first field with this name, compared without case; `Content-Type` also where the body
    /// method chose it. Fields that are added when the head is encoded (`Date`, `Server`, `Content-Length`) are not included.
    #[must_use]
    pub fn header_value(&self, name: &str) -> Option<&[u8]> {
        if name.eq_ignore_ascii_case("content-type") && self.kind != ContentKind::Own {
            return ContentKind::CONTENT_TYPES[self.kind.index()].map(str::as_bytes);
        }
        let mut fields = self.fields.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Sets the body to a value as JSON. `Content-Type` is `application/json` unless it was set.
    ///
    /// # Errors
    /// 500 if the value cannot be serialized as JSON (a map whose keys are not text, for instance).
    pub fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.begin(ContentKind::Json);
        json::write(self.body, value)
    }

    /// Sets the body to text. `Content-Type` is `text/plain; charset=utf-8` unless it was set.
    ///
    /// # Errors
    /// None; the type lets it end a handler.
    pub fn text(&mut self, text: impl AsRef<str>) -> Result {
        self.begin(ContentKind::Text);
        self.body.extend_from_slice(text.as_ref().as_bytes());
        Ok(())
    }

    /// Sets the body to an HTML page. `Content-Type` is `text/html; charset=utf-8` unless it was set.
    ///
    /// # Errors
    /// None; the type lets it end a handler.
    pub fn html(&mut self, page: impl AsRef<str>) -> Result {
        self.begin(ContentKind::Html);
        self.body.extend_from_slice(page.as_ref().as_bytes());
        Ok(())
    }

    /// Sets the body to shared bytes, sent without a copy above [`limits::COPIED_BODY_BYTES`] bytes.
    /// `content_type` belongs to them: a body method called after this sets its own.
    ///
    /// # Errors
    /// 500 if `content_type` is not a valid field value.
    pub fn bytes(&mut self, content_type: &str, bytes: impl Into<Bytes>) -> Result {
        self.header("Content-Type", content_type)?;
        self.begin(ContentKind::Own);
        self.typed_by_body = true;
        self.frame = Some(bytes.into());
        Ok(())
    }

    /// Sets the status 204 and no body.
    ///
    /// # Errors
    /// None; the type lets it end a handler.
    pub fn no_content(&mut self) -> Result {
        self.begin(ContentKind::None);
        self.status = 204;
        Ok(())
    }

    /// Sets a status and discards the body with its type; other fields stay.
    pub(crate) fn clear_content(&mut self, status: u16) {
        self.begin(ContentKind::None);
        self.remove_header("Content-Type");
        self.status = status;
    }

    /// Redirects the client: 301, 302, 303, 307 or 308 (RFC 9110 §15.4).
    ///
    /// # Errors
    /// 500 for another status, or a location that is not a valid field value.
    pub fn redirect(&mut self, status: u16, location: &str) -> Result {
        let target = location::for_redirect(status, location)?;
        self.begin(ContentKind::None);
        self.header("Location", target)?;
        self.status = status;
        Ok(())
    }

    /// Sets a cookie.
    ///
    /// # Errors
    /// 500 if clients would reject the cookie; the log has the reason.
    pub fn cookie(&mut self, cookie: &SetCookie<'_>) -> Result<&mut Self> {
        let mut value = Vec::with_capacity(limits::USUAL_COOKIE_BYTES);
        cookie.write(&mut value)?;
        self.add_header("Set-Cookie", value)
    }

    /// Returns the current body for changes, by the handler and by `after` hooks; its `Content-Type` stays. Shared bytes
    /// ([`Reply::bytes`]) are copied into it first, once. Code that only reads calls [`Reply::body_bytes`] and code that replaces
    /// the whole body calls [`Reply::set_body`]; neither copies.
    ///
    /// In a hook of a streamed reply ([`Reply::has_complete_body`] is `false`) it is the part that precedes the first chunk.
    pub fn body(&mut self) -> &mut Vec<u8> {
        if let Some(frame) = self.frame.take() {
            if frame.len() <= limits::COPIED_BODY_BYTES {
                self.body.clear();
                self.body.extend_from_slice(&frame);
            } else {
                *self.body = Vec::from(frame);
            }
        }
        self.body
    }

    /// Returns the current body, whichever method wrote it. For hooks that hash or sign it.
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

    /// Returns true if the available body is complete: `false` once the reply is streamed, and in its hooks, which run before its
    /// head is sent.
    #[must_use]
    pub fn has_complete_body(&self) -> bool {
        self.outgoing.as_ref().is_none_or(Outgoing::has_complete_body)
    }

    /// Returns the current fields, without those that the server adds. For intermediaries.
    pub fn fields_mut(&mut self) -> &mut FieldBlock {
        self.fields
    }

    /// Returns true if the head is another server's ([`Reply::forward`]).
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.forwarded
    }

    /// Discards status, fields and body, unless something was sent.
    pub fn discard(&mut self) {
        if !self.is_streaming() {
            self.kind = ContentKind::None;
            self.omitted = Omitted::default();
            self.fields.clear();
            self.begin(ContentKind::None);
            self.status = 200;
            self.forwarded = false;
            if let Some(outgoing) = &mut self.outgoing {
                outgoing.discard();
            }
        }
    }

    /// Closes the connection after this response (`Connection: close`). No effect over HTTP/2, where the connection carries other
    /// responses.
    pub fn close_connection(&mut self) -> &mut Self {
        self.closes_after = true;
        self
    }

    /// Returns the request of this response.
    #[must_use]
    pub fn request(&self) -> &'r Request<'r> {
        self.request
    }

    /// Returns true if anything was sent: status and fields are then final.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.outgoing.as_ref().is_some_and(Outgoing::has_begun)
    }

    /// Discards the body written so far, and the type that was set with it.
    pub(crate) fn begin(&mut self, kind: ContentKind) {
        self.body.clear();
        self.frame = None;
        if self.typed_by_body {
            self.remove_header("Content-Type");
        }
        if self.kind != ContentKind::Own {
            self.kind = kind;
        }
    }

    /// Replaces the response with an error as if the handler had returned it. No effect once anything was sent.
    pub fn problem(&mut self, error: &Error) {
        if !self.is_streaming() {
            self.fail(error);
        }
    }

    /// Replaces the response written so far with an error.
    pub(crate) fn fail(&mut self, error: &Error) {
        // Other statuses are the application's own decisions.
        if error.status() == 500 || error.cause().is_some() {
            log::error!("{:?}: {error}", self.request);
        } else {
            log::debug!("{:?}: {error}", self.request);
        }
        self.kind = ContentKind::None;
        self.omitted = Omitted::default();
        self.fields.clear();
        self.begin(ContentKind::Problem);
        self.status = error.status();
        error.write_problem(self.body);
        if let Some((name, value)) = error.field() {
            // Validated when the error was created.
            let _ = self.fields.push(name, value.as_bytes());
        }
    }
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply {} to {:?}", self.status, self.request)
    }
}
