//! What an application plugs into a worker: one value that handles all its connections' events.

use super::core::Via;
use super::cx::{Conn, Cx};
use super::record::Reason;

/// An application's or protocol's part of one worker.
///
/// All methods run on the worker's thread and must not block: a watchdog names the handler that does.
/// What happens on a connection arrives in this order: `open`, then any of `data`, `drained`, `deadline`,
/// `end`, `drain_pending`, `drain`, then `closed` exactly once (or `not_connected` instead of all of them).
///
/// What a peer may do, and what follows:
///
/// | the peer | outcome |
/// |---|---|
/// | does not read | above [`crate::limits::WRITE_MARK`] unsent bytes nothing is received from it; `drained` when it has taken half; beyond [`crate::limits::WRITE_LIMIT`] the write is refused and the connection ends with [`Reason::WriteLimit`] |
/// | does not read the last bytes after [`Conn::close`] | [`Reason::FlushTimeout`] after [`crate::Config::flush`] |
/// | sends what `data` does not consume | [`Reason::ReadLimit`] at [`crate::limits::READ_MARK`] bytes |
/// | sends FIN | `end`, after all bytes and after [`Conn::resume`] if it is paused; what was written is still sent |
/// | resets, or goes away with bytes unread | [`Reason::Failed`] |
///
/// A method that panics ends the connection at hand with [`Reason::Panicked`] (a reset for the peer); `closed`, `timer`,
/// `alarm` and `mail` have none at hand. Each panic is counted and the worker goes on. A method that holds its worker
/// for [`crate::Config::stall`] is named in the log; new connections that wait for this worker then go to the others.
pub trait Handler: 'static {
    /// State of one connection. Keep it small: an idle connection costs this and one record.
    type Conn: 'static;

    /// What other workers and threads may send to this one.
    type Mail: Send + 'static;

    /// The name under which the watchdog reports this handler.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// A connection was accepted or has been opened by [`Cx::connect`]. `None` if it needs no state here:
    /// it was closed, or [`Conn::into_stream`] has taken it.
    fn open(&mut self, conn: Conn<'_>, via: Via) -> Option<Self::Conn>;

    /// The layer that [`Conn::secure`] has put in place stands: what is written now leaves encrypted, and the peer is who it says, as
    /// far as the layer was asked to find out.
    fn secured(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = (conn, state);
    }

    /// The layer has found a fault; [`Conn::layer`] can be asked which. `closed` follows with [`Reason::Layer`].
    fn insecure(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = (conn, state);
    }

    /// Bytes have arrived: those not consumed before and the new ones. They may be changed in place.
    ///
    /// Returns how many were consumed from the front; the rest is kept and offered again with the
    /// next bytes. With [`crate::limits::READ_MARK`] bytes unconsumed and no pause asked for, the
    /// connection is closed with [`Reason::ReadLimit`].
    fn data(&mut self, conn: Conn<'_>, state: &mut Self::Conn, bytes: &mut [u8]) -> usize;

    /// The peer has sent its last byte. Unless overridden, the connection is closed when all that was
    /// written is sent. One that has announced its own last byte too ([`Conn::shutdown`]) is closed once
    /// that has left.
    fn end(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = state;
        conn.close();
    }

    /// Unsent bytes have fallen from above [`crate::limits::WRITE_MARK`] to below half of it.
    fn drained(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = (conn, state);
    }

    /// The deadline set by [`Conn::set_deadline`] has passed. Unless overridden, the connection ends.
    fn deadline(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = state;
        conn.abort_because(Reason::Deadline);
    }

    /// A shutdown begins after a delay ([`Config::drain_delay`](crate::Config::drain_delay)) in which listeners still accept: for protocols
    /// that can ask a client to use another connection. Connections that are opened later see it by [`Cx::is_drain_pending`].
    fn drain_pending(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = (conn, state);
    }

    /// The worker is shutting down. A connection is told after the bytes that it had sent by then were handled, also
    /// one that was still in the listen queue. Unless overridden, the connection is closed when all that was
    /// written is sent; a handler that overrides this must close it before the grace time ends.
    fn drain(&mut self, conn: Conn<'_>, state: &mut Self::Conn) {
        let _ = state;
        conn.close();
    }

    /// The connection is over; nothing can be written any more.
    fn closed(&mut self, cx: &Cx, state: Self::Conn, reason: Reason) {
        let _ = (cx, state, reason);
    }

    /// A connection asked for by [`Cx::connect`] did not come about: [`Reason::NotConnected`], or why it was given
    /// up before.
    fn not_connected(&mut self, cx: &Cx, conn: super::cx::ConnId, reason: Reason) {
        let _ = (cx, conn, reason);
    }

    /// A timer set by [`Cx::timer`] has fired.
    fn timer(&mut self, cx: &Cx, key: u64) {
        let _ = (cx, key);
    }

    /// The time given to [`Cx::set_alarm`] has come. The next alarm may be set here; one that is due already is told in
    /// the next turn, after what has arrived by then.
    fn alarm(&mut self, cx: &Cx) {
        let _ = cx;
    }

    /// Another worker or thread has sent something.
    fn mail(&mut self, cx: &Cx, mail: Self::Mail) {
        let _ = (cx, mail);
    }
}

/// A handler without state from a function of the received bytes, as for an echo server.
pub fn on_data<F>(function: F) -> impl Handler<Conn = (), Mail = ()>
where
    F: FnMut(Conn<'_>, &mut [u8]) -> usize + 'static,
{
    OnData(function)
}

struct OnData<F>(F);

impl<F: FnMut(Conn<'_>, &mut [u8]) -> usize + 'static> Handler for OnData<F> {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, _conn: Conn<'_>, _via: Via) -> Option<()> {
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        (self.0)(conn, bytes)
    }
}
