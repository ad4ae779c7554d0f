//! The messages of the protocol, with the field numbers and names of the published definition.

mod connect;
mod replies;
mod requests;

pub use connect::Connect;
pub use replies::{
    ClientInfo, ConnectResult, DisconnectPush, Error, HistoryResult, Join, Leave, Message, PingResult,
    PresenceResult, PresenceStatsResult, Publication, PublishResult, PushMessage, Refresh, RefreshResult,
    Reply, RpcResult, SubRefreshResult, Subscribe, SubscribeResult, Unsubscribe, UnsubscribeResult,
};
pub use requests::{
    Command, ConnectRequest, EmulationRequest, FilterNode, HistoryRequest, PingRequest, PresenceRequest,
    PresenceStatsRequest, PublishRequest, RefreshRequest, RpcRequest, SendRequest, SubRefreshRequest,
    SubscribeRequest, UnsubscribeRequest, WirePosition,
};
