//! The messages that clients send.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::protocol::raw;

/// A command of a client. If it contains several requests, the first one counts.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// The number that the reply repeats; 0 for commands without a reply ([`SendRequest`], a pong).
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: u32,
    /// Opens the session; the first command of each connection.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<ConnectRequest>,
    /// Subscribes to a channel.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<SubscribeRequest>,
    /// Unsubscribes from a channel.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<UnsubscribeRequest>,
    /// Publishes in a channel.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishRequest>,
    /// Requests the members of a channel.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence: Option<PresenceRequest>,
    /// Requests the number of members.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_stats: Option<PresenceStatsRequest>,
    /// Requests retained publications.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryRequest>,
    /// Checks that the server responds.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingRequest>,
    /// Sends data to the application, without a reply.
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<SendRequest>,
    /// Calls a method of the application.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcRequest>,
    /// Refreshes the connection with a new token.
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshRequest>,
    /// Refreshes a subscription with a new token.
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_refresh: Option<SubRefreshRequest>,
}

/// The commands of a client that receives its replies over a unidirectional stream.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EmulationRequest {
    /// The node of the stream.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub node: String,
    /// The session of the stream.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub session: String,
    /// The commands, encoded as over a WebSocket.
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// The first command of a connection.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectRequest {
    /// The connection token.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub token: String,
    /// Data for the application.
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// The positions of server-side subscriptions to recover.
    #[prost(btree_map = "string, message", tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub subs: BTreeMap<String, SubscribeRequest>,
    /// The name of the client program.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub name: String,
    /// The version of the client program.
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// Headers, for clients that cannot set HTTP headers.
    #[prost(btree_map = "string, string", tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub headers: BTreeMap<String, String>,
    /// Optional features of the client, as bits.
    #[prost(int64, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub flag: i64,
}

/// A new token for the connection.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RefreshRequest {
    /// The token.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub token: String,
}

/// A subscription to a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscribeRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// The subscription token.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub token: String,
    /// Requests recovery of the publications after `offset`.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recover: bool,
    /// The epoch of `offset`.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The offset of the last publication that the client has.
    #[prost(uint64, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// Data for the application.
    #[prost(bytes = "bytes", tag = "8")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// Requests that the server detect gaps.
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub positioned: bool,
    /// True if the client will recover after a reconnect.
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recoverable: bool,
    /// Requests join and leave pushes.
    #[prost(bool, tag = "11")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub join_leave: bool,
    /// The delta format that the client supports; `fossil` is one.
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub delta: String,
    /// A filter of publications by their tags.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tf: Option<FilterNode>,
    /// Optional features of the client, as bits.
    #[prost(int64, tag = "14")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub flag: i64,
}

/// A new token for a subscription.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubRefreshRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// The token.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub token: String,
}

/// The end of a subscription.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsubscribeRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
}

/// A publication.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// The data.
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(with = "raw::value", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// A query for the members of a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
}

/// A query for the number of members.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceStatsRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
}

/// A position in a channel's history, as it is sent: the definition's `StreamPosition`.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct WirePosition {
    /// The offset of the last known publication.
    #[prost(uint64, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// The epoch of the offset.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
}

/// A query for retained publications.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// The maximum number of publications; 0 returns only the channel's position, a negative number all.
    #[prost(int32, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub limit: i32,
    /// Selects publications after this position; before it if reversed.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<WirePosition>,
    /// True if the newest is returned first.
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reverse: bool,
}

/// A check that the server responds.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PingRequest {}

/// A call of a method of the application.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RpcRequest {
    /// The arguments.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// The method.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub method: String,
}

/// Data for the application, without a reply.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SendRequest {
    /// The data.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// A filter of publications by their tags: a comparison, or a combination of others.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterNode {
    /// `and`, `or` or `not` of `nodes`; empty for a comparison.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub op: String,
    /// The tag to compare.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub key: String,
    /// The comparison: `eq`, `neq`, `in`, `nin`, `ex`, `nex`, `sw`, `ew`, `ct`, `lt`, `lte`, `gt` or `gte`.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub cmp: String,
    /// The operand.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub val: String,
    /// The operands of `in` and `nin`.
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub vals: Vec<String>,
    /// The combined filters.
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub nodes: Vec<FilterNode>,
}
