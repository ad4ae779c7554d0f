//! What servers send.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::connect::Connect;
use crate::protocol::raw;

/// What a server answers, or says unasked. One of nothing is a ping.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The command's; 0 for a push.
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: u32,
    /// Instead of a result.
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// What nobody asked for.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    /// The client is connected.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<ConnectResult>,
    /// It is subscribed.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<SubscribeResult>,
    /// It is subscribed no longer.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<UnsubscribeResult>,
    /// It is published.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishResult>,
    /// Who is there.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence: Option<PresenceResult>,
    /// How many are there.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_stats: Option<PresenceStatsResult>,
    /// What was published.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryResult>,
    /// The server is there.
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingResult>,
    /// The application's answer.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcResult>,
    /// The connection goes on.
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshResult>,
    /// The subscription goes on.
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_refresh: Option<SubRefreshResult>,
}

/// Why a command was not carried out.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Error {
    /// See [`Fault`](crate::protocol::Fault); from 400 to 1999 they are the application's.
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub code: u32,
    /// For people.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub message: String,
    /// Whether it may be carried out a little later.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub temporary: bool,
}

/// What a server says unasked, about a channel or the connection.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Push {
    /// The channel's number, instead of its name.
    #[prost(int64, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: i64,
    /// The channel; empty for what is about the connection.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// A publication.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "pub")]
    pub pub_: Option<Publication>,
    /// Somebody came.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// Somebody left.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave: Option<Leave>,
    /// The server ended the subscription.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<Unsubscribe>,
    /// From the application to this client.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// The server subscribed the client.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<Subscribe>,
    /// The first on a transport that only brings: the result of a command that was not sent.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Connect>,
    /// The last on a transport that cannot close with a code.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect: Option<DisconnectPush>,
    /// The connection goes on for so long.
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Refresh>,
}

impl Push {
    /// If it is a publication and nothing else: that.
    pub(in crate::protocol) fn publication(&self) -> Option<&Publication> {
        let Push {
            id: 0,
            channel: _,
            pub_,
            join: None,
            leave: None,
            unsubscribe: None,
            message: None,
            subscribe: None,
            connect: None,
            disconnect: None,
            refresh: None,
        } = self
        else {
            return None;
        };
        pub_.as_ref()
    }
}

/// Who a connection is. JSON has no `conn_info` and no `chan_info` that are not JSON: bytes of one client must not end the
/// connections of others.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientInfo {
    /// Its user; empty for one that nobody knows.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub user: String,
    /// The connection's own number.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "raw::or_null")]
    pub client: String,
    /// What the application says of the connection.
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_no_json")]
    pub conn_info: Bytes,
    /// What it says of its subscription.
    #[prost(bytes = "bytes", tag = "4")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_no_json")]
    pub chan_info: Bytes,
}

/// What was published in a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Publication {
    /// The application's.
    #[prost(bytes = "bytes", tag = "4")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// Who published it, if it was a client.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<ClientInfo>,
    /// Its number in the channel, from 1; 0 in a channel without a history.
    #[prost(uint64, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// What subscribers may filter by.
    #[prost(btree_map = "string, string", tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub tags: BTreeMap<String, String>,
    /// Whether `data` is a difference to the last one's.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub delta: bool,
    /// When, in milliseconds since 1970; 0 if that is not told.
    #[prost(int64, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub time: i64,
}

/// Somebody came to a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Join {
    /// Who.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<ClientInfo>,
}

/// Somebody left a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Leave {
    /// Who.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<ClientInfo>,
}

/// The server ended a subscription.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Unsubscribe {
    /// See [`Unsubscribed`](crate::protocol::Unsubscribed).
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub code: u32,
    /// For people.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reason: String,
}

/// The server subscribed the client.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Subscribe {
    /// Whether what is missed can be had later.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recoverable: bool,
    /// Of the channel's offsets.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The last one's.
    #[prost(uint64, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// Whether the server watches over gaps.
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub positioned: bool,
    /// The application's.
    #[prost(bytes = "bytes", tag = "7")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// From the application to one client.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// The application's.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// Why a connection ends, where it cannot be closed with a code.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct DisconnectPush {
    /// See [`Disconnect`](crate::protocol::Disconnect).
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub code: u32,
    /// For people.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reason: String,
    /// Whether to come back.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reconnect: bool,
}

/// The connection goes on.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Refresh {
    /// Whether it ends unless it is refreshed.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// When, in seconds.
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
}

/// The client is connected.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectResult {
    /// The connection's own number.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub client: String,
    /// The server's.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// Whether it ends unless it is refreshed.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// When, in seconds.
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
    /// The application's.
    #[prost(bytes = "bytes", tag = "5")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// What the server subscribed it to.
    #[prost(btree_map = "string, message", tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub subs: BTreeMap<String, SubscribeResult>,
    /// How often the server pings, in seconds.
    #[prost(uint32, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ping: u32,
    /// Whether it wants a pong.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub pong: bool,
    /// For [`EmulationRequest`](crate::protocol::EmulationRequest).
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub session: String,
    /// For [`EmulationRequest`](crate::protocol::EmulationRequest).
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub node: String,
    /// The server's, in milliseconds since 1970.
    #[prost(int64, tag = "11")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub time: i64,
    /// What of the client's flags is in use.
    #[prost(int64, tag = "12")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub flag: i64,
}

/// The connection goes on.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RefreshResult {
    /// The connection's own number.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub client: String,
    /// The server's.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// Whether it ends unless it is refreshed.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// When, in seconds.
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
}

/// It is subscribed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscribeResult {
    /// Whether it ends unless it is refreshed.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// When, in seconds.
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
    /// Whether what is missed can be had later.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recoverable: bool,
    /// Of the channel's offsets.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// What was missed, the oldest first.
    #[prost(message, repeated, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub publications: Vec<Publication>,
    /// Whether these are all.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recovered: bool,
    /// The last one's.
    #[prost(uint64, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// Whether the server watches over gaps.
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub positioned: bool,
    /// The application's.
    #[prost(bytes = "bytes", tag = "11")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// Whether recovery was asked for.
    #[prost(bool, tag = "12")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub was_recovering: bool,
    /// Whether differences will come.
    #[prost(bool, tag = "13")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub delta: bool,
    /// The channel's number, for pushes instead of its name.
    #[prost(int64, tag = "14")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: i64,
}

/// The subscription goes on.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubRefreshResult {
    /// Whether it ends unless it is refreshed.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// When, in seconds.
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
}

/// It is subscribed no longer.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsubscribeResult {}

/// It is published.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishResult {}

/// Who is subscribed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceResult {
    /// By the connection's own number.
    #[prost(btree_map = "string, message", tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub presence: BTreeMap<String, ClientInfo>,
}

/// How many are subscribed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceStatsResult {
    /// Connections.
    #[prost(uint32, tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub num_clients: u32,
    /// Users, each once.
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "raw::or_null")]
    pub num_users: u32,
}

/// What was published.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryResult {
    /// In order.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub publications: Vec<Publication>,
    /// Of the channel's offsets.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The last one's.
    #[prost(uint64, tag = "3")]
    #[serde(deserialize_with = "raw::or_null")]
    pub offset: u64,
}

/// It is.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PingResult {}

/// The application's answer.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RpcResult {
    /// The application's.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}
