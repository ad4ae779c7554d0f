//! Carrying out what programs want.

use std::time::Duration;

use ringmain_hub::mail::Question;
use ringmain_hub::protocol::Fault;

use super::said::Command;
use super::told::{Channel, Done, Node};
use crate::desk::Desk;
use crate::gathering::Unanswered;
use crate::orders::Order;

/// Carries out a command, and waits for what comes of it until then.
pub(super) async fn carry_out(desk: &Desk, command: Command, until: Duration) -> Result<Done, Unanswered> {
    match command {
        Command::Publish(said) => {
            let (channel, what) = said.read(&desk.options())?;
            let mut outcomes = desk.publish(&[channel], &what, until).await?;
            let place = outcomes.pop().transpose()?.flatten();
            Ok(Done::Published(place.into()))
        }
        Command::Broadcast(said) => {
            let (channels, what) = said.read(&desk.options())?;
            let outcomes = desk.publish(&channels, &what, until).await?;
            Ok(Done::broadcast(outcomes))
        }
        Command::Subscribe(said) => order(desk, said.read(&desk.options())),
        Command::Unsubscribe(said) => order(desk, said.read(&desk.options())),
        Command::Disconnect(said) => order(desk, said.read()),
        Command::Refresh(said) => order(desk, said.read()),
        Command::Presence(said) => ask(desk, said.channel, Question::Presence, until).await,
        Command::PresenceStats(said) => ask(desk, said.channel, Question::PresenceStats, until).await,
        Command::History(said) => {
            let (channel, question) = said.read();
            ask(desk, channel, question, until).await
        }
        Command::HistoryRemove(said) => ask(desk, said.channel, Question::Forget, until).await,
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

async fn ask(desk: &Desk, channel: String, question: Question, until: Duration) -> Result<Done, Unanswered> {
    let told = desk.ask(channel, question, until).await?;
    Ok(Done::told(told)?)
}

fn order(desk: &Desk, order: Result<Order, Fault>) -> Result<Done, Unanswered> {
    desk.order(order?).map_err(|_| Unanswered::Busy)?;
    Ok(Done::Nothing {})
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
