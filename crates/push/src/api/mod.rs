//! What programs of the owner's call: `POST /api/METHOD` with JSON, as Centrifugo's HTTP API is called.

mod execute;
mod legacy;
mod pattern;
mod requests;
mod responses;
mod user_command;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;
use ringmain_web::limits::ERROR_TEXT_BYTES;
use ringmain_web::{App, Error, Flow, Group, Reply, Request, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::limits;
use crate::transport::http::whole_within;
use crate::worker::Desk;
use crate::worker::pending_replies::Unanswered;
use crate::worker::worker_slot::desk_of;
use execute::Begun;
pub(crate) use pattern::Pattern;
use requests::{
    Batch, Broadcast, Channels, Command, Disconnect, History, HistoryRemove, Info, Presence, PresenceStats,
    Publish, Refresh, Subscribe, Unsubscribe,
};
use responses::{Answer, Done, Replies, Why};
pub use user_command::UserCommand;

pub(crate) fn serve(app: App) -> App {
    app.group("/api", |group| {
        methods(
            group
                .body_limit(limits::API_BODY_BYTES_MOST as u64)
                .before(|request, _| {
                    let desk = desk_of(request)?;
                    let options = desk.options();
                    let Some(key) = &options.api_key else {
                        let what = "nothing is served here: push has no API key";
                        return Err(Error::not_found(what));
                    };
                    match said_key(request) {
                        Some(said) if is_same(said.as_bytes(), key.as_bytes()) => match desk.is_frozen() {
                            true => Err(later(
                                "another process serves the channels now; nothing was done, connect again",
                            )),
                            false => Ok(Flow::Continue),
                        },
                        _ => Err(Error::unauthorized(
                            "expected the API key in X-API-Key, or as `Authorization: apikey KEY`",
                        )),
                    }
                }),
        )
    })
}

fn methods(group: Group) -> Group {
    group
        .post_streamed("/publish", method::<Publish>)
        .post_streamed("/broadcast", method::<Broadcast>)
        .post_streamed("/subscribe", method::<Subscribe>)
        .post_streamed("/unsubscribe", method::<Unsubscribe>)
        .post_streamed("/disconnect", method::<Disconnect>)
        .post_streamed("/refresh", method::<Refresh>)
        .post_streamed("/presence", method::<Presence>)
        .post_streamed("/presence_stats", method::<PresenceStats>)
        .post_streamed("/history", method::<History>)
        .post_streamed("/history_remove", method::<HistoryRemove>)
        .post_streamed("/channels", method::<Channels>)
        .post_streamed("/info", method::<Info>)
        .post_streamed("/batch", batch)
        .post_streamed("", legacy::commands)
        .post_streamed("/", legacy::commands)
}

/// In the one header or the other.
fn said_key<'r>(request: &Request<'r>) -> Option<&'r str> {
    if let Some(key) = request.header("x-api-key") {
        return Some(key);
    }
    let (scheme, key) = request.header("authorization")?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("apikey").then(|| key.trim_start())
}

async fn method<C: DeserializeOwned + Into<Command>>(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let desk = desk_of(request)?;
    let command = read::<C>(&body(request, desk).await?)?.into();
    match execute::carry_out(desk, command, desk.patience()).await {
        Ok(done) => reply.json(&Answer::Result(done)),
        Err(Unanswered::Fault(fault)) if wants_status(request) => {
            reply.status(status_of(fault));
            reply.json(&Why::from(fault))
        }
        Err(Unanswered::Fault(fault)) => reply.json(&Answer::<Done>::Error(fault.into())),
        Err(Unanswered::Busy) => Err(later(
            "more is asked for and published than can be carried on; nothing was done, try again a little later",
        )),
        Err(Unanswered::Late) => Err(later(
            "no answer came in time; it may be done or not: with an `idempotency_key` a publication can be tried again",
        )),
    }
}

/// One after the other; one that fails does not stop the others, one that is not answered in time does. With `parallel` what is
/// published is on its way before the first answer is waited for, in the same order.
async fn batch(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let desk = desk_of(request)?;
    let batch = read::<Batch>(&body(request, desk).await?)?;
    let most = limits::BATCH_COMMANDS;
    if batch.commands.len() > most {
        let what = format!("expected at most {most} commands, found {}", batch.commands.len());
        return Err(Error::new(413, what));
    }
    let until = desk.patience();
    let mut is_late = false;
    let mut begun = Vec::with_capacity(batch.commands.len());
    for command in batch.commands {
        // One that cannot be read fails alone.
        let (name, command) = match Command::parse(&command) {
            Ok(command) => (command.name(), Ok(command)),
            Err(fault) => ("", Err(fault)),
        };
        let mut one = match command {
            Err(fault) => Begun::Over(Err(fault.into())),
            Ok(_) if is_late => Begun::Over(Err(Unanswered::Busy)),
            Ok(command) => execute::begin(desk, command, until).await,
        };
        if !batch.parallel.unwrap_or(false) {
            one = Begun::Over(execute::finish(desk, one, until).await);
        }
        is_late |= matches!(one, Begun::Over(Err(Unanswered::Late)));
        begun.push((name, one));
    }
    let mut replies = Vec::with_capacity(begun.len());
    for (name, one) in begun {
        let done = execute::finish(desk, one, until).await;
        replies.push(responses::Reply(name, done.map_err(fault_of)));
    }
    reply.json(&Replies { replies })
}

/// Reads the body whatever its `Content-Type`: programs leave that to their libraries.
async fn body(request: &Request<'_>, desk: &Desk) -> Result<Bytes> {
    whole_within(request, desk.options().api_body_bytes).await
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|why| {
        let why = why.to_string();
        Error::bad_request(format!("expected what the method takes, in JSON: {}", cut(&why)))
    })
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_TEXT_BYTES)]
}

/// An answer among others, which have no status of their own.
fn fault_of(why: Unanswered) -> Fault {
    match why {
        Unanswered::Fault(fault) => fault,
        Unanswered::Busy => Fault::TOO_MANY_REQUESTS,
        Unanswered::Late => Fault::INTERNAL,
    }
}

fn later(what: &'static str) -> Error {
    Error::new(503, what).with_header("Retry-After", "1")
}

/// Whether faults are to be told by the status of the answer.
fn wants_status(request: &Request<'_>) -> bool {
    let mode = request.header("x-centrifugo-error-mode");
    mode.is_some_and(|mode| mode.eq_ignore_ascii_case("transport"))
}

fn status_of(fault: Fault) -> u16 {
    match fault {
        Fault::UNKNOWN_CHANNEL => 404,
        Fault::BAD_REQUEST | Fault::NOT_AVAILABLE => 400,
        Fault::UNRECOVERABLE_POSITION => 416,
        _ => 500,
    }
}

/// In a time that says nothing of where they differ.
fn is_same(said: &[u8], key: &[u8]) -> bool {
    let differ = said.iter().zip(key).fold(0, |differ, (a, b)| differ | (a ^ b));
    said.len() == key.len() && differ == 0
}
