//! One client: what it asks for and what it is told.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::history::Query;
use ringmain_hub::limits::MESSAGE_BYTES;
use ringmain_hub::local::{ConnId, Event};
use ringmain_hub::mail::{Life, Question, Since, Told};
use ringmain_hub::protocol::{
    ClientInfo, Command, Commands, ConnectRequest, ConnectResult, Disconnect, Error, Fault, Format,
    HistoryRequest, HistoryResult, PingResult, PresenceResult, PresenceStatsResult, PublishRequest,
    PublishResult, Published, Push, Reply, SubscribeRequest, SubscribeResult, Unsubscribe, UnsubscribeResult,
    Unsubscribed, Variant,
};
use ringmain_web::ws::{CloseCode, Closed, Message};
use ringmain_web::{Request, Result, Socket, Ws};

use crate::desk::Desk;
use crate::limits;

/// A WebSocket of a client.
pub(crate) struct Session {
    desk: Desk,
    seat: Rc<Seat>,
}

/// What others need of a session: to send to its client, and to find what an answer belongs to.
pub(crate) struct Seat {
    format: Format,
    ws: RefCell<Option<Ws>>,
    id: Cell<Option<ConnId>>,
    info: RefCell<Arc<ClientInfo>>,
    /// Subscriptions that wait for their answer, with their commands' numbers and whether they recover.
    asked: RefCell<Vec<Asked>>,
    /// Commands that wait for their answer.
    under_way: Cell<u32>,
    /// A ping was not answered yet.
    pinged: Cell<bool>,
}

struct Asked {
    channel: Arc<str>,
    number: u32,
    recovers: bool,
    is_recoverable: bool,
    /// It would rather not be subscribed than with a gap.
    wants_all: bool,
}

/// Of a subscription's flags the one that asks for an error where recovery fails.
const REJECT_UNRECOVERED: i64 = 2;

impl Session {
    pub(crate) fn new(request: &Request<'_>, desk: &Desk) -> Result<Session> {
        let asked = request.header("sec-websocket-protocol").unwrap_or_default();
        let binary = Format::Protobuf.subprotocol();
        let query = request.target().split_once('?').map_or("", |(_, query)| query);
        let mut parts = query.split('&');
        let is_binary = asked.split(',').any(|one| one.trim() == binary)
            || parts.any(|part| matches!(part, "cf_protocol=protobuf" | "format=protobuf"));
        let format = if is_binary { Format::Protobuf } else { Format::Json };
        Ok(Session {
            desk: desk.clone(),
            seat: Rc::new(Seat {
                format,
                ws: RefCell::default(),
                id: Cell::default(),
                info: RefCell::default(),
                asked: RefCell::default(),
                under_way: Cell::default(),
                pinged: Cell::new(false),
            }),
        })
    }
}

impl Socket for Session {
    fn opened(&mut self, ws: &Ws) -> Result {
        *self.seat.ws.borrow_mut() = Some(ws.clone());
        self.desk.stranger(Rc::clone(&self.seat));
        Ok(())
    }

    fn message(&mut self, _: &Ws, message: Message<'_>) -> Result {
        let bytes = match message {
            Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Message::Binary(bytes) => Bytes::copy_from_slice(bytes),
        };
        if bytes.len() > MESSAGE_BYTES {
            self.seat.disconnect(Disconnect::BAD_REQUEST);
            return Ok(());
        }
        let mut out = Vec::new();
        for command in Commands::new(self.seat.format, bytes) {
            let done = command.map_err(|_| Disconnect::BAD_REQUEST);
            if let Err(why) = done.and_then(|command| self.command(command, &mut out)) {
                self.seat.flush(&mut out);
                self.seat.disconnect(why);
                break;
            }
        }
        self.seat.flush(&mut out);
        self.desk.ring();
        Ok(())
    }

    fn drained(&mut self, _: &Ws) -> Result {
        if let Some(id) = self.seat.id.get() {
            self.desk.send(id, &self.seat);
        }
        Ok(())
    }

    fn closed(&mut self, _: &Closed<'_>) {
        *self.seat.ws.borrow_mut() = None;
        if let Some(id) = self.seat.id.take() {
            self.desk.leave(id);
        }
    }
}

