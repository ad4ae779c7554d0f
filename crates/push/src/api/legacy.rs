//! Commands by `method` and `params`, one a line, in the body of `POST /api`: as Centrifugo up to version 5 takes them, and its Go library
//! still sends them.

use ringmain_web::{Error, Reply, Request, Result};

use super::execute;
use super::requests::{Called, Command};
use super::responses::{Answer, Done};
use super::{body, fault_of, later};
use crate::limits;
use crate::worker::pending_replies::Unanswered;
use crate::worker::worker_slot::desk_of;

/// One after the other, each answered on a line. One that cannot be carried out does not stop the others.
pub(super) async fn commands(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let desk = desk_of(request)?;
    let body = body(request, desk).await?;
    let mut called = Vec::new();
    for command in serde_json::Deserializer::from_slice(&body).into_iter::<Called<'_>>() {
        called.push(command.map_err(|why| {
            Error::bad_request(format!(
                "expected commands with `method` and `params`, in JSON: {}",
                super::cut(&why.to_string())
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
    let (until, count) = (desk.patience(), called.len());
    let mut text = Vec::new();
    let mut is_late = false;
    for Called { method, params } in called {
        let done = match Command::of_method(&method, params) {
            Err(fault) => Err(Unanswered::from(fault)),
            Ok(_) if is_late => Err(Unanswered::Busy),
            Ok(command) => execute::carry_out(desk, command, until).await,
        };
        is_late |= matches!(done, Err(Unanswered::Late));
        // A single one that was not answered is tried again as a whole.
        if count == 1 && matches!(done, Err(Unanswered::Busy | Unanswered::Late)) {
            return Err(later(
                "more is asked for and published than can be carried on; try again a little later",
            ));
        }
        let answer: Answer<Done> = done.map_err(fault_of).into();
        serde_json::to_writer(&mut text, &answer)
            .map_err(|why| Error::new(500, format!("an answer cannot be written: {why}")))?;
        text.push(b'\n');
    }
    reply.bytes("application/json", text)
}
