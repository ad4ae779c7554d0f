//! Relays bytes between two connections until both sides have closed, one resets, or both are silent for too long.
//!
//! ```text
//! each way:  Open ─┬─ the sender's end ────▶ Ending ──── all handed on, FIN ──▶ Ended
//!                  ├─ the sender breaks off ─▶ Breaking ── all handed on ──────▶ Broken, both are reset
//!                  └─ the receiver breaks off ─────────────────────────────────▶ Refused, the other way continues
//! ```
//!
//! Bytes are read only when they can be forwarded: a slow reader slows its sender. A half-close is forwarded as a half-close, a reset and
//! an idle timeout as a reset, so that a truncated stream does not look complete. A receiver that resets its connection may have sent bytes
//! before, such as an early response: these are still delivered.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_engine::{Cx, Sleep};

use super::access_log::Passing;
use crate::limits::STREAM_REST;
use crate::stats::Ended;

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// The sender has closed its side.
    Ending,
    /// Everything was forwarded, including the end.
    Ended,
    /// The sender has reset; earlier bytes are still forwarded to the receiver.
    Breaking,
    /// The sender has reset, and all earlier bytes were forwarded.
    Broken,
    /// The receiver accepts no more bytes.
    Refused,
}

impl Way {
    fn is_over(self) -> bool {
        matches!(self, Way::Ended | Way::Broken | Way::Refused)
    }
}

/// Relays bytes in both directions. Returns the way the connection ended.
pub(super) async fn run(
    client: Stream,
    upstream: Stream,
    idle: Option<Duration>,
    passing: &Passing,
) -> Ended {
    let (mut up, mut down) = (Way::Open, Way::Open);
    let mut first = None;
    // A deadline would close them in order, and a truncated stream would look complete.
    for stream in [&client, &upstream] {
        stream.set_deadline(None);
    }
    let mut silence = idle.map(|idle| Silence::new(client.cx(), idle));
    let mut is_resting = false;
    let ended = poll_fn(|context| {
        let moved = passing.moved();
        poll_way(&client, &upstream, &mut up, context, |count| {
            passing.received(count)
        });
        poll_way(&upstream, &client, &mut down, context, |count| {
            passing.sent(count)
        });
        first = first.or(match (up, down) {
            (Way::Open, Way::Open) => None,
            (Way::Open, _) => Some(Ended::Upstream),
            _ => Some(Ended::Client),
        });
        match (up, down) {
            (Way::Broken, _) => return Poll::Ready(Ended::ClientReset),
            (_, Way::Broken) => return Poll::Ready(Ended::UpstreamReset),
            (Way::Ended, Way::Refused) => return Poll::Ready(Ended::Client),
            (Way::Refused, Way::Ended) => return Poll::Ready(Ended::Upstream),
            (up, down) if up.is_over() && down.is_over() => {
                return Poll::Ready(first.unwrap_or(Ended::Client));
            }
            _ => {}
        }
        // A side that accepts no more bytes may have sent some before: an early response, then a close.
        let broken = |way| matches!(way, Way::Breaking | Way::Refused);
        if !is_resting && (broken(up) || broken(down)) {
            is_resting = true;
            let rest = idle.map_or(STREAM_REST, |idle| idle.min(STREAM_REST));
            silence = Some(Silence::new(client.cx(), rest));
        }
        let moved = passing.moved() != moved;
        match &mut silence {
            Some(silence) => silence.poll(moved, context).map(|()| match (up, down) {
                (Way::Refused, _) | (_, Way::Breaking) => Ended::UpstreamReset,
                (Way::Breaking, _) | (_, Way::Refused) => Ended::ClientReset,
                _ => Ended::Idle,
            }),
            None => Poll::Pending,
        }
    })
    .await;
    if !matches!(ended, Ended::Client | Ended::Upstream) {
        client.abort();
        upstream.abort();
    }
    ended
}

/// The idle timeout of both directions together.
struct Silence {
    cx: Cx,
    most: Duration,
    since: Time,
    sleep: Sleep,
}

impl Silence {
    fn new(cx: &Cx, most: Duration) -> Silence {
        Silence {
            cx: cx.clone(),
            most,
            since: cx.now(),
            sleep: cx.sleep(most),
        }
    }

    /// Ready when the timeout has expired. `moved`: bytes were just moved; the timer is not reset for that but checks when it fires.
    fn poll(&mut self, moved: bool, context: &mut Context<'_>) -> Poll<()> {
        let now = self.cx.now();
        if moved {
            self.since = now;
        }
        loop {
            ready!(Pin::new(&mut self.sleep).poll(context));
            let left = self.most.saturating_sub(now.since(self.since));
            if left.is_zero() {
                return Poll::Ready(());
            }
            self.sleep = self.cx.sleep(left);
        }
    }
}

/// Moves the bytes that can be moved now, and updates the direction's state.
fn poll_way(
    from: &Stream,
    to: &Stream,
    way: &mut Way,
    context: &mut Context<'_>,
    mut count: impl FnMut(usize),
) {
    loop {
        let next = match *way {
            Way::Open => poll_bytes(from, to, context, &mut count),
            Way::Ending => to.poll_shutdown(context).map(|sent| match sent {
                Ok(()) => Way::Ended,
                Err(_) => Way::Refused,
            }),
            Way::Breaking => to.poll_flush(context).map(|_| Way::Broken),
            Way::Ended | Way::Broken | Way::Refused => return,
        };
        match next {
            Poll::Ready(next) => *way = next,
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
) -> Poll<Way> {
    loop {
        let Ok(room) = ready!(to.poll_room(context)) else {
            return Poll::Ready(Way::Refused);
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
            Err(_) => return Poll::Ready(Way::Breaking),
            // An end without a TLS close_notify may be a truncation attack.
            Ok(0) if from.was_cut() => return Poll::Ready(Way::Breaking),
            Ok(0) => return Poll::Ready(Way::Ending),
            Ok(moved) => count(moved),
        }
    }
}
