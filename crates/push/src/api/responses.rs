//! Bodies of responses, as in Centrifugo's API.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::QueryResult;
use ringmain_hub::protocol::{ClientInfo, Fault, Published};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::cluster::call::NodeInfo;
use crate::worker::{CalledNodes, PublishOutcome};

/// The result of a command.
#[derive(Debug)]
pub(super) enum CommandResult {
    /// The position of a publication, in a channel that has positions.
    Published(Option<StreamPosition>),
    /// The outcomes of a broadcast, by channel.
    Broadcast(Vec<PublishOutcome>),
    Nothing,
    /// The number of connections that a command has reached.
    Reached(u32, Option<CalledNodes>),
    Presence(Vec<Arc<ClientInfo>>),
    PresenceStats {
        clients: u32,
        users: u32,
    },
    History(Vec<(u64, Arc<Published>)>, StreamPosition),
    /// The numbers of subscribers.
    Channels(BTreeMap<String, u32>, Option<CalledNodes>),
    Info(Vec<NodeInfo>, Option<CalledNodes>),
}

/// A result in JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum ResultJson<'r> {
    Published(PositionJson),
    Broadcast {
        responses: Vec<CommandResponse<PositionJson>>,
    },
    Nothing {},
    Reached {
        num_clients: u32,
        #[serde(flatten)]
        called: CalledJson,
    },
    Presence {
        presence: BTreeMap<&'r str, ClientJson>,
    },
    PresenceStats {
        num_clients: u32,
        num_users: u32,
    },
    History(HistoryJson),
    Channels {
        channels: BTreeMap<&'r str, ChannelJson>,
        #[serde(flatten)]
        called: CalledJson,
    },
    Info {
        nodes: &'r [NodeInfo],
        #[serde(flatten)]
        called: CalledJson,
    },
}

/// The response to a method.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CommandResponse<T> {
    Result(T),
    Error(ErrorJson),
}

#[derive(Serialize)]
pub(super) struct ErrorJson {
    code: u32,
    message: &'static str,
}

/// The responses to a batch.
#[derive(Serialize)]
pub(super) struct BatchReplies {
    pub(super) replies: Vec<BatchReply>,
}

/// A response, by the name of its command.
pub(super) struct BatchReply(pub(super) &'static str, pub(super) Result<CommandResult, Fault>);

/// The position of a channel, if it has positions.
#[derive(Serialize)]
struct PositionJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
}

#[derive(Serialize)]
struct HistoryJson {
    publications: Vec<PublicationJson>,
    epoch: String,
    offset: u64,
}

/// A publication. Data that is not JSON is in base64.
#[derive(Serialize)]
struct PublicationJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<ClientJson>,
    offset: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
}

/// A client. Data that is not JSON is in base64.
#[derive(Serialize)]
struct ClientJson {
    user: String,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn_info: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64conn_info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chan_info: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64chan_info: Option<String>,
}

#[derive(Serialize)]
struct ChannelJson {
    num_clients: u32,
}

/// The nodes of a cluster that a command has reached; empty without a cluster.
#[derive(Default, Serialize)]
struct CalledJson {
    /// The nodes that have run the command, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_nodes: Option<u32>,
    /// The nodes that have not responded in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    num_missing_nodes: Option<u32>,
}

impl From<Option<CalledNodes>> for CalledJson {
    fn from(called: Option<CalledNodes>) -> CalledJson {
        CalledJson {
            num_nodes: called.map(|called| called.responded + 1),
            num_missing_nodes: called.map(|called| called.missing),
        }
    }
}

impl From<Fault> for ErrorJson {
    fn from(fault: Fault) -> ErrorJson {
        ErrorJson {
            code: fault.code,
            message: fault.message,
        }
    }
}

impl<T> From<Result<T, Fault>> for CommandResponse<T> {
    fn from(result: Result<T, Fault>) -> CommandResponse<T> {
        match result {
            Ok(result) => CommandResponse::Result(result),
            Err(fault) => CommandResponse::Error(fault.into()),
        }
    }
}

