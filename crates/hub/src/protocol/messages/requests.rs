//! What clients send.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::protocol::raw;

/// What a client asks for: of the requests the first that is there counts.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// By which the reply is known; 0 for what has none ([`SendRequest`], a pong).
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: u32,
    /// The first of each connection.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<ConnectRequest>,
    /// To a channel.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<SubscribeRequest>,
    /// From a channel.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<UnsubscribeRequest>,
    /// To a channel.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishRequest>,
    /// Who is there.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence: Option<PresenceRequest>,
    /// How many are there.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_stats: Option<PresenceStatsRequest>,
    /// What was published.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryRequest>,
    /// Whether the server is there.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingRequest>,
    /// Something for the application, without a reply.
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<SendRequest>,
    /// Something for the application, with a reply.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcRequest>,
    /// The connection goes on by a new token.
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshRequest>,
    /// A subscription goes on by a new token.
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_refresh: Option<SubRefreshRequest>,
}

/// What a client sends beside a stream that only brings: the other half of it.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EmulationRequest {
    /// Where the stream is.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub node: String,
    /// Which one it is there.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub session: String,
    /// Commands as they would be sent on a WebSocket.
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// The first command of a connection.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectRequest {
    /// Who it is, by a token.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub token: String,
    /// For the application.
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// Where subscriptions of the server's stood, to be recovered.
    #[prost(btree_map = "string, message", tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub subs: BTreeMap<String, SubscribeRequest>,
    /// Of the client's program.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub name: String,
    /// Of the client's program.
    #[prost(string, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// Where the client cannot set headers of HTTP.
    #[prost(btree_map = "string, string", tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub headers: BTreeMap<String, String>,
    /// What the client can do besides.
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

/// To be subscribed to a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscribeRequest {
    /// Its name.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// That it may, by a token.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub token: String,
    /// Whether what was missed since `offset` is wanted.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recover: bool,
    /// Of `offset`.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The last one that the client has.
    #[prost(uint64, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// For the application.
    #[prost(bytes = "bytes", tag = "8")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// Whether the server is to watch over gaps.
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub positioned: bool,
    /// Whether what will be missed is to be had later.
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recoverable: bool,
    /// Whether it is told who comes and who leaves.
    #[prost(bool, tag = "11")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub join_leave: bool,
    /// By which differences it understands; `fossil` is known.
    #[prost(string, tag = "12")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub delta: String,
    /// Which publications it wants, by their tags.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tf: Option<FilterNode>,
    /// What the client can do besides.
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

/// To be subscribed no longer.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsubscribeRequest {
    /// The channel.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
}

/// To have something published.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishRequest {
    /// Where.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// What.
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(with = "raw::value", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// Who is subscribed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceRequest {
    /// Where.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
}

/// How many are subscribed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceStatsRequest {
    /// Where.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
}

/// A place in a channel's history.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamPosition {
    /// The number of the last publication that is known.
    #[prost(uint64, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// Of the offset.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
}

/// What was published.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryRequest {
    /// Where.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// How many at most; 0 for none but the channel's place, less than 0 for all that is kept.
    #[prost(int32, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub limit: i32,
    /// What is behind this; before it if reversed.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<StreamPosition>,
    /// The newest first.
    #[prost(bool, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reverse: bool,
}

/// Whether the server is there.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PingRequest {}

/// Something for the application, with a reply.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RpcRequest {
    /// The application's.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// Which of its methods.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub method: String,
}

/// Something for the application, without a reply.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SendRequest {
    /// The application's.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// Which publications are wanted, by their tags: a comparison, or others put together.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct FilterNode {
    /// `and`, `or`, `not` of `nodes`; empty for a comparison.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub op: String,
    /// The tag to compare.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub key: String,
    /// `eq`, `neq`, `in`, `nin`, `ex`, `nex`, `sw`, `ew`, `ct`, `lt`, `lte`, `gt`, `gte`.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub cmp: String,
    /// What with.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub val: String,
    /// What with, for `in` and `nin`.
    #[prost(string, repeated, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub vals: Vec<String>,
    /// What is put together.
    #[prost(message, repeated, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub nodes: Vec<FilterNode>,
}
