//! The messages that servers send.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::connect::Connect;
use crate::protocol::raw;

/// A reply of a server, or a push. An empty one is a ping.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The number of the command; 0 for a push.
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: u32,
    /// The error, instead of a result.
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Error>,
    /// A push, which is no reply to a command.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushMessage>,
    /// The client is connected.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<ConnectResult>,
    /// The client is subscribed.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<SubscribeResult>,
    /// The subscription has ended.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<UnsubscribeResult>,
    /// The publication was accepted.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishResult>,
    /// The members of a channel.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence: Option<PresenceResult>,
    /// The number of members.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_stats: Option<PresenceStatsResult>,
    /// Retained publications.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryResult>,
    /// The server responds.
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<PingResult>,
    /// The result of an application's method.
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcResult>,
    /// The connection was refreshed.
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshResult>,
    /// The subscription was refreshed.
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_refresh: Option<SubRefreshResult>,
}

/// The reason why a command failed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Error {
    /// The code: see [`Fault`](crate::protocol::Fault); 400 to 1999 are the application's.
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub code: u32,
    /// A text for people.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub message: String,
    /// True if a retry may succeed.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub temporary: bool,
}

/// A message about a channel or the connection, which is no reply to a command.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PushMessage {
    /// The number of the channel, instead of its name.
    #[prost(int64, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: i64,
    /// The channel; empty for pushes about the connection.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub channel: String,
    /// A publication.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "pub")]
    pub pub_: Option<Publication>,
    /// A client has subscribed.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// A client has unsubscribed.
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave: Option<Leave>,
    /// The server has ended the subscription.
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<Unsubscribe>,
    /// Data from the application for this client.
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// The server has subscribed the client.
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<Subscribe>,
    /// The client is connected; the first push over a unidirectional transport.
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Connect>,
    /// The client is disconnected; the last push over a transport that cannot close with a code.
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect: Option<DisconnectPush>,
    /// The connection was refreshed.
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<Refresh>,
}

impl PushMessage {
    /// Returns the publication if the push contains nothing else.
    pub(in crate::protocol) fn publication(&self) -> Option<&Publication> {
        let PushMessage {
            id: _,
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

/// The description of a connection. In JSON, `conn_info` and `chan_info` are omitted if they are not JSON: data of one client must not
/// close the connections of others.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientInfo {
    /// The user; empty if anonymous.
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub user: String,
    /// The client ID.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "raw::or_null")]
    pub client: String,
    /// The application's data about the connection.
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_not_json")]
    pub conn_info: Bytes,
    /// The application's data about the subscription.
    #[prost(bytes = "bytes", tag = "4")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_not_json")]
    pub chan_info: Bytes,
}

/// A publication of a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Publication {
    /// The application's data.
    #[prost(bytes = "bytes", tag = "4")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// The publisher, if it is a client.
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<ClientInfo>,
    /// The offset in the channel, from 1; 0 in a channel without a history.
    #[prost(uint64, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// The tags by which subscribers may filter.
    #[prost(btree_map = "string, string", tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub tags: BTreeMap<String, String>,
    /// True if `data` is a delta from the previous publication.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub delta: bool,
    /// The time of publication in milliseconds since the Unix epoch; 0 if unknown.
    #[prost(int64, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub time: i64,
}

/// A client has subscribed to a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Join {
    /// The client.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<ClientInfo>,
}

/// A client has unsubscribed from a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Leave {
    /// The client.
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<ClientInfo>,
}

/// The server has ended a subscription.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Unsubscribe {
    /// The code: see [`Unsubscribed`](crate::protocol::Unsubscribed).
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub code: u32,
    /// A text for people.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reason: String,
}

/// The server has subscribed the client.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Subscribe {
    /// True if missed publications can be recovered.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recoverable: bool,
    /// The epoch of the channel.
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The offset of the last publication.
    #[prost(uint64, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// True if the server detects gaps.
    #[prost(bool, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub positioned: bool,
    /// The application's data.
    #[prost(bytes = "bytes", tag = "7")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// Data from the application for one client.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// The data.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}

