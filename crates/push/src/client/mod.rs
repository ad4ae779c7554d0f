//! What others need of a session: to send to its client, and to find what an answer belongs to.

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
    NotJson, PresenceResult, PresenceStatsResult, PublishResult, Push, Reply, SubscribeResult, Unsubscribe,
    Unsubscribed,
};
use ringmain_hub::subscribers::{ConnId, Event};

use crate::app_proxy::ProxyClient;
use crate::client::identity::Identity;
use crate::client::pending::Pending;
use crate::client::permissions::{Grant, GrantSource, Permissions};
use crate::client::reply_queue::Missed;
use crate::limits;
use crate::metrics::{Refusal, WorkerMetrics};
use crate::tokens::claims::Expiry;
use crate::transport::Transport;
use crate::worker::PushWorker;

/// See the module.
pub(crate) struct Client {
    pub(crate) format: Format,
    /// Its transport only brings: it is sent pushes that stand alone, and no replies.
    pub(crate) unidirectional: bool,
    pub(crate) transport: RefCell<Transport>,
    pub(crate) id: Cell<Option<ConnId>>,
    /// It was told that it is connected.
    pub(crate) has_connected: Cell<bool>,
    /// Who it is.
    identity: Cell<Identity>,
    /// What it may, and for how long.
    pub(crate) permissions: RefCell<Permissions>,
    pub(crate) pending: Pending,
    /// Commands that wait for their answer.
    pub(crate) in_flight: Cell<u32>,
    /// A ping was not answered yet.
    pub(crate) awaits_pong: Cell<bool>,
    /// The kernel takes [little](limits::KERNEL_UNSENT) for it: since_offset the first push on.
    has_kernel_limit: Cell<bool>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// By which the application is asked; `None`: there is none.
    pub(crate) proxy_client: Option<Box<ProxyClient>>,
}

const _: () = assert!(
    size_of::<Client>() <= 120,
    "an idle client is this, beside what web and the hub keep of it"
);

pub(crate) struct PendingSubscribe {
    pub(crate) channel: Arc<str>,
    pub(crate) number: u32,
    pub(crate) kind: SubscribeReply,
    pub(crate) is_recovering: bool,
    /// Whether it asks for that where it may.
    pub(crate) may_recover: bool,
    /// The offset that it is_recovering since_offset.
    pub(crate) since_offset: u64,
    pub(crate) is_recoverable: bool,
    pub(crate) is_positioned: bool,
    /// It would rather not be subscribed than with a gap.
    pub(crate) rejects_unrecovered: bool,
    /// The application's.
    pub(crate) data: Bytes,
    pub(crate) expiry: Expiry,
}

/// How a client is told that it is subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeReply {
    /// By the answer to its command.
    Command,
    /// With the connection.
    Connect,
    /// By a push: the server has done it meanwhile.
    Push,
}

pub(crate) struct PendingConnect {
    /// The command's number; 0 where there was none.
    pub(crate) number: u32,
    /// Channels that have not answered yet.
    pub(crate) open_channels: usize,
    /// Bytes of recovered publications that have room in the reply yet ([`limits::RECOVERED_WITH_REPLY_BYTES`]).
    pub(crate) room_bytes: usize,
    pub(crate) result: ConnectResult,
}

impl PendingSubscribe {
    /// The result of a subscription; `first` is the offset of the first publication that it is_recovering.
    pub(crate) fn subscribe_result(
        &self,
        now: Duration,
        place: Option<StreamPosition>,
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
            ..SubscribeResult::default()
        };
        if let (Some(place), true) = (
            place,
            self.is_recoverable || self.is_positioned || self.may_recover,
        ) {
            (result.offset, result.epoch) = (place.offset, place.epoch.to_string());
        }
        if let (true, Some(first)) = (result.recovered, first) {
            // The client is where it was until it has processed the publications, of which some may follow the reply.
            result.offset = self.since_offset.min(first - 1);
        }
        let missed = missed.unwrap_or_default().into_iter();
        result.publications = missed
            .map(|(offset, published)| published.numbered(offset))
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
            pending: Pending::default(),
            in_flight: Cell::default(),
            awaits_pong: Cell::new(false),
            has_kernel_limit: Cell::new(false),
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

    /// Who it is.
    pub(crate) fn identity(&self) -> Identity {
        let identity = self.identity.take();
        self.identity.set(identity.clone());
        identity
    }

    pub(crate) fn set_identity(&self, identity: Identity) {
        self.identity.set(identity);
    }

