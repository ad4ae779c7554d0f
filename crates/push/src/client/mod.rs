//! A client: its transport, identity and permissions, and the replies to it.

pub(crate) mod commands;
mod connect;
pub(crate) mod identity;
pub(crate) mod pending;
pub(crate) mod permissions;
pub(crate) mod reply_queue;
mod subscribe;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::StreamPosition;
use ringmain_hub::mail::QueryResult;
use ringmain_hub::protocol::{
    ClientInfo, Command, ConnectResult, Disconnect, DisconnectPush, Error, Fault, Format, HistoryResult,
    NotJson, PresenceResult, PresenceStatsResult, PublishResult, PushMessage, Reply, SubscribeResult,
    Unsubscribe, Unsubscribed,
};
use ringmain_hub::subscribers::{ConnId, SubscriberEvent};

use crate::app_proxy::ProxyClient;
use crate::client::identity::Identity;
use crate::client::pending::PendingState;
use crate::client::permissions::{Grant, GrantSource, Permissions};
use crate::client::reply_queue::{Missed, RecoveredForm};
use crate::limits;
use crate::metrics::{Refusal, WorkerMetrics};
use crate::tokens::claims::Expiry;
use crate::transport::Transport;
use crate::worker::PushWorker;

/// See the module.
pub(crate) struct Client {
    pub(crate) format: Format,
    /// Set for a transport that only sends: the client receives pushes that need no other message, and no replies.
    pub(crate) unidirectional: bool,
    pub(crate) transport: RefCell<Transport>,
    id: Cell<Option<ConnId>>,
    /// Set once the reply to `connect` was sent.
    has_connected: Cell<bool>,
    identity: Cell<Identity>,
    pub(crate) permissions: RefCell<Permissions>,
    pub(crate) pending: PendingState,
    /// The number of commands without a reply.
    in_flight: Cell<u32>,
    link: Cell<LinkState>,
    metrics: Arc<WorkerMetrics>,
    /// The requests to the application. `None`: there is no application.
    pub(crate) proxy_client: Option<Box<ProxyClient>>,
}

/// Two facts about the connection in one byte, which is the last that the client's size has room for.
#[derive(Clone, Copy, Debug, Default)]
struct LinkState(u8);

impl LinkState {
    /// Set while a ping has no pong.
    const AWAITS_PONG: u8 = 1;
    /// Set once the kernel's buffer is [limited](limits::KERNEL_UNSENT), by the first push.
    const HAS_KERNEL_LIMIT: u8 = 2;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn with(self, flag: u8, is_set: bool) -> LinkState {
        LinkState(if is_set { self.0 | flag } else { self.0 & !flag })
    }
}

const _: () = assert!(
    size_of::<Client>() <= 112,
    "an idle client takes this, besides its state in web and in the hub; with the counts of its `Rc` 128 bytes, a size class of allocators"
);

pub(crate) struct PendingSubscribe {
    pub(crate) channel: Arc<str>,
    pub(crate) number: u32,
    pub(crate) kind: SubscribeReply,
    pub(crate) is_recovering: bool,
    /// The channel can satisfy the request to recover.
    pub(crate) may_recover: bool,
    /// The offset that the client recovers from.
    pub(crate) since_offset: u64,
    pub(crate) is_recoverable: bool,
    pub(crate) is_positioned: bool,
    /// The client rejects a subscription with a gap.
    pub(crate) rejects_unrecovered: bool,
    /// Publications are sent as deltas.
    pub(crate) has_delta: bool,
    /// Pushes have the channel's number instead of its name.
    pub(crate) is_compacted: bool,
    /// Data of the application.
    pub(crate) data: Bytes,
    pub(crate) expiry: Expiry,
}

/// The message that confirms a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeReply {
    /// The reply to the client's `subscribe`.
    Command,
    /// The reply to `connect`.
    Connect,
    /// A push, for a subscription by the server.
    Push,
}

