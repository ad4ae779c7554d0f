//! The Centrifuge client protocol, version 2, in JSON and in Protobuf, both roles.
//!
//! A client sends [`Command`]s; a server sends [`Reply`]s, which answer a command by its number or bring a [`Push`] that
//! nobody asked for. Several of them may be in one message of the transport ([`Format`] says how). The messages are those
//! of the published definition, by the same field numbers and names; what this server does not do (map subscriptions,
//! shared polls, compression by dictionary) has no fields here, and unknown fields are passed over as the definition asks.
//!
//! A field of bytes is raw JSON in the JSON format: embedded, not encoded. A field with its first value (0, an empty text) is left
//! out of JSON, except those that Centrifugo always writes and SDKs read without a check: `user` and `client` of a client's info, all
//! fields of the results of `presence`, `presence_stats` and `history`.

mod codes;
mod format;
mod json;
mod messages;
mod publishing;
mod raw;

pub use codes::{Disconnect, Fault, Unsubscribed};
pub use format::{Broken, Commands, Format, Parts, Replies, encoded_bytes};
pub use messages::{
    ClientInfo, Command, Connect, ConnectRequest, ConnectResult, DisconnectPush, EmulationRequest, Error,
    FilterNode, HistoryRequest, HistoryResult, Join, Leave, Message, PingRequest, PingResult,
    PresenceRequest, PresenceResult, PresenceStatsRequest, PresenceStatsResult, Publication, PublishRequest,
    PublishResult, Push, Refresh, RefreshRequest, RefreshResult, Reply, RpcRequest, RpcResult, SendRequest,
    StreamPosition, SubRefreshRequest, SubRefreshResult, Subscribe, SubscribeRequest, SubscribeResult,
    Unsubscribe, UnsubscribeRequest, UnsubscribeResult,
};
pub use publishing::{Published, Variant};
pub use raw::{NotJson, compact, compacted};
