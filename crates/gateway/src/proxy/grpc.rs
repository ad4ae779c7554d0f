//! gRPC: local responses in a form that its clients understand, and gRPC-Web for upstreams that speak gRPC only.
//!
//! ```text
//! gRPC-Web ─ content type, base64 decoded ─▶ gRPC to the upstream
//!          ◀─ content type, trailers as the last frame of the body, base64 ─ gRPC response
//! ```
//!
//! Does not parse messages.

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

/// Converts a local error response into one that gRPC clients understand: 200, with the status of the call.
pub(super) fn convert_local_response(req: &Request<'_>, reply: &mut Reply<'_>) {
    let Some(kind) = request_type(req) else { return };
    let status = reply.current_status();
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
    let code = grpc_code(status).number().to_string();
    reply.remove_header("Content-Type");
    reply.status(200);
    let fields = [
        ("Content-Type", kind.of_answer()),
        ("grpc-status", &*code),
        ("grpc-message", &*message),
    ];
    for (name, value) in fields {
        // All names and values are valid.
        if !value.is_empty() && reply.header(name, value).is_err() {
            log::error!("`{name}` cannot be sent");
        }
    }
}

/// Finishes a started gRPC response with the status of the call. Returns `false` if it is not gRPC, or cannot be finished so.
pub(super) fn end_with_status(req: &Request<'_>, reply: &mut Reply<'_>, fault: Fault) -> bool {
    let Some(kind) = request_type(req).filter(|_| reply.is_forwarded()) else {
        return false;
    };
    let mut block = FieldBlock::new();
    let mut message = String::new();
    encode_message(&mut message, fault.text());
    let code = grpc_code(fault.status()).number().to_string();
    let pushed = [("grpc-status", &*code), ("grpc-message", &*message)]
        .into_iter()
        .all(|(name, value)| block.push(name, value.as_bytes()).is_ok());
    match kind.dialect {
        _ if !pushed => false,
        Dialect::Grpc => {
            reply.set_trailers(block);
            true
        }
        dialect => {
            let end = GrpcWebEncoder { dialect }.encode_trailers(Some(&block));
            reply.write_buffered(&end).is_ok()
        }
    }
}

/// Returns the status of a call that the gateway answers with an HTTP status.
fn grpc_code(status: u16) -> Code {
    match status {
        // The client's own body was late; gRPC has no better code.
        408 => Code::DeadlineExceeded,
        status => Code::of_http(status),
    }
}

/// Returns the gRPC content type of a request.
fn request_type<'r>(req: &Request<'r>) -> Option<ContentType<'r>> {
    ContentType::parse(req.head().fields.known(Known::ContentType)?)
}

/// Returns the content type of a gRPC-Web request that must be translated.
pub(super) fn grpc_web_type<'r>(forward: &Forward, req: &Request<'r>) -> Option<ContentType<'r>> {
    if !forward.grpc_web {
        return None;
    }
    request_type(req).filter(|kind| kind.dialect != Dialect::Grpc)
}

/// Returns the corresponding gRPC type for the upstream.
pub(super) fn upstream_content_type(kind: ContentType<'_>) -> String {
    content_type("application/grpc", kind.format)
}

/// Returns the type of a response for a client of this dialect; `None`: the response is not gRPC, and is not translated.
pub(super) fn client_content_type(dialect: Dialect, upstream_type: &[u8]) -> Option<String> {
    let kind = ContentType::parse(upstream_type).filter(|kind| kind.dialect == Dialect::Grpc)?;
    let name = match dialect {
        Dialect::Grpc => "application/grpc",
        Dialect::Web => "application/grpc-web",
        Dialect::WebText => "application/grpc-web-text",
    };
    Some(content_type(name, kind.format))
}

fn content_type(name: &str, format: Option<&str>) -> String {
    format.map_or_else(|| name.to_owned(), |format| format!("{name}+{format}"))
}

/// Decodes a request body from base64.
#[derive(Default)]
pub(super) struct RequestTextDecoder(Option<RefCell<TextDecoder>>);

impl RequestTextDecoder {
    pub(super) fn from_content_type(kind: Option<ContentType<'_>>) -> RequestTextDecoder {
        let is_text = kind.is_some_and(|kind| kind.dialect == Dialect::WebText);
        RequestTextDecoder(is_text.then(RefCell::default))
    }

    /// Decodes the next piece; `None`: the end of the body.
    pub(super) fn decode_piece(&self, bytes: Option<Bytes>) -> Result<Option<Bytes>, Failure> {
        let Some(decoder) = &self.0 else { return Ok(bytes) };
        let invalid = |fault| Failure::Web(Error::bad_request(format!("the body is no gRPC-Web: {fault}")));
        let decoder = &mut *decoder.borrow_mut();
        let Some(bytes) = bytes else {
            return decoder.end_of_input().map(|()| None).map_err(invalid);
        };
        let mut out = Vec::with_capacity(bytes.len() / 4 * 3 + 3);
        decoder.decode(&bytes, &mut out).map_err(invalid)?;
        Ok(Some(out.into()))
    }
}

/// Encodes a response body for a gRPC-Web client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GrpcWebEncoder {
    pub(super) dialect: Dialect,
}

impl GrpcWebEncoder {
    /// Encodes a piece of the body.
    pub(super) fn piece(self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match self.dialect {
            Dialect::WebText => encode_text(&mut out, bytes),
            Dialect::Grpc | Dialect::Web => out.extend_from_slice(bytes),
        }
        out
    }

    /// Encodes the trailers, which end the body.
    pub(super) fn encode_trailers(self, trailers: Option<&FieldBlock>) -> Vec<u8> {
        let mut block = FieldBlock::new();
        for (name, value) in trailers.into_iter().flat_map(FieldBlock::iter) {
            // A field that was valid stays valid.
            let _ = block.push(&name.to_ascii_lowercase(), value);
        }
        let mut frame = Vec::new();
        if let Err(misuse) = write_web_trailers(&mut frame, &block) {
            log::error!("trailers cannot be sent to a gRPC-Web client: {misuse}");
        }
        self.piece(&frame)
    }
}
