//! What tells a client that it is connected where it has sent no command.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::replies::{ConnectResult, SubscribeResult};
use crate::protocol::raw;

/// The client is connected, on a transport that only brings: the same fields as of [`ConnectResult`], by other numbers, and no flag.
#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// The connection's own number.
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub client: String,
    /// The server's.
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub version: String,
    /// Whether it ends unless it is refreshed.
    #[prost(bool, tag = "5")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub expires: bool,
    /// When, in seconds.
    #[prost(uint32, tag = "6")]
    #[serde(skip_serializing_if = "raw::is_unset", deserialize_with = "raw::or_null")]
    pub ttl: u32,
    /// The application's.
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(with = "raw", skip_serializing_if = "raw::is_unset")]
    pub data: Bytes,
    /// What the server subscribed it to.
    #[prost(btree_map = "string, message", tag = "4")]
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
