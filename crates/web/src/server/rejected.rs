//! Requests that no handler sees, because they break a rule or a limit: their known parts, for the response and for the log.
//!
//! Knows neither routes nor the further course of the connection.

use std::net::SocketAddr;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_tls::Tls;
use ringmain_wire::h1::{self, Known, PeerFault, RequestHead, Version};
use ringmain_wire::h2::load_request;

use super::connection::Connection;
use super::{HttpServer, NextAction, response};
use crate::http::error::Error;
use crate::http::request_id::RequestId;
use crate::server::worker_context::WorkerContext;

/// The client's address, and the start time of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestClient {
    /// `None`: a Unix socket.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) started_at: Time,
}

/// The known parts of a refused request.
#[derive(Debug)]
pub(crate) struct RejectedRequest<'a> {
    /// `-` if there is none.
    pub(crate) method: &'a str,
    /// `-` if there is none; truncated if it was received in part.
    pub(crate) target: &'a str,
    pub(crate) version: Version,
    /// Present in applications that assign ids.
    pub(crate) id: Option<RequestId>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
}

impl<'a> RejectedRequest<'a> {
    /// Returns the record of a connection that sent no part of a request.
    pub(crate) fn unknown(worker: &WorkerContext, version: Version) -> RejectedRequest<'a> {
        RejectedRequest {
            method: "-",
            target: "-",
            version,
            id: worker.app.request_ids.then(|| worker.request_id()),
            referer: None,
            user_agent: None,
        }
    }

    /// Returns the record of a request whose head was parsed.
    pub(crate) fn from_head(worker: &WorkerContext, head: &RequestHead<'a>) -> RejectedRequest<'a> {
        RejectedRequest {
            method: head.method.as_str(),
            target: head.target_text,
            version: head.version,
            id: worker.request_id_for(&head.fields),
            referer: head.fields.known(Known::Referer),
            user_agent: head.fields.known(Known::UserAgent),
        }
    }

    /// Returns the record of a request with a broken, oversized or incomplete head, from its first line as far as it was received.
    pub(crate) fn from_bytes(worker: &WorkerContext, bytes: &'a [u8]) -> RejectedRequest<'a> {
        let unknown = RejectedRequest::unknown(worker, Version::Http11);
        let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        let line = bytes[start.unwrap_or(bytes.len())..]
            .split(|byte| matches!(byte, b'\r' | b'\n'))
            .next()
            .unwrap_or_default();
        let mut parts = line.splitn(3, |&byte| byte == b' ');
        let method = parts.next().unwrap_or_default();
        if method.is_empty() || !method.iter().all(u8::is_ascii_graphic) {
            return unknown;
        }
        let is_http10 = |target: &[u8]| target == b"HTTP/1.0";
        RejectedRequest {
            method: text(method),
            target: parts.next().map_or("-", text),
            version: if parts.next().is_some_and(is_http10) {
                Version::Http10
            } else {
                Version::Http11
            },
            ..unknown
        }
    }
}

/// Returns the prefix that is UTF-8; `-` if that is empty.
fn text(bytes: &[u8]) -> &str {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    if text.is_empty() { "-" } else { text }
}

impl HttpServer {
    /// Returns the response to a request on a connection that the current settings of its listener, reloaded since, would not
    /// accept: for instance, its client certificate is not valid under the current authorities, or its proxy is no longer trusted
    /// to name the client. The client may repeat the request on another connection (RFC 9110 §15.5.20).
    pub(super) fn check_current_settings(&self, conn: Conn<'_>, state: &mut Connection) -> Option<Error> {
        if !self.is_still_accepted(conn, state) {
            return Some(Error::new(
                421,
                "the PROXY protocol settings have changed: open a new connection",
            ));
        }
        if !state.peer.secure {
            return None;
        }
        let admitted = match conn.layer(|tls: &mut Tls| tls.admitted())? {
            Some(admitted) => admitted,
            None => {
                let now = self.worker.cx.wall();
                conn.layer(|tls: &mut Tls| tls.recheck_admission(now))?
            }
        };
        (!admitted).then(|| {
            Error::new(
                421,
                "the current TLS settings do not admit this connection: open a new one",
            )
        })
    }

    /// Answers and logs a request that no handler sees; the connection closes after the response.
    pub(super) fn reject(
        &self,
        client: RequestClient,
        error: &Error,
        exchange: h1::Exchange,
        rejected: &RejectedRequest<'_>,
        out: &mut Vec<u8>,
    ) -> NextAction {
        self.log_rejected_request(client, error.status(), rejected);
        response::encode_rejection(&self.worker, error, exchange, rejected.id.as_ref(), out);
        NextAction::Linger
    }

    /// Answers a protocol violation: nothing that follows can be parsed.
    pub(super) fn reject_fault(
        &self,
        client: RequestClient,
        fault: &PeerFault,
        exchange: h1::Exchange,
        rejected: &RejectedRequest<'_>,
        out: &mut Vec<u8>,
    ) -> NextAction {
        self.reject(client, &Error::from_fault(fault), exchange, rejected, out)
    }

    /// Records an HTTP/2 request whose body was being collected; `stored` is its head. Returns its id.
    pub(super) fn log_rejected_body(
        &self,
        client: RequestClient,
        status: u16,
        stored: &[u8],
    ) -> Option<RequestId> {
        let mut table = self.worker.reparse_table.borrow_mut();
        let rejected = match load_request(stored, &mut table) {
            Some(head) => RejectedRequest::from_head(&self.worker, &head),
            None => RejectedRequest::unknown(&self.worker, Version::Http2),
        };
        self.log_rejected_request(client, status, &rejected);
        rejected.id
    }

    /// Counts the response and records it in the access log.
    pub(super) fn log_rejected_request(
        &self,
        client: RequestClient,
        status: u16,
        rejected: &RejectedRequest<'_>,
    ) {
        self.worker.log_rejected(client, status, rejected);
        self.worker.stats.answered(status);
        self.worker.stats.refused();
    }
}
