//! Carrying out what programs want.

use std::time::Duration;

use ringmain_hub::mail::ChannelQuery;
use ringmain_hub::protocol::Fault;

use super::requests::Command;
use super::responses::{Channel, Done, Node};
use crate::publish::publisher::Sent;
use crate::worker::Desk;
use crate::worker::pending_replies::Unanswered;
use crate::worker::user_commands::Order;

/// A command that was begun.
pub(super) enum Begun {
    /// This came of it.
    Over(Result<Done, Unanswered>),
    /// Its publications are on their way, in one channel or in many.
    Publishing(Sent, Many),
}

/// Whether it is published in many channels, which is answered otherwise.
pub(super) struct Many(bool);

/// Carries out a command, and waits for what comes of it until then.
pub(super) async fn carry_out(desk: &Desk, command: Command, until: Duration) -> Result<Done, Unanswered> {
    let begun = begin(desk, command, until).await;
    finish(desk, begun, until).await
}

/// Carries out a command. It is waited for until then, unless it publishes: what is published is on its way then, behind what was
/// before.
pub(super) async fn begin(desk: &Desk, command: Command, until: Duration) -> Begun {
    let publishing = match command {
        Command::Publish(said) => said
            .read(&desk.options())
            .map(|(channel, what)| (vec![channel], what, Many(false))),
        Command::Broadcast(said) => said
            .read(&desk.options())
            .map(|(channels, what)| (channels, what, Many(true))),
        other => return Begun::Over(carry_out_other(desk, other, until).await),
    };
    let sent = publishing
        .map_err(Unanswered::from)
        .and_then(|(channels, what, many)| Ok((desk.publish(&channels, &what)?, many)));
    match sent {
        Ok((sent, many)) => Begun::Publishing(sent, many),
        Err(why) => Begun::Over(Err(why)),
    }
}

/// Waits for what comes of a command, until then.
pub(super) async fn finish(desk: &Desk, begun: Begun, until: Duration) -> Result<Done, Unanswered> {
    match begun {
        Begun::Over(done) => done,
        Begun::Publishing(sent, Many(true)) => Ok(Done::broadcast(desk.outcomes(sent, until).await?)),
        Begun::Publishing(sent, Many(false)) => {
            let mut outcomes = desk.outcomes(sent, until).await?;
            let place = outcomes.pop().transpose()?.flatten();
            Ok(Done::Published(place.into()))
        }
    }
}

async fn carry_out_other(desk: &Desk, command: Command, until: Duration) -> Result<Done, Unanswered> {
    match command {
        Command::Publish(_) | Command::Broadcast(_) => unreachable!("these are begun and finished"),
        Command::Subscribe(said) => order(desk, said.read(&desk.options()), until).await,
        Command::Unsubscribe(said) => order(desk, said.read(&desk.options()), until).await,
        Command::Disconnect(said) => order(desk, said.read(), until).await,
        Command::Refresh(said) => order(desk, said.read(), until).await,
        Command::Presence(said) => ask(desk, said.channel, ChannelQuery::Presence, until).await,
        Command::PresenceStats(said) => ask(desk, said.channel, ChannelQuery::PresenceStats, until).await,
        Command::History(said) => {
            let (channel, question) = said.read();
            ask(desk, channel, question, until).await
        }
        Command::HistoryRemove(said) => ask(desk, said.channel, ChannelQuery::ClearHistory, until).await,
        Command::Channels(said) => {
            let channels = desk.channels(said.read()?, until).await?.into_iter();
            Ok(Done::Channels {
                channels: channels
                    .map(|(name, num_clients)| (name, Channel { num_clients }))
                    .collect(),
            })
        }
        Command::Info(_) => Ok(info(desk)),
    }
}

async fn ask(
    desk: &Desk,
    channel: String,
    question: ChannelQuery,
    until: Duration,
) -> Result<Done, Unanswered> {
    let told = desk.ask(channel, question, until).await?;
    Ok(Done::told(told)?)
}

/// Reaches the connections of this process alone, and reports how many.
async fn order(desk: &Desk, order: Result<Order, Fault>, until: Duration) -> Result<Done, Unanswered> {
    let counted = desk.order_counted(order?, until).await;
    let num_clients = counted.map_err(|_| Unanswered::Busy)?.ok_or(Unanswered::Late)?;
    Ok(Done::Reached { num_clients })
}

/// There is one node: this process.
fn info(desk: &Desk) -> Done {
    let report = desk.report();
    Done::Info {
        nodes: [Node {
            uid: desk.node.to_string(),
            name: "ringmain",
            version: env!("CARGO_PKG_VERSION"),
            num_clients: report.clients,
            num_users: report.users,
            num_subs: report.subscriptions,
            num_channels: report.heard_channels,
            uptime: desk.uptime().as_secs(),
        }],
    }
}