    /// Whether pushes have to wait: the client is slow, or has not been told yet that it is connected.
    pub(crate) fn is_congested(&self) -> bool {
        self.is_connecting() || self.pending.has_replies() || self.transport.borrow().is_full()
    }

    /// Whether it is about to be let in and was not told so yet.
    pub(crate) fn is_connecting(&self) -> bool {
        let is_asked_for = self
            .proxy_client
            .as_ref()
            .is_some_and(|proxy_client| proxy_client.is_connecting());
        is_asked_for || self.pending.is_connecting()
    }

    /// Holds a command until those before it are answered.
    pub(crate) fn hold_command(&self, command: Command) -> Result<(), Disconnect> {
        match self.pending.hold_command(command) {
            true => Ok(()),
            false => Err(Disconnect::TOO_MANY_REQUESTS),
        }
    }

    /// The commands that were held, once they can be carried out.
    pub(crate) fn take_ready_commands(&self) -> Vec<Command> {
        match self.is_connecting() || self.in_flight.get() > 0 || self.pending.has_replies() {
            true => Vec::new(),
            false => self.pending.take_held(),
        }
    }

    /// Sends what is a whole message of its format.
    pub(crate) fn send_message(&self, message: &[u8]) {
        if !message.is_empty() && !self.transport.borrow().send(self.format, message) {
            self.disconnect(Disconnect::SLOW);
        }
    }

    /// Sends a push as the hub has written it.
    pub(crate) fn send_push(&self, written: Bytes) {
        if !self.has_kernel_limit.replace(true) {
            // What waits for one that is slow is to wait where newer values take its place, and a ping is not to wait behind it.
            self.transport.borrow().limit_kernel_buffer(limits::KERNEL_UNSENT);
        }
        if !self.transport.borrow().send_frame(written) {
            self.disconnect(Disconnect::SLOW);
        }
    }

