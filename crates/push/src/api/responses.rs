//! What programs are told: bodies of answers, as Centrifugo's API has them.

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

use crate::publish::publisher::Outcome;

/// What came of a command.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Done {
    Published(Position),
    Broadcast { responses: Vec<Answer<Position>> },
    Nothing {},
    Reached { num_clients: u32 },
    Presence { presence: BTreeMap<String, Client> },
    PresenceStats { num_clients: u32, num_users: u32 },
    History(History),
    Channels { channels: BTreeMap<String, Channel> },
    Info { nodes: [Node; 1] },
}

/// The answer to a method.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer<T> {
    Result(T),
    Error(Why),
}

#[derive(Serialize)]
pub(super) struct Why {
    code: u32,
    message: &'static str,
}

/// The answers to a batch.
#[derive(Serialize)]
pub(super) struct Replies {
    pub(super) replies: Vec<Reply>,
}

/// One of them, by the name of its command.
pub(super) struct Reply(pub(super) &'static str, pub(super) Result<Done, Fault>);

/// Where a channel stands, if it has numbers.
#[derive(Serialize)]
pub(super) struct Position {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
}

#[derive(Serialize)]
pub(super) struct History {
    publications: Vec<Publication>,
    epoch: String,
    offset: u64,
}

/// What is no JSON is in base64.
#[derive(Serialize)]
struct Publication {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Client>,
    offset: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, String>,
}

/// The same.
#[derive(Serialize)]
pub(super) struct Client {
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
pub(super) struct Channel {
    pub(super) num_clients: u32,
}

#[derive(Serialize)]
pub(super) struct Node {
    pub(super) uid: String,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) num_clients: u64,
    pub(super) num_users: u64,
    pub(super) num_subs: u64,
    pub(super) num_channels: u64,
    /// In seconds.
    pub(super) uptime: u64,
}

impl From<Fault> for Why {
    fn from(fault: Fault) -> Why {
        Why {
            code: fault.code,
            message: fault.message,
        }
    }
}

impl<T> From<Result<T, Fault>> for Answer<T> {
    fn from(done: Result<T, Fault>) -> Answer<T> {
        match done {
            Ok(done) => Answer::Result(done),
            Err(fault) => Answer::Error(fault.into()),
        }
    }
}

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match &self.1 {
            Ok(done) => map.serialize_entry(self.0, done)?,
            Err(fault) => map.serialize_entry("error", &Why::from(*fault))?,
        }
        map.end()
    }
}

impl From<Option<StreamPosition>> for Position {
    fn from(place: Option<StreamPosition>) -> Position {
        Position {
            offset: place.map(|place| place.offset),
            epoch: place.map(|place| place.epoch.to_string()),
        }
    }
}

impl Done {
    pub(super) fn broadcast(outcomes: Vec<Outcome>) -> Done {
        let responses = outcomes.into_iter();
        Done::Broadcast {
            responses: responses
                .map(|outcome| outcome.map(Position::from).into())
                .collect(),
        }
    }

    pub(super) fn told(told: QueryResult) -> Result<Done, Fault> {
        Ok(match told {
            QueryResult::History {
                publications,
                position,
            } => {
                let publications = publications.iter();
                Done::History(History {
                    publications: publications
                        .map(|(offset, published)| Publication::new(*offset, published))
                        .collect(),
                    epoch: position.epoch.to_string(),
                    offset: position.offset,
                })
            }
            QueryResult::Presence(present) => {
                let present = present.iter();
                Done::Presence {
                    presence: present
                        .map(|info| (info.client.clone(), Client::new(info)))
                        .collect(),
                }
            }
            QueryResult::PresenceStats { clients, users } => Done::PresenceStats {
                num_clients: clients,
                num_users: users,
            },
            QueryResult::HistoryCleared => Done::Nothing {},
            QueryResult::Unrecoverable => return Err(Fault::UNRECOVERABLE_POSITION),
            QueryResult::NotAvailable | QueryResult::Draining => return Err(Fault::NOT_AVAILABLE),
            QueryResult::ChannelLimit => return Err(Fault::LIMIT_EXCEEDED),
        })
    }
}

impl Publication {
    fn new(offset: u64, published: &Published) -> Publication {
        let (data, b64data) = shown(&published.data);
        Publication {
            data,
            b64data,
            info: published.info.as_ref().map(Client::new),
            offset,
            tags: published.tags.clone(),
        }
    }
}

impl Client {
    fn new(info: &ClientInfo) -> Client {
        let (conn_info, b64conn_info) = shown(&info.conn_info);
        let (chan_info, b64chan_info) = shown(&info.chan_info);
        Client {
            user: info.user.clone(),
            client: info.client.clone(),
            conn_info,
            b64conn_info,
            chan_info,
            b64chan_info,
        }
    }
}

/// JSON as it is, or base64; neither of what is not there.
fn shown(bytes: &Bytes) -> (Option<Box<RawValue>>, Option<String>) {
    if bytes.is_empty() {
        return (None, None);
    }
    match serde_json::from_slice(bytes) {
        Ok(json) => (Some(json), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}
