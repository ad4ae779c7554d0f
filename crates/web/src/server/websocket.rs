//! Connections that become WebSockets: the switch, and the phases after the socket. The open socket belongs to `crate::ws`.

use ringmain_engine::Conn;

use super::connection::{Connection, Phase};
use super::{Machine, Then, response};
use crate::http::reply::Reply;
use crate::ws::{Carrier, Live, Upgrade};

impl Machine {
    /// Responds with 101: from here on the connection carries WebSocket frames.
    pub(super) fn switch(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        upgrade: Upgrade,
        reply: &mut Reply<'_>,
        out: &mut Vec<u8>,
    ) -> Then {
        response::switch(reply, &upgrade.acceptance, out);
        self.count(101, state);
        self.local.log(reply.request, 101, 0, state.began);
        // The 101 precedes the first message.
        self.flush(conn, state, out, Then::Wait);
        let mut live = upgrade.into_live(&self.local.sockets, Carrier::Connection(conn.id()));
        live.open();
        state.phase = Phase::Socket(live);
        Then::Wait
    }

    /// Calls the connection's socket, then moves to the next phase if it has closed. Returns true if the connection is a socket.
    pub(super) fn on_socket(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        call: impl FnOnce(&mut Live),
    ) -> bool {
        let Phase::Socket(live) = &mut state.phase else {
            return false;
        };
        call(live);
        if live.is_over() {
            self.linger(conn, state);
        }
        true
    }

    /// Passes bytes to the socket; returns the number of consumed bytes.
    pub(super) fn socket_data(&self, conn: Conn<'_>, state: &mut Connection, bytes: &mut [u8]) -> usize {
        let mut consumed = 0;
        self.on_socket(conn, state, |live| consumed = live.receive(bytes));
        consumed
    }
}