/// The reason of a disconnect, over transports that cannot close with a code.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct DisconnectPush {
    /// The code: see [`Disconnect`](crate::protocol::Disconnect).
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub code: u32,
    /// A text for people.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reason: String,
    /// True if the client must reconnect.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub reconnect: bool,
}

/// The connection was refreshed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Refresh {
    /// True if the connection expires unless it is refreshed.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// The time until it expires, in seconds.
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
}

/// The client is connected.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectResult {
    /// The client ID.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub client: String,
    /// The server's version.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// True if the connection expires unless it is refreshed.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// The time until it expires, in seconds.
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
    /// The application's data.
    #[prost(bytes = "bytes", tag = "5")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// The server-side subscriptions.
    #[prost(btree_map = "string, message", tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub subs: BTreeMap<String, SubscribeResult>,
    /// The interval of the server's pings, in seconds.
    #[prost(uint32, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ping: u32,
    /// True if the server expects a pong.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub pong: bool,
    /// The session for [`EmulationRequest`](crate::protocol::EmulationRequest).
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub session: String,
    /// The node for [`EmulationRequest`](crate::protocol::EmulationRequest).
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub node: String,
    /// The server's time in milliseconds since the Unix epoch.
    #[prost(int64, tag = "11")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub time: i64,
    /// The client's optional features that are in use, as bits.
    #[prost(int64, tag = "12")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub flag: i64,
}

/// The connection was refreshed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RefreshResult {
    /// The client ID.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub client: String,
    /// The server's version.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// True if the connection expires unless it is refreshed.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// The time until it expires, in seconds.
    #[prost(uint32, tag = "4")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
}

/// The client is subscribed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscribeResult {
    /// True if the subscription expires unless it is refreshed.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// The time until it expires, in seconds.
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
    /// True if missed publications can be recovered.
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recoverable: bool,
    /// The epoch of the channel.
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The missed publications, the oldest first.
    #[prost(message, repeated, tag = "7")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub publications: Vec<Publication>,
    /// True if `publications` has all that were missed.
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub recovered: bool,
    /// The offset of the last publication.
    #[prost(uint64, tag = "9")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub offset: u64,
    /// True if the server detects gaps.
    #[prost(bool, tag = "10")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub positioned: bool,
    /// The application's data.
    #[prost(bytes = "bytes", tag = "11")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// True if the client requested recovery.
    #[prost(bool, tag = "12")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub was_recovering: bool,
    /// True if publications may be sent as deltas.
    #[prost(bool, tag = "13")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub delta: bool,
    /// The number of the channel, which pushes have instead of its name.
    #[prost(int64, tag = "14")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub id: i64,
}

/// The subscription was refreshed.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SubRefreshResult {
    /// True if the subscription expires unless it is refreshed.
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// The time until it expires, in seconds.
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
}

/// The subscription has ended.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsubscribeResult {}

/// The publication was accepted.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishResult {}

/// The members of a channel.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceResult {
    /// The members by client ID.
    #[prost(btree_map = "string, message", tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub presence: BTreeMap<String, ClientInfo>,
}

/// The number of members.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PresenceStatsResult {
    /// The number of connections.
    #[prost(uint32, tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub num_clients: u32,
    /// The number of distinct users.
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "raw::or_null")]
    pub num_users: u32,
}

/// Retained publications.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryResult {
    /// The publications, in the requested order.
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "raw::or_null")]
    pub publications: Vec<Publication>,
    /// The epoch of the channel.
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "raw::or_null")]
    pub epoch: String,
    /// The offset of the last publication.
    #[prost(uint64, tag = "3")]
    #[serde(deserialize_with = "raw::or_null")]
    pub offset: u64,
}

/// The server responds.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PingResult {}

/// The result of an application's method.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct RpcResult {
    /// The result.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
}
