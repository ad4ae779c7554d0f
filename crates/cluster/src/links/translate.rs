//! Requests and events of push, as those of the node.

use ringmain_hub::mail::{ChannelOptions, ChannelQuery, QueryResult};
use ringmain_push::cluster::{
    ClusterEvent, ClusterPublishOutcome, ClusterRequest, ClusterRequestId, MirrorSync, MirroredState,
};

use crate::frame::{Answer, ChannelSettings, Publish, PublishOutcome};
use crate::limits;
use crate::member::Uid;
use crate::node::{Event, LinkId, NodeRequest, SyncKind};

const _: () = assert!(ringmain_push::limits::CLUSTER_CALL_BYTES <= limits::CALL_BYTES);

fn settings(options: &ChannelOptions) -> ChannelSettings {
    ChannelSettings {
        history: options.history,
        position_ttl: options.position_ttl,
        members: options.presence || options.join_leave,
    }
}

/// Returns the node's request, or the event that answers it at once.
pub(super) fn local(request: ClusterRequest) -> Result<NodeRequest, ClusterEvent> {
    Ok(match request {
        ClusterRequest::Interested {
            channel,
            options,
            needs_state,
        } => NodeRequest::Interested {
            channel,
            settings: settings(&options),
            needs_state,
        },
        ClusterRequest::Uninterested { channel } => NodeRequest::Uninterested { channel },
        ClusterRequest::Joined { channel, info } => NodeRequest::Joined { channel, info },
        ClusterRequest::Left { channel, client } => NodeRequest::Left { channel, client },
        ClusterRequest::Publish {
            request,
            channel,
            options,
            published,
            publish_options,
        } => NodeRequest::Publish {
            request: request.0,
            publish: Publish {
                channel,
                settings: settings(&options),
                published,
                options: publish_options,
            },
        },
        ClusterRequest::Query {
            request,
            options,
            query: ChannelQuery::Presence | ChannelQuery::PresenceStats,
            ..
        } if !options.presence => {
            let result = Box::new(QueryResult::NotAvailable);
            return Err(ClusterEvent::QueryResult { request, result });
        }
        ClusterRequest::Query {
            request,
            channel,
            options,
            query,
        } => NodeRequest::Query {
            request: request.0,
            channel,
            settings: settings(&options),
            query,
        },
        ClusterRequest::Call { request, payload } => NodeRequest::Call {
            request: request.0,
            payload,
        },
        ClusterRequest::CallResult { from, call, payload } => NodeRequest::CallResult {
            from: Uid(from),
            call,
            payload,
        },
    })
}

/// Returns the event for the workers, or the link that must be closed.
pub(super) fn event(event: Event) -> Result<ClusterEvent, LinkId> {
    Ok(match event {
        Event::Synced { channel, state, kind } => ClusterEvent::Synced {
            channel,
            state: MirroredState {
                position: state.position,
                floor: state.floor,
                publications: state.publications,
            },
            kind: match kind {
                SyncKind::Initial => MirrorSync::Initial,
                SyncKind::Continued => MirrorSync::Continued,
                SyncKind::Gap => MirrorSync::Gap,
            },
        },
        Event::Publication {
            channel,
            offset,
            published,
        } => ClusterEvent::Publication {
            channel,
            offset,
            published,
        },
        Event::Presence {
            channel,
            info,
            is_join,
        } => ClusterEvent::Member {
            channel,
            info,
            is_join,
        },
        Event::Lost { channel } => ClusterEvent::Lost { channel },
        Event::Published { request, outcome } => ClusterEvent::Published {
            request: ClusterRequestId(request),
            outcome: match outcome {
                PublishOutcome::Published(position) => ClusterPublishOutcome::Published(position),
                PublishOutcome::ChannelLimit => ClusterPublishOutcome::ChannelLimit,
                PublishOutcome::Refused | PublishOutcome::Unknown => ClusterPublishOutcome::Unreachable,
            },
        },
        Event::Answer { request, answer } => ClusterEvent::QueryResult {
            request: ClusterRequestId(request),
            result: Box::new(query_result(answer)),
        },
        Event::Call { from, call, payload } => ClusterEvent::Call {
            from: from.0,
            call,
            payload,
        },
        Event::CallFinished { request, results } => ClusterEvent::CallFinished {
            request: ClusterRequestId(request),
            results: results.into_iter().map(|(uid, result)| (uid.0, result)).collect(),
        },
        Event::Close(link) => return Err(link),
    })
}

fn query_result(answer: Answer) -> QueryResult {
    match answer {
        Answer::History {
            publications,
            position,
        } => QueryResult::History {
            publications,
            position,
        },
        Answer::Presence(members) => QueryResult::Presence(members),
        Answer::PresenceStats { clients, users } => QueryResult::PresenceStats { clients, users },
        Answer::HistoryCleared => QueryResult::HistoryCleared,
        Answer::Unrecoverable => QueryResult::Unrecoverable,
        Answer::NotAvailable => QueryResult::NotAvailable,
        Answer::TooLarge => QueryResult::ChannelLimit,
        Answer::Unreachable => QueryResult::Unreachable,
    }
}
