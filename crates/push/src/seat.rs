//! What others need of a session: to send to its client, and to find what an answer belongs to.

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
use ringmain_hub::subscribers::{ConnId, SubscriberEvent as Event};

use crate::asking::Asker;
use crate::claims::Lasts;
use crate::desk::Desk;
use crate::identity::Identity;
use crate::limits;
use crate::metrics::{Counts, Refusal};
use crate::outlet::Outlet;
use crate::pending::Pending;
use crate::replies::Missed;
use crate::rights::{Grant, Rights, Source};

/// See the module.
pub(crate) struct Seat {
    pub(crate) format: Format,
    /// Its transport only brings: it is sent pushes that stand alone, and no replies.
    pub(crate) bare: bool,
    pub(crate) outlet: RefCell<Outlet>,
    pub(crate) id: Cell<Option<ConnId>>,
    /// It was told that it is connected.
    pub(crate) entered: Cell<bool>,
    /// Who it is.
    identity: Cell<Identity>,
    /// What it may, and for how long.
    pub(crate) rights: RefCell<Rights>,
    pub(crate) pending: Pending,
    /// Commands that wait for their answer.
    pub(crate) under_way: Cell<u32>,
    /// A ping was not answered yet.
    pub(crate) pinged: Cell<bool>,
    /// The kernel takes [little](limits::KERNEL_UNSENT) for it: from the first push on.
    is_limited: Cell<bool>,
    pub(crate) counts: Arc<Counts>,
    /// By which the application is asked; `None`: there is none.
    pub(crate) asker: Option<Box<Asker>>,
}

const _: () = assert!(
    size_of::<Seat>() <= 120,
    "an idle client is this, beside what web and the hub keep of it"
);

pub(crate) struct Asked {
    pub(crate) channel: Arc<str>,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) recovers: bool,
    /// Whether it asks for that where it may.
    pub(crate) may_recover: bool,
    /// The offset that it recovers from.
    pub(crate) from: u64,
    pub(crate) is_recoverable: bool,
    pub(crate) is_positioned: bool,
    /// It would rather not be subscribed than with a gap.
    pub(crate) wants_all: bool,
    /// The application's.
    pub(crate) data: Bytes,
    pub(crate) lasts: Lasts,
}

/// How a client is told that it is subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By the answer to its command.
    Own,
    /// With the connection.
    Connecting,
    /// By a push: the server has done it meanwhile.
    Pushed,
}

pub(crate) struct Joining {
    /// The command's number; 0 where there was none.
    pub(crate) number: u32,
    /// Channels that have not answered yet.
    pub(crate) left: usize,
    /// Bytes of recovered publications that have room in the reply yet ([`limits::RECOVERED_WITH_REPLY_BYTES`]).
    pub(crate) room: usize,
    pub(crate) connect: ConnectResult,
}

impl Asked {
    /// The result of a subscription; `first` is the offset of the first publication that it recovers.
    pub(crate) fn result(
        &self,
        now: Duration,
        place: Option<StreamPosition>,
        first: Option<u64>,
        missed: Option<Missed>,
    ) -> SubscribeResult {
        let (expires, ttl) = self.lasts.told(now);
        let mut result = SubscribeResult {
            expires,
            ttl,
            data: self.data.clone(),
            recoverable: self.is_recoverable,
            positioned: self.is_positioned,
            was_recovering: self.recovers,
            recovered: self.recovers && missed.is_some(),
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
            result.offset = self.from.min(first - 1);
        }
        let missed = missed.unwrap_or_default().into_iter();
        result.publications = missed
            .map(|(offset, published)| published.numbered(offset))
            .collect();
        result
    }
}

impl Seat {
    pub(crate) fn new(
        format: Format,
        bare: bool,
        outlet: Outlet,
        counts: &Arc<Counts>,
        asker: Option<Box<Asker>>,
    ) -> Seat {
        Seat {
            format,
            bare,
            outlet: RefCell::new(outlet),
            id: Cell::default(),
            entered: Cell::new(false),
            identity: Cell::default(),
            rights: RefCell::default(),
            pending: Pending::default(),
            under_way: Cell::default(),
            pinged: Cell::new(false),
            is_limited: Cell::new(false),
            counts: Arc::clone(counts),
            asker,
        }
    }

    pub(crate) fn id(&self) -> Option<ConnId> {
        self.id.get()
    }

    /// Who it is.
    pub(crate) fn identity(&self) -> Identity {
        let identity = self.identity.take();
        self.identity.set(identity.clone());
        identity
    }

