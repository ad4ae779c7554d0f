//! The server API: `POST /api/METHOD` with JSON, and gRPC, compatible with Centrifugo's.

mod execute;
mod grpc;
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
use crate::transport::http::read_body;
use crate::worker::PushWorker;
use crate::worker::pending_replies::QueryError;
use crate::worker::worker_slot::request_worker;
pub(crate) use pattern::ChannelPattern;
use requests::{
    Batch, Broadcast, Channels, Command, Disconnect, History, HistoryRemove, Info, Presence, PresenceStats,
    Publish, Refresh, Subscribe, Unsubscribe,
};
use responses::{BatchReplies, BatchReply, CommandResponse, CommandResult, ErrorJson};
pub use user_command::UserCommand;

pub(crate) fn add_routes(app: App) -> App {
    let app = app.group("/api", |group| {
        methods(
            group
                .body_limit(limits::API_BODY_BYTES_MAX as u64)
                .before(authorize),
        )
    });
    grpc::add_routes(app)
}

/// Checks the API key of a request, and that this process serves the channels.
fn authorize(request: &Request<'_>, _: &mut Reply<'_>) -> Result<Flow> {
    let worker = request_worker(request)?;
    let options = worker.options();
    let Some(key) = &options.api_key else {
        return Err(Error::not_found("the API is disabled: push has no API key"));
    };
    match request_key(request) {
        Some(presented) if constant_time_eq(presented.as_bytes(), key.as_bytes()) => {
            if worker.is_frozen() {
                Err(unavailable(
                    "another process serves the channels now; nothing was done; reconnect",
                ))
            } else {
                Ok(Flow::Continue)
            }
        }
        _ => Err(Error::unauthorized(
            "expected the API key in X-API-Key, or as `Authorization: apikey KEY`",
        )),
    }
}

fn methods(group: Group) -> Group {
    group
        .post_streamed("/publish", handle_method::<Publish>)
        .post_streamed("/broadcast", handle_method::<Broadcast>)
        .post_streamed("/subscribe", handle_method::<Subscribe>)
        .post_streamed("/unsubscribe", handle_method::<Unsubscribe>)
        .post_streamed("/disconnect", handle_method::<Disconnect>)
        .post_streamed("/refresh", handle_method::<Refresh>)
        .post_streamed("/presence", handle_method::<Presence>)
        .post_streamed("/presence_stats", handle_method::<PresenceStats>)
        .post_streamed("/history", handle_method::<History>)
        .post_streamed("/history_remove", handle_method::<HistoryRemove>)
        .post_streamed("/channels", handle_method::<Channels>)
        .post_streamed("/info", handle_method::<Info>)
        .post_streamed("/batch", handle_batch)
        .post_streamed("", legacy::handle_commands)
        .post_streamed("/", legacy::handle_commands)
}

/// Returns the API key of a request, from either header.
fn request_key<'r>(request: &Request<'r>) -> Option<&'r str> {
    if let Some(key) = request.header("x-api-key") {
        return Some(key);
    }
    let (scheme, key) = request.header("authorization")?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("apikey").then(|| key.trim_start())
}

async fn handle_method<C: DeserializeOwned + Into<Command>>(
    request: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result {
    let worker = request_worker(request)?;
    let command = parse_body::<C>(&read_api_body(request, worker).await?)?.into();
    match execute::execute(worker, command, worker.reply_deadline()).await {
        Ok(result) => reply.json(&CommandResponse::Result(result)),
        Err(QueryError::Fault(fault)) if wants_status(request) => {
            reply.status(http_status(fault));
            reply.json(&ErrorJson::from(fault))
        }
        Err(QueryError::Fault(fault)) => reply.json(&CommandResponse::<CommandResult>::Error(fault.into())),
        Err(QueryError::Busy) => Err(unavailable(
            "server overloaded: too many requests and publications are queued; nothing was done; retry a little later",
        )),
        Err(QueryError::Late) => Err(unavailable(
            "timed out: the command may have been executed or not; with an `idempotency_key` a publication can be retried",
        )),
    }
}

/// Executes the commands of a batch.
async fn handle_batch(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let worker = request_worker(request)?;
    let batch = parse_body::<Batch>(&read_api_body(request, worker).await?)?;
    let limit = limits::BATCH_COMMANDS;
    if batch.commands.len() > limit {
        let message = format!(
            "expected at most {limit} commands, found {}",
            batch.commands.len()
        );
        return Err(Error::new(413, message));
    }
    let commands = batch.commands.iter().map(|command| Command::parse(command));
    let results = execute::execute_batch(worker, commands, batch.parallel.unwrap_or(false)).await;
    let replies = results
        .into_iter()
        .map(|(name, result)| BatchReply(name, result.map_err(error_fault)));
    reply.json(&BatchReplies {
        replies: replies.collect(),
    })
}

/// Reads the body whatever its `Content-Type`: programs leave that to their libraries.
async fn read_api_body(request: &Request<'_>, worker: &PushWorker) -> Result<Bytes> {
    read_body(request, worker.options().api_body_bytes).await
}

fn parse_body<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        let error = error.to_string();
        Error::bad_request(format!(
            "expected the parameters of the method, in JSON: {}",
            truncate(&error)
        ))
    })
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_TEXT_BYTES)]
}

/// Maps an error to a fault, for a response within a body, which has no status of its own.
fn error_fault(error: QueryError) -> Fault {
    match error {
        QueryError::Fault(fault) => fault,
        QueryError::Busy => Fault::TOO_MANY_REQUESTS,
        QueryError::Late => Fault::INTERNAL,
    }
}

fn unavailable(message: &'static str) -> Error {
    Error::new(503, message).with_header("Retry-After", "1")
}

/// Returns whether faults are reported by the status of the response.
fn wants_status(request: &Request<'_>) -> bool {
    let mode = request.header("x-centrifugo-error-mode");
    mode.is_some_and(|mode| mode.eq_ignore_ascii_case("transport"))
}

fn http_status(fault: Fault) -> u16 {
    match fault {
        Fault::UNKNOWN_CHANNEL => 404,
        Fault::BAD_REQUEST | Fault::NOT_AVAILABLE => 400,
        Fault::UNRECOVERABLE_POSITION => 416,
        _ => 500,
    }
}

/// Compares in a time that does not depend on the position of the first difference.
fn constant_time_eq(presented: &[u8], key: &[u8]) -> bool {
    let differ = presented
        .iter()
        .zip(key)
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    presented.len() == key.len() && differ == 0
}
