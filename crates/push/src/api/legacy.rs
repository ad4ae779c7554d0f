//! Commands by `method` and `params`, one a line, in the body of `POST /api`: the form of Centrifugo up to version 5, which its Go library
//! still sends.

use ringmain_web::{Error, Reply, Request, Result};

use super::execute;
use super::requests::{Command, MethodCall};
use super::responses::{CommandResponse, CommandResult};
use super::{error_fault, read_api_body, unavailable};
use crate::limits;
use crate::worker::pending_replies::QueryError;
use crate::worker::worker_slot::request_worker;

/// Executes the commands in order, each with a response on a line of its own. A failed command does not stop the others.
pub(super) async fn handle_commands(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let worker = request_worker(request)?;
    let body = read_api_body(request, worker).await?;
    let mut called = Vec::new();
    for command in serde_json::Deserializer::from_slice(&body).into_iter::<MethodCall<'_>>() {
        called.push(command.map_err(|error| {
            Error::bad_request(format!(
                "expected commands with `method` and `params`, in JSON: {}",
                super::truncate(&error.to_string())
            ))
        })?);
        if called.len() > limits::BATCH_COMMANDS {
            let limit = limits::BATCH_COMMANDS;
            return Err(Error::new(
                413,
                format!("expected at most {limit} commands, found more"),
            ));
        }
    }
    if called.is_empty() {
        return Err(Error::bad_request(
            "expected a command with `method` and `params`, found none",
        ));
    }
    let count = called.len();
    let commands = called
        .into_iter()
        .map(|MethodCall { method, params }| Command::from_method(&method, params));
    let mut text = Vec::new();
    for (_, result) in execute::execute_batch(worker, commands, false).await {
        // A single command without a result is retried as a whole request.
        if count == 1 && matches!(result, Err(QueryError::Busy | QueryError::Late)) {
            return Err(unavailable(
                "server overloaded: too many requests and publications are queued; retry a little later",
            ));
        }
        let response: CommandResponse<CommandResult> = result.map_err(error_fault).into();
        serde_json::to_writer(&mut text, &response)
            .map_err(|error| Error::new(500, format!("the response cannot be encoded: {error}")))?;
        text.push(b'\n');
    }
    reply.bytes("application/json", text)
}