pub(crate) struct PendingConnect {
    /// The number of the command; 0 without one.
    pub(crate) number: u32,
    /// The channels without a result.
    pub(crate) open_channels: usize,
    /// Bytes of recovered publications that still fit into the reply ([`limits::RECOVERED_WITH_REPLY_BYTES`]).
    pub(crate) room_bytes: usize,
    pub(crate) result: ConnectResult,
}

impl PendingSubscribe {
    /// Returns the result of a subscription. `first` is the offset of the first publication that is recovered.
    pub(crate) fn subscribe_result(
        &self,
        now: Duration,
        format: Format,
        position: Option<StreamPosition>,
        first: Option<u64>,
        missed: Option<Missed>,
    ) -> SubscribeResult {
        let (expires, ttl) = self.expiry.client_ttl(now);
        let mut result = SubscribeResult {
            expires,
            ttl,
            data: self.data.clone(),
            recoverable: self.is_recoverable,
            positioned: self.is_positioned,
            was_recovering: self.is_recovering,
            recovered: self.is_recovering && missed.is_some(),
            delta: self.has_delta,
            ..SubscribeResult::default()
        };
        if let Some(position) = position
            && (self.is_recoverable || self.is_positioned || self.may_recover)
        {
            (result.offset, result.epoch) = (position.offset, position.epoch.to_string());
        }
        if let Some(first) = first.filter(|_| result.recovered) {
            // The client's position does not change until it has processed the publications, some of which may follow the reply.
            result.offset = self.since_offset.min(first - 1);
        }
        let missed = missed.unwrap_or_default();
        let forms = RecoveredForm::sequence(self.has_delta, &missed);
        result.publications = missed
            .iter()
            .zip(forms)
            .map(|((offset, published), form)| form.publication(published, *offset, format))
            .collect();
        result
    }
}

impl Client {
    pub(crate) fn new(
        format: Format,
        unidirectional: bool,
        transport: Transport,
        metrics: &Arc<WorkerMetrics>,
        proxy_client: Option<Box<ProxyClient>>,
    ) -> Client {
        Client {
            format,
            unidirectional,
            transport: RefCell::new(transport),
            id: Cell::default(),
            has_connected: Cell::new(false),
            identity: Cell::default(),
            permissions: RefCell::default(),
            pending: PendingState::default(),
            in_flight: Cell::default(),
            link: Cell::default(),
            metrics: Arc::clone(metrics),
            proxy_client,
        }
    }

    pub(crate) fn id(&self) -> Option<ConnId> {
        self.id.get()
    }

    pub(crate) fn set_id(&self, id: ConnId) {
        self.id.set(Some(id));
    }

    /// Returns whether the reply to `connect` was sent.
    pub(crate) fn has_connected(&self) -> bool {
        self.has_connected.get()
    }

    pub(crate) fn identity(&self) -> Identity {
        let identity = self.identity.take();
        self.identity.set(identity.clone());
        identity
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        self.identity.set(identity);
    }

    /// Returns whether pushes have to wait: the client is slow, or has not received the reply to `connect`.
    pub(crate) fn is_congested(&self) -> bool {
        self.is_connecting() || self.pending.has_replies() || self.transport.borrow().is_full()
    }

    /// Returns whether the reply to `connect` is pending.
    pub(crate) fn is_connecting(&self) -> bool {
        let is_requested = self
            .proxy_client
            .as_ref()
            .is_some_and(|proxy_client| proxy_client.is_connecting());
        is_requested || self.pending.is_connecting()
    }

    /// Holds a command until the replies to those before it are sent.
    ///
    /// # Errors
    /// [`Disconnect::TOO_MANY_REQUESTS`] at a limit of held commands.
    pub(crate) fn hold_command(&self, command: Command) -> Result<(), Disconnect> {
        if self.pending.hold_command(command) {
            Ok(())
        } else {
            Err(Disconnect::TOO_MANY_REQUESTS)
        }
    }

