//! Connections that become WebSockets: the switch, and the phases after the socket. The open socket belongs to `crate::ws`.

use ringmain_engine::Conn;

use super::connection::{ConnPhase, Connection};
use super::{HttpServer, NextAction, response};
use crate::http::reply::Reply;
use crate::ws::{Upgrade, WsSession, WsTransport};

impl HttpServer {
    /// Responds with 101: from here on the connection carries WebSocket frames.
    pub(super) fn switch_to_websocket(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        upgrade: Upgrade,
        reply: &mut Reply<'_>,
        out: &mut Vec<u8>,
    ) -> NextAction {
        response::encode_switch(reply, &upgrade.acceptance, out);
        self.count_response(101, state);
        self.worker.log(reply.request, 101, 0, state.started_at);
        // The 101 precedes the first message.
        self.flush(conn, state, out, NextAction::Wait);
        let mut ws_session = upgrade.into_session(&self.worker.sockets, WsTransport::Connection(conn.id()));
        ws_session.open();
        state.phase = ConnPhase::Socket(ws_session);
        NextAction::Wait
    }

    /// Calls the connection's socket, then moves to the next phase if it has closed. Returns true if the connection is a socket.
    pub(super) fn on_socket(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        call: impl FnOnce(&mut WsSession),
    ) -> bool {
        let ConnPhase::Socket(ws_session) = &mut state.phase else {
            return false;
        };
        call(ws_session);
        if ws_session.is_closed() {
            self.linger(conn, state);
        }
        true
    }

    /// Passes bytes to the socket; returns the number of consumed bytes.
    pub(super) fn socket_data(&self, conn: Conn<'_>, state: &mut Connection, bytes: &mut [u8]) -> usize {
        let mut consumed = 0;
        self.on_socket(conn, state, |ws_session| consumed = ws_session.receive(bytes));
        consumed
    }
}
