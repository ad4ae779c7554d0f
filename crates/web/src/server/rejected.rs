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
use super::{Machine, Then, response};
use crate::http::error::Error;
use crate::http::request_id::RequestId;
use crate::server::worker_context::WorkerContext;

/// The client's address, and the start time of its request.
pub(crate) type Client = (Option<SocketAddr>, Time);

/// The known parts of a refused request.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
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

impl<'a> Refused<'a> {
    /// Returns the record of a connection that sent no part of a request.
    pub(crate) fn unknown(local: &WorkerContext, version: Version) -> Refused<'a> {
        Refused {
            method: "-",
            target: "-",
            version,
            id: local.site.request_ids.then(|| local.request_id()),
            referer: None,
            user_agent: None,
        }
    }

    /// Returns the record of a request whose head was parsed.
    pub(crate) fn of_head(local: &WorkerContext, head: &RequestHead<'a>) -> Refused<'a> {
        Refused {
            method: head.method.as_str(),
            target: head.target_text,
            version: head.version,
            id: local.id_of(&head.fields),
            referer: head.fields.known(Known::Referer),
            user_agent: head.fields.known(Known::UserAgent),
        }
    }

    /// Returns the record of a request with a broken, oversized or incomplete head, from its first line as far as it was received.
    pub(crate) fn of_bytes(local: &WorkerContext, bytes: &'a [u8]) -> Refused<'a> {
        let unknown = Refused::unknown(local, Version::Http11);
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
        let old = |target: &[u8]| target == b"HTTP/1.0";
        Refused {
            method: text(method),
            target: parts.next().map_or("-", text),
            version: if parts.next().is_some_and(old) {
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

impl Machine {
    /// Returns the response to a request on a connection that the current settings of its listener, reloaded since, would not
    /// accept: for instance, its client certificate is not valid under the current authorities, or its proxy is no longer trusted
    /// to name the client. The client may repeat the request on another connection (RFC 9110 §15.5.20).
    pub(super) fn outdated(&self, conn: Conn<'_>, state: &mut Connection) -> Option<Error> {
        if !self.is_entered(conn, state) {
            return Some(Error::new(
                421,
                "expected a connection by the PROXY protocol settings of now, found one from before",
            ));
        }
        if !state.origin.secure {
            return None;
        }
        let admitted = match conn.layer(|tls: &mut Tls| tls.admitted())? {
            Some(admitted) => admitted,
            None => {
                let now = self.local.cx.wall();
                conn.layer(|tls: &mut Tls| tls.recheck_admission(now))?
            }
        };
        (!admitted).then(|| {
            Error::new(
                421,
                "expected a connection by the TLS settings of now, found one that they would not admit",
            )
        })
    }

    /// Answers and logs a request that no handler sees; the connection closes after the response.
    pub(super) fn refuse(
        &self,
        client: Client,
        error: &Error,
        (exchange, refused): (h1::Exchange, &Refused<'_>),
        out: &mut Vec<u8>,
    ) -> Then {
        self.note_refused(client, error.status(), refused);
        response::refuse(&self.local, error, (exchange, refused.id.as_ref()), out);
        Then::Linger
    }

    /// Answers a protocol violation: nothing that follows can be parsed.
    pub(super) fn refuse_fault(
        &self,
        client: Client,
        fault: &PeerFault,
        about: (h1::Exchange, &Refused<'_>),
        out: &mut Vec<u8>,
    ) -> Then {
        self.refuse(client, &Error::from_fault(fault), about, out)
    }

    /// Records an HTTP/2 request whose body was being collected; `stored` is its head. Returns its id.
    pub(super) fn note_collected(&self, client: Client, status: u16, stored: &[u8]) -> Option<RequestId> {
        let mut table = self.local.again.borrow_mut();
        let refused = match load_request(stored, &mut table) {
            Some(head) => Refused::of_head(&self.local, &head),
            None => Refused::unknown(&self.local, Version::Http2),
        };
        self.note_refused(client, status, &refused);
        refused.id
    }

    /// Counts the response and records it in the access log.
    pub(super) fn note_refused(&self, (remote, began): Client, status: u16, refused: &Refused<'_>) {
        self.local.log_refused(remote, status, refused, began);
        self.local.stats.answered(status);
        self.local.stats.refused();
    }
}