    /// Returns the held commands once they can be executed.
    pub(crate) fn take_ready_commands(&self) -> Vec<Command> {
        if self.is_connecting() || self.in_flight.get() > 0 || self.pending.has_replies() {
            Vec::new()
        } else {
            self.pending.take_held()
        }
    }

    /// Sends a complete message of its format.
    pub(crate) fn send_message(&self, message: &[u8]) {
        if !message.is_empty() && !self.transport.borrow().send(self.format, message) {
            self.disconnect(Disconnect::SLOW);
        }
    }

    /// Sends a push as encoded by the hub.
    pub(crate) fn send_push(&self, encoded: Bytes) {
        let link = self.link.get();
        if !link.has(LinkState::HAS_KERNEL_LIMIT) {
            self.link.set(link.with(LinkState::HAS_KERNEL_LIMIT, true));
            // Pushes for a slow client have to wait where newer values replace them, and a ping must not wait behind them.
            self.transport.borrow().limit_kernel_buffer(limits::KERNEL_UNSENT);
        }
        if !self.transport.borrow().send_frame(encoded) {
            self.disconnect(Disconnect::SLOW);
        }
    }

    /// Appends a reply, or an error in its place: if the client's format cannot carry it, or if it is too large.
    pub(crate) fn write_reply(&self, reply: Reply, out: &mut Vec<u8>) {
        let before = out.len();
        let is_query_reply = reply.history.is_some() || reply.presence.is_some();
        let fault = match self.encode_reply(&reply, out) {
            Ok(()) if is_query_reply && out.len() - before > limits::CLIENT_REPLY_BYTES => {
                Fault::LIMIT_EXCEEDED
            }
            Ok(()) => return,
            Err(NotJson) if is_query_reply => Fault::NOT_AVAILABLE,
            Err(NotJson) => Fault::INTERNAL,
        };
        out.truncate(before);
        if reply.connect.is_some() || reply.push.is_some() {
            return self.disconnect(Disconnect::INAPPROPRIATE_PROTOCOL);
        }
        let _ = self.encode_reply(&error_reply(reply.id, fault), out);
    }

    /// Appends a reply.
    ///
    /// # Errors
    /// The client's format cannot carry it. Nothing is appended.
    pub(crate) fn encode_reply(&self, reply: &Reply, out: &mut Vec<u8>) -> Result<(), NotJson> {
        match &reply.push {
            Some(push) if self.unidirectional => self.format.write(push, out),
            _ => self.format.write(reply, out),
        }
    }

    /// Notes a ping that needs a pong, or the pong.
    pub(crate) fn set_awaits_pong(&self, awaits: bool) {
        self.link
            .set(self.link.get().with(LinkState::AWAITS_PONG, awaits));
    }

