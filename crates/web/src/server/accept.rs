//! Accepting connections: the listener protocol, the client's address, and the phases before the first request.
//!
//! ```text
//! open ─┬─ PROXY protocol ─▶ AwaitingProxyHeader ─ header ─┐
//!       └──────────────────────────────────────────────────┴▶ under the limit? ─┬─ HTTP ────────────▶ Head
//!                                                                               ├─ h2c ─────────────▶ Http2
//!                                                                               ├─ HTTPS ───────────▶ TLS, Head
//!                                                                               ├─ stream ──────────▶ Detached
//!                                                                               └─ HTTPS or stream ─▶ SniffingHello ─ SNI ─▶ either
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

use super::connection::{ConnPhase, Connection};
use super::rejected::RejectedRequest;
use super::{HttpServer, NextAction, response};
use crate::app::compiled::CompiledApp;
use crate::app::listener_protocol::{ListenerProtocol, ListenerProtocols, ProtocolKind, StreamHandler};
use crate::http::error::Error;
use crate::server::peer::PeerInfo;
use crate::server::stream_connection::StreamConnection;
use crate::stats::{Rejection, WorkerStats};

/// A listener protocol with the state of one worker.
pub(crate) struct ListenerState {
    generation: u64,
    protocol: ListenerProtocol,
    /// The handle that starts TLS for HTTP.
    acceptor: Option<RefCell<AcceptHandle>>,
    /// The handle that starts TLS for stream handlers.
    stream_acceptor: Option<RefCell<AcceptHandle>>,
}

impl ListenerState {
    fn new(generation: u64, protocol: ListenerProtocol) -> Rc<ListenerState> {
        let acceptor = match &protocol.kind {
            ProtocolKind::Https(acceptor) => Some(acceptor.handle()),
            ProtocolKind::HttpsOrStream(https_or_stream) => Some(https_or_stream.https.handle()),
            ProtocolKind::Http | ProtocolKind::H2c | ProtocolKind::Stream(_) => None,
        };
        let stream_acceptor = protocol.tls.as_ref().map(|acceptor| acceptor.handle());
        Rc::new(ListenerState {
            generation,
            protocol,
            acceptor: acceptor.map(RefCell::new),
            stream_acceptor: stream_acceptor.map(RefCell::new),
        })
    }

    /// Returns a TLS session for a stream handler; `now` is wall time.
    pub(crate) fn stream_tls_session(&self, now: Duration) -> Option<Tls> {
        Some(self.stream_acceptor.as_ref()?.borrow_mut().accept(now))
    }
}

/// All listener protocols with the state of one worker.
pub(super) struct ListenerTable {
    protocols: ListenerProtocols,
    generation: Cell<u64>,
    all: RefCell<Vec<Rc<ListenerState>>>,
    /// For listeners without a setting.
    fallback: Rc<ListenerState>,
}

impl ListenerTable {
    pub(super) fn new(protocols: &ListenerProtocols) -> ListenerTable {
        ListenerTable {
            protocols: protocols.clone(),
            // Read before the list: a listener protocol that changes in between is only checked twice.
            generation: Cell::new(protocols.generation()),
            all: RefCell::new(
                protocols
                    .list()
                    .into_iter()
                    .map(|(generation, protocol)| ListenerState::new(generation, protocol))
                    .collect(),
            ),
            fallback: ListenerState::new(0, ListenerProtocol::http()),
        }
    }

    /// Returns a number that changes with each change of a listener protocol.
    fn generation(&self) -> u16 {
        self.protocols.generation() as u16
    }

    /// Returns the current listener protocol of a listener.
    fn current(&self, listener: u32) -> Rc<ListenerState> {
        let generation = self.protocols.generation();
        let mut all = self.all.borrow_mut();
        if self.generation.replace(generation) != generation {
            let list = self.protocols.list().into_iter().enumerate();
            *all = list
                .map(|(number, (generation, protocol))| match all.get(number) {
                    Some(listener_state) if listener_state.generation == generation => {
                        Rc::clone(listener_state)
                    }
                    _ => ListenerState::new(generation, protocol),
                })
                .collect();
        }
        Rc::clone(all.get(listener as usize).unwrap_or(&self.fallback))
    }
}

/// A connection that may be HTTP or a stream, until its ClientHello is read.
pub(crate) struct SniffingHello {
    listener_state: Rc<ListenerState>,
    scanner: HelloScanner,
}

/// Removes a stream from the counts of its address and its listener when dropped.
struct ConnectionCountGuard {
    app: Arc<CompiledApp>,
    stats: Arc<WorkerStats>,
    /// `None`: it is not counted at its address.
    address: Option<IpAddr>,
    listener: u32,
}

impl Drop for ConnectionCountGuard {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            self.app.connection_limit.release(address);
        }
        self.stats.connection_closed(self.listener);
    }
}

