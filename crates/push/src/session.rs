//! One client: what it asks for and what comes of it, whatever its transport.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::history::Query;
use ringmain_hub::local::ConnId;
use ringmain_hub::mail::{Life, Question};
use ringmain_hub::protocol::{
    Command, Commands, Disconnect, Fault, Format, HistoryRequest, PingResult, PublishRequest, Published,
    Reply, UnsubscribeResult,
};

use crate::asking::Asker;
use crate::desk::Desk;
use crate::limits;
use crate::outlet::Outlet;
use crate::seat::{Seat, failed};

/// A client that has a transport.
pub(crate) struct Session {
    pub(crate) desk: Desk,
    pub(crate) seat: Rc<Seat>,
}

impl Session {
    /// `bare`: its transport only brings.
    pub(crate) fn new(
        desk: &Desk,
        format: Format,
        bare: bool,
        outlet: Outlet,
        asker: Option<Box<Asker>>,
    ) -> Session {
        Session {
            desk: desk.clone(),
            seat: Rc::new(Seat::new(format, bare, outlet, &desk.counts, asker)),
        }
    }

    /// Takes a message of the transport; of a client that was sent away nothing is taken.
    pub(crate) fn receive(&self, message: Bytes) {
        if !self.seat.outlet.borrow().is_open() {
            return;
        }
        if message.len() > self.desk.options().message_bytes {
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
        self.seat.pending.end_handshake();
        if let Some(asker) = &self.seat.asker {
            asker.forget(&self.desk.cx);
        }
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
        if self.seat.is_joining() {
            return self.seat.hold(command);
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
        let Some(command) = self.hold_behind(command, out) else {
            return Ok(());
        };
        if let Some(refresh) = &command.refresh {
            return self.refresh(id, number, &refresh.token, out);
        }
        let done = if let Some(subscribe) = &command.subscribe {
            self.subscribe(id, number, subscribe)
        } else if let Some(refresh) = &command.sub_refresh {
            self.sub_refresh(id, number, refresh, out)
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
        } else if let Some(rpc) = command.rpc {
            self.ask_rpc(id, number, rpc)
        } else {
            Err(Fault::METHOD_NOT_FOUND)
        };
        if let Err(fault) = done {
            self.seat.write(failed(number, fault), out);
        }
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
        self.seat.ungrant(&self.desk, id, channel);
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
        let identity = self.seat.identity();
        let (options, rights) = (self.desk.options(), self.seat.rights.borrow());
        let is_asked = options.namespace(&publish.channel)?.publish_proxy;
        if is_asked {
            rights.may_be_asked(&publish.channel, identity.user())?;
        } else {
            let reach = rights.reach(&options, &publish.channel, identity.user())?;
            reach.may(reach.namespace.publish, |cap| cap.publish)?;
        }
        if publish.data.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        drop(rights);
        match is_asked {
            true => self.ask_publish(id, number, publish),
            false => self.publish_as(id, number, &publish.channel, (publish.data, BTreeMap::new())),
        }
    }

    /// Publishes for a client that may, with these tags.
    pub(crate) fn publish_as(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        (data, tags): (Bytes, BTreeMap<String, String>),
    ) -> std::result::Result<(), Fault> {
        if self.desk.is_frozen() {
            // It publishes again where it connects next.
            self.seat.disconnect(Disconnect::SHUTDOWN);
            return Ok(());
        }
        let options = self.desk.options();
        let rules = options.namespace(channel)?.rules;
        let chan_info = self.seat.rights.borrow().info(channel);
        let published = Published {
            data,
            info: Some(self.seat.identity().told(chan_info)),
            tags,
            ..Published::default()
        };
        let mut local = self.desk.local.borrow_mut();
        local.publish(&Arc::from(channel), rules, published, Some((id, number)));
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
        let (options, rights) = (self.desk.options(), self.seat.rights.borrow());
        let reach = rights.reach(&options, channel, self.seat.identity().user())?;
        let (namespace, is_history) = (reach.namespace, matches!(question, Question::History { .. }));
        let is_there = match is_history {
            true => namespace.rules.keep.is_some(),
            false => namespace.rules.presence,
        };
        if !is_there {
            return Err(Fault::NOT_AVAILABLE);
        }
        match is_history {
            true => reach.may(namespace.history, |cap| cap.history)?,
            false => reach.may(namespace.presence, |cap| cap.presence)?,
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
