//! The messages, by the field numbers and names of the published definition.

mod replies;
mod requests;

pub use replies::{
    ClientInfo, Connect, ConnectResult, DisconnectPush, Error, HistoryResult, Join, Leave, Message,
    PingResult, PresenceResult, PresenceStatsResult, Publication, PublishResult, Push, Refresh,
    RefreshResult, Reply, RpcResult, SubRefreshResult, Subscribe, SubscribeResult, Unsubscribe,
    UnsubscribeResult,
};
pub use requests::{
    Command, ConnectRequest, EmulationRequest, FilterNode, HistoryRequest, PingRequest, PresenceRequest,
    PresenceStatsRequest, PublishRequest, RefreshRequest, RpcRequest, SendRequest, StreamPosition,
    SubRefreshRequest, SubscribeRequest, UnsubscribeRequest,
};