impl Session {
    /// Carries out a command; what can be answered at once is written to `out`.
    fn command(&self, command: Command, out: &mut Vec<u8>) -> std::result::Result<(), Disconnect> {
        let number = command.id;
        if command == Command::default() {
            self.seat.pinged.set(false);
            return Ok(());
        }
        if let Some(connect) = command.connect {
            return self.connect(number, &connect, out);
        }
        let Some(id) = self.seat.id.get() else {
            return Err(Disconnect::BAD_REQUEST);
        };
        if command.send.is_some() {
            // There is no application to hand it to.
            return Err(Disconnect::NOT_AVAILABLE);
        }
        if number == 0 {
            return Err(Disconnect::BAD_REQUEST);
        }
        if self.seat.under_way.get() >= limits::COMMANDS_UNDER_WAY {
            return Err(Disconnect::TOO_MANY_REQUESTS);
        }
        let done = if let Some(subscribe) = &command.subscribe {
            self.subscribe(id, number, subscribe)
        } else if let Some(unsubscribe) = &command.unsubscribe {
            self.unsubscribe(id, number, &unsubscribe.channel, out)
        } else if let Some(publish) = command.publish {
            self.publish(id, number, publish)
        } else if let Some(presence) = &command.presence {
            self.question(id, number, &presence.channel, Question::Presence)
        } else if let Some(presence) = &command.presence_stats {
            self.question(id, number, &presence.channel, Question::PresenceStats)
        } else if let Some(history) = &command.history {
            self.question(id, number, &history.channel, history_of(history))
        } else if command.ping.is_some() {
            let ping = Some(PingResult {});
            self.seat.write(
                Reply {
                    id: number,
                    ping,
                    ..Reply::default()
                },
                out,
            );
            Ok(())
        } else if command.rpc.is_some() || command.refresh.is_some() || command.sub_refresh.is_some() {
            Err(Fault::NOT_AVAILABLE)
        } else {
            Err(Fault::METHOD_NOT_FOUND)
        };
        if let Err(fault) = done {
            self.seat.write(failed(number, fault), out);
        }
        Ok(())
    }

