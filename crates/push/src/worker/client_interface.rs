//! The interface of a worker for its clients: the subscriptions, queries, publications and deadlines of a connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_hub::mail::{ChannelOptions, ChannelQuery, RecoverFrom};
use ringmain_hub::protocol::{ClientInfo, Fault, Published, Unsubscribed, Variant};
use ringmain_hub::subscribers::{ConnId, SubscriptionFeatures};

use super::PushWorker;
use crate::app_proxy::InFlightLimit;
use crate::client::Client;
use crate::metrics::WorkerMetrics;
use crate::transport::session_name::SessionName;

impl PushWorker {
    pub(crate) fn cx(&self) -> &Cx {
        &self.0.cx
    }

    /// Returns wall time since 1970.
    pub(crate) fn wall_time(&self) -> Duration {
        self.0.cx.wall()
    }

    pub(crate) fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.0.metrics
    }

    /// Returns the name of this process for clients.
    pub(crate) fn node(&self) -> &Arc<str> {
        self.0.clients.node()
    }

    /// Returns the limit of requests to the application.
    pub(crate) fn proxy_requests(&self) -> &InFlightLimit {
        &self.0.proxy_requests
    }

    /// Schedules the check that a new connection sends its `connect` in time.
    pub(crate) fn await_connect(&self, client: Rc<Client>) {
        self.0.pings.await_connect(client);
    }

    /// Counts a connection of a user. Returns `false` if the user has `limit` connections already.
    pub(crate) fn try_acquire_user(&self, user: &str, limit: u32) -> bool {
        self.0.clients.try_acquire_user(user, limit)
    }

    /// Adds a client that has been identified, and returns its connection.
    pub(crate) fn add_client(&self, variant: Variant, client: &Rc<Client>) -> ConnId {
        let id = self.0.subscribers.borrow_mut().open(variant, None);
        client.set_id(id);
        client.pending.finish_handshake();
        self.0.clients.insert(id, Rc::clone(client));
        self.0.metrics.client_joined();
        self.0.pings.add_client(id);
        id
    }

    /// Removes a client whose connection is closed.
    pub(crate) fn remove_client(&self, id: ConnId) {
        self.0.subscribers.borrow_mut().close(id);
        if let Some(client) = self.0.clients.remove(id) {
            let permissions = &mut *client.permissions.borrow_mut();
            self.set_deadline(id, None, permissions.set_deadline(None), None);
            for grant in permissions.take_grants() {
                self.set_deadline(id, Some(&grant.channel), grant.deadline, None);
            }
            self.0.metrics.client_left();
        }
        self.wake();
    }

    pub(crate) fn find_client(&self, id: ConnId) -> Option<Rc<Client>> {
        self.0.clients.find(id)
    }

    /// Returns all connections of this worker: the connected ones, and those that have not sent `connect` yet.
    pub(crate) fn all_clients(&self) -> Vec<Rc<Client>> {
        let mut clients = self.0.pings.connecting_clients();
        clients.append(&mut self.0.clients.connected());
        clients
    }

    /// Creates a session for a connection, by whose name requests beside it find it.
    pub(crate) fn create_session(&self, id: ConnId) -> SessionName {
        let (high, low) = (self.0.cx.random(), self.0.cx.random());
        let secret = (u128::from(high) << 64) | u128::from(low);
        self.0.clients.add_session(secret, id);
        SessionName {
            worker: self.0.cx.worker(),
            secret,
        }
    }

    /// Moves the deadline of a connection, or of its subscription to a channel, from `before` to `deadline`: in seconds since 1970.
    pub(crate) fn set_deadline(
        &self,
        id: ConnId,
        channel: Option<&Arc<str>>,
        before: Option<u64>,
        deadline: Option<u64>,
    ) {
        if before != deadline {
            let key = (id.slot(), channel.cloned());
            self.0.expiry.borrow_mut().reschedule(key, before, deadline);
        }
    }

    /// Requests a subscription, whose outcome is an event.
    ///
    /// # Errors
    /// The hub's: the connection is subscribed already, or is at its limit of subscriptions.
    pub(crate) fn subscribe(
        &self,
        id: ConnId,
        channel: &Arc<str>,
        channel_options: ChannelOptions,
        since: Option<RecoverFrom>,
        info: Option<Arc<ClientInfo>>,
        features: SubscriptionFeatures,
    ) -> Result<(), Fault> {
        let mut subscribers = self.0.subscribers.borrow_mut();
        subscribers.subscribe_with(id, channel, channel_options, since, info, features)
    }

    /// Returns the number by which pushes of a channel with subscribers here may refer to it.
    pub(crate) fn channel_number(&self, channel: &str) -> Option<i64> {
        self.0.subscribers.borrow().channel_number(channel)
    }

    /// Makes a subscription with deltas receive the next publication whole.
    pub(crate) fn forget_delta_base(&self, id: ConnId, channel: &str) {
        self.0.subscribers.borrow_mut().forget_delta_base(id, channel);
    }

    /// Ends a subscription for a reason that the client is notified of. Returns `false` if there is none.
    pub(crate) fn unsubscribe(&self, id: ConnId, channel: &str, reason: Unsubscribed) -> bool {
        self.0.subscribers.borrow_mut().unsubscribe(id, channel, reason)
    }

    /// Ends a subscription without notifying the client.
    pub(crate) fn unsubscribe_silently(&self, id: ConnId, channel: &str) {
        self.0.subscribers.borrow_mut().unsubscribe_silently(id, channel);
    }

    pub(crate) fn is_subscribed(&self, id: ConnId, channel: &str) -> bool {
        self.0.subscribers.borrow().is_subscribed(id, channel)
    }

    /// Publishes for a client; the outcome of the command `number` is an event.
    pub(crate) fn publish_as_client(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        channel_options: ChannelOptions,
        published: Published,
    ) {
        let mut subscribers = self.0.subscribers.borrow_mut();
        subscribers.publish(
            &Arc::from(channel),
            channel_options,
            published,
            Some((id, number)),
        );
    }

    /// Queries a channel for a client; the result of the command `number` is an event.
    pub(crate) fn query_as_client(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        channel_options: ChannelOptions,
        query: ChannelQuery,
    ) {
        let mut subscribers = self.0.subscribers.borrow_mut();
        subscribers.query(&Arc::from(channel), channel_options, query, id, number);
    }
}
