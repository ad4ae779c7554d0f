//! A call: the metadata of its client, and the metadata sent beside its replies.

use std::cell::RefCell;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_wire::grpc::{
    self, Accepted, Code, ContentType, Dialect, Encoding, Limits, binary_values, is_binary, is_reserved,
    is_text, is_valid_name, write_binary,
};
use ringmain_wire::h1::FieldBlock;

use super::service::ServiceSettings;
use super::status::{Result, Status};
use crate::http::reply::Reply;
use crate::http::request::Request;

/// A call: its request, its metadata in both directions, its deadline.
pub struct Call<'c> {
    request: &'c Request<'c>,
    pub(super) settings: &'c ServiceSettings,
    pub(super) content: ContentType<'c>,
    /// The limits on the client's messages.
    pub(super) limits: Limits,
    /// The encoding of client messages with the compressed flag.
    pub(super) incoming: Encoding,
    /// The encoding of replies.
    pub(super) outgoing: Encoding,
    deadline: Option<Time>,
    headers: RefCell<FieldBlock>,
    trailers: RefCell<FieldBlock>,
}

impl<'c> Call<'c> {
    pub(super) fn new(
        request: &'c Request<'c>,
        settings: &'c ServiceSettings,
        content: ContentType<'c>,
    ) -> Call<'c> {
        Call {
            request,
            settings,
            content,
            limits: settings.limits,
            incoming: Encoding::Identity,
            outgoing: Encoding::Identity,
            deadline: None,
            headers: RefCell::default(),
            trailers: RefCell::default(),
        }
    }

    /// Reads the call's parameters from the head.
    pub(super) fn open(&mut self) -> Result {
        let fields = &self.request.head.fields;
        if self.content.dialect == Dialect::Grpc && !self.request.accepts_trailers() {
            let message = "expected HTTP/2 or `TE: trailers`, which carry the status; found neither";
            return Err(Status::new(Code::Internal, message));
        }
        if let Some(limit) = self.settings.call_message_limit {
            let limit = limit(self.request)?;
            self.limits.message_bytes = limit.min(self.limits.message_bytes);
        }
        if let Some(name) = fields.get("grpc-encoding") {
            self.incoming = Encoding::of(name).ok_or_else(|| {
                let message = format!(
                    "expected `grpc-encoding` to be one of {}, found `{}`",
                    Encoding::ALL,
                    crate::http::client_text::escape_value(name)
                );
                Status::new(Code::Unimplemented, message)
            })?;
        }
        if self.settings.compress {
            let accepted = Accepted::parse(fields.all("grpc-accept-encoding"));
            let choice = [Encoding::Gzip, Encoding::Deflate];
            self.outgoing = choice
                .into_iter()
                .find(|encoding| accepted.has(*encoding))
                .unwrap_or(Encoding::Identity);
        }
        if let Some(value) = fields.get("grpc-timeout") {
            let timeout = grpc::parse_timeout(value).ok_or_else(|| {
                let message = format!(
                    "expected `grpc-timeout` to be one to eight digits and one of H, M, S, m, u, n; found `{}`",
                    crate::http::client_text::escape_value(value)
                );
                Status::new(Code::Internal, message)
            })?;
            self.deadline = Some(self.request.cx().now().after(timeout));
        }
        Ok(())
    }

    /// Returns the request of the call: state, the worker, the client's address, values stored by hooks.
    #[must_use]
    pub fn request(&self) -> &'c Request<'c> {
        self.request
    }

    /// Returns the dialect of gRPC that the client uses.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.content.dialect
    }

    /// Returns the remaining time until the client's deadline; `None`: it has set none. When it expires the handler is dropped at
    /// its current await, and the client receives [`DeadlineExceeded`](Code::DeadlineExceeded).
    #[must_use]
    pub fn remaining_time(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.since(self.request.cx().now()))
    }

    /// Returns the first value of the client's metadata with this name, if it is text.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<&'c str> {
        self.request.header(name)
    }

    /// Returns the first value of the client's metadata with this name, which ends in `-bin`.
    ///
    /// # Errors
    /// [`Internal`](Code::Internal) if it is not base64.
    pub fn metadata_bytes(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let line = self.request.head.fields.get(name);
        let Some(value) = line.and_then(|line| binary_values(line).next()) else {
            return Ok(None);
        };
        let message = || Status::new(Code::Internal, format!("expected base64 in `{name}`"));
        value.map(Some).ok_or_else(message)
    }

    /// Adds a value to the initial metadata; with a name that ends in `-bin` it may be any bytes. No effect once the first reply
    /// was sent.
    ///
    /// # Errors
    /// `Internal` if the name is not in lower case or is reserved by the protocol, or the value is not printable ASCII. That is a
    /// mistake in the program; the log names it.
    pub fn add_header(&self, name: &str, value: impl AsRef<[u8]>) -> Result {
        add(&mut self.headers.borrow_mut(), name, value.as_ref())
    }

    /// Adds a value to the trailing metadata, beside the status: at any time, also for a call that fails.
    ///
    /// # Errors
    /// As [`Call::add_header`].
    pub fn add_trailer(&self, name: &str, value: impl AsRef<[u8]>) -> Result {
        add(&mut self.trailers.borrow_mut(), name, value.as_ref())
    }

    pub(super) fn has_headers(&self) -> bool {
        !self.headers.borrow().is_empty()
    }

    /// Sets the fields before the replies.
    pub(super) fn write_head(&self, reply: &mut Reply<'_>) -> crate::Result {
        reply.add_headers(&self.headers.borrow());
        if self.outgoing != Encoding::Identity {
            reply.header("grpc-encoding", self.outgoing.name())?;
        }
        Ok(())
    }

    /// Returns the fields after the replies.
    pub(super) fn end(&self, status: &Status) -> FieldBlock {
        let mut fields = FieldBlock::new();
        status.write(&mut fields);
        fields.append(&self.trailers.borrow());
        fields
    }
}

fn add(fields: &mut FieldBlock, name: &str, value: &[u8]) -> Result {
    let refused = |reason: &str| Status::internal(format!("metadata `{}`: {reason}", name.escape_debug()));
    if !is_valid_name(name) || is_reserved(name) {
        return Err(refused(
            "expected a name of letters in lower case, digits, `_`, `-` and `.` that is not the protocol's own",
        ));
    }
    let mut binary = String::new();
    let text = if is_binary(name) {
        write_binary(&mut binary, value);
        binary.as_bytes()
    } else {
        let text = str::from_utf8(value).ok().filter(|text| is_text(text));
        text.ok_or_else(|| refused("expected printable ASCII; bytes go into a name that ends in `-bin`"))?
            .as_bytes()
    };
    fields
        .push(name, text)
        .map_err(|misuse| refused(&misuse.to_string()))
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call of {:?}", self.request)
    }
}