    fn connect(
        &self,
        number: u32,
        connect: &ConnectRequest,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Disconnect> {
        if self.seat.id.get().is_some() || number == 0 {
            return Err(Disconnect::BAD_REQUEST);
        }
        let lengths = [
            (connect.name.len(), ringmain_hub::limits::CLIENT_NAME_BYTES),
            (connect.version.len(), ringmain_hub::limits::CLIENT_VERSION_BYTES),
        ];
        if lengths.iter().any(|(length, most)| length > most) {
            return Err(Disconnect::BAD_REQUEST);
        }
        if !connect.token.is_empty() {
            return Err(Disconnect::INVALID_TOKEN);
        }
        if !self.desk.options.anonymous {
            self.seat.write(failed(number, Fault::UNAUTHORIZED), out);
            return Ok(());
        }
        let client = client_number(self.desk.cx.random(), self.desk.cx.random());
        let info = Arc::new(ClientInfo {
            client: client.clone(),
            ..ClientInfo::default()
        });
        *self.seat.info.borrow_mut() = Arc::clone(&info);
        let variant = Variant {
            format: self.seat.format,
            bare: false,
        };
        let id = self.desk.local.borrow_mut().open(variant, Some(info));
        self.seat.id.set(Some(id));
        self.desk.seat(id, Rc::clone(&self.seat));
        let connect = Some(ConnectResult {
            client,
            version: concat!("ringmain ", env!("CARGO_PKG_VERSION")).to_owned(),
            ping: limits::PING_EVERY.as_secs() as u32,
            pong: true,
            ..ConnectResult::default()
        });
        self.seat.write(
            Reply {
                id: number,
                connect,
                ..Reply::default()
            },
            out,
        );
        Ok(())
    }

    fn subscribe(
        &self,
        id: ConnId,
        number: u32,
        subscribe: &SubscribeRequest,
    ) -> std::result::Result<(), Fault> {
        let user = self.seat.info.borrow().user.clone();
        let namespace = self.desk.options.namespace_for(&subscribe.channel, &user)?;
        if subscribe.tf.is_some() {
            // Who wants some publications is not to be sent all.
            return Err(Fault::NOT_AVAILABLE);
        }
        let said = subscribe.recover.then(|| Since {
            offset: subscribe.offset,
            life: Life::parse(&subscribe.epoch),
        });
        let since = said.or_else(|| namespace.shows_last().then_some(Since::NOWHERE));
        let channel: Arc<str> = Arc::from(&*subscribe.channel);
        self.desk
            .local
            .borrow_mut()
            .subscribe(id, &channel, namespace.rules, since)?;
        let is_kept = namespace.rules.keep.is_some();
        self.seat.asked.borrow_mut().push(Asked {
            channel,
            number,
            recovers: subscribe.recover,
            is_recoverable: is_kept && (namespace.recovery || subscribe.recoverable),
            wants_all: subscribe.flag & REJECT_UNRECOVERED != 0,
        });
        self.seat.begins();
        Ok(())
    }

    fn unsubscribe(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Fault> {
        self.desk.options.namespace(channel)?;
        // Who is not subscribed is so afterwards, too. The client knows why, and is not told.
        self.desk.local.borrow_mut().leave(id, channel);
        let unsubscribe = Some(UnsubscribeResult {});
        self.seat.write(
            Reply {
                id: number,
                unsubscribe,
                ..Reply::default()
            },
            out,
        );
        Ok(())
    }

    fn publish(&self, id: ConnId, number: u32, publish: PublishRequest) -> std::result::Result<(), Fault> {
        let user = self.seat.info.borrow().user.clone();
        let namespace = self.desk.options.namespace_for(&publish.channel, &user)?;
        if !namespace.publish {
            return Err(Fault::PERMISSION_DENIED);
        }
        if publish.data.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        let published = Published {
            data: publish.data,
            info: Some(ClientInfo::clone(&self.seat.info.borrow())),
            ..Published::default()
        };
        let channel: Arc<str> = Arc::from(publish.channel);
        let mut local = self.desk.local.borrow_mut();
        local.publish(&channel, namespace.rules, published, Some((id, number)));
        self.seat.begins();
        Ok(())
    }

    fn question(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        question: Question,
    ) -> std::result::Result<(), Fault> {
        let user = self.seat.info.borrow().user.clone();
        let namespace = self.desk.options.namespace_for(channel, &user)?;
        let (is_there, is_allowed) = match question {
            Question::History { .. } => (namespace.rules.keep.is_some(), namespace.history),
            Question::Presence | Question::PresenceStats => (namespace.rules.presence, namespace.presence),
        };
        if !is_there {
            return Err(Fault::NOT_AVAILABLE);
        }
        if !is_allowed {
            return Err(Fault::PERMISSION_DENIED);
        }
        let mut local = self.desk.local.borrow_mut();
        local.question(&Arc::from(channel), namespace.rules, question, (id, number));
        self.seat.begins();
        Ok(())
    }
}

impl Seat {
    pub(crate) fn id(&self) -> Option<ConnId> {
        self.id.get()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.ws.borrow().as_ref().is_none_or(Ws::is_full)
    }

    /// Sends what is a whole message of its format.
    pub(crate) fn send(&self, message: &[u8]) {
        let ws = self.ws.borrow();
        let (Some(ws), false) = (&*ws, message.is_empty()) else {
            return;
        };
        match (self.format, std::str::from_utf8(message)) {
            (Format::Json, Ok(text)) => ws.send(Message::Text(text)),
            _ => ws.send(Message::Binary(message)),
        };
    }

    fn flush(&self, out: &mut Vec<u8>) {
        self.send(out);
        out.clear();
    }

    fn write(&self, reply: Reply, out: &mut Vec<u8>) {
        // What the client's format cannot carry was not let in for it.
        if self.format.write(&reply, out).is_err() {
            let fault = failed(reply.id, Fault::INTERNAL);
            let _ = self.format.write(&fault, out);
        }
    }

    fn say(&self, reply: Reply) {
        let mut out = Vec::new();
        self.write(reply, &mut out);
        self.send(&out);
    }

    /// A command waits for its answer.
    fn begins(&self) {
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
                place,
                missed,
            } => {
                let Some(asked) = self.answered(&channel) else {
                    return;
                };
                if asked.recovers && asked.wants_all && missed.is_none() {
                    desk.local.borrow_mut().leave(conn, &channel);
                    return self.say(failed(asked.number, Fault::UNRECOVERABLE_POSITION));
                }
                let mut result = SubscribeResult {
                    recoverable: asked.is_recoverable,
                    positioned: asked.is_recoverable,
                    was_recovering: asked.recovers,
                    recovered: asked.recovers && missed.is_some(),
                    ..SubscribeResult::default()
                };
                if let (Some(place), true) = (place, asked.is_recoverable || asked.recovers) {
                    (result.offset, result.epoch) = (place.offset, place.epoch.to_string());
                }
                let missed = missed.unwrap_or_default().into_iter();
                result.publications = missed
                    .map(|(offset, published)| published.numbered(offset))
                    .collect();
                self.say(Reply {
                    id: asked.number,
                    subscribe: Some(result),
                    ..Reply::default()
                });
            }
            Event::Refused { channel, fault, .. } => {
                if let Some(asked) = self.answered(&channel) {
                    self.say(failed(asked.number, fault));
                }
            }
            Event::Unsubscribed { channel, why, .. } => self.unsubscribed(&channel, why),
            Event::Published { number, .. } => self.say(Reply {
                id: number,
                publish: Some(PublishResult {}),
                ..Reply::default()
            }),
            Event::Told { number, told, .. } => self.say(answer(number, *told)),
            Event::Disconnected { why, .. } => {
                self.disconnect(why);
                if let Some(id) = self.id.take() {
                    desk.leave(id);
                }
            }
        }
    }

