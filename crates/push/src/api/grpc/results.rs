//! Messages of the definition from results of commands. Pure.

use ringmain_hub::history::StreamPosition;
use ringmain_hub::protocol::{ClientInfo, Fault, Published};

use super::messages;
use crate::api::responses::CommandResult;
use crate::cluster::call::NodeInfo;

impl From<Fault> for messages::Error {
    fn from(fault: Fault) -> messages::Error {
        messages::Error {
            code: fault.code,
            message: fault.message.to_owned(),
        }
    }
}

/// Generates responses: an error, or a result.
macro_rules! responses {
    ($($response:ident $result:ident;)*) => {
        $(impl From<Result<CommandResult, Fault>> for messages::$response {
            fn from(result: Result<CommandResult, Fault>) -> messages::$response {
                match result {
                    Ok(result) => messages::$response {
                        error: None,
                        result: Some(messages::$result::from(result)),
                    },
                    Err(fault) => messages::$response {
                        error: Some(fault.into()),
                        result: None,
                    },
                }
            }
        })*
    };
}

responses! {
    PublishResponse PublishResult;
    BroadcastResponse BroadcastResult;
    SubscribeResponse Empty;
    UnsubscribeResponse Empty;
    DisconnectResponse Empty;
    RefreshResponse Empty;
    PresenceResponse PresenceResult;
    PresenceStatsResponse PresenceStatsResult;
    HistoryResponse HistoryResult;
    HistoryRemoveResponse Empty;
    ChannelsResponse ChannelsResult;
    InfoResponse InfoResult;
    RpcResponse Empty;
}

impl messages::Reply {
    /// Creates the reply to a command of a batch, by the name of its method.
    pub(super) fn new(method: &str, result: Result<CommandResult, Fault>) -> messages::Reply {
        let mut reply = messages::Reply::default();
        let result = match result {
            Ok(result) => result,
            Err(fault) => {
                reply.error = Some(fault.into());
                return reply;
            }
        };
        match method {
            "publish" => reply.publish = Some(result.into()),
            "broadcast" => reply.broadcast = Some(result.into()),
            "subscribe" => reply.subscribe = Some(result.into()),
            "unsubscribe" => reply.unsubscribe = Some(result.into()),
            "disconnect" => reply.disconnect = Some(result.into()),
            "presence" => reply.presence = Some(result.into()),
            "presence_stats" => reply.presence_stats = Some(result.into()),
            "history" => reply.history = Some(result.into()),
            "history_remove" => reply.history_remove = Some(result.into()),
            "info" => reply.info = Some(result.into()),
            "refresh" => reply.refresh = Some(result.into()),
            _ => reply.channels = Some(result.into()),
        }
        reply
    }
}

impl From<Option<StreamPosition>> for messages::PublishResult {
    fn from(position: Option<StreamPosition>) -> messages::PublishResult {
        position.map_or_else(messages::PublishResult::default, |position| {
            messages::PublishResult {
                offset: position.offset,
                epoch: position.epoch.to_string(),
            }
        })
    }
}

impl From<&ClientInfo> for messages::ClientInfo {
    fn from(info: &ClientInfo) -> messages::ClientInfo {
        messages::ClientInfo {
            user: info.user.clone(),
            client: info.client.clone(),
            conn_info: info.conn_info.clone(),
            chan_info: info.chan_info.clone(),
        }
    }
}

fn publication(offset: u64, published: &Published) -> messages::Publication {
    messages::Publication {
        data: published.data.clone(),
        info: published.info.as_ref().map(messages::ClientInfo::from),
        offset,
        tags: published.tags.clone(),
    }
}

fn node(node: NodeInfo) -> messages::NodeResult {
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    messages::NodeResult {
        uid: node.uid,
        name: node.name,
        version: node.version,
        num_clients: number(node.num_clients),
        num_users: number(node.num_users),
        num_channels: number(node.num_channels),
        uptime: number(node.uptime),
        num_subs: number(node.num_subs),
    }
}

// A result of another kind has no fields: each command has one kind.

impl From<CommandResult> for messages::Empty {
    fn from(_: CommandResult) -> messages::Empty {
        messages::Empty {}
    }
}

impl From<CommandResult> for messages::PublishResult {
    fn from(result: CommandResult) -> messages::PublishResult {
        match result {
            CommandResult::Published(position) => position.into(),
            _ => messages::PublishResult::default(),
        }
    }
}

impl From<CommandResult> for messages::BroadcastResult {
    fn from(result: CommandResult) -> messages::BroadcastResult {
        let CommandResult::Broadcast(outcomes) = result else {
            return messages::BroadcastResult::default();
        };
        let responses = outcomes.into_iter();
        messages::BroadcastResult {
            responses: responses
                .map(|outcome| outcome.map(CommandResult::Published).into())
                .collect(),
        }
    }
}

impl From<CommandResult> for messages::PresenceResult {
    fn from(result: CommandResult) -> messages::PresenceResult {
        let CommandResult::Presence(present) = result else {
            return messages::PresenceResult::default();
        };
        let present = present.iter();
        messages::PresenceResult {
            presence: present
                .map(|info| (info.client.clone(), messages::ClientInfo::from(&**info)))
                .collect(),
        }
    }
}

impl From<CommandResult> for messages::PresenceStatsResult {
    fn from(result: CommandResult) -> messages::PresenceStatsResult {
        match result {
            CommandResult::PresenceStats { clients, users } => messages::PresenceStatsResult {
                num_clients: clients,
                num_users: users,
            },
            _ => messages::PresenceStatsResult::default(),
        }
    }
}

impl From<CommandResult> for messages::HistoryResult {
    fn from(result: CommandResult) -> messages::HistoryResult {
        let CommandResult::History(publications, position) = result else {
            return messages::HistoryResult::default();
        };
        let publications = publications.iter();
        messages::HistoryResult {
            publications: publications
                .map(|(offset, published)| publication(*offset, published))
                .collect(),
            epoch: position.epoch.to_string(),
            offset: position.offset,
        }
    }
}

impl From<CommandResult> for messages::ChannelsResult {
    fn from(result: CommandResult) -> messages::ChannelsResult {
        let CommandResult::Channels(channels, _) = result else {
            return messages::ChannelsResult::default();
        };
        let channels = channels.into_iter();
        messages::ChannelsResult {
            channels: channels
                .map(|(name, num_clients)| (name, messages::ChannelInfo { num_clients }))
                .collect(),
        }
    }
}

impl From<CommandResult> for messages::InfoResult {
    fn from(result: CommandResult) -> messages::InfoResult {
        match result {
            CommandResult::Info(nodes, _) => messages::InfoResult {
                nodes: nodes.into_iter().map(node).collect(),
            },
            _ => messages::InfoResult::default(),
        }
    }
}
