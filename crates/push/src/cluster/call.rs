//! Calls between nodes, and their results.
//!
//! A call is a line of JSON; the message of [`NodeCall::Emulate`] follows the line as it is. A node that does not know a call sends no result.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_hub::protocol::Format;
use serde::{Deserialize, Serialize};

use super::command;
use crate::limits;
use crate::worker::EmulatedMessage;
use crate::worker::user_commands::ConnectionCommand;

/// See the module.
#[derive(Debug)]
pub(crate) enum NodeCall {
    /// Runs on the connections of a user. The result is their number ([`encode_count`]).
    Command(ConnectionCommand),
    /// Lists channels with subscribers. The result is a [`ChannelList`].
    Channels {
        /// The text of a [`ChannelPattern`](crate::api::ChannelPattern).
        pattern: Option<String>,
        /// Lists those after this name.
        after: Option<String>,
    },
    /// Describes the node. The result is a [`NodeInfo`].
    Info,
    /// Passes a client's message to its session, if the node has this name. The result is an [`Emulated`].
    Emulate {
        /// The name that the client has received.
        node: String,
        /// The worker with the session.
        worker: usize,
        message: EmulatedMessage,
    },
}

/// The part of a list of channels that one result has room for.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChannelList {
    Page {
        /// In order, each with the number of its subscribers.
        channels: Vec<(String, u32)>,
        /// Others follow the last one.
        has_more: bool,
    },
    /// The node has more than [`limits::LISTED_CHANNELS`].
    TooMany {},
    /// The node has too much to do.
    Busy {},
}

/// The description of a node.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct NodeInfo {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) num_clients: u64,
    pub(crate) num_users: u64,
    pub(crate) num_subs: u64,
    pub(crate) num_channels: u64,
    /// In seconds.
    pub(crate) uptime: u64,
}

/// The outcome of an emulated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emulated {
    /// Another node has this name.
    NotHere,
    /// Passed to the worker with the session. The client of a session that has ended is notified by the end of its stream.
    Passed,
    /// The worker has too much to do.
    Busy,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum CallJson {
    Channels {
        pattern: Option<String>,
        after: Option<String>,
    },
    Info {},
    Emulate {
        node: String,
        worker: usize,
        /// In hexadecimal: JSON has no such numbers.
        secret: String,
        is_protobuf: bool,
    },
}

impl NodeCall {
    pub(crate) fn encode(&self) -> Bytes {
        let (json, message) = match self {
            NodeCall::Command(command) => return command::encode(command),
            NodeCall::Channels { pattern, after } => {
                let (pattern, after) = (pattern.clone(), after.clone());
                (CallJson::Channels { pattern, after }, None)
            }
            NodeCall::Info => (CallJson::Info {}, None),
            NodeCall::Emulate {
                node,
                worker,
                message,
            } => {
                let json = CallJson::Emulate {
                    node: node.clone(),
                    worker: *worker,
                    secret: format!("{:032x}", message.secret),
                    is_protobuf: message.format == Format::Protobuf,
                };
                (json, Some(&message.data))
            }
        };
        let mut encoded = to_json(&json);
        if let Some(message) = message {
            encoded.push(b'\n');
            encoded.extend_from_slice(message);
        }
        encoded.into()
    }

    /// Decodes a call. `None`: it is invalid, or of a newer version.
    pub(crate) fn decode(payload: &Bytes) -> Option<NodeCall> {
        let line = payload.iter().position(|byte| *byte == b'\n');
        let line = line.unwrap_or(payload.len());
        let Ok(json) = serde_json::from_slice(&payload[..line]) else {
            return command::decode(payload).map(NodeCall::Command);
        };
        Some(match json {
            CallJson::Channels { pattern, after } => NodeCall::Channels { pattern, after },
            CallJson::Info {} => NodeCall::Info,
            CallJson::Emulate {
                node,
                worker,
                secret,
                is_protobuf,
            } => NodeCall::Emulate {
                node,
                worker,
                message: EmulatedMessage {
                    secret: u128::from_str_radix(&secret, 16).ok()?,
                    format: if is_protobuf {
                        Format::Protobuf
                    } else {
                        Format::Json
                    },
                    data: payload.slice((line + 1).min(payload.len())..),
                },
            },
        })
    }
}

/// Texts and numbers alone: serialization cannot fail.
fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Encodes the number of connections that a command has affected.
pub(crate) fn encode_count(connections: u32) -> Bytes {
    Bytes::copy_from_slice(&connections.to_le_bytes())
}

pub(crate) fn decode_count(result: &[u8]) -> Option<u32> {
    result.try_into().ok().map(u32::from_le_bytes)
}

impl ChannelList {
    /// Creates the part after a name, as far as it fits into [`limits::CLUSTER_CALL_BYTES`].
    pub(crate) fn page(channels: BTreeMap<String, u32>, after: Option<&str>) -> ChannelList {
        /// The longest number, brackets, quotes and commas; and those around the list.
        const ENTRY_BYTES: usize = 16;
        const LIST_BYTES: usize = 64;
        let (mut page, mut bytes, mut has_more) = (Vec::new(), LIST_BYTES, false);
        let rest = channels
            .into_iter()
            .filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
        for (name, count) in rest {
            // Names are ASCII without control characters, of which JSON escapes two with one byte each.
            bytes += 2 * name.len() + ENTRY_BYTES;
            if bytes > limits::CLUSTER_CALL_BYTES {
                has_more = true;
                break;
            }
            page.push((name, count));
        }
        ChannelList::Page {
            channels: page,
            has_more,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        to_json(self).into()
    }

    pub(crate) fn decode(result: &[u8]) -> Option<ChannelList> {
        serde_json::from_slice(result).ok()
    }
}

impl NodeInfo {
    pub(crate) fn encode(&self) -> Bytes {
        to_json(self).into()
    }

    pub(crate) fn decode(result: &[u8]) -> Option<NodeInfo> {
        serde_json::from_slice(result).ok()
    }
}

impl Emulated {
    pub(crate) fn encode(self) -> Bytes {
        Bytes::from_static(match self {
            Emulated::NotHere => b"-",
            Emulated::Passed => b"+",
            Emulated::Busy => b"!",
        })
    }

    pub(crate) fn decode(result: &[u8]) -> Option<Emulated> {
        match result {
            b"-" => Some(Emulated::NotHere),
            b"+" => Some(Emulated::Passed),
            b"!" => Some(Emulated::Busy),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
