//! Sessions on WebSockets: those that talk both ways, and those that only listen.

use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::limits::MESSAGE_BYTES;
use ringmain_hub::protocol::{ConnectRequest, Disconnect, Format};
use ringmain_web::ws::{Closed, Message};
use ringmain_web::{Request, Result, Socket, Ws};

use crate::asking::Asker;
use crate::outlet::Outlet;
use crate::place::allowed;
use crate::session::Session;

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
        let session = Session::new(desk, format, false, Outlet::None, Asker::of(request));
        session.seat.pending.begin(handshake);
        Ok(Talking(session))
    }
}

impl Listening {
    pub(crate) fn open(request: &Request<'_>) -> Result<Listening> {
        let desk = allowed(request)?;
        let handshake = desk.enter()?;
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

    fn message(&mut self, _: &Ws, message: Message<'_>) -> Result {
        self.0.receive(Bytes::copy_from_slice(message.data()));
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        self.0.drained();
        Ok(())
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
    fn message(&mut self, _: &Ws, message: Message<'_>) -> Result {
        if !std::mem::replace(&mut self.has_begun, true) {
            let said = Some(message.data()).filter(|said| said.len() <= MESSAGE_BYTES);
            match said.map(|said| Format::Json.read::<ConnectRequest>(said)) {
                Some(Ok(connect)) => self.session.join(&connect),
                _ => self.session.seat.disconnect(Disconnect::BAD_REQUEST),
            }
        }
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        self.session.drained();
        Ok(())
    }

    fn closed(&mut self, _: &Closed<'_>) {
        self.session.over();
    }
}

/// Whoever is there has to say who it is.
fn opened(session: &Session, ws: &Ws) -> Result {
    *session.seat.outlet.borrow_mut() = Outlet::Ws(ws.clone());
    session.desk.stranger(Rc::clone(&session.seat));
    Ok(())
}
