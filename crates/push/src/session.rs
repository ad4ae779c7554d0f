//! One client: what it asks for and what comes of it, whatever its transport.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::history::HistoryQuery;
use ringmain_hub::mail::{ChannelQuery, EpochFilter};
use ringmain_hub::protocol::{
    Command, Commands, Disconnect, Fault, Format, HistoryRequest, PingResult, PublishRequest, Published,
    Reply, UnsubscribeResult,
};
use ringmain_hub::subscribers::ConnId;

use crate::asking::{Asker, channel_of};
use crate::desk::Desk;
use crate::limits;
use crate::outlet::Outlet;
use crate::replies::publication_weight;
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

    /// The client has taken what was sent before: sends the replies that waited for that, carries out the commands that were held
    /// behind these, and sends the pushes that wait.
    pub(crate) fn drained(&self) {
        if self.seat.send_queued() {
            let held = self.seat.held();
            if !held.is_empty() {
                self.carry_out(held.into_iter().map(Ok));
            }
        }
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
        let Some(command) = self.ordered(command, out)? else {
            return Ok(());
        };
        if let Some(connect) = &command.connect {
            return self.connect(number, connect, out);
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
        if let Some(refresh) = &command.refresh {
            return self.refresh(id, number, &refresh.token, out);
        }
        if self.desk.is_frozen() && is_of_successor(&command) {
            // A successor has the channel now: the client asks again where it connects next.
            self.seat.disconnect(Disconnect::SHUTDOWN);
            return Ok(());
        }
        match self.dispatch(id, number, &command, out) {
            Ok(()) => {}
            // The error would overtake the answers to commands about the channel.
            Err(_) if self.seat.under_way.get() > 0 && channel_of(&command).is_some() => {
                return self.seat.hold(command);
            }
            Err(fault) => self.seat.write(failed(number, fault), out),
        }
        Ok(())
    }

    /// Returns the command if it can be carried out now; else it is held. Commands of a client about one channel are carried out and
    /// answered in their order:
    ///
    /// ```text
    /// answered by the channel (subscribe, publish, history, presence) ─▶ one queue to the channel's worker, and one back: in order
    /// answered here, or asked of the application                      ─▶ once none is in flight; those behind it wait as well
    /// ```
    fn ordered(
        &self,
        command: Command,
        out: &mut Vec<u8>,
    ) -> std::result::Result<Option<Command>, Disconnect> {
        let pending = &self.seat.pending;
        let channel = channel_of(&command);
        if channel.is_some() && pending.holds(|held| channel_of(held) == channel) {
            return self.seat.hold(command).map(|()| None);
        }
        let Some(command) = self.hold_behind(command, out) else {
            return Ok(None);
        };
        match self.must_wait(&command) {
            true => self.seat.hold(command).map(|()| None),
            false => Ok(Some(command)),
        }
    }

    /// Whether a command would overtake one before it, or be answered before the client has taken the answers to these.
    fn must_wait(&self, command: &Command) -> bool {
        let (seat, in_flight) = (&self.seat, self.seat.under_way.get());
        if seat.is_joining() || seat.pending.has_queued() || in_flight >= limits::COMMANDS_UNDER_WAY {
            return true;
        }
        let Some(channel) = channel_of(command) else {
            return false;
        };
        if seat.pending.has_held() {
            return true;
        }
        if in_flight == 0 {
            return false;
        }
        let options = self.desk.options();
        let is_proxied = options.namespace(channel).is_ok_and(|namespace| {
            (namespace.subscribe_proxy && command.subscribe.is_some())
                || (namespace.publish_proxy && command.publish.is_some())
        });
        let is_answered_here = command.unsubscribe.is_some() || command.sub_refresh.is_some();
        is_proxied || is_answered_here || seat.pending.is_asked(channel)
    }

    /// Carries out a command that is answered by a reply.
    fn dispatch(
        &self,
        id: ConnId,
        number: u32,
        command: &Command,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Fault> {
        if let Some(subscribe) = &command.subscribe {
            self.subscribe(id, number, subscribe)
        } else if let Some(refresh) = &command.sub_refresh {
            self.sub_refresh(id, number, refresh, out)
        } else if let Some(unsubscribe) = &command.unsubscribe {
            self.unsubscribe(id, number, &unsubscribe.channel, out)
        } else if let Some(publish) = &command.publish {
            self.publish(id, number, publish)
        } else if let Some(presence) = &command.presence {
            self.question(id, number, &presence.channel, ChannelQuery::Presence)
        } else if let Some(presence) = &command.presence_stats {
            self.question(id, number, &presence.channel, ChannelQuery::PresenceStats)
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
        } else if let Some(rpc) = &command.rpc {
            self.ask_rpc(id, number, rpc.clone())
        } else {
            Err(Fault::METHOD_NOT_FOUND)
        }
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
        self.desk.local.borrow_mut().unsubscribe_silently(id, channel);
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

    fn publish(&self, id: ConnId, number: u32, publish: &PublishRequest) -> std::result::Result<(), Fault> {
        let identity = self.seat.identity();
        let (options, rights) = (self.desk.options(), self.seat.rights.borrow());
        let namespace = options.namespace(&publish.channel)?;
        let is_asked = namespace.publish_proxy;
        if is_asked {
            rights.may_be_asked(&publish.channel, identity.user())?;
        } else {
            let reach = rights.reach(&options, &publish.channel, identity.user())?;
            reach.may(reach.namespace.publish, |cap| cap.publish)?;
        }
        if publish.data.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        match self.seat.format {
            Format::Json => namespace.data_format.check_json(&publish.data)?,
            Format::Protobuf => namespace.data_format.check(&publish.data)?,
        }
        drop(rights);
        match is_asked {
            true => self.ask_publish(id, number, publish.clone()),
            false => {
                let published = (publish.data.clone(), BTreeMap::new());
                self.publish_as(id, number, &publish.channel, published)
            }
        }
    }

    /// Publishes for a client that may, with these tags. The data is of the channel's format.
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
        if publication_weight(&published) > limits::PUBLICATION_BYTES {
            return Err(Fault::LIMIT_EXCEEDED);
        }
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
        question: ChannelQuery,
    ) -> std::result::Result<(), Fault> {
        let (options, rights) = (self.desk.options(), self.seat.rights.borrow());
        let reach = rights.reach(&options, channel, self.seat.identity().user())?;
        let (namespace, is_history) = (reach.namespace, matches!(question, ChannelQuery::History { .. }));
        let is_there = match is_history {
            true => namespace.rules.history.is_some(),
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
        local.query(&Arc::from(channel), namespace.rules, question, id, number);
        self.seat.begins();
        Ok(())
    }
}

/// Returns whether the reply to a command is made from a channel's state.
fn is_of_successor(command: &Command) -> bool {
    command.subscribe.is_some()
        || command.publish.is_some()
        || command.presence.is_some()
        || command.presence_stats.is_some()
        || command.history.is_some()
}

fn history_of(history: &HistoryRequest) -> ChannelQuery {
    let since = history.since.as_ref();
    let limit = usize::try_from(history.limit).unwrap_or(usize::MAX);
    ChannelQuery::History {
        query: HistoryQuery {
            since: since.map(|since| since.offset),
            limit: limit.min(limits::HISTORY_PUBLICATIONS),
            reverse: history.reverse,
        },
        epoch: since.map_or(EpochFilter::Any, |since| EpochFilter::parse(&since.epoch)),
    }
}