    pub(crate) fn identify(&self, identity: Identity) {
        self.identity.set(identity);
    }

    /// Whether pushes have to wait: the client is slow, or has not been told yet that it is connected.
    pub(crate) fn is_full(&self) -> bool {
        self.is_joining() || self.pending.has_queued() || self.outlet.borrow().is_full()
    }

    /// Whether it is about to be let in and was not told so yet.
    pub(crate) fn is_joining(&self) -> bool {
        let is_asked_for = self.asker.as_ref().is_some_and(|asker| asker.is_connecting());
        is_asked_for || self.pending.is_joining()
    }

    /// Holds a command until those before it are answered.
    pub(crate) fn hold(&self, command: Command) -> Result<(), Disconnect> {
        match self.pending.hold(command) {
            true => Ok(()),
            false => Err(Disconnect::TOO_MANY_REQUESTS),
        }
    }

    /// The commands that were held, once they can be carried out.
    pub(crate) fn held(&self) -> Vec<Command> {
        match self.is_joining() || self.under_way.get() > 0 || self.pending.has_queued() {
            true => Vec::new(),
            false => self.pending.take_held(),
        }
    }

    /// Sends what is a whole message of its format.
    pub(crate) fn send(&self, message: &[u8]) {
        if !message.is_empty() && !self.outlet.borrow().send(self.format, message) {
            self.disconnect(Disconnect::SLOW);
        }
    }

    /// Sends a push as the hub has written it.
    pub(crate) fn push(&self, written: Bytes) {
        if !self.is_limited.replace(true) {
            // What waits for one that is slow is to wait where newer values take its place, and a ping is not to wait behind it.
            self.outlet.borrow().limit_kernel(limits::KERNEL_UNSENT);
        }
        if !self.outlet.borrow().push(written) {
            self.disconnect(Disconnect::SLOW);
        }
    }

    /// Appends a reply, or the error that is written in its place: for what the client's format cannot carry, and for an answer that
    /// is larger than may be.
    pub(crate) fn write(&self, reply: Reply, out: &mut Vec<u8>) {
        let before = out.len();
        let is_answer = reply.history.is_some() || reply.presence.is_some();
        let fault = match self.encode(&reply, out) {
            Ok(()) if is_answer && out.len() - before > limits::ANSWER_TO_CLIENT_BYTES => {
                Fault::LIMIT_EXCEEDED
            }
            Ok(()) => return,
            Err(NotJson) if is_answer => Fault::NOT_AVAILABLE,
            Err(NotJson) => Fault::INTERNAL,
        };
        out.truncate(before);
        if reply.connect.is_some() || reply.push.is_some() {
            return self.disconnect(Disconnect::INAPPROPRIATE_PROTOCOL);
        }
        let _ = self.encode(&failed(reply.id, fault), out);
    }

    /// Appends a reply.
    ///
    /// # Errors
    /// The client's format cannot carry it. Nothing is appended.
    pub(crate) fn encode(&self, reply: &Reply, out: &mut Vec<u8>) -> Result<(), NotJson> {
        match &reply.push {
            Some(push) if self.bare => self.format.write(push, out),
            _ => self.format.write(reply, out),
        }
    }

