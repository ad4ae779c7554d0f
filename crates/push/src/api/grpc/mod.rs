//! The server API over gRPC: Centrifugo's service `CentrifugoApi`, with the commands, results and errors of the HTTP API.
//!
//! ```text
//! call ─▶ API key in `authorization` ─▶ message ─▶ command of the HTTP API ─▶ result ─▶ response: `error` or `result`
//! ```
//!
//! Methods of Centrifugo PRO, of map subscriptions and of shared polls are not implemented (status 12).

mod commands;
mod messages;
mod results;

use prost::Message;
use ringmain_hub::protocol::Fault;
use ringmain_web::grpc::{Call, Code, Result, Service, Status};
use ringmain_web::{App, Group, Request};

use super::requests::Command;
use super::responses::CommandResult;
use super::{authorize, error_fault, execute, wants_status};
use crate::limits;
use crate::worker::pending_replies::QueryError;
use crate::worker::worker_slot::request_worker;
use messages::{BatchRequest, BatchResponse, Error as ErrorMessage, Reply};

/// The name in clients generated from Centrifugo's definition.
const SERVICE: &str = "centrifugal.centrifugo.api.CentrifugoApi";

/// Generates a handler for each method, and adds it to the service.
macro_rules! methods {
    ($($handler:ident $method:literal $request:ident $response:ident;)*) => {
        $(async fn $handler(call: &Call<'_>, request: messages::$request) -> Result<messages::$response> {
            let result = run(call, Command::try_from(request)).await?;
            Ok(messages::$response::from(result))
        })*

        fn service() -> Service {
            Service::new(SERVICE)
                .message_limit(limits::API_BODY_BYTES_MAX as u32)
                .call_message_limit(message_limit)
                .unary("Batch", batch)
                $(.unary($method, $handler))*
        }
    };
}

methods! {
    publish "Publish" PublishRequest PublishResponse;
    broadcast "Broadcast" BroadcastRequest BroadcastResponse;
    subscribe "Subscribe" SubscribeRequest SubscribeResponse;
    unsubscribe "Unsubscribe" UnsubscribeRequest UnsubscribeResponse;
    disconnect "Disconnect" DisconnectRequest DisconnectResponse;
    refresh "Refresh" RefreshRequest RefreshResponse;
    presence "Presence" PresenceRequest PresenceResponse;
    presence_stats "PresenceStats" PresenceStatsRequest PresenceStatsResponse;
    history "History" HistoryRequest HistoryResponse;
    history_remove "HistoryRemove" HistoryRemoveRequest HistoryRemoveResponse;
    channels "Channels" ChannelsRequest ChannelsResponse;
    info "Info" InfoRequest InfoResponse;
    rpc "RPC" RpcRequest RpcResponse;
}

pub(super) fn add_routes(app: App) -> App {
    app.group("", |group: Group| {
        // Before a byte of the message is read.
        group
            .body_limit(limits::API_BODY_BYTES_MAX as u64)
            .before(authorize)
            .grpc(service())
    })
}

/// Returns the size of a message, in bytes, which is checked before the message is decoded.
fn message_limit(request: &Request<'_>) -> ringmain_web::Result<u32> {
    // The options have at most `API_BODY_BYTES_MAX`.
    Ok(request_worker(request)?.options().api_body_bytes as u32)
}

/// Executes a command. A fault is part of the response, or the status if the caller requests that.
async fn run(
    call: &Call<'_>,
    command: std::result::Result<Command, Fault>,
) -> Result<std::result::Result<CommandResult, Fault>> {
    let worker = request_worker(call.request())?;
    let outcome = match command {
        Ok(command) => execute::execute(worker, command, worker.reply_deadline()).await,
        Err(fault) => Err(QueryError::Fault(fault)),
    };
    match outcome {
        Ok(result) => Ok(Ok(result)),
        Err(QueryError::Fault(fault)) if wants_status(call.request()) => Err(fault_status(fault)),
        Err(QueryError::Fault(fault)) => Ok(Err(fault)),
        Err(QueryError::Busy) => Err(Status::new(
            Code::Unavailable,
            "server overloaded: too many requests and publications are queued; nothing was done; retry a little later",
        )),
        Err(QueryError::Late) => Err(Status::new(
            Code::DeadlineExceeded,
            "timed out: the command may have been executed or not; with an `idempotency_key` a publication can be retried",
        )),
    }
}

/// Executes commands as the HTTP API does.
async fn batch(call: &Call<'_>, batch: BatchRequest) -> Result<BatchResponse> {
    let worker = request_worker(call.request())?;
    if batch.commands.len() > limits::BATCH_COMMANDS {
        let (limit, found) = (limits::BATCH_COMMANDS, batch.commands.len());
        let message = format!("expected at most {limit} commands, found {found}");
        return Err(Status::new(Code::ResourceExhausted, message));
    }
    let commands = batch.commands.into_iter().map(|command| {
        // A command that is not a message does not affect the others.
        let command = messages::Command::decode(command).map_err(|_| Fault::BAD_REQUEST)?;
        Command::try_from(command)
    });
    let results = execute::execute_batch(worker, commands, batch.parallel).await;
    let replies = results
        .into_iter()
        .map(|(name, result)| Reply::new(name, result.map_err(error_fault)));
    Ok(BatchResponse {
        replies: replies.collect(),
    })
}

/// Returns the status of a fault, with the fault as a detail.
fn fault_status(fault: Fault) -> Status {
    let code = match fault {
        Fault::UNKNOWN_CHANNEL => Code::NotFound,
        Fault::BAD_REQUEST | Fault::NOT_AVAILABLE => Code::InvalidArgument,
        Fault::UNRECOVERABLE_POSITION => Code::OutOfRange,
        Fault::METHOD_NOT_FOUND => Code::Unimplemented,
        Fault::LIMIT_EXCEEDED | Fault::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    let detail = ErrorMessage::from(fault).encode_to_vec();
    let type_url = "type.googleapis.com/centrifugal.centrifugo.api.Error";
    Status::new(code, fault.message).with_detail(type_url, detail)
}
