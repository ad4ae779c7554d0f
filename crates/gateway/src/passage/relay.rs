//! Bytes both ways between two connections, until both sides have ended, one breaks off, or nothing comes for too long.
//!
//! ```text
//! each way:  Open ── the sender's end ──▶ Ending ── all handed on, FIN ──▶ Ended
//! ```
//!
//! Nothing is read that could not be handed on: a slow reader slows its sender. An end is passed on as an end, a reset as a
//! reset, and so is silence: what is cut must not look whole.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_engine::{Cx, Sleep};

use super::note::Passing;
use crate::metrics::Ended;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Ending,
    Ended,
}

/// Why it is over before both ways have ended.
enum Broken {
    Sender,
    Receiver,
}

/// Passes bytes on; says how it ended.
pub(super) async fn run(
    client: Stream,
    upstream: Stream,
    idle: Option<Duration>,
    passing: &Passing,
) -> Ended {
    let (mut up, mut down) = (Way::Open, Way::Open);
    let mut first = None;
    // A deadline would close them in order, and what is cut would look whole.
    for stream in [&client, &upstream] {
        stream.set_deadline(None);
    }
    let mut silence = idle.map(|idle| Silence::new(client.cx(), idle));
    let ended = poll_fn(|context| {
        let moved = passing.moved();
        let upwards = poll_way(&client, &upstream, &mut up, context, |count| {
            passing.received(count)
        });
        let downwards = poll_way(&upstream, &client, &mut down, context, |count| {
            passing.sent(count)
        });
        first = first.or(match (up, down) {
            (Way::Open, Way::Open) => None,
            (Way::Open, _) => Some(Ended::Upstream),
            _ => Some(Ended::Client),
        });
        match (upwards, downwards) {
            (Poll::Ready(Err(Broken::Sender)), _) | (_, Poll::Ready(Err(Broken::Receiver))) => {
                return Poll::Ready(Ended::ClientReset);
            }
            (Poll::Ready(Err(Broken::Receiver)), _) | (_, Poll::Ready(Err(Broken::Sender))) => {
                return Poll::Ready(Ended::UpstreamReset);
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                return Poll::Ready(first.unwrap_or(Ended::Client));
            }
            _ => {}
        }
        let moved = passing.moved() != moved;
        match &mut silence {
            Some(silence) => silence.poll(moved, context).map(|()| Ended::Idle),
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

/// How long nothing has come from either side.
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

    /// Ready when it was too long. `moved`: it has just ended; the timer is not set anew for that, but looks when it fires.
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

/// Moves what can be moved now. Ready when this way has ended.
fn poll_way(
    from: &Stream,
    to: &Stream,
    way: &mut Way,
    context: &mut Context<'_>,
    mut count: impl FnMut(usize),
) -> Poll<Result<(), Broken>> {
    while *way == Way::Open {
        let room = ready!(to.poll_room(context)).map_err(|_| Broken::Receiver)?;
        let received = from.poll_received(context, |bytes| {
            let bytes = &bytes[..bytes.len().min(room)];
            // Refused if it has just ended, which the next look for room tells.
            match to.write_now(bytes) {
                Ok(()) => bytes.len(),
                Err(_closed) => 0,
            }
        });
        match ready!(received).map_err(|_| Broken::Sender)? {
            // By TLS an end that nobody has announced may be an attacker's.
            0 if from.was_cut() => {
                return Poll::Ready(Err(Broken::Sender));
            }
            0 => *way = Way::Ending,
            moved => count(moved),
        }
    }
    if *way == Way::Ending {
        ready!(to.poll_shutdown(context)).map_err(|_| Broken::Receiver)?;
        *way = Way::Ended;
    }
    Poll::Ready(Ok(()))
}