    /// A command waits for its answer.
    pub(crate) fn begins(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// What has come of what it asked for, or what else has happened to it.
    pub(crate) fn told(&self, desk: &Desk, event: Event) {
        if !matches!(event, Event::Unsubscribed { .. } | Event::Disconnected { .. }) {
            self.under_way.set(self.under_way.get().saturating_sub(1));
        }
        match event {
            Event::Subscribed {
                conn,
                channel,
                position,
                missed,
            } => self.subscribed(desk, conn, &channel, (position, missed)),
            Event::Rejected { conn, channel, fault } => {
                let Some(asked) = self.pending.answered(&channel) else {
                    return;
                };
                self.ungrant(desk, conn, &channel);
                match asked.kind {
                    Kind::Connecting => self.refuse_connect(fault),
                    Kind::Own => self.say(failed(asked.number, fault)),
                    Kind::Pushed => {}
                }
            }
            Event::Unsubscribed {
                conn,
                channel,
                reason,
            } => self.unsubscribed(desk, conn, &channel, reason),
            Event::Published { number, .. } => self.say(Reply {
                id: number,
                publish: Some(PublishResult {}),
                ..Reply::default()
            }),
            // It publishes again where it connects next.
            Event::QueryResult { result, .. } if matches!(*result, QueryResult::Draining) => {
                self.disconnect(Disconnect::SHUTDOWN);
            }
            Event::QueryResult { number, result, .. } => self.say_answer(number, *result),
            Event::Disconnected { reason, .. } => {
                self.disconnect(reason);
                if let Some(id) = self.id.take() {
                    desk.leave(id);
                }
            }
        }
    }

    fn unsubscribed(&self, desk: &Desk, id: ConnId, channel: &str, why: Unsubscribed) {
        let grant = self.ungrant(desk, id, channel);
        let is_servers = self.bare || grant.is_some_and(|grant| grant.source != Source::Client);
        if is_servers && why.code >= Unsubscribed::INSUFFICIENT.code {
            // Who cannot subscribe again connects again.
            return self.disconnect(match why {
                Unsubscribed::EXPIRED => Disconnect::SUBSCRIPTION_EXPIRED,
                _ => Disconnect::INSUFFICIENT,
            });
        }
        if self.pending.unjoins(channel) {
            return;
        }
        let push = Push {
            channel: channel.to_owned(),
            unsubscribe: Some(Unsubscribe::from(why)),
            ..Push::default()
        };
        self.say(Reply {
            push: Some(push),
            ..Reply::default()
        });
    }

    /// Ends a client that cannot be subscribed to a channel of its `connect`. One that may retry is sent that as the reply.
    fn refuse_connect(&self, fault: Fault) {
        let number = self.pending.joining(|joining| joining.number);
        if let Some(number) = number.filter(|number| *number > 0 && fault.temporary) {
            self.say(failed(number, fault));
        }
        self.disconnect(disconnect_for(fault));
    }

    /// What a subscription was granted goes with it.
    pub(crate) fn ungrant(&self, desk: &Desk, id: ConnId, channel: &str) -> Option<Grant> {
        let grant = self.rights.borrow_mut().remove(channel)?;
        desk.due(id, Some(&grant.channel), grant.ends, None);
        Some(grant)
    }

    /// One more of the channels has answered that it has from the beginning.
    pub(crate) fn joined(&self, desk: &Desk, id: ConnId) {
        self.pending.joining(|joining| joining.left -= 1);
        if let Some(welcome) = self.welcome() {
            self.say(welcome);
            self.pending.follow_welcome();
            self.send_queued();
            desk.send(id, self);
        }
    }

    /// What tells a client that it is connected, once all of that is there: other replies and pushes may follow.
    pub(crate) fn welcome(&self) -> Option<Reply> {
        let joining = self.pending.joined()?;
        self.entered.set(true);
        let mut reply = Reply {
            id: joining.number,
            ..Reply::default()
        };
        match self.bare {
            true => {
                reply.push = Some(Push {
                    connect: Some(joining.connect.into()),
                    ..Push::default()
                });
            }
            false => reply.connect = Some(joining.connect),
        }
        Some(reply)
    }

    /// Ends the connection: by a close with the code where there is one, else by a last push.
    pub(crate) fn disconnect(&self, why: Disconnect) {
        self.disconnect_because(why, why.reason);
    }

    /// The same in other words.
    pub(crate) fn disconnect_because(&self, why: Disconnect, reason: &str) {
        let disconnect = DisconnectPush {
            reason: reason.to_owned(),
            ..why.into()
        };
        if self.outlet.borrow().is_open() {
            self.counts.disconnected(why);
            if !self.entered.get() && self.id.get().is_none() {
                self.counts.refused(match why {
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
        self.write(
            Reply {
                push: Some(push),
                ..Reply::default()
            },
            &mut last,
        );
        self.outlet.borrow().close(why, reason, &last);
    }

    pub(crate) fn ping(&self) {
        if !self.is_joining() {
            // Who only listens has no way to answer.
            self.pinged.set(!self.bare);
            let mut out = Vec::new();
            self.write(Reply::default(), &mut out);
            // It does not wait behind replies, which may take longer than the client may.
            self.send(&out);
        }
    }

    pub(crate) fn must_have_answered(&self) {
        // Behind what it is too slow for the ping may not have reached it. Who takes nothing at all is ended by web's `rate_bytes`.
        if self.pinged.get() && self.outlet.borrow().unsent() == 0 {
            self.disconnect(Disconnect::NO_PONG);
        }
    }

    pub(crate) fn must_be_known(&self) {
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

pub(crate) fn answer(number: u32, told: QueryResult) -> Reply {
    let mut reply = Reply {
        id: number,
        ..Reply::default()
    };
    match told {
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

pub(crate) fn failed(number: u32, fault: Fault) -> Reply {
    Reply {
        id: number,
        error: Some(fault.into()),
        ..Reply::default()
    }
}
