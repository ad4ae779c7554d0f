//! Accepting connections: the entrance, the client's address, and the phases before the first request.
//!
//! ```text
//! open ─┬─ PROXY protocol ─▶ Proxied ─ header ─┐
//!       └──────────────────────────────────────┴▶ admitted? ─┬─ HTTP ──▶ Head
//!                                                            ├─ h2c ───▶ Http2
//!                                                            ├─ HTTPS ─▶ TLS, Head
//!                                                            ├─ bytes ─▶ Taken by a handler
//!                                                            └─ either ▶ Choosing ─ the name asked for ─▶ one of the two
//! ```

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Conn, Via};
use ringmain_tls::{AcceptHandle, Tls};
use ringmain_wire::h1;
use ringmain_wire::proxy;
use ringmain_wire::tls::{FaultKind, HelloScanner, Looked};

use super::connection::{Connection, Phase};
use super::rejected::Refused;
use super::{Machine, Then, response};
use crate::app::compiled::Site;
use crate::app::listener_protocol::{Entrance, Entrances, Kind, StreamHandler};
use crate::http::error::Error;
use crate::server::peer::Origin;
use crate::server::stream_connection::Incoming;

/// An entrance with the state of one worker.
pub(crate) struct Way {
    generation: u64,
    entrance: Entrance,
    /// The handle that starts TLS for HTTP.
    acceptor: Option<RefCell<AcceptHandle>>,
    /// The handle that starts TLS for stream handlers.
    for_bytes: Option<RefCell<AcceptHandle>>,
}

impl Way {
    fn new((generation, entrance): (u64, Entrance)) -> Rc<Way> {
        let acceptor = match &entrance.kind {
            Kind::Https(acceptor) => Some(acceptor.handle()),
            Kind::Either(either) => Some(either.https.handle()),
            Kind::Http | Kind::H2c | Kind::Stream(_) => None,
        };
        let for_bytes = entrance.tls.as_ref().map(|acceptor| acceptor.handle());
        Rc::new(Way {
            generation,
            entrance,
            acceptor: acceptor.map(RefCell::new),
            for_bytes: for_bytes.map(RefCell::new),
        })
    }

    /// Returns a TLS session for a stream handler; `now` is wall time.
    pub(crate) fn session(&self, now: Duration) -> Option<Tls> {
        Some(self.for_bytes.as_ref()?.borrow_mut().accept(now))
    }
}

/// All entrances with the state of one worker.
pub(super) struct Ways {
    entrances: Entrances,
    generation: Cell<u64>,
    all: RefCell<Vec<Rc<Way>>>,
    /// For listeners without a setting.
    plain: Rc<Way>,
}

impl Ways {
    pub(super) fn new(entrances: &Entrances) -> Ways {
        Ways {
            entrances: entrances.clone(),
            // Read before the list: an entrance that changes in between is only checked once more.
            generation: Cell::new(entrances.generation()),
            all: RefCell::new(entrances.list().into_iter().map(Way::new).collect()),
            plain: Way::new((0, Entrance::http())),
        }
    }

    /// Returns a number that changes with each change of an entrance.
    fn generation(&self) -> u16 {
        self.entrances.generation() as u16
    }

    /// Returns the current entrance of a listener.
    fn find(&self, listener: u32) -> Rc<Way> {
        let generation = self.entrances.generation();
        let mut all = self.all.borrow_mut();
        if self.generation.replace(generation) != generation {
            let list = self.entrances.list().into_iter().enumerate();
            *all = list
                .map(|(number, new)| match all.get(number) {
                    Some(way) if way.generation == new.0 => Rc::clone(way),
                    _ => Way::new(new),
                })
                .collect();
        }
        Rc::clone(all.get(listener as usize).unwrap_or(&self.plain))
    }
}

/// A connection that may be HTTP or a stream, until its ClientHello is read.
pub(crate) struct Choosing {
    way: Rc<Way>,
    scanner: HelloScanner,
}

/// Removes a stream from the count of its address when dropped.
struct Entered {
    site: Arc<Site>,
    address: Option<IpAddr>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            self.site.admission.leave(address);
        }
    }
}

