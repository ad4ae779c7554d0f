//! Executes commands of programs.

use std::time::Duration;

use ringmain_hub::mail::ChannelQuery;
use ringmain_hub::protocol::Fault;

use super::requests::Command;
use super::responses::CommandResult;
use crate::worker::pending_replies::QueryError;
use crate::worker::user_commands::ConnectionCommand;
use crate::worker::{PendingPublish, PushWorker};

/// A command that was started.
enum StartedCommand {
    Finished(Result<CommandResult, QueryError>),
    /// The publications were sent to their channels.
    Publishing {
        sent: PendingPublish,
        /// The response has the outcome of each channel.
        is_broadcast: bool,
    },
}

/// Executes a command.
///
/// # Errors
/// [`QueryError`]; [`QueryError::Late`] if replies do not arrive before the deadline.
pub(super) async fn execute(
    worker: &PushWorker,
    command: Command,
    deadline: Duration,
) -> Result<CommandResult, QueryError> {
    let started = start(worker, command, deadline).await;
    finish(worker, started, deadline).await
}

/// Executes commands in order. A command that is invalid or fails does not stop the others; one without a timely reply does: those behind it
/// are [`QueryError::Busy`]. With `is_parallel` all publications are sent, in the same order, before the first reply is awaited. Returns the
/// outcomes by the names of their methods; an invalid command has none.
pub(super) async fn execute_batch(
    worker: &PushWorker,
    commands: impl ExactSizeIterator<Item = Result<Command, Fault>>,
    is_parallel: bool,
) -> Vec<(&'static str, Result<CommandResult, QueryError>)> {
    let deadline = worker.reply_deadline();
    let mut is_past_deadline = false;
    let mut started = Vec::with_capacity(commands.len());
    for command in commands {
        let name = command.as_ref().map_or("", Command::method_name);
        let mut one = match command {
            Err(fault) => StartedCommand::Finished(Err(fault.into())),
            Ok(_) if is_past_deadline => StartedCommand::Finished(Err(QueryError::Busy)),
            Ok(command) => start(worker, command, deadline).await,
        };
        if !is_parallel {
            one = StartedCommand::Finished(finish(worker, one, deadline).await);
        }
        is_past_deadline |= matches!(one, StartedCommand::Finished(Err(QueryError::Late)));
        started.push((name, one));
    }
    let mut results = Vec::with_capacity(started.len());
    for (name, one) in started {
        results.push((name, finish(worker, one, deadline).await));
    }
    results
}

/// Starts a command. A command that publishes only sends its publications, in order with earlier ones; others complete.
async fn start(worker: &PushWorker, command: Command, deadline: Duration) -> StartedCommand {
    let publishing = match command {
        Command::Publish(request) => request
            .read(&worker.options())
            .map(|(channel, publication)| (vec![channel], publication, false)),
        Command::Broadcast(request) => request
            .read(&worker.options())
            .map(|(channels, publication)| (channels, publication, true)),
        other => return StartedCommand::Finished(execute_other(worker, other, deadline).await),
    };
    let started = publishing.map_err(QueryError::from).and_then(|publishing| {
        let (channels, publication, is_broadcast) = publishing;
        let sent = worker.publish_in(&channels, &publication)?;
        Ok(StartedCommand::Publishing { sent, is_broadcast })
    });
    started.unwrap_or_else(|error| StartedCommand::Finished(Err(error)))
}

/// Waits for the replies to a command.
///
/// # Errors
/// As [`execute`].
async fn finish(
    worker: &PushWorker,
    started: StartedCommand,
    deadline: Duration,
) -> Result<CommandResult, QueryError> {
    let (sent, is_broadcast) = match started {
        StartedCommand::Finished(result) => return result,
        StartedCommand::Publishing { sent, is_broadcast } => (sent, is_broadcast),
    };
    let mut outcomes = worker.await_outcomes(sent, deadline).await?;
    if is_broadcast {
        return Ok(CommandResult::Broadcast(outcomes));
    }
    let position = outcomes.pop().transpose()?.flatten();
    Ok(CommandResult::Published(position))
}

async fn execute_other(
    worker: &PushWorker,
    command: Command,
    deadline: Duration,
) -> Result<CommandResult, QueryError> {
    match command {
        Command::Publish(_) | Command::Broadcast(_) => unreachable!("publications are started and finished"),
        Command::Subscribe(request) => {
            run_user_command(worker, request.read(&worker.options()), deadline).await
        }
        Command::Unsubscribe(request) => {
            run_user_command(worker, request.read(&worker.options()), deadline).await
        }
        Command::Disconnect(request) => run_user_command(worker, request.read(), deadline).await,
        Command::Refresh(request) => run_user_command(worker, request.read(), deadline).await,
        Command::Presence(request) => {
            query_channel(worker, request.channel, ChannelQuery::Presence, deadline).await
        }
        Command::PresenceStats(request) => {
            query_channel(worker, request.channel, ChannelQuery::PresenceStats, deadline).await
        }
        Command::History(request) => {
            let (channel, query) = request.read();
            query_channel(worker, channel, query, deadline).await
        }
        Command::HistoryRemove(request) => {
            query_channel(worker, request.channel, ChannelQuery::ClearHistory, deadline).await
        }
        Command::Channels(request) => {
            let (channels, called) = worker.list_all_channels(request.pattern, deadline).await?;
            Ok(CommandResult::Channels(channels.into_iter().collect(), called))
        }
        Command::Info(_) => {
            let (nodes, called) = worker.describe_nodes(deadline).await?;
            Ok(CommandResult::Info(nodes, called))
        }
    }
}

async fn query_channel(
    worker: &PushWorker,
    channel: String,
    query: ChannelQuery,
    deadline: Duration,
) -> Result<CommandResult, QueryError> {
    let result = worker.query_channel(channel, query, deadline).await?;
    Ok(CommandResult::from_query(result)?)
}

/// Runs a command on the connections of this process and of the other nodes. Returns the number of affected connections.
async fn run_user_command(
    worker: &PushWorker,
    command: Result<ConnectionCommand, Fault>,
    deadline: Duration,
) -> Result<CommandResult, QueryError> {
    let (num_clients, called) = worker.run_everywhere(command?, deadline).await?;
    Ok(CommandResult::Reached(num_clients, called))
}
