//! The push that reports a connection over a unidirectional transport, where the client sends no command.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::replies::{ConnectResult, SubscribeResult};
use crate::protocol::raw;

/// The client is connected over a unidirectional transport: the fields of [`ConnectResult`] under other numbers, without `flag`.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// The client ID.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub client: String,
    /// The server's version.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// True if the connection expires unless it is refreshed.
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// The time until it expires, in seconds.
    #[prost(uint32, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
    /// The application's data.
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// The server-side subscriptions.
    #[prost(btree_map = "string, message", tag = "4")]
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
}

impl From<ConnectResult> for Connect {
    fn from(result: ConnectResult) -> Connect {
        let ConnectResult {
            client,
            version,
            expires,
            ttl,
            data,
            subs,
            ping,
            pong,
            session,
            node,
            time,
            flag: _,
        } = result;
        Connect {
            client,
            version,
            expires,
            ttl,
            data,
            subs,
            ping,
            pong,
            session,
            node,
            time,
        }
    }
}