    /// Appends a reply, or the error that is written in its place: for what the client's format cannot carry, and for an answer that
    /// is larger than may be.
    pub(crate) fn write_reply(&self, reply: Reply, out: &mut Vec<u8>) {
        let before = out.len();
        let is_answer = reply.history.is_some() || reply.presence.is_some();
        let fault = match self.encode_reply(&reply, out) {
            Ok(()) if is_answer && out.len() - before > limits::CLIENT_REPLY_BYTES => Fault::LIMIT_EXCEEDED,
            Ok(()) => return,
            Err(NotJson) if is_answer => Fault::NOT_AVAILABLE,
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

    /// A command waits for its answer.
    pub(crate) fn count_in_flight(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// What has come of what it asked for, or what else has happened to it.
    pub(crate) fn handle_event(&self, worker: &PushWorker, event: Event) {
        if !matches!(event, Event::Unsubscribed { .. } | Event::Disconnected { .. }) {
            self.in_flight.set(self.in_flight.get().saturating_sub(1));
        }
        match event {
            Event::Subscribed {
                conn,
                channel,
                position,
                missed,
            } => self.on_subscribed(worker, conn, &channel, (position, missed)),
            Event::Rejected { conn, channel, fault } => {
                let Some(asked) = self.pending.take_subscribe(&channel) else {
                    return;
                };
                self.remove_grant(worker, conn, &channel);
                match asked.kind {
                    SubscribeReply::Connect => self.reject_connect(fault),
                    SubscribeReply::Command => self.send_reply(error_reply(asked.number, fault)),
                    SubscribeReply::Push => {}
                }
            }
            Event::Unsubscribed {
                conn,
                channel,
                reason,
            } => self.on_unsubscribed(worker, conn, &channel, reason),
            Event::Published { number, .. } => self.send_reply(Reply {
                id: number,
                publish: Some(PublishResult {}),
                ..Reply::default()
            }),
            // It publishes again where it connects next.
            Event::QueryResult { result, .. } if matches!(*result, QueryResult::Draining) => {
                self.disconnect(Disconnect::SHUTDOWN);
            }
            Event::QueryResult { number, result, .. } => self.send_query_result(number, *result),
            Event::Disconnected { reason, .. } => {
                self.disconnect(reason);
                if let Some(id) = self.id.take() {
                    worker.remove_client(id);
                }
            }
        }
    }

    fn on_unsubscribed(&self, worker: &PushWorker, id: ConnId, channel: &str, why: Unsubscribed) {
        let grant = self.remove_grant(worker, id, channel);
        let is_servers =
            self.unidirectional || grant.is_some_and(|grant| grant.source != GrantSource::Client);
        if is_servers && why.code >= Unsubscribed::INSUFFICIENT.code {
            // Who cannot subscribe again connects again.
            return self.disconnect(match why {
                Unsubscribed::EXPIRED => Disconnect::SUBSCRIPTION_EXPIRED,
                _ => Disconnect::INSUFFICIENT,
            });
        }
        if self.pending.remove_subscription(channel) {
            return;
        }
        let push = Push {
            channel: channel.to_owned(),
            unsubscribe: Some(Unsubscribe::from(why)),
            ..Push::default()
        };
        self.send_reply(Reply {
            push: Some(push),
            ..Reply::default()
        });
    }

    /// Mesh a client that cannot be subscribed to a channel of its `connect`. One that may retry is sent that as the reply.
    fn reject_connect(&self, fault: Fault) {
        let number = self.pending.with_connect(|connect| connect.number);
        if let Some(number) = number.filter(|number| *number > 0 && fault.temporary) {
            self.send_reply(error_reply(number, fault));
        }
        self.disconnect(disconnect_for(fault));
    }

    /// What a subscription was granted goes with it.
    pub(crate) fn remove_grant(&self, worker: &PushWorker, id: ConnId, channel: &str) -> Option<Grant> {
        let grant = self.permissions.borrow_mut().remove_grant(channel)?;
        worker.set_deadline(id, Some(&grant.channel), grant.deadline, None);
        Some(grant)
    }

    /// One more of the channels has answered that it has since_offset the beginning.
    pub(crate) fn on_channel_joined(&self, worker: &PushWorker, id: ConnId) {
        self.pending.with_connect(|connect| connect.open_channels -= 1);
        if let Some(welcome) = self.take_connect_reply() {
            self.send_reply(welcome);
            self.pending.queue_after_connect();
            self.send_queued_replies();
            worker.flush_client(id, self);
        }
    }

    /// What tells a client that it is connected, once all of that is there: other replies and pushes may follow.
    pub(crate) fn take_connect_reply(&self) -> Option<Reply> {
        let connect = self.pending.take_connect()?;
        self.has_connected.set(true);
        let mut reply = Reply {
            id: connect.number,
            ..Reply::default()
        };
        match self.unidirectional {
            true => {
                reply.push = Some(Push {
                    connect: Some(connect.result.into()),
                    ..Push::default()
                });
            }
            false => reply.connect = Some(connect.result),
        }
        Some(reply)
    }

    /// Mesh the connection: by a close with the code where there is one, else by a last push.
    pub(crate) fn disconnect(&self, why: Disconnect) {
        self.disconnect_with_reason(why, why.reason);
    }

    /// The same in other words.
    pub(crate) fn disconnect_with_reason(&self, why: Disconnect, reason: &str) {
        let disconnect = DisconnectPush {
            reason: reason.to_owned(),
            ..why.into()
        };
        if self.transport.borrow().is_open() {
            self.metrics.count_disconnect(why);
            if !self.has_connected.get() && self.id.get().is_none() {
                self.metrics.count_refused(match why {
                    Disconnect::CONNECTION_LIMIT => Refusal::User,
                    _ => Refusal::Unknown,
                });
            }
        }
        let push = Push {
            disconnect: Some(disconnect),
            ..Push::default()
        };
        let mut last = Vec::new();
        self.write_reply(
            Reply {
                push: Some(push),
                ..Reply::default()
            },
            &mut last,
        );
        self.transport.borrow().close(why, reason, &last);
    }

    pub(crate) fn send_ping(&self) {
        if !self.is_connecting() {
            // Who only listens has no way to answer.
            self.awaits_pong.set(!self.unidirectional);
            let mut out = Vec::new();
            self.write_reply(Reply::default(), &mut out);
            // It does not wait behind replies, which may take longer than the client may.
            self.send_message(&out);
        }
    }

    pub(crate) fn check_pong(&self) {
        // Behind what it is too slow for the ping may not have reached it. Who takes nothing at all is ended by web's `rate_bytes`.
        if self.awaits_pong.get() && self.transport.borrow().unsent_bytes() == 0 {
            self.disconnect(Disconnect::NO_PONG);
        }
    }

    pub(crate) fn check_connect_timeout(&self) {
        if self.id.get().is_none() {
            self.disconnect(Disconnect::STALE);
        }
    }
}

/// How a client is told of a fault that has no command to answer.
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
