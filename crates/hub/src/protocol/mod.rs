//! The Centrifuge client protocol, version 2, in JSON and Protobuf, for both roles.
//!
//! A client sends [`Command`]s. A server sends [`Reply`]s, which either reply to a command by its number or contain a [`PushMessage`]. One
//! transport message may contain several, separated as [`Format`] describes. The messages have the field numbers and names of the published
//! definition. Features that this server does not have (map subscriptions, shared polls, compression with dictionaries) have no fields
//! here; unknown fields are skipped, as the definition requires.
//!
//! In JSON a field of bytes is raw JSON: embedded, not encoded. A field with its default value (0, an empty string) is omitted in JSON,
//! except those that Centrifugo always writes and SDKs read without a check: `user` and `client` of a client's info, and all fields of the
//! results of `presence`, `presence_stats` and `history`.
//!
//! Must not know transports or channels.

mod codes;
mod format;
mod json;
mod messages;
mod publishing;
mod raw;

pub use codes::{Disconnect, Fault, Unsubscribed};
pub use format::{Commands, Format, MessageError, MessageParts, Replies, encoded_bytes};
pub use messages::{
    ClientInfo, Command, Connect, ConnectRequest, ConnectResult, DisconnectPush, EmulationRequest, Error,
    FilterNode, HistoryRequest, HistoryResult, Join, Leave, Message, PingRequest, PingResult,
    PresenceRequest, PresenceResult, PresenceStatsRequest, PresenceStatsResult, Publication, PublishRequest,
    PublishResult, PushMessage, Refresh, RefreshRequest, RefreshResult, Reply, RpcRequest, RpcResult,
    SendRequest, SubRefreshRequest, SubRefreshResult, Subscribe, SubscribeRequest, SubscribeResult,
    Unsubscribe, UnsubscribeRequest, UnsubscribeResult, WirePosition,
};
pub use publishing::{DataForm, Published, Variant};
pub use raw::{NotJson, compact, compacted};