/// Returns the peer's address; `None`: a Unix socket.
fn peer(conn: Conn<'_>) -> Option<SocketAddr> {
    match conn.peer_addr() {
        Ok(Some(Addr::Inet(address))) => Some(address),
        _ => None,
    }
}

impl Machine {
    /// Opens a new connection. `None`: it is closed, or a stream handler owns it.
    pub(super) fn open(&self, conn: Conn<'_>, via: Via, out: &mut Vec<u8>) -> Option<Connection> {
        let mut state = self.arrived(conn, via);
        let way = self.ways.find(state.origin.listener);
        state.entered = self.ways.generation();
        if let Some(proxied) = &way.entrance.proxied {
            let peer = state.origin.remote.map(|address| address.ip());
            if !(proxied.trusts)(peer) {
                return None;
            }
            conn.set_deadline(Some(proxied.timeout));
            state.phase = Phase::Proxied(way);
            return Some(state);
        }
        let entered = self.enter(conn, &mut state, &way, out);
        (entered && !matches!(state.phase, Phase::Taken)).then_some(state)
    }

    /// Returns true if the current settings would accept the connection as it was accepted: a reload may have changed the trusted
    /// senders of PROXY protocol headers. Checked once per change of an entrance.
    pub(super) fn is_entered(&self, conn: Conn<'_>, state: &mut Connection) -> bool {
        let generation = self.ways.generation();
        if generation == state.entered {
            return true;
        }
        let entered = match &self.ways.find(state.origin.listener).entrance.proxied {
            None => !state.proxied,
            Some(proxied) => state.proxied && (proxied.trusts)(peer(conn).map(|address| address.ip())),
        };
        if entered {
            state.entered = generation;
        }
        entered
    }

