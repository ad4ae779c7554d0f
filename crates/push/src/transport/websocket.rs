//! Sessions on WebSockets: bidirectional and unidirectional ones.

use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::protocol::{ConnectRequest, Disconnect, Format};
use ringmain_web::ws::{CloseCode, Closed, Message};
use ringmain_web::{Request, Result, Socket, Ws};

use crate::app_proxy::ProxyClient;
use crate::client::commands::CommandHandler;
use crate::transport::Transport;
use crate::transport::http_stream::limit_unacknowledged;
use crate::worker::worker_slot::origin_checked_worker;

/// A bidirectional session.
pub(crate) struct BidirectionalSocket(CommandHandler);

/// A unidirectional session, which sends one connect request.
pub(crate) struct UnidirectionalSocket {
    session: CommandHandler,
    has_connected: bool,
}

impl BidirectionalSocket {
    pub(crate) fn open(request: &Request<'_>) -> Result<BidirectionalSocket> {
        let worker = origin_checked_worker(request)?;
        let subprotocols = request.header("sec-websocket-protocol").unwrap_or_default();
        let binary = Format::Protobuf.subprotocol();
        let query = request.target().split_once('?').map_or("", |(_, query)| query);
        let mut parts = query.split('&');
        let is_binary = subprotocols.split(',').any(|protocol| protocol.trim() == binary)
            || parts.any(|part| matches!(part, "cf_protocol=protobuf" | "format=protobuf"));
        let format = if is_binary { Format::Protobuf } else { Format::Json };
        let handshake = worker.admit_connection()?;
        limit_unacknowledged(request, worker);
        let session = CommandHandler::new(
            worker,
            format,
            false,
            Transport::None,
            ProxyClient::from_request(request),
        );
        session.client.pending.start_handshake(handshake);
        Ok(BidirectionalSocket(session))
    }
}

impl UnidirectionalSocket {
    pub(crate) fn open(request: &Request<'_>) -> Result<UnidirectionalSocket> {
        let worker = origin_checked_worker(request)?;
        let handshake = worker.admit_connection()?;
        limit_unacknowledged(request, worker);
        let session = CommandHandler::new(
            worker,
            Format::Json,
            true,
            Transport::None,
            ProxyClient::from_request(request),
        );
        session.client.pending.start_handshake(handshake);
        Ok(UnidirectionalSocket {
            session,
            has_connected: false,
        })
    }
}

impl Socket for BidirectionalSocket {
    fn opened(&mut self, ws: &Ws) -> Result {
        start_session(&self.0, ws)
    }

    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        if is_too_long(&self.0, message) {
            close_too_long(ws)
        } else {
            self.0.receive_message(Bytes::copy_from_slice(message.data()))
        }
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        self.0.on_drained();
        Ok(())
    }

    /// The worker disconnects clients one after the other.
    fn shuts_down(&mut self, _: &Ws) -> bool {
        true
    }

    fn closed(&mut self, _: &Closed<'_>) {
        self.0.on_closed();
    }
}

impl Socket for UnidirectionalSocket {
    fn opened(&mut self, ws: &Ws) -> Result {
        start_session(&self.session, ws)
    }

    /// Handles the first message, the connect request. Further ones are ignored.
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        if !std::mem::replace(&mut self.has_connected, true) {
            if is_too_long(&self.session, message) {
                close_too_long(ws);
                return Ok(());
            }
            match Format::Json.read::<ConnectRequest>(message.data()) {
                Ok(connect) => self.session.connect_unidirectional(&connect),
                Err(_) => self.session.client.disconnect(Disconnect::BAD_REQUEST),
            }
        }
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        self.session.on_drained();
        Ok(())
    }

    /// The worker disconnects clients one after the other.
    fn shuts_down(&mut self, _: &Ws) -> bool {
        true
    }

    fn closed(&mut self, _: &Closed<'_>) {
        self.session.on_closed();
    }
}

fn is_too_long(session: &CommandHandler, message: Message<'_>) -> bool {
    message.data().len() > session.worker.options().message_bytes
}

/// Closes as Centrifugo does (RFC 6455 §7.4.1).
fn close_too_long(ws: &Ws) {
    ws.close(CloseCode::TOO_BIG, "message too big");
}

/// Starts a session, whose client has to connect in time.
fn start_session(session: &CommandHandler, ws: &Ws) -> Result {
    *session.client.transport.borrow_mut() = Transport::Ws(ws.clone());
    session.worker.await_connect(Rc::clone(&session.client));
    Ok(())
}
