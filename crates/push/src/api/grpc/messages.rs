//! The messages of Centrifugo's definition, with its field numbers. Fields of features that are not supported are absent, or present to be
//! rejected.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use ringmain_hub::protocol::FilterNode;

/// A command of a batch.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Command {
    #[prost(message, optional, tag = "4")]
    pub(super) publish: Option<PublishRequest>,
    #[prost(message, optional, tag = "5")]
    pub(super) broadcast: Option<BroadcastRequest>,
    #[prost(message, optional, tag = "6")]
    pub(super) subscribe: Option<SubscribeRequest>,
    #[prost(message, optional, tag = "7")]
    pub(super) unsubscribe: Option<UnsubscribeRequest>,
    #[prost(message, optional, tag = "8")]
    pub(super) disconnect: Option<DisconnectRequest>,
    #[prost(message, optional, tag = "9")]
    pub(super) presence: Option<PresenceRequest>,
    #[prost(message, optional, tag = "10")]
    pub(super) presence_stats: Option<PresenceStatsRequest>,
    #[prost(message, optional, tag = "11")]
    pub(super) history: Option<HistoryRequest>,
    #[prost(message, optional, tag = "12")]
    pub(super) history_remove: Option<HistoryRemoveRequest>,
    #[prost(message, optional, tag = "13")]
    pub(super) info: Option<InfoRequest>,
    #[prost(message, optional, tag = "14")]
    pub(super) rpc: Option<RpcRequest>,
    #[prost(message, optional, tag = "15")]
    pub(super) refresh: Option<RefreshRequest>,
    #[prost(message, optional, tag = "16")]
    pub(super) channels: Option<ChannelsRequest>,
}

