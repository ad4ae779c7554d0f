//! One client: what it asks for and what comes of it, whatever its transport.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_hub::history::Query;
use ringmain_hub::limits::MESSAGE_BYTES;
use ringmain_hub::local::ConnId;
use ringmain_hub::mail::{Life, Question, Since};
use ringmain_hub::protocol::{
    ClientInfo, Command, Commands, ConnectRequest, ConnectResult, Disconnect, Fault, Format, HistoryRequest,
    PingResult, PublishRequest, Published, Reply, SubscribeRequest, UnsubscribeResult, Variant,
};

use crate::desk::Desk;
use crate::limits;
use crate::outlet::Outlet;
use crate::seat::{Asked, Joining, Seat, disconnect_for, failed};

/// A client that has a transport.
pub(crate) struct Session {
    pub(crate) desk: Desk,
    pub(crate) seat: Rc<Seat>,
}

/// Why a client is not let in.
enum Refused {
    /// It may ask again.
    Fault(Fault),
    Disconnect(Disconnect),
}

/// Of a subscription's flags the one that asks for an error where recovery fails.
const REJECT_UNRECOVERED: i64 = 2;

impl Session {
    /// `bare`: its transport only brings.
    pub(crate) fn new(desk: &Desk, format: Format, bare: bool, outlet: Outlet) -> Session {
        Session {
            desk: desk.clone(),
            seat: Rc::new(Seat::new(format, bare, outlet)),
        }
    }

    /// Takes a message of the transport; of a client that was sent away nothing is taken.
    pub(crate) fn receive(&self, message: Bytes) {
        if !self.seat.outlet.borrow().is_open() {
            return;
        }
        if message.len() > MESSAGE_BYTES {
            return self.seat.disconnect(Disconnect::BAD_REQUEST);
        }
        let commands = Commands::new(self.seat.format, message);
        self.carry_out(commands.map(|command| command.map_err(|_| Disconnect::BAD_REQUEST)));
    }

    /// Takes commands, up to the first that is none.
    pub(crate) fn carry_out(&self, commands: impl Iterator<Item = std::result::Result<Command, Disconnect>>) {
        let mut out = Vec::new();
        for command in commands {
            if let Err(why) = command.and_then(|command| self.command(command, &mut out)) {
                self.seat.flush(&mut out);
                self.seat.disconnect(why);
                break;
            }
        }
        self.seat.flush(&mut out);
        self.desk.ring();
    }

    /// Sends what has waited for the client to take what was sent before.
    pub(crate) fn drained(&self) {
        if let Some(id) = self.seat.id.get() {
            self.desk.send(id, &self.seat);
        }
    }

    /// The transport is gone.
    pub(crate) fn over(&self) {
        if let Some(id) = self.seat.id.take() {
            self.desk.leave(id);
        }
        *self.seat.outlet.borrow_mut() = Outlet::None;
    }

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
        match self.enter(connect) {
            Ok(result) => {
                self.seat.entered.set(true);
                let connect = Some(result);
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
            Err(Refused::Fault(fault)) => {
                self.seat.write(failed(number, fault), out);
                Ok(())
            }
            Err(Refused::Disconnect(why)) => Err(why),
        }
    }

    /// Lets a client in: from here on it is known.
    fn enter(&self, connect: &ConnectRequest) -> std::result::Result<ConnectResult, Refused> {
        let lengths = [
            (connect.name.len(), ringmain_hub::limits::CLIENT_NAME_BYTES),
            (connect.version.len(), ringmain_hub::limits::CLIENT_VERSION_BYTES),
        ];
        if lengths.iter().any(|(length, most)| length > most) {
            return Err(Refused::Disconnect(Disconnect::BAD_REQUEST));
        }
        if !connect.token.is_empty() {
            return Err(Refused::Disconnect(Disconnect::INVALID_TOKEN));
        }
        if !self.desk.options().anonymous {
            return Err(Refused::Fault(Fault::UNAUTHORIZED));
        }
        let client = uuid(&self.desk.cx);
        let info = Arc::new(ClientInfo {
            client: client.clone(),
            ..ClientInfo::default()
        });
        *self.seat.info.borrow_mut() = Arc::clone(&info);
        let variant = Variant {
            format: self.seat.format,
            bare: self.seat.bare,
        };
        let id = self.desk.local.borrow_mut().open(variant, Some(info));
        self.seat.id.set(Some(id));
        self.desk.seat(id, Rc::clone(&self.seat));
        let mut result = ConnectResult {
            client,
            version: concat!("ringmain ", env!("CARGO_PKG_VERSION")).to_owned(),
            ping: limits::PING_EVERY.as_secs() as u32,
            pong: !self.seat.bare,
            ..ConnectResult::default()
        };
        if let (Outlet::Stream(stream), false) = (&*self.seat.outlet.borrow(), self.seat.bare) {
            // What it says comes by requests of their own, which say whose they are.
            let session = self.desk.name(id);
            stream.session.set(Some(session.secret));
            (result.session, result.node) = (session.to_string(), self.desk.node.to_string());
        }
        Ok(result)
    }

    /// Lets in a client whose transport only brings, with the channels that it names. It is told of all at once, or
    /// disconnected.
    pub(crate) fn join(&self, connect: &ConnectRequest) {
        if let Err(why) = self.try_join(connect) {
            self.seat.disconnect(why);
        }
        self.desk.ring();
    }

    fn try_join(&self, request: &ConnectRequest) -> std::result::Result<(), Disconnect> {
        let connect = self.enter(request).map_err(|refused| match refused {
            Refused::Fault(fault) => disconnect_for(fault),
            Refused::Disconnect(why) => why,
        })?;
        let Some(id) = self.seat.id.get() else {
            return Err(Disconnect::INTERNAL);
        };
        let left = request.subs.len();
        *self.seat.joining.borrow_mut() = Some(Box::new(Joining { left, connect }));
        for (channel, subscribe) in &request.subs {
            // It could not do anything about a gap but connect again.
            let subscribe = SubscribeRequest {
                channel: channel.clone(),
                flag: 0,
                ..subscribe.clone()
            };
            self.subscribe(id, 0, &subscribe).map_err(disconnect_for)?;
        }
        if left == 0 {
            self.seat.welcome();
        }
        Ok(())
    }

    fn subscribe(
        &self,
        id: ConnId,
        number: u32,
        subscribe: &SubscribeRequest,
    ) -> std::result::Result<(), Fault> {
        let user = self.seat.info.borrow().user.clone();
        let options = self.desk.options();
        let namespace = options.namespace_for(&subscribe.channel, &user)?;
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
        self.desk.options().namespace(channel)?;
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
        let options = self.desk.options();
        let namespace = options.namespace_for(&publish.channel, &user)?;
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
        let options = self.desk.options();
        let namespace = options.namespace_for(channel, &user)?;
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

/// A random UUID (RFC 9562, version 4).
pub(crate) fn uuid(cx: &Cx) -> String {
    let (high, low) = (cx.random(), cx.random());
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