/// Returns the peer's address; `None`: a Unix socket.
fn peer_address(conn: Conn<'_>) -> Option<SocketAddr> {
    match conn.peer_addr() {
        Ok(Some(Addr::Inet(address))) => Some(address),
        _ => None,
    }
}

impl HttpServer {
    /// Opens a new connection. `None`: it is closed, or a stream handler owns it.
    pub(super) fn open(&self, conn: Conn<'_>, via: Via, out: &mut Vec<u8>) -> Option<Connection> {
        let mut state = self.new_connection(conn, via);
        let stats = &self.worker.stats;
        stats.connection_opened(state.peer.listener);
        let is_open = self.admit(conn, &mut state, out);
        if matches!(state.phase, ConnPhase::Detached) {
            return None;
        }
        if !is_open {
            stats.connection_closed(state.peer.listener);
            return None;
        }
        Some(state)
    }

    /// Applies the protocol of the listener; returns whether the connection continues.
    fn admit(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) -> bool {
        let listener_state = self.listeners.current(state.peer.listener);
        state.listener_generation = self.listeners.generation();
        if let Some(proxy_protocol) = &listener_state.protocol.proxy_protocol {
            let peer_address = state.peer.remote.map(|address| address.ip());
            if !(proxy_protocol.is_trusted)(peer_address) {
                return false;
            }
            conn.set_deadline(Some(proxy_protocol.timeout));
            state.phase = ConnPhase::AwaitingProxyHeader(listener_state);
            return true;
        }
        self.start_protocol(conn, state, &listener_state, out)
    }

    /// Returns true if the current settings would accept the connection as it was accepted: a reload may have changed the trusted
    /// senders of PROXY protocol headers. Checked once per change of a listener protocol.
    pub(super) fn is_still_accepted(&self, conn: Conn<'_>, state: &mut Connection) -> bool {
        let generation = self.listeners.generation();
        if generation == state.listener_generation {
            return true;
        }
        let accepted = match &self
            .listeners
            .current(state.peer.listener)
            .protocol
            .proxy_protocol
        {
            None => !state.has_proxy_header,
            Some(proxy_protocol) => {
                state.has_proxy_header
                    && (proxy_protocol.is_trusted)(peer_address(conn).map(|address| address.ip()))
            }
        };
        if accepted {
            state.listener_generation = generation;
        }
        accepted
    }

