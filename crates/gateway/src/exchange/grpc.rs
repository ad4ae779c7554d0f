//! gRPC: what its clients are told when the gateway answers, and gRPC-Web for upstreams that speak gRPC alone.
//!
//! ```text
//! gRPC-Web ─ content type, base64 off ─▶ gRPC to the upstream
//!          ◀─ content type, trailers as the last frame of the body, base64 ─ gRPC's answer
//! ```
//!
//! Looks into no message.

use std::cell::RefCell;

use bytes::Bytes;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::grpc::{
    Code, ContentType, Dialect, TextDecoder, encode_message, encode_text, write_web_trailers,
};
use ringmain_wire::h1::{FieldBlock, Known};

use super::Failure;
use crate::fault::Fault;
use crate::limits;
use crate::model::Forward;

/// Has an error of the gateway's own be one that clients of gRPC understand: 200, and how the call ended.
pub(super) fn own(req: &Request<'_>, reply: &mut Reply<'_>) {
    let Some(kind) = asked(req) else { return };
    let status = reply.status_now();
    if status < 400 || reply.is_forwarded() || reply.is_streaming() {
        return;
    }
    let body = std::mem::take(reply.body());
    let text = str::from_utf8(&body).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let mut message = String::new();
    if line.len() <= limits::GRPC_MESSAGE_BYTES {
        encode_message(&mut message, line);
    }
    let code = code(status).number().to_string();
    reply.remove_header("Content-Type");
    reply.status(200);
    let told = [
        ("Content-Type", kind.of_answer()),
        ("grpc-status", &*code),
        ("grpc-message", &*message),
    ];
    for (name, value) in told {
        // All of them are fields that can be written.
        if !value.is_empty() && reply.header(name, value).is_err() {
            log::error!("`{name}` cannot be told");
        }
    }
}

/// Ends an answer of gRPC that has begun with how the call ended: `false` if it is none, or cannot be ended so.
pub(super) fn ends(req: &Request<'_>, reply: &mut Reply<'_>, fault: Fault) -> bool {
    let Some(kind) = asked(req).filter(|_| reply.is_forwarded()) else {
        return false;
    };
    let mut block = FieldBlock::new();
    let mut message = String::new();
    encode_message(&mut message, fault.text());
    let code = code(fault.status()).number().to_string();
    let pushed = [("grpc-status", &*code), ("grpc-message", &*message)]
        .into_iter()
        .all(|(name, value)| block.push(name, value.as_bytes()).is_ok());
    match kind.dialect {
        _ if !pushed => false,
        Dialect::Grpc => {
            reply.put_trailers(block);
            true
        }
        dialect => {
            let end = Wrapping { dialect }.end(Some(&block));
            reply.put(&end).is_ok()
        }
    }
}

/// How a call ended that the gateway answers with a status.
fn code(status: u16) -> Code {
    match status {
        // The client's own body was late; gRPC has no other word for it.
        408 => Code::DeadlineExceeded,
        status => Code::of_http(status),
    }
}

/// In which form a request is one of gRPC.
fn asked<'r>(req: &Request<'r>) -> Option<ContentType<'r>> {
    ContentType::parse(req.head().fields.known(Known::ContentType)?)
}

/// The form of a request that is to be translated.
pub(super) fn web<'r>(forward: &Forward, req: &Request<'r>) -> Option<ContentType<'r>> {
    if !forward.grpc_web {
        return None;
    }
    asked(req).filter(|kind| kind.dialect != Dialect::Grpc)
}

/// The same type without the web.
pub(super) fn upstream_type(kind: ContentType<'_>) -> String {
    typed("application/grpc", kind.format)
}

/// What an answer's type is to a client of that form; `None`: it is not gRPC, and not translated.
pub(super) fn client_type(dialect: Dialect, answered: &[u8]) -> Option<String> {
    let kind = ContentType::parse(answered).filter(|kind| kind.dialect == Dialect::Grpc)?;
    let name = match dialect {
        Dialect::Grpc => "application/grpc",
        Dialect::Web => "application/grpc-web",
        Dialect::WebText => "application/grpc-web-text",
    };
    Some(typed(name, kind.format))
}

fn typed(name: &str, format: Option<&str>) -> String {
    format.map_or_else(|| name.to_owned(), |format| format!("{name}+{format}"))
}

/// A request's body on its way out of base64.
#[derive(Default)]
pub(super) struct Unwrapping(Option<RefCell<TextDecoder>>);

impl Unwrapping {
    pub(super) fn of(kind: Option<ContentType<'_>>) -> Unwrapping {
        let is_text = kind.is_some_and(|kind| kind.dialect == Dialect::WebText);
        Unwrapping(is_text.then(RefCell::default))
    }

    /// The next piece; `None`: the body is over.
    pub(super) fn piece(&self, bytes: Option<Bytes>) -> Result<Option<Bytes>, Failure> {
        let Some(decoder) = &self.0 else { return Ok(bytes) };
        let wrong = |fault| Failure::Web(Error::bad_request(format!("the body is no gRPC-Web: {fault}")));
        let decoder = &mut *decoder.borrow_mut();
        let Some(bytes) = bytes else {
            return decoder.end_of_input().map(|()| None).map_err(wrong);
        };
        let mut out = Vec::with_capacity(bytes.len() / 4 * 3 + 3);
        decoder.decode(&bytes, &mut out).map_err(wrong)?;
        Ok(Some(out.into()))
    }
}

/// An answer's body on its way to a client of gRPC-Web.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrapping {
    pub(super) dialect: Dialect,
}

impl Wrapping {
    /// Part of the body as the client gets it.
    pub(super) fn piece(self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self.dialect {
            Dialect::WebText => encode_text(&mut out, bytes),
            Dialect::Grpc | Dialect::Web => out.extend_from_slice(bytes),
        }
        out
    }

    /// The body's end: what would follow it.
    pub(super) fn end(self, trailers: Option<&FieldBlock>) -> Vec<u8> {
        let mut block = FieldBlock::new();
        for (name, value) in trailers.into_iter().flat_map(FieldBlock::iter) {
            // What was a field is one.
            let _ = block.push(&name.to_ascii_lowercase(), value);
        }
        let mut frame = Vec::new();
        if let Err(misuse) = write_web_trailers(&mut frame, &block) {
            log::error!("trailers cannot be told to a client of gRPC-Web: {misuse}");
        }
        self.piece(&frame)
    }
}
