//! Commands by `method` and `params`, one a line, in the body of `POST /api`: as Centrifugo up to version 5 takes them, and its Go library
//! still sends them.

use ringmain_web::{Error, Reply, Request, Result};

use super::execute;
use super::requests::{Command, MethodCall};
use super::responses::{CommandResponse, CommandResult};
use super::{error_fault, read_api_body, unavailable};
use crate::limits;
use crate::worker::pending_replies::QueryError;
use crate::worker::worker_slot::request_worker;

/// One after the other, each answered on a line. One that cannot be carried out does not stop the others.
pub(super) async fn handle_commands(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let worker = request_worker(request)?;
    let body = read_api_body(request, worker).await?;
    let mut called = Vec::new();
    for command in serde_json::Deserializer::from_slice(&body).into_iter::<MethodCall<'_>>() {
        called.push(command.map_err(|why| {
            Error::bad_request(format!(
                "expected commands with `method` and `params`, in JSON: {}",
                super::truncate(&why.to_string())
            ))
        })?);
        if called.len() > limits::BATCH_COMMANDS {
            let most = limits::BATCH_COMMANDS;
            return Err(Error::new(
                413,
                format!("expected at most {most} commands, found more"),
            ));
        }
    }
    if called.is_empty() {
        return Err(Error::bad_request(
            "expected a command with `method` and `params`, found none",
        ));
    }
    let (until, count) = (worker.reply_deadline(), called.len());
    let mut text = Vec::new();
    let mut is_late = false;
    for MethodCall { method, params } in called {
        let done = match Command::from_method(&method, params) {
            Err(fault) => Err(QueryError::from(fault)),
            Ok(_) if is_late => Err(QueryError::Busy),
            Ok(command) => execute::execute(worker, command, until).await,
        };
        is_late |= matches!(done, Err(QueryError::Late));
        // A single one that was not answered is tried again as a whole.
        if count == 1 && matches!(done, Err(QueryError::Busy | QueryError::Late)) {
            return Err(unavailable(
                "more is asked for and published than can be carried on; try again a little later",
            ));
        }
        let answer: CommandResponse<CommandResult> = done.map_err(error_fault).into();
        serde_json::to_writer(&mut text, &answer)
            .map_err(|why| Error::new(500, format!("an answer cannot be written: {why}")))?;
        text.push(b'\n');
    }
    reply.bytes("application/json", text)
}
