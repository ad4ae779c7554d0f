//! Sessions on WebSockets: those that talk both ways, and those that only listen.

use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::protocol::{ConnectRequest, Disconnect, Format};
use ringmain_web::ws::{CloseCode, Closed, Message};
use ringmain_web::{Request, Result, Socket, Ws};

use crate::app_proxy::Asker;
use crate::client::commands::Session;
use crate::transport::Outlet;
use crate::transport::http_stream::limit_silence;
use crate::worker::worker_slot::allowed;

/// Both ways.
pub(crate) struct Talking(Session);

/// Only listens, once it has said who it is.
pub(crate) struct Listening {
    session: Session,
    has_begun: bool,
}

impl Talking {
    pub(crate) fn open(request: &Request<'_>) -> Result<Talking> {
        let desk = allowed(request)?;
        let asked = request.header("sec-websocket-protocol").unwrap_or_default();
        let binary = Format::Protobuf.subprotocol();
        let query = request.target().split_once('?').map_or("", |(_, query)| query);
        let mut parts = query.split('&');
        let is_binary = asked.split(',').any(|one| one.trim() == binary)
            || parts.any(|part| matches!(part, "cf_protocol=protobuf" | "format=protobuf"));
        let format = if is_binary { Format::Protobuf } else { Format::Json };
        let handshake = desk.enter()?;
        limit_silence(request, desk);
        let session = Session::new(desk, format, false, Outlet::None, Asker::of(request));
        session.seat.pending.begin(handshake);
        Ok(Talking(session))
    }
}

impl Listening {
    pub(crate) fn open(request: &Request<'_>) -> Result<Listening> {
        let desk = allowed(request)?;
        let handshake = desk.enter()?;
        limit_silence(request, desk);
        let session = Session::new(desk, Format::Json, true, Outlet::None, Asker::of(request));
        session.seat.pending.begin(handshake);
        Ok(Listening {
            session,
            has_begun: false,
        })
    }
}

impl Socket for Talking {
    fn opened(&mut self, ws: &Ws) -> Result {
        opened(&self.0, ws)
    }

    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        match is_too_long(&self.0, message) {
            true => close_too_long(ws),
            false => self.0.receive(Bytes::copy_from_slice(message.data())),
        }
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        self.0.drained();
        Ok(())
    }

    /// The desk sends clients away one after the other.
    fn shuts_down(&mut self, _: &Ws) -> bool {
        true
    }

    fn closed(&mut self, _: &Closed<'_>) {
        self.0.over();
    }
}

impl Socket for Listening {
    fn opened(&mut self, ws: &Ws) -> Result {
        opened(&self.session, ws)
    }

    /// The first says who it is. What follows is nothing to us.
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        if !std::mem::replace(&mut self.has_begun, true) {
            if is_too_long(&self.session, message) {
                close_too_long(ws);
                return Ok(());
            }
            match Format::Json.read::<ConnectRequest>(message.data()) {
                Ok(connect) => self.session.join(&connect),
                Err(_) => self.session.seat.disconnect(Disconnect::BAD_REQUEST),
            }
        }
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        self.session.drained();
        Ok(())
    }

    /// The desk sends clients away one after the other.
    fn shuts_down(&mut self, _: &Ws) -> bool {
        true
    }

    fn closed(&mut self, _: &Closed<'_>) {
        self.session.over();
    }
}

fn is_too_long(session: &Session, message: Message<'_>) -> bool {
    message.data().len() > session.desk.options().message_bytes
}

/// As Centrifugo does (RFC 6455 §7.4.1).
fn close_too_long(ws: &Ws) {
    ws.close(CloseCode::TOO_BIG, "message too big");
}

/// Whoever is there has to say who it is.
fn opened(session: &Session, ws: &Ws) -> Result {
    *session.seat.outlet.borrow_mut() = Outlet::Ws(ws.clone());
    session.desk.stranger(Rc::clone(&session.seat));
    Ok(())
}
