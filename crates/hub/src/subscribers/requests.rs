//! Requests of connections and of the owner's programs, and the assignment of replies to them.

use std::sync::Arc;

use super::{ConnId, ProgramReply, SubscriberEvent, SubscriberTable, SubscriptionFeatures};
use crate::history::StreamPosition;
use crate::mail::{
    ChannelOptions, ChannelQuery, Origin, PublishOptions, QueryResult, RequestId, ShardRequest,
};
use crate::protocol::{Fault, Published, Variant};

/// The requester of a pending reply.
#[derive(Debug)]
pub(super) enum PendingRequest {
    Subscribe {
        conn: ConnId,
        topic: u32,
        variant: Variant,
        /// The client ID, if the channel was given one.
        client: Option<Arc<str>>,
        /// `None`: it has none.
        features: Option<Box<SubscriptionFeatures>>,
    },
    /// A publication or a query of a connection.
    Command { conn: ConnId, number: u32 },
    /// A publication or a query of a program.
    Program { number: u64 },
}

impl SubscriberTable {
    /// Publishes for a connection. If `requester` is set, [`SubscriberEvent::Published`] follows, or [`SubscriberEvent::QueryResult`] if the publication was
    /// rejected.
    pub fn publish(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        published: Published,
        requester: Option<(ConnId, u32)>,
    ) {
        let request =
            requester.map(|(conn, number)| self.register_request(PendingRequest::Command { conn, number }));
        let message = ShardRequest::Publish {
            channel: Arc::clone(channel),
            options,
            published: Arc::new(published),
            publish_options: None,
            origin: Origin::PROGRAM,
            request,
        };
        self.send_request(channel, message);
    }

    /// Publishes for a source, in the order of its other publications.
    pub fn publish_from_source(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        published: Arc<Published>,
        origin: Origin,
    ) {
        let message = ShardRequest::Publish {
            channel: Arc::clone(channel),
            options,
            published,
            publish_options: None,
            origin,
            request: None,
        };
        self.send_request(channel, message);
    }

    /// Publishes for a program. If `number` is set, [`SubscriberTable::poll_reply`] returns it with the outcome. The caller must bound the
    /// pending requests.
    pub fn publish_for(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        published: &Arc<Published>,
        publish_options: Option<Box<PublishOptions>>,
        number: Option<u64>,
    ) {
        let request = number.map(|number| self.register_request(PendingRequest::Program { number }));
        let message = ShardRequest::Publish {
            channel: Arc::clone(channel),
            options,
            published: Arc::clone(published),
            publish_options,
            origin: Origin::PROGRAM,
            request,
        };
        self.send_request(channel, message);
    }

    /// Queries a channel for a connection. [`SubscriberEvent::QueryResult`] follows.
    pub fn query(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        query: ChannelQuery,
        conn: ConnId,
        number: u32,
    ) {
        let request = self.register_request(PendingRequest::Command { conn, number });
        self.send_query(channel, options, query, request);
    }

    /// Queries a channel for a program. [`SubscriberTable::poll_reply`] returns the number with the result.
    pub fn query_for(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        query: ChannelQuery,
        number: u64,
    ) {
        let request = self.register_request(PendingRequest::Program { number });
        self.send_query(channel, options, query, request);
    }

    /// Returns the next reply to a program, with the number of its request.
    pub fn poll_reply(&mut self) -> Option<(u64, ProgramReply)> {
        self.replies.pop_front()
    }

    fn send_query(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        query: ChannelQuery,
        request: RequestId,
    ) {
        let message = ShardRequest::Query {
            channel: Arc::clone(channel),
            options,
            query,
            request,
        };
        self.send_request(channel, message);
    }

    pub(super) fn register_request(&mut self, pending_requests: PendingRequest) -> RequestId {
        let index = self.free_requests.pop().unwrap_or_else(|| {
            self.pending_requests.push(None);
            (self.pending_requests.len() - 1) as u32
        });
        self.pending_requests[index as usize] = Some(pending_requests);
        RequestId(u64::from(index))
    }

    pub(super) fn take_request(&mut self, request: RequestId) -> Option<PendingRequest> {
        let index = usize::try_from(request.0).ok()?;
        let pending_requests = self.pending_requests.get_mut(index)?.take()?;
        self.free_requests.push(index as u32);
        Some(pending_requests)
    }

    pub(super) fn handle_published(&mut self, request: RequestId, position: Option<StreamPosition>) {
        match self.take_request(request) {
            Some(PendingRequest::Command { conn, number }) if self.conn(conn).is_some() => {
                self.events.push_back(SubscriberEvent::Published {
                    conn,
                    number,
                    position,
                });
            }
            Some(PendingRequest::Program { number }) => self
                .replies
                .push_back((number, ProgramReply::Published(position))),
            _ => {}
        }
    }

    pub(super) fn handle_query_result(&mut self, request: RequestId, result: Box<QueryResult>) {
        match self.take_request(request) {
            Some(PendingRequest::Command { conn, number }) if self.conn(conn).is_some() => {
                self.events
                    .push_back(SubscriberEvent::QueryResult { conn, number, result });
            }
            Some(PendingRequest::Program { number }) => self
                .replies
                .push_back((number, ProgramReply::QueryResult(result))),
            _ => {}
        }
    }

    pub(super) fn handle_rejected(&mut self, request: RequestId, fault: Fault) {
        match self.take_request(request) {
            Some(PendingRequest::Subscribe { conn: id, topic, .. }) => {
                let channel = Arc::clone(&self.topics[topic as usize].name);
                self.topics[topic as usize].pending -= 1;
                if self.conn(id).is_some() {
                    self.remove_subscription(id, topic);
                    self.events.push_back(SubscriberEvent::Rejected {
                        conn: id,
                        channel,
                        fault,
                    });
                }
                self.free_unused_topic(topic);
            }
            Some(PendingRequest::Command { conn, number }) if self.conn(conn).is_some() => {
                let result = Box::new(QueryResult::ChannelLimit);
                self.events
                    .push_back(SubscriberEvent::QueryResult { conn, number, result });
            }
            Some(PendingRequest::Program { number }) => {
                let result = Box::new(QueryResult::ChannelLimit);
                self.replies
                    .push_back((number, ProgramReply::QueryResult(result)));
            }
            _ => {}
        }
    }
}