    /// Counts a command whose reply follows.
    pub(crate) fn count_in_flight(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Replies to a command by the hub's result, or reports a change to the client.
    pub(crate) fn handle_event(&self, worker: &PushWorker, event: SubscriberEvent) {
        if !matches!(
            event,
            SubscriberEvent::Unsubscribed { .. } | SubscriberEvent::Disconnected { .. }
        ) {
            self.in_flight.set(self.in_flight.get().saturating_sub(1));
        }
        match event {
            SubscriberEvent::Subscribed {
                conn,
                channel,
                position,
                missed,
            } => self.on_subscribed(worker, conn, &channel, position, missed),
            SubscriberEvent::Rejected { conn, channel, fault } => {
                let Some(subscribe) = self.pending.take_subscribe(&channel) else {
                    return;
                };
                self.remove_grant(worker, conn, &channel);
                match subscribe.kind {
                    SubscribeReply::Connect => self.reject_connect(fault),
                    SubscribeReply::Command => self.send_reply(error_reply(subscribe.number, fault)),
                    SubscribeReply::Push => {}
                }
            }
            SubscriberEvent::Unsubscribed {
                conn,
                channel,
                reason,
            } => self.on_unsubscribed(worker, conn, &channel, reason),
            SubscriberEvent::Published { number, .. } => self.send_reply(Reply {
                id: number,
                publish: Some(PublishResult {}),
                ..Reply::default()
            }),
            // The client publishes again after it has reconnected.
            SubscriberEvent::QueryResult { result, .. } if matches!(*result, QueryResult::Draining) => {
                self.disconnect(Disconnect::SHUTDOWN);
            }
            SubscriberEvent::QueryResult { number, result, .. } => self.send_query_result(number, *result),
            SubscriberEvent::Disconnected { reason, .. } => {
                self.disconnect(reason);
                if let Some(id) = self.id.take() {
                    worker.remove_client(id);
                }
            }
        }
    }

    fn on_unsubscribed(&self, worker: &PushWorker, id: ConnId, channel: &str, reason: Unsubscribed) {
        let grant = self.remove_grant(worker, id, channel);
        let is_server_side =
            self.unidirectional || grant.is_some_and(|grant| grant.source != GrantSource::Client);
        if is_server_side && reason.code >= Unsubscribed::INSUFFICIENT.code {
            // A client that cannot subscribe again reconnects.
            return self.disconnect(match reason {
                Unsubscribed::EXPIRED => Disconnect::SUBSCRIPTION_EXPIRED,
                _ => Disconnect::INSUFFICIENT,
            });
        }
        if self.pending.remove_subscription(channel) {
            return;
        }
        let push = PushMessage {
            channel: channel.to_owned(),
            unsubscribe: Some(Unsubscribe::from(reason)),
            ..PushMessage::default()
        };
        self.send_reply(Reply {
            push: Some(push),
            ..Reply::default()
        });
    }

    /// Disconnects a client that cannot be subscribed to a channel of its `connect`. For a temporary fault it receives an error reply
    /// first.
    fn reject_connect(&self, fault: Fault) {
        let number = self.pending.with_connect(|connect| connect.number);
        if let Some(number) = number.filter(|number| *number > 0 && fault.temporary) {
            self.send_reply(error_reply(number, fault));
        }
        self.disconnect(disconnect_for(fault));
    }

    /// Removes the grant of a subscription that has ended, and its deadline.
    pub(crate) fn remove_grant(&self, worker: &PushWorker, id: ConnId, channel: &str) -> Option<Grant> {
        let grant = self.permissions.borrow_mut().remove_grant(channel)?;
        worker.set_deadline(id, Some(&grant.channel), grant.deadline, None);
        Some(grant)
    }

    /// Counts a channel whose result has arrived, and sends the reply to `connect` after the last one.
    pub(crate) fn on_channel_joined(&self, worker: &PushWorker, id: ConnId) {
        self.pending.with_connect(|connect| connect.open_channels -= 1);
        if let Some(reply) = self.take_connect_reply() {
            self.send_reply(reply);
            self.pending.queue_after_connect();
            self.send_queued_replies();
            worker.flush_client(id, self);
        }
    }

    /// Returns the reply to `connect` once it is complete: other replies and pushes may follow.
    pub(crate) fn take_connect_reply(&self) -> Option<Reply> {
        let connect = self.pending.take_connect()?;
        self.has_connected.set(true);
        let mut reply = Reply {
            id: connect.number,
            ..Reply::default()
        };
        if self.unidirectional {
            reply.push = Some(PushMessage {
                connect: Some(connect.result.into()),
                ..PushMessage::default()
            });
        } else {
            reply.connect = Some(connect.result)
        }
        Some(reply)
    }

    /// Disconnects the client: by a WebSocket close with the code, otherwise by a last push.
    pub(crate) fn disconnect(&self, cause: Disconnect) {
        self.disconnect_with_reason(cause, cause.reason);
    }

    /// Disconnects the client with another text as the reason.
    pub(crate) fn disconnect_with_reason(&self, cause: Disconnect, reason: &str) {
        let disconnect = DisconnectPush {
            reason: reason.to_owned(),
            ..cause.into()
        };
        if self.transport.borrow().is_open() {
            self.metrics.count_disconnect(cause);
            if !self.has_connected.get() && self.id.get().is_none() {
                self.metrics.count_refused(match cause {
                    Disconnect::CONNECTION_LIMIT => Refusal::User,
                    _ => Refusal::Unknown,
                });
            }
        }
        let push = PushMessage {
            disconnect: Some(disconnect),
            ..PushMessage::default()
        };
        let mut last = Vec::new();
        self.write_reply(
            Reply {
                push: Some(push),
                ..Reply::default()
            },
            &mut last,
        );
        self.transport.borrow().close(cause, reason, &last);
    }

    pub(crate) fn send_ping(&self) {
        if !self.is_connecting() {
            // A unidirectional client cannot send a pong.
            self.set_awaits_pong(!self.unidirectional);
            let mut out = Vec::new();
            self.write_reply(Reply::default(), &mut out);
            // A ping is sent ahead of replies, which a client may take longer to receive than the pong timeout.
            self.send_message(&out);
        }
    }

    pub(crate) fn check_pong(&self) {
        // The ping may not have reached a client that is too slow for the messages queued before it. One that receives nothing is closed by
        // web's `rate_bytes`.
        if self.link.get().has(LinkState::AWAITS_PONG) && self.transport.borrow().unsent_bytes() == 0 {
            self.disconnect(Disconnect::NO_PONG);
        }
    }

    pub(crate) fn check_connect_timeout(&self) {
        if self.id.get().is_none() {
            self.disconnect(Disconnect::STALE);
        }
    }
}

/// Returns the disconnect for a fault that has no command to reply to.
pub(crate) fn disconnect_for(fault: Fault) -> Disconnect {
    match fault {
        Fault::UNAUTHORIZED => Disconnect::INVALID_TOKEN,
        Fault::TOKEN_EXPIRED | Fault::EXPIRED => Disconnect::EXPIRED,
        Fault::PERMISSION_DENIED => Disconnect::PERMISSION_DENIED,
        Fault::LIMIT_EXCEEDED => Disconnect::CHANNEL_LIMIT,
        Fault::NOT_AVAILABLE => Disconnect::NOT_AVAILABLE,
        Fault::BAD_REQUEST | Fault::UNKNOWN_CHANNEL => Disconnect::BAD_REQUEST,
        _ => Disconnect::INTERNAL,
    }
}

pub(crate) fn query_reply(number: u32, result: QueryResult) -> Reply {
    let mut reply = Reply {
        id: number,
        ..Reply::default()
    };
    match result {
        QueryResult::History {
            publications,
            position,
        } => {
            let publications = publications.into_iter();
            reply.history = Some(HistoryResult {
                publications: publications
                    .map(|(offset, published)| published.numbered(offset))
                    .collect(),
                epoch: position.epoch.to_string(),
                offset: position.offset,
            });
        }
        QueryResult::Presence(present) => {
            let present = present.iter();
            reply.presence = Some(PresenceResult {
                presence: present
                    .map(|info| (info.client.clone(), ClientInfo::clone(info)))
                    .collect(),
            });
        }
        QueryResult::PresenceStats { clients, users } => {
            reply.presence_stats = Some(PresenceStatsResult {
                num_clients: clients,
                num_users: users,
            });
        }
        QueryResult::Unrecoverable => reply.error = Some(Error::from(Fault::UNRECOVERABLE_POSITION)),
        QueryResult::NotAvailable | QueryResult::HistoryCleared | QueryResult::Draining => {
            reply.error = Some(Error::from(Fault::NOT_AVAILABLE))
        }
        QueryResult::ChannelLimit => reply.error = Some(Error::from(Fault::LIMIT_EXCEEDED)),
        QueryResult::Unreachable => reply.error = Some(Error::from(Fault::INTERNAL)),
    }
    reply
}

pub(crate) fn error_reply(number: u32, fault: Fault) -> Reply {
    Reply {
        id: number,
        error: Some(fault.into()),
        ..Reply::default()
    }
}