    /// Handles the bytes before the first request; returns the number of consumed bytes.
    pub(super) fn begin(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> usize {
        let mut consumed = 0;
        if let Phase::Proxied(way) = &state.phase {
            let way = Rc::clone(way);
            consumed = self.proxied(conn, state, &way, bytes, out);
        }
        if matches!(state.phase, Phase::Choosing(_)) {
            self.choose(conn, state, &bytes[consumed..]);
        }
        consumed
    }

    /// Returns the state of a new connection, with its origin.
    fn arrived(&self, conn: Conn<'_>, via: Via) -> Connection {
        let remote = peer(conn);
        let listener = match via {
            Via::Listener(number) => number,
            Via::Connect => u32::MAX,
        };
        let origin = Origin {
            conn: conn.id(),
            remote,
            listener,
            secure: false,
        };
        Connection::new(self.local.cx.now(), origin)
    }

    /// Counts the connection at its address; `false`: the address has reached its limit.
    fn admit(&self, state: &mut Connection) -> bool {
        let admission = &self.site.admission;
        match state.origin.remote {
            Some(address) if admission.counts() => {
                state.counted = admission.enter(address.ip());
                state.counted
            }
            _ => true,
        }
    }

    /// Admits a client whose address is known; returns whether the connection continues.
    fn enter(&self, conn: Conn<'_>, state: &mut Connection, way: &Rc<Way>, out: &mut Vec<u8>) -> bool {
        let kind = &way.entrance.kind;
        if !self.admit(state) {
            if !matches!(kind, Kind::Http) {
                // No reason can be sent before a handshake, or in an unknown protocol.
                return false;
            }
            let error = Error::new(503, "this address has as many connections as it may")
                .with_header("Retry-After", "1");
            response::refuse(&self.local, &error, (h1::Exchange::REFUSED, None), out);
            self.local.stats.answered(503);
            // Its request is in flight: read and dropped, because a reset could lose the response.
            self.flush(conn, state, out, Then::Linger);
            return true;
        }
        match kind {
            Kind::Http => conn.set_deadline(Some(self.site.limits.header_timeout)),
            Kind::H2c => self.begin_http2(conn, state, out),
            Kind::Https(_) => self.secure(conn, state, way),
            Kind::Stream(handler) => self.take(conn, state, way, handler),
            Kind::Either(_) => {
                conn.set_deadline(Some(self.site.limits.handshake_timeout));
                let scanner = HelloScanner::new();
                let way = Rc::clone(way);
                state.phase = Phase::Choosing(Box::new(Choosing { way, scanner }));
            }
        }
        true
    }

    /// Consumes the PROXY protocol header; returns its length.
    fn proxied(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        way: &Rc<Way>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> usize {
        match proxy::parse(bytes) {
            Ok(proxy::Parsed::Partial) => 0,
            Ok(proxy::Parsed::Complete {
                header,
                bytes: length,
            }) => {
                if let Some(addresses) = header.addresses {
                    state.origin.remote = Some(addresses.from);
                }
                state.proxied = true;
                state.phase = Phase::Head;
                state.began = self.local.cx.now();
                if self.enter(conn, state, way, out) {
                    return length;
                }
                conn.close();
                bytes.len()
            }
            Err(fault) => {
                log::debug!("{:?}: {fault}", state.origin.remote);
                conn.close();
                bytes.len()
            }
        }
    }

    /// Reads the server name (SNI) and selects HTTP or the stream handler.
    fn choose(&self, conn: Conn<'_>, state: &mut Connection, bytes: &[u8]) {
        let Phase::Choosing(choosing) = &mut state.phase else {
            return;
        };
        let way = Rc::clone(&choosing.way);
        let Kind::Either(either) = &way.entrance.kind else {
            return;
        };
        match choosing.scanner.look(bytes) {
            Ok(Looked::NeedMore) => {}
            Ok(Looked::Hello(hello)) if (either.is_http)(hello.server_name.as_deref()) => {
                state.phase = Phase::Head;
                self.secure(conn, state, &way);
            }
            // The stream handler also serves clients that do not speak TLS.
            Ok(Looked::Hello(_)) | Err(_) => {
                conn.set_deadline(None);
                self.take(conn, state, &way, &either.handler);
            }
        }
    }

    /// Removes the connection from the count of its address.
    pub(super) fn leave(&self, state: &Connection) {
        if state.counted
            && let Some(remote) = state.origin.remote
        {
            self.site.admission.leave(remote.ip());
        }
    }

    /// Starts TLS on the connection.
    fn secure(&self, conn: Conn<'_>, state: &mut Connection, way: &Way) {
        let Some(acceptor) = &way.acceptor else { return };
        let session = acceptor.borrow_mut().accept(self.local.cx.wall());
        conn.secure(Box::new(session));
        state.origin.secure = true;
        conn.set_deadline(Some(self.site.limits.handshake_timeout));
    }

    /// Handles a failed TLS handshake, or one that could not start; the alert or the response is written already.
    pub(super) fn refused_by_tls(&self, conn: Conn<'_>, state: &mut Connection) {
        let Some(fault) = conn.layer(|tls: &mut Tls| tls.fault().cloned()).flatten() else {
            return;
        };
        let local = &self.local;
        let remote = fmt::from_fn(|f| match state.origin.remote {
            Some(address) => address.fmt(f),
            None => f.write_str("unix"),
        });
        match fault.kind {
            FaultKind::PlainHttp => {
                if let Some(left_out) = local.plain_http.admit(local.cx.now()) {
                    log::info!("{remote}: {fault}; answered 400: this port speaks TLS{left_out}");
                }
                let refused = Refused::unknown(local, h1::Version::Http11);
                self.note_refused(state.client(), 400, &refused);
                // The engine drops the bytes that still arrive.
                state.phase = Phase::Lingering { left: 0 };
            }
            FaultKind::ServerName => {
                if let Some(left_out) = local.server_names.admit(local.cx.now()) {
                    log::info!("{remote}: TLS: {fault}{left_out}");
                }
            }
            _ => log::debug!("{remote}: TLS: {fault}"),
        }
    }

    /// Hands a connection to a stream handler.
    fn take(&self, conn: Conn<'_>, state: &mut Connection, way: &Rc<Way>, handler: &Arc<StreamHandler>) {
        let counted = std::mem::take(&mut state.counted);
        let place = counted.then(|| Entered {
            site: Arc::clone(&self.site),
            address: state.origin.remote.map(|address| address.ip()),
        });
        state.phase = Phase::Taken;
        let incoming = Incoming::new(conn.into_stream(), state.origin, Rc::clone(way), &self.local);
        let served = handler(incoming);
        let task = async move {
            served.await;
            drop(place);
        };
        // Without room for a task the stream is dropped, which closes the connection.
        let _ = self.local.cx.spawn(task);
    }
}
