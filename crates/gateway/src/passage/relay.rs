//! Bytes both ways between two connections, until both sides have ended, one breaks off, or nothing comes for too long.
//!
//! ```text
//! each way:  Open ── the sender's end ──▶ Ending ── all handed on, FIN ──▶ Ended
//! ```
//!
//! Nothing is read that could not be handed on: a slow reader slows its sender. An end is passed on as an end, a reset as a
//! reset.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringmain_engine::stream::Stream;

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
    Sender(io::Error),
    Receiver(io::Error),
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
    let touch = || [&client, &upstream].map(|stream| stream.set_deadline(idle));
    touch();
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
            (Poll::Ready(Err(Broken::Sender(error))), _) | (_, Poll::Ready(Err(Broken::Receiver(error)))) => {
                return Poll::Ready(broken(&error, Ended::ClientReset));
            }
            (Poll::Ready(Err(Broken::Receiver(error))), _) | (_, Poll::Ready(Err(Broken::Sender(error)))) => {
                return Poll::Ready(broken(&error, Ended::UpstreamReset));
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                return Poll::Ready(first.unwrap_or(Ended::Client));
            }
            _ => {}
        }
        if passing.moved() != moved {
            touch();
        }
        Poll::Pending
    })
    .await;
    if !matches!(ended, Ended::Client | Ended::Upstream) {
        client.abort();
        upstream.abort();
    }
    ended
}

/// The deadline of either connection is the idle time of both.
fn broken(error: &io::Error, otherwise: Ended) -> Ended {
    match error.kind() {
        io::ErrorKind::TimedOut => Ended::Idle,
        _ => otherwise,
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
        let room = ready!(to.poll_room(context)).map_err(Broken::Receiver)?;
        let received = from.poll_received(context, |bytes| {
            let bytes = &bytes[..bytes.len().min(room)];
            // Refused if it has just ended, which the next look for room tells.
            match to.write_now(bytes) {
                Ok(()) => bytes.len(),
                Err(_closed) => 0,
            }
        });
        match ready!(received).map_err(Broken::Sender)? {
            // By TLS an end that nobody has announced may be an attacker's.
            0 if from.was_cut() => {
                return Poll::Ready(Err(Broken::Sender(io::ErrorKind::UnexpectedEof.into())));
            }
            0 => *way = Way::Ending,
            moved => count(moved),
        }
    }
    if *way == Way::Ending {
        ready!(to.poll_shutdown(context)).map_err(Broken::Receiver)?;
        *way = Way::Ended;
    }
    Poll::Ready(Ok(()))
}
