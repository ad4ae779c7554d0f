//! Requests that no handler sees, since they break a rule or a limit: what is known of them, for the answer and for the log.
//!
//! Knows neither routes nor what becomes of the connection.

use std::net::SocketAddr;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_tls::Tls;
use ringmain_wire::h1::{self, Known, PeerFault, RequestHead, Version};
use ringmain_wire::h2::load_request;

use super::connection::Connection;
use super::{Machine, Then, answer};
use crate::error::Error;
use crate::local::Local;
use crate::request_id::RequestId;

/// The client's address, and when its request began.
pub(crate) type Client = (Option<SocketAddr>, Time);

/// The known parts of a refused request.
#[derive(Debug)]
pub(crate) struct Refused<'a> {
    /// `-` if there is none.
    pub(crate) method: &'a str,
    /// `-` if there is none; as much of it as was received.
    pub(crate) target: &'a str,
    pub(crate) version: Version,
    /// Of applications that give ids.
    pub(crate) id: Option<RequestId>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
}

impl<'a> Refused<'a> {
    /// One of which nothing was received but the connection.
    pub(crate) fn unknown(local: &Local, version: Version) -> Refused<'a> {
        Refused {
            method: "-",
            target: "-",
            version,
            id: local.site.request_ids.then(|| local.request_id()),
            referer: None,
            user_agent: None,
        }
    }

    /// One whose head was read.
    pub(crate) fn of_head(local: &Local, head: &RequestHead<'a>) -> Refused<'a> {
        Refused {
            method: head.method.as_str(),
            target: head.target_text,
            version: head.version,
            id: local.id_of(&head.fields),
            referer: head.fields.known(Known::Referer),
            user_agent: head.fields.known(Known::UserAgent),
        }
    }

    /// One whose head is broken, too large or not all there: what its first line says, as far as it goes.
    pub(crate) fn of_bytes(local: &Local, bytes: &'a [u8]) -> Refused<'a> {
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

/// As much of it as is UTF-8; `-` if that is nothing.
fn text(bytes: &[u8]) -> &str {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    if text.is_empty() { "-" } else { text }
}

impl Machine {
    /// Returns the response to a request on a connection that the settings of its listener, reloaded since, would not accept as it is: a
    /// certificate of its client that is not valid by the authorities of now, say, or an address that a proxy is no longer trusted to
    /// tell. The client may repeat it on another connection (RFC 9110 §15.5.20).
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

    /// Answers and notes what is not shown to any handler; the connection closes after it.
    pub(super) fn refuse(
        &self,
        client: Client,
        error: &Error,
        (exchange, refused): (h1::Exchange, &Refused<'_>),
        out: &mut Vec<u8>,
    ) -> Then {
        self.note_refused(client, error.status(), refused);
        answer::refuse(&self.local, error, (exchange, refused.id.as_ref()), out);
        Then::Linger
    }

    /// The client broke a rule: nothing that follows can be understood.
    pub(super) fn refuse_fault(
        &self,
        client: Client,
        fault: &PeerFault,
        about: (h1::Exchange, &Refused<'_>),
        out: &mut Vec<u8>,
    ) -> Then {
        self.refuse(client, &Error::from_fault(fault), about, out)
    }

    /// The same for a request of HTTP/2 whose body was being collected; `stored` is its head. Returns its id.
    pub(super) fn note_collected(&self, client: Client, status: u16, stored: &[u8]) -> Option<RequestId> {
        let mut table = self.local.again.borrow_mut();
        let refused = match load_request(stored, &mut table) {
            Some(head) => Refused::of_head(&self.local, &head),
            None => Refused::unknown(&self.local, Version::Http2),
        };
        self.note_refused(client, status, &refused);
        refused.id
    }

    /// Counts it, and notes it in the access log.
    pub(super) fn note_refused(&self, (remote, began): Client, status: u16, refused: &Refused<'_>) {
        self.local.log_refused(remote, status, refused, began);
        self.local.stats.answered(status);
        self.local.stats.refused();
    }
}
