//! Bodies of responses, as in Centrifugo's API.

use std::collections::BTreeMap;

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
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum CommandResult {
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
        presence: BTreeMap<String, ClientJson>,
    },
    PresenceStats {
        num_clients: u32,
        num_users: u32,
    },
    History(HistoryJson),
    Channels {
        channels: BTreeMap<String, ChannelJson>,
        #[serde(flatten)]
        called: CalledJson,
    },
    Info {
        nodes: Vec<NodeInfo>,
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
pub(super) struct PositionJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
}

#[derive(Serialize)]
pub(super) struct HistoryJson {
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
pub(super) struct ClientJson {
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
pub(super) struct ChannelJson {
    pub(super) num_clients: u32,
}

/// The nodes of a cluster that a command has reached; empty without a cluster.
#[derive(Default, Serialize)]
pub(super) struct CalledJson {
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
    pub(super) fn from_outcomes(outcomes: Vec<PublishOutcome>) -> CommandResult {
        let responses = outcomes.into_iter();
        CommandResult::Broadcast {
            responses: responses
                .map(|outcome| outcome.map(PositionJson::from).into())
                .collect(),
        }
    }

    pub(super) fn from_query(result: QueryResult) -> Result<CommandResult, Fault> {
        Ok(match result {
            QueryResult::History {
                publications,
                position,
            } => {
                let publications = publications.iter();
                CommandResult::History(HistoryJson {
                    publications: publications
                        .map(|(offset, published)| PublicationJson::new(*offset, published))
                        .collect(),
                    epoch: position.epoch.to_string(),
                    offset: position.offset,
                })
            }
            QueryResult::Presence(present) => {
                let present = present.iter();
                CommandResult::Presence {
                    presence: present
                        .map(|info| (info.client.clone(), ClientJson::new(info)))
                        .collect(),
                }
            }
            QueryResult::PresenceStats { clients, users } => CommandResult::PresenceStats {
                num_clients: clients,
                num_users: users,
            },
            QueryResult::HistoryCleared => CommandResult::Nothing {},
            QueryResult::Unrecoverable => return Err(Fault::UNRECOVERABLE_POSITION),
            QueryResult::NotAvailable | QueryResult::Draining => return Err(Fault::NOT_AVAILABLE),
            QueryResult::ChannelLimit => return Err(Fault::LIMIT_EXCEEDED),
            QueryResult::Unreachable => return Err(Fault::INTERNAL),
        })
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