    fn answered(&self, channel: &str) -> Option<Asked> {
        let mut asked = self.asked.borrow_mut();
        let at = asked.iter().position(|asked| &*asked.channel == channel)?;
        Some(asked.remove(at))
    }

    fn unsubscribed(&self, channel: &str, why: Unsubscribed) {
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

    pub(crate) fn disconnect(&self, why: Disconnect) {
        if let Some(ws) = &*self.ws.borrow() {
            let code = u16::try_from(why.code).ok().and_then(CloseCode::new);
            ws.close(code.unwrap_or(CloseCode::INTERNAL_ERROR), why.reason);
        }
    }

    pub(crate) fn ping(&self) {
        self.pinged.set(true);
        self.say(Reply::default());
    }

    pub(crate) fn must_have_answered(&self) {
        if self.pinged.get() {
            self.disconnect(Disconnect::NO_PONG);
        }
    }

    pub(crate) fn must_be_known(&self) {
        if self.id.get().is_none() {
            self.disconnect(Disconnect::STALE);
        }
    }
}

fn history_of(history: &HistoryRequest) -> Question {
    let since = history.since.as_ref();
    let limit = usize::try_from(history.limit).unwrap_or(usize::MAX);
    Question::History {
        query: Query {
            since: since.map(|since| since.offset),
            limit: limit.min(limits::HISTORY_PUBLICATIONS),
            reverse: history.reverse,
        },
        life: since.map_or(Life::Any, |since| Life::parse(&since.epoch)),
    }
}

fn answer(number: u32, told: Told) -> Reply {
    let mut reply = Reply {
        id: number,
        ..Reply::default()
    };
    match told {
        Told::History { publications, place } => {
            let publications = publications.into_iter();
            reply.history = Some(HistoryResult {
                publications: publications
                    .map(|(offset, published)| published.numbered(offset))
                    .collect(),
                epoch: place.epoch.to_string(),
                offset: place.offset,
            });
        }
        Told::Presence(present) => {
            let present = present.iter();
            reply.presence = Some(PresenceResult {
                presence: present
                    .map(|info| (info.client.clone(), ClientInfo::clone(info)))
                    .collect(),
            });
        }
        Told::PresenceStats { clients, users } => {
            reply.presence_stats = Some(PresenceStatsResult {
                num_clients: clients,
                num_users: users,
            });
        }
        Told::Unrecoverable => reply.error = Some(Error::from(Fault::UNRECOVERABLE_POSITION)),
        Told::NotAvailable => reply.error = Some(Error::from(Fault::NOT_AVAILABLE)),
    }
    reply
}

fn failed(number: u32, fault: Fault) -> Reply {
    Reply {
        id: number,
        error: Some(fault.into()),
        ..Reply::default()
    }
}

/// A random UUID (RFC 9562, version 4).
fn client_number(high: u64, low: u64) -> String {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(3 << 62)) | (2 << 62);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}