/// The response to a command of a batch.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Reply {
    #[prost(message, optional, tag = "2")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "4")]
    pub(super) publish: Option<PublishResult>,
    #[prost(message, optional, tag = "5")]
    pub(super) broadcast: Option<BroadcastResult>,
    #[prost(message, optional, tag = "6")]
    pub(super) subscribe: Option<Empty>,
    #[prost(message, optional, tag = "7")]
    pub(super) unsubscribe: Option<Empty>,
    #[prost(message, optional, tag = "8")]
    pub(super) disconnect: Option<Empty>,
    #[prost(message, optional, tag = "9")]
    pub(super) presence: Option<PresenceResult>,
    #[prost(message, optional, tag = "10")]
    pub(super) presence_stats: Option<PresenceStatsResult>,
    #[prost(message, optional, tag = "11")]
    pub(super) history: Option<HistoryResult>,
    #[prost(message, optional, tag = "12")]
    pub(super) history_remove: Option<Empty>,
    #[prost(message, optional, tag = "13")]
    pub(super) info: Option<InfoResult>,
    #[prost(message, optional, tag = "15")]
    pub(super) refresh: Option<Empty>,
    #[prost(message, optional, tag = "16")]
    pub(super) channels: Option<ChannelsResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Error {
    #[prost(uint32, tag = "1")]
    pub(super) code: u32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchRequest {
    /// [`Command`]s, which are decoded one after the other once their number is known.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) commands: Vec<Bytes>,
    #[prost(bool, tag = "2")]
    pub(super) parallel: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) replies: Vec<Reply>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PublishRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) data: Bytes,
    #[prost(string, tag = "3")]
    pub(super) b64data: String,
    #[prost(bool, tag = "4")]
    pub(super) skip_history: bool,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(super) tags: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    pub(super) idempotency_key: String,
    #[prost(bool, tag = "7")]
    pub(super) delta: bool,
    #[prost(uint64, tag = "8")]
    pub(super) version: u64,
    #[prost(string, tag = "9")]
    pub(super) version_epoch: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PublishResult {
    #[prost(uint64, tag = "1")]
    pub(super) offset: u64,
    #[prost(string, tag = "2")]
    pub(super) epoch: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BroadcastRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) channels: Vec<String>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) data: Bytes,
    #[prost(string, tag = "3")]
    pub(super) b64data: String,
    #[prost(bool, tag = "4")]
    pub(super) skip_history: bool,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(super) tags: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    pub(super) idempotency_key: String,
    #[prost(bool, tag = "7")]
    pub(super) delta: bool,
    #[prost(uint64, tag = "8")]
    pub(super) version: u64,
    #[prost(string, tag = "9")]
    pub(super) version_epoch: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BroadcastResult {
    #[prost(message, repeated, tag = "1")]
    pub(super) responses: Vec<PublishResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SubscribeRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
    #[prost(string, tag = "2")]
    pub(super) user: String,
    #[prost(int64, tag = "3")]
    pub(super) expire_at: i64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) info: Bytes,
    #[prost(string, tag = "5")]
    pub(super) b64info: String,
    #[prost(string, tag = "6")]
    pub(super) client: String,
    #[prost(bytes = "bytes", tag = "7")]
    pub(super) data: Bytes,
    #[prost(string, tag = "8")]
    pub(super) b64data: String,
    #[prost(message, optional, tag = "9")]
    pub(super) recover_since: Option<StreamPosition>,
    #[prost(message, optional, tag = "10")]
    pub(super) r#override: Option<SubscribeOverride>,
    #[prost(string, tag = "11")]
    pub(super) session: String,
    #[prost(message, optional, tag = "12")]
    pub(super) label_filter: Option<FilterNode>,
    #[prost(bool, tag = "13")]
    pub(super) all_users: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SubscribeOverride {
    #[prost(message, optional, tag = "1")]
    pub(super) presence: Option<BoolValue>,
    #[prost(message, optional, tag = "2")]
    pub(super) join_leave: Option<BoolValue>,
    #[prost(message, optional, tag = "3")]
    pub(super) force_recovery: Option<BoolValue>,
    #[prost(message, optional, tag = "4")]
    pub(super) force_positioning: Option<BoolValue>,
    #[prost(message, optional, tag = "5")]
    pub(super) force_push_join_leave: Option<BoolValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(super) value: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UnsubscribeRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
    #[prost(string, tag = "2")]
    pub(super) user: String,
    #[prost(string, tag = "3")]
    pub(super) client: String,
    #[prost(string, tag = "4")]
    pub(super) session: String,
    #[prost(message, optional, tag = "5")]
    pub(super) label_filter: Option<FilterNode>,
    #[prost(bool, tag = "6")]
    pub(super) all_users: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Disconnect {
    #[prost(uint32, tag = "1")]
    pub(super) code: u32,
    #[prost(string, tag = "2")]
    pub(super) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DisconnectRequest {
    #[prost(string, tag = "1")]
    pub(super) user: String,
    #[prost(message, optional, tag = "2")]
    pub(super) disconnect: Option<Disconnect>,
    #[prost(string, tag = "3")]
    pub(super) client: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) whitelist: Vec<String>,
    #[prost(string, tag = "5")]
    pub(super) session: String,
    #[prost(message, optional, tag = "6")]
    pub(super) label_filter: Option<FilterNode>,
    #[prost(bool, tag = "7")]
    pub(super) all_users: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RefreshRequest {
    #[prost(string, tag = "1")]
    pub(super) user: String,
    #[prost(string, tag = "2")]
    pub(super) client: String,
    #[prost(bool, tag = "3")]
    pub(super) expired: bool,
    #[prost(int64, tag = "4")]
    pub(super) expire_at: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) info: Bytes,
    #[prost(string, tag = "6")]
    pub(super) session: String,
    #[prost(message, optional, tag = "7")]
    pub(super) label_filter: Option<FilterNode>,
    #[prost(bool, tag = "8")]
    pub(super) all_users: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PresenceRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClientInfo {
    #[prost(string, tag = "1")]
    pub(super) user: String,
    #[prost(string, tag = "2")]
    pub(super) client: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) conn_info: Bytes,
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) chan_info: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PresenceResult {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) presence: BTreeMap<String, ClientInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PresenceStatsRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PresenceStatsResult {
    #[prost(uint32, tag = "1")]
    pub(super) num_clients: u32,
    #[prost(uint32, tag = "2")]
    pub(super) num_users: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamPosition {
    #[prost(uint64, tag = "1")]
    pub(super) offset: u64,
    #[prost(string, tag = "2")]
    pub(super) epoch: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistoryRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
    #[prost(int32, tag = "2")]
    pub(super) limit: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) since: Option<StreamPosition>,
    #[prost(bool, tag = "4")]
    pub(super) reverse: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Publication {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) data: Bytes,
    #[prost(message, optional, tag = "3")]
    pub(super) info: Option<ClientInfo>,
    #[prost(uint64, tag = "4")]
    pub(super) offset: u64,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistoryResult {
    #[prost(message, repeated, tag = "1")]
    pub(super) publications: Vec<Publication>,
    #[prost(string, tag = "2")]
    pub(super) epoch: String,
    #[prost(uint64, tag = "3")]
    pub(super) offset: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistoryRemoveRequest {
    #[prost(string, tag = "1")]
    pub(super) channel: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InfoRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InfoResult {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<NodeResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeResult {
    #[prost(string, tag = "1")]
    pub(super) uid: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) version: String,
    #[prost(uint32, tag = "4")]
    pub(super) num_clients: u32,
    #[prost(uint32, tag = "5")]
    pub(super) num_users: u32,
    #[prost(uint32, tag = "6")]
    pub(super) num_channels: u32,
    #[prost(uint32, tag = "7")]
    pub(super) uptime: u32,
    #[prost(uint32, tag = "10")]
    pub(super) num_subs: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcRequest {
    #[prost(string, tag = "1")]
    pub(super) method: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) params: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChannelsRequest {
    #[prost(string, tag = "1")]
    pub(super) pattern: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChannelsResult {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) channels: BTreeMap<String, ChannelInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChannelInfo {
    #[prost(uint32, tag = "1")]
    pub(super) num_clients: u32,
}

/// A result without fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PublishResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<PublishResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BroadcastResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<BroadcastResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SubscribeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UnsubscribeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DisconnectResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RefreshResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PresenceResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<PresenceResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PresenceStatsResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<PresenceStatsResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistoryResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<HistoryResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistoryRemoveResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<Empty>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChannelsResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<ChannelsResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InfoResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<InfoResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) error: Option<Error>,
    #[prost(message, optional, tag = "2")]
    pub(super) result: Option<Empty>,
}
