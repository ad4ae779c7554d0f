//! Relays bytes between two connections until both sides have closed, one resets, both are silent for too long, or it is their turn in a
//! shutdown: clients of unknown protocols can only be cut, so that the turns are at the end of the grace time
//! ([`Cx::last_drain_turn`]).
//!
//! ```text
//! each way:  Open ─┬─ the sender's end ────▶ Ending ──── all handed on, FIN ──▶ Ended
//!                  ├─ the sender breaks off ─▶ Breaking ── all handed on ──────▶ Broken, both are reset
//!                  └─ the receiver breaks off ─────────────────────────────────▶ Refused, the other way continues
//! ```
//!
//! Bytes are read only when they can be forwarded: a slow reader slows its sender. A half-close is forwarded as a half-close, a reset,
//! an idle timeout and the turn as a reset, so that a truncated stream does not look complete. A receiver that resets its connection may have sent bytes
//! before, such as an early response: these are still delivered.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_engine::{Cx, Sleep};

use super::access_log::ConnectionLog;
use crate::limits::STREAM_REST;
use crate::stats::ConnectionEnd;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    /// The sender has closed its side.
    Flushing,
    /// Everything was forwarded, including the end.
    Closed,
    /// The sender has reset; earlier bytes are still forwarded to the receiver.
    Resetting,
    /// The sender has reset, and all earlier bytes were forwarded.
    Reset,
    /// The receiver accepts no more bytes.
    Refused,
}

impl Direction {
    fn is_finished(self) -> bool {
        matches!(self, Direction::Closed | Direction::Reset | Direction::Refused)
    }
}

/// Relays bytes in both directions. Returns the way the connection ended.
pub(super) async fn relay_connections(
    client: Stream,
    upstream: Stream,
    idle: Option<Duration>,
    log: &ConnectionLog,
) -> ConnectionEnd {
    let (mut up, mut down) = (Direction::Open, Direction::Open);
    let mut first = None;
    // A deadline would close them in order, and a truncated stream would look complete.
    for stream in [&client, &upstream] {
        stream.set_deadline(None);
    }
    let mut idle_timer = idle.map(|idle| IdleTimer::new(client.cx(), idle));
    let mut is_resting = false;
    let mut turn = pin!(client.cx().last_drain_turn());
    let ended = poll_fn(|context| {
        let bytes_moved = log.bytes_moved();
        poll_direction(&client, &upstream, &mut up, context, |count| {
            log.count_received(count)
        });
        poll_direction(&upstream, &client, &mut down, context, |count| {
            log.count_sent(count)
        });
        first = first.or(match (up, down) {
            (Direction::Open, Direction::Open) => None,
            (Direction::Open, _) => Some(ConnectionEnd::Upstream),
            _ => Some(ConnectionEnd::Client),
        });
        match (up, down) {
            (Direction::Reset, _) => return Poll::Ready(ConnectionEnd::ClientReset),
            (_, Direction::Reset) => return Poll::Ready(ConnectionEnd::UpstreamReset),
            (Direction::Closed, Direction::Refused) => return Poll::Ready(ConnectionEnd::Client),
            (Direction::Refused, Direction::Closed) => return Poll::Ready(ConnectionEnd::Upstream),
            (up, down) if up.is_finished() && down.is_finished() => {
                return Poll::Ready(first.unwrap_or(ConnectionEnd::Client));
            }
            _ => {}
        }
        // A side that accepts no more bytes may have sent some before: an early response, then a close.
        let is_broken = |direction| matches!(direction, Direction::Resetting | Direction::Refused);
        if !is_resting && (is_broken(up) || is_broken(down)) {
            is_resting = true;
            let rest = idle.map_or(STREAM_REST, |idle| idle.min(STREAM_REST));
            idle_timer = Some(IdleTimer::new(client.cx(), rest));
        }
        if turn.as_mut().poll(context).is_ready() {
            return Poll::Ready(ConnectionEnd::Shutdown);
        }
        let bytes_moved = log.bytes_moved() != bytes_moved;
        match &mut idle_timer {
            Some(idle_timer) => idle_timer.poll(bytes_moved, context).map(|()| match (up, down) {
                (Direction::Refused, _) | (_, Direction::Resetting) => ConnectionEnd::UpstreamReset,
                (Direction::Resetting, _) | (_, Direction::Refused) => ConnectionEnd::ClientReset,
                _ => ConnectionEnd::Idle,
            }),
            None => Poll::Pending,
        }
    })
    .await;
    if !matches!(ended, ConnectionEnd::Client | ConnectionEnd::Upstream) {
        client.abort();
        upstream.abort();
    }
    ended
}

/// The idle timeout of both directions together.
struct IdleTimer {
    cx: Cx,
    max: Duration,
    idle_since: Time,
    sleep: Sleep,
}

impl IdleTimer {
    fn new(cx: &Cx, max: Duration) -> IdleTimer {
        IdleTimer {
            cx: cx.clone(),
            max,
            idle_since: cx.now(),
            sleep: cx.sleep(max),
        }
    }

    /// Ready when the timeout has expired. `bytes_moved`: bytes were just moved; the timer is not reset for that but checks when it fires.
    fn poll(&mut self, bytes_moved: bool, context: &mut Context<'_>) -> Poll<()> {
        let now = self.cx.now();
        if bytes_moved {
            self.idle_since = now;
        }
        loop {
            ready!(Pin::new(&mut self.sleep).poll(context));
            let remaining = self.max.saturating_sub(now.since(self.idle_since));
            if remaining.is_zero() {
                return Poll::Ready(());
            }
            self.sleep = self.cx.sleep(remaining);
        }
    }
}

/// Moves the bytes that can be moved now, and updates the direction's state.
fn poll_direction(
    from: &Stream,
    to: &Stream,
    direction: &mut Direction,
    context: &mut Context<'_>,
    mut count: impl FnMut(usize),
) {
    loop {
        let next = match *direction {
            Direction::Open => poll_bytes(from, to, context, &mut count),
            Direction::Flushing => to.poll_shutdown(context).map(|sent| match sent {
                Ok(()) => Direction::Closed,
                Err(_) => Direction::Refused,
            }),
            Direction::Resetting => to.poll_flush(context).map(|_| Direction::Reset),
            Direction::Closed | Direction::Reset | Direction::Refused => return,
        };
        match next {
            Poll::Ready(next) => *direction = next,
            Poll::Pending => return,
        }
    }
}

/// Moves bytes until none can be moved or the direction is no longer open.
fn poll_bytes(
    from: &Stream,
    to: &Stream,
    context: &mut Context<'_>,
    count: &mut impl FnMut(usize),
) -> Poll<Direction> {
    loop {
        let Ok(room) = ready!(to.poll_room(context)) else {
            return Poll::Ready(Direction::Refused);
        };
        let received = from.poll_received(context, |bytes| {
            let bytes = &bytes[..bytes.len().min(room)];
            // Fails if the connection has just closed, which the next call observes.
            match to.write_now(bytes) {
                Ok(()) => bytes.len(),
                Err(_closed) => 0,
            }
        });
        match ready!(received) {
            Err(_) => return Poll::Ready(Direction::Resetting),
            // An end without a TLS close_notify may be a truncation attack.
            Ok(0) if from.was_cut() => return Poll::Ready(Direction::Resetting),
            Ok(0) => return Poll::Ready(Direction::Flushing),
            Ok(bytes) => count(bytes),
        }
    }
}