impl Serialize for BatchReply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match &self.1 {
            Ok(result) => map.serialize_entry(self.0, result)?,
            Err(fault) => map.serialize_entry("error", &ErrorJson::from(*fault))?,
        }
        map.end()
    }
}

impl From<Option<StreamPosition>> for PositionJson {
    fn from(position: Option<StreamPosition>) -> PositionJson {
        PositionJson {
            offset: position.map(|position| position.offset),
            epoch: position.map(|position| position.epoch.to_string()),
        }
    }
}

impl CommandResult {
    pub(super) fn from_query(result: QueryResult) -> Result<CommandResult, Fault> {
        Ok(match result {
            QueryResult::History {
                publications,
                position,
            } => CommandResult::History(publications, position),
            QueryResult::Presence(present) => CommandResult::Presence(present),
            QueryResult::PresenceStats { clients, users } => CommandResult::PresenceStats { clients, users },
            QueryResult::HistoryCleared => CommandResult::Nothing,
            QueryResult::Unrecoverable => return Err(Fault::UNRECOVERABLE_POSITION),
            QueryResult::NotAvailable | QueryResult::Draining => return Err(Fault::NOT_AVAILABLE),
            QueryResult::ChannelLimit => return Err(Fault::LIMIT_EXCEEDED),
            QueryResult::Unreachable => return Err(Fault::INTERNAL),
        })
    }
}

impl Serialize for CommandResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ResultJson::from(self).serialize(serializer)
    }
}

impl<'r> From<&'r CommandResult> for ResultJson<'r> {
    fn from(result: &'r CommandResult) -> ResultJson<'r> {
        match result {
            CommandResult::Published(position) => ResultJson::Published((*position).into()),
            CommandResult::Broadcast(outcomes) => ResultJson::Broadcast {
                responses: outcomes
                    .iter()
                    .map(|outcome| outcome.map(PositionJson::from).into())
                    .collect(),
            },
            CommandResult::Nothing => ResultJson::Nothing {},
            CommandResult::Reached(num_clients, called) => ResultJson::Reached {
                num_clients: *num_clients,
                called: (*called).into(),
            },
            CommandResult::Presence(present) => ResultJson::Presence {
                presence: present
                    .iter()
                    .map(|info| (&*info.client, ClientJson::new(info)))
                    .collect(),
            },
            CommandResult::PresenceStats { clients, users } => ResultJson::PresenceStats {
                num_clients: *clients,
                num_users: *users,
            },
            CommandResult::History(publications, position) => ResultJson::History(HistoryJson {
                publications: publications
                    .iter()
                    .map(|(offset, published)| PublicationJson::new(*offset, published))
                    .collect(),
                epoch: position.epoch.to_string(),
                offset: position.offset,
            }),
            CommandResult::Channels(channels, called) => ResultJson::Channels {
                channels: channels
                    .iter()
                    .map(|(name, &num_clients)| (&**name, ChannelJson { num_clients }))
                    .collect(),
                called: (*called).into(),
            },
            CommandResult::Info(nodes, called) => ResultJson::Info {
                nodes,
                called: (*called).into(),
            },
        }
    }
}

impl PublicationJson {
    fn new(offset: u64, published: &Published) -> PublicationJson {
        let (data, b64data) = json_or_base64(&published.data);
        PublicationJson {
            data,
            b64data,
            info: published.info.as_ref().map(ClientJson::new),
            offset,
            tags: published.tags.clone(),
        }
    }
}

impl ClientJson {
    fn new(info: &ClientInfo) -> ClientJson {
        let (conn_info, b64conn_info) = json_or_base64(&info.conn_info);
        let (chan_info, b64chan_info) = json_or_base64(&info.chan_info);
        ClientJson {
            user: info.user.clone(),
            client: info.client.clone(),
            conn_info,
            b64conn_info,
            chan_info,
            b64chan_info,
        }
    }
}

/// Returns JSON unchanged, other data as base64, and neither for empty data.
fn json_or_base64(bytes: &Bytes) -> (Option<Box<RawValue>>, Option<String>) {
    if bytes.is_empty() {
        return (None, None);
    }
    match serde_json::from_slice(bytes) {
        Ok(json) => (Some(json), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}