    /// Handles the bytes before the first request; returns the number of consumed bytes.
    pub(super) fn receive_before_http(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> usize {
        let mut consumed = 0;
        if let ConnPhase::AwaitingProxyHeader(listener_state) = &state.phase {
            let listener_state = Rc::clone(listener_state);
            consumed = self.parse_proxy_header(conn, state, &listener_state, bytes, out);
        }
        if matches!(state.phase, ConnPhase::SniffingHello(_)) {
            self.select_by_server_name(conn, state, &bytes[consumed..]);
        }
        consumed
    }

    /// Returns the state of a new connection, with its origin.
    fn new_connection(&self, conn: Conn<'_>, via: Via) -> Connection {
        let remote = peer_address(conn);
        let listener = match via {
            Via::Listener(number) => number,
            Via::Connect => u32::MAX,
        };
        let peer = PeerInfo {
            conn: conn.id(),
            remote,
            listener,
            secure: false,
        };
        Connection::new(self.worker.cx.now(), peer)
    }

    /// Counts the connection at its address; `false`: the address has reached its limit.
    fn count_connection(&self, state: &mut Connection) -> bool {
        let connection_limit = &self.app.connection_limit;
        match state.peer.remote {
            Some(address) if connection_limit.is_enabled() => {
                state.counted = connection_limit.acquire(address.ip());
                state.counted
            }
            _ => true,
        }
    }

    /// Admits a client whose address is known; returns whether the connection continues.
    fn start_protocol(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        listener_state: &Rc<ListenerState>,
        out: &mut Vec<u8>,
    ) -> bool {
        let kind = &listener_state.protocol.kind;
        if !self.count_connection(state) {
            if !matches!(kind, ProtocolKind::Http) {
                // No reason can be sent before a handshake, or in an unknown protocol.
                return false;
            }
            let error =
                Error::new(503, "too many connections from this address").with_header("Retry-After", "1");
            response::encode_rejection(&self.worker, &error, h1::Exchange::REFUSED, None, out);
            self.worker.stats.rejected(Rejection::AddressConnections);
            self.worker.stats.answered(503);
            // Its request is in flight: read and dropped, because a reset could lose the response.
            self.flush(conn, state, out, NextAction::Linger);
            return true;
        }
        match kind {
            ProtocolKind::Http => conn.set_deadline(Some(self.app.limits.header_timeout)),
            ProtocolKind::H2c => self.begin_http2(conn, state, out),
            ProtocolKind::Https(_) => self.start_tls(conn, state, listener_state),
            ProtocolKind::Stream(handler) => self.detach_stream(conn, state, listener_state, handler),
            ProtocolKind::HttpsOrStream(_) => {
                conn.set_deadline(Some(self.app.limits.handshake_timeout));
                let scanner = HelloScanner::new();
                let listener_state = Rc::clone(listener_state);
                state.phase = ConnPhase::SniffingHello(Box::new(SniffingHello {
                    listener_state,
                    scanner,
                }));
            }
        }
        true
    }

    /// Consumes the PROXY protocol header; returns its length.
    fn parse_proxy_header(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        listener_state: &Rc<ListenerState>,
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
                    state.peer.remote = Some(addresses.from);
                }
                state.has_proxy_header = true;
                state.phase = ConnPhase::Head;
                state.started_at = self.worker.cx.now();
                if self.start_protocol(conn, state, listener_state, out) {
                    return length;
                }
                conn.close();
                bytes.len()
            }
            Err(fault) => {
                log::debug!("{:?}: {fault}", state.peer.remote);
                conn.close();
                bytes.len()
            }
        }
    }

    /// Reads the server name (SNI) and selects HTTP or the stream handler.
    fn select_by_server_name(&self, conn: Conn<'_>, state: &mut Connection, bytes: &[u8]) {
        let ConnPhase::SniffingHello(sniffing) = &mut state.phase else {
            return;
        };
        let listener_state = Rc::clone(&sniffing.listener_state);
        let ProtocolKind::HttpsOrStream(https_or_stream) = &listener_state.protocol.kind else {
            return;
        };
        match sniffing.scanner.look(bytes) {
            Ok(Looked::NeedMore) => {}
            Ok(Looked::Hello(hello)) if (https_or_stream.is_http)(hello.server_name.as_deref()) => {
                state.phase = ConnPhase::Head;
                self.start_tls(conn, state, &listener_state);
            }
            // The stream handler also serves clients that do not speak TLS.
            Ok(Looked::Hello(_)) | Err(_) => {
                conn.set_deadline(None);
                self.detach_stream(conn, state, &listener_state, &https_or_stream.handler);
            }
        }
    }

    /// Removes the connection from the counts of its listener and its address.
    pub(super) fn uncount_connection(&self, state: &Connection) {
        self.worker.stats.connection_closed(state.peer.listener);
        if state.counted
            && let Some(remote) = state.peer.remote
        {
            self.app.connection_limit.release(remote.ip());
        }
    }

    /// Starts TLS on the connection.
    fn start_tls(&self, conn: Conn<'_>, state: &mut Connection, listener_state: &ListenerState) {
        let Some(acceptor) = &listener_state.acceptor else {
            return;
        };
        let session = acceptor.borrow_mut().accept(self.worker.cx.wall());
        conn.secure(Box::new(session));
        state.peer.secure = true;
        conn.set_deadline(Some(self.app.limits.handshake_timeout));
    }

    /// Handles a failed TLS handshake, or one that could not start; the alert or the response is written already.
    pub(super) fn on_tls_failure(&self, conn: Conn<'_>, state: &mut Connection) {
        let Some(fault) = conn.layer(|tls: &mut Tls| tls.fault().cloned()).flatten() else {
            return;
        };
        let worker = &self.worker;
        let remote = fmt::from_fn(|f| match state.peer.remote {
            Some(address) => address.fmt(f),
            None => f.write_str("unix"),
        });
        match fault.kind {
            FaultKind::PlainHttp => {
                if let Some(suppressed) = worker.plain_http_on_tls_port.admit(worker.cx.now()) {
                    log::info!("{remote}: {fault}; answered 400: this port speaks TLS{suppressed}");
                }
                let rejected = RejectedRequest::unknown(worker, h1::Version::Http11);
                self.log_rejected_request(state.client(), 400, &rejected);
                // The engine drops the bytes that still arrive.
                state.phase = ConnPhase::Lingering { left: 0 };
            }
            FaultKind::ServerName => {
                if let Some(suppressed) = worker.invalid_server_names.admit(worker.cx.now()) {
                    log::info!("{remote}: TLS: {fault}{suppressed}");
                }
            }
            _ => log::debug!("{remote}: TLS: {fault}"),
        }
    }

    /// Hands a connection to a stream handler.
    fn detach_stream(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        listener_state: &Rc<ListenerState>,
        handler: &Arc<StreamHandler>,
    ) {
        let counted = std::mem::take(&mut state.counted);
        let address = state.peer.remote.filter(|_| counted);
        let count_guard = ConnectionCountGuard {
            app: Arc::clone(&self.app),
            stats: Arc::clone(&self.worker.stats),
            address: address.map(|address| address.ip()),
            listener: state.peer.listener,
        };
        state.phase = ConnPhase::Detached;
        let connection = StreamConnection::new(
            conn.into_stream(),
            state.peer,
            Rc::clone(listener_state),
            &self.worker,
        );
        let handler_future = handler(connection);
        let task = async move {
            handler_future.await;
            drop(count_guard);
        };
        // Without room for a task the stream is dropped, which closes the connection.
        let _ = self.worker.cx.spawn(task);
    }
}
