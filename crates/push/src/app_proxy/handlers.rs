//! How a session asks, and carries out what comes of it. One that is over when an answer comes is forgotten.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::protocol::{
    Command, ConnectRequest, Disconnect, Fault, Format, PublishRequest, Reply, RpcRequest, RpcResult,
    SubscribeRequest, Unsubscribed,
};
use ringmain_hub::subscribers::ConnId;

use super::client::{Waits, channel_of, within};
use super::requests::Words;
use super::responses::{self, Broken, GoesOn, Refused};
use super::{Event, Question, Unanswered};
use crate::client::commands::Session;
use crate::client::identity::ClientId;
use crate::client::{disconnect_for, failed};
use crate::limits;
use crate::transport::Outlet;

/// What a question is about, and what is to be done with its answer.
enum Pending {
    /// By its command's number, 0 where there is none; to be known by this name.
    Connect(u32, ConnectRequest, ClientId),
    Refresh(ConnId),
    Rpc(ConnId, u32, RpcRequest),
    Subscribe(ConnId, u32, SubscribeRequest),
    Publish(ConnId, u32, PublishRequest),
    SubRefresh(ConnId, Arc<str>),
}

impl Pending {
    fn event(&self) -> Event {
        match self {
            Pending::Connect(..) => Event::Connect,
            Pending::Refresh(_) => Event::Refresh,
            Pending::Rpc(..) => Event::Rpc,
            Pending::Subscribe(..) => Event::Subscribe,
            Pending::Publish(..) => Event::Publish,
            Pending::SubRefresh(..) => Event::SubRefresh,
        }
    }

    fn conn(&self) -> Option<ConnId> {
        match self {
            Pending::Connect(..) => None,
            Pending::Refresh(id)
            | Pending::Rpc(id, ..)
            | Pending::Subscribe(id, ..)
            | Pending::Publish(id, ..)
            | Pending::SubRefresh(id, _) => Some(*id),
        }
    }

    fn channel(&self) -> Option<&str> {
        match self {
            Pending::Connect(..) | Pending::Refresh(_) | Pending::Rpc(..) => None,
            Pending::Subscribe(_, _, request) => Some(&request.channel),
            Pending::Publish(_, _, request) => Some(&request.channel),
            Pending::SubRefresh(_, channel) => Some(channel),
        }
    }
}

impl Session {
    /// Whether the application says who a client without a token is.
    pub(crate) fn asks_who(&self) -> bool {
        self.seat.asker.is_some() && self.desk.options().proxy.is_asked(Event::Connect)
    }

    /// Asks it; the client waits.
    pub(crate) fn ask_who(&self, number: u32, request: &ConnectRequest) -> Result<(), Fault> {
        let client = ClientId::draw(&self.desk.cx);
        self.put(Pending::Connect(number, request.clone(), client))?;
        if let Some(asker) = &self.seat.asker {
            asker.connecting.set(true);
        }
        Ok(())
    }

    pub(crate) fn ask_rpc(&self, id: ConnId, number: u32, request: RpcRequest) -> Result<(), Fault> {
        self.put(Pending::Rpc(id, number, request))
    }

    pub(crate) fn ask_subscribe(
        &self,
        id: ConnId,
        number: u32,
        request: &SubscribeRequest,
    ) -> Result<(), Fault> {
        self.put(Pending::Subscribe(id, number, request.clone()))
    }

    pub(crate) fn ask_publish(&self, id: ConnId, number: u32, request: PublishRequest) -> Result<(), Fault> {
        self.put(Pending::Publish(id, number, request))
    }

    /// Whether the application says if a connection goes on, and not its client.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.seat.asker.is_some() && self.desk.options().proxy.is_asked(Event::Refresh)
    }

    /// The connection's time is over: whether the application is asked if it goes on.
    pub(crate) fn ask_refresh(&self, id: ConnId) -> bool {
        let is_asked = self.is_refreshed();
        if is_asked && self.put(Pending::Refresh(id)).is_err() {
            self.ends(id, Some(self.again()));
        }
        is_asked
    }

    /// Whether the application says if a subscription goes on, and not its client.
    pub(crate) fn is_sub_refreshed(&self, channel: &str) -> bool {
        let options = self.desk.options();
        let is_wanted = options
            .namespace(channel)
            .is_ok_and(|namespace| namespace.sub_refresh_proxy);
        self.seat.asker.is_some() && is_wanted && options.proxy.is_asked(Event::SubRefresh)
    }

    /// The subscription's time is over: whether the application is asked if it goes on.
    pub(crate) fn ask_sub_refresh(&self, id: ConnId, channel: &Arc<str>) -> bool {
        let is_asked = self.is_sub_refreshed(channel);
        if is_asked && self.put(Pending::SubRefresh(id, Arc::clone(channel))).is_err() {
            self.sub_ends(id, channel, Some(self.again()));
        }
        is_asked
    }

    /// Keeps a command that is about a channel of which an answer is waited for: commands about a channel are carried out in
    /// their order. The command, if it has not to wait.
    pub(crate) fn hold_behind(&self, command: Command, out: &mut Vec<u8>) -> Option<Command> {
        let Some(asker) = &self.seat.asker else {
            return Some(command);
        };
        if !channel_of(&command).is_some_and(|channel| asker.holds(channel)) {
            return Some(command);
        }
        match asker.is_full() {
            true => self.seat.write(failed(command.id, Fault::TOO_MANY_REQUESTS), out),
            false => asker.hold(command),
        }
        None
    }

    /// Puts a question; what comes of it is carried out when its answer is there.
    fn put(&self, pending: Pending) -> Result<(), Fault> {
        let options = self.desk.options();
        let event = pending.event();
        let (Some(asker), Some(&span)) = (&self.seat.asker, options.proxy.events.get(&event)) else {
            return Err(Fault::NOT_AVAILABLE);
        };
        if asker.is_full() {
            return Err(Fault::TOO_MANY_REQUESTS);
        }
        let question = Question {
            event,
            body: self.body(&pending, options.proxy.binary)?,
            emulated: Rc::clone(&asker.emulated.borrow()),
            within: span,
        };
        let waits = Waits::new(&self.desk).ok_or(Fault::TOO_MANY_REQUESTS)?;
        let (number, channel) = (asker.next(), pending.channel().map(Arc::from));
        let answering = asker.application.ask(question);
        let session = Session {
            desk: self.desk.clone(),
            seat: Rc::clone(&self.seat),
        };
        let task = self.desk.cx.spawn(async move {
            let answer = within(&session.desk.cx, span, answering).await;
            drop(waits);
            session.answered(number, pending, answer);
        });
        let task = task.map_err(|_| Fault::TOO_MANY_REQUESTS)?;
        asker.asks(number, task, channel);
        Ok(())
    }

    fn body(&self, pending: &Pending, binary: bool) -> Result<Vec<u8>, Fault> {
        let identity = self.seat.identity();
        let client = match pending {
            Pending::Connect(_, _, client) => client.to_string(),
            _ => identity.client.to_string(),
        };
        let meta = self.seat.asker.as_ref().map(|asker| asker.meta.borrow().clone());
        let meta = meta.unwrap_or_default();
        let words = Words {
            client: &client,
            transport: self.transport(),
            protocol: match self.seat.format {
                Format::Json => "json",
                Format::Protobuf => "protobuf",
            },
            user: Some(identity.user()),
            channel: pending.channel(),
            meta: serde_json::from_slice(&meta).ok(),
            ..Words::default()
        };
        let none = Bytes::new();
        match pending {
            Pending::Connect(_, request, _) => Words {
                user: None,
                name: &request.name,
                version: &request.version,
                channels: request.subs.keys().map(String::as_str).collect(),
                ..words
            }
            .with_data(&request.data, binary)?
            .json(),
            Pending::Rpc(_, _, request) => Words {
                method: &request.method,
                ..words
            }
            .with_data(&request.data, binary)?
            .json(),
            Pending::Subscribe(_, _, request) => words.with_data(&request.data, binary)?.json(),
            Pending::Publish(_, _, request) => words.with_data(&request.data, binary)?.json(),
            Pending::Refresh(_) | Pending::SubRefresh(..) => words.with_data(&none, binary)?.json(),
        }
    }

    /// What the application calls it.
    fn transport(&self) -> &'static str {
        match (&*self.seat.outlet.borrow(), self.seat.bare) {
            (Outlet::Ws(_), false) => "websocket",
            (Outlet::Ws(_), true) => "uni_websocket",
            (Outlet::Stream(stream), bare) => stream.transport(bare),
            (Outlet::None, _) => "none",
        }
    }

    fn answered(&self, number: u64, pending: Pending, answer: Option<Result<Vec<u8>, Unanswered>>) {
        if let Some(asker) = &self.seat.asker {
            asker.answered(number);
        }
        if !self.seat.outlet.borrow().is_open() || pending.conn() != self.seat.id() {
            return;
        }
        let (event, answer) = (pending.event(), answer.as_ref());
        match pending {
            Pending::Connect(number, request, client) => {
                let gives = self.read(event, answer, responses::connect);
                self.connected(number, &request, client, gives);
            }
            Pending::Rpc(_, number, _) => match self.read(event, answer, responses::rpc) {
                Ok(data) => self.seat.say(Reply {
                    id: number,
                    rpc: Some(RpcResult { data }),
                    ..Reply::default()
                }),
                Err(why) => self.refuse(number, why),
            },
            Pending::Subscribe(id, number, request) => {
                let read = self.read(event, answer, responses::subscribe);
                let done = read.and_then(|gives| {
                    if gives.lasts.is_over(self.desk.cx.wall()) {
                        return Err(Fault::EXPIRED.into());
                    }
                    let granted = (gives.terms, gives.lasts);
                    Ok(self.subscribe_granted(id, number, &request, granted)?)
                });
                done.unwrap_or_else(|why| self.refuse(number, why));
            }
            Pending::Publish(id, number, request) => {
                let read = self.read(event, answer, responses::publish);
                let done = read.and_then(|gives| {
                    let data = match gives.data.is_empty() {
                        true => request.data,
                        false => {
                            let options = self.desk.options();
                            let namespace = options.namespace(&request.channel)?;
                            namespace.data_format.check(&gives.data)?;
                            gives.data
                        }
                    };
                    Ok(self.publish_as(id, number, &request.channel, (data, gives.tags))?)
                });
                done.unwrap_or_else(|why| self.refuse(number, why));
            }
            Pending::Refresh(id) => {
                let read = self.read(event, answer, responses::goes_on);
                self.refreshed(id, read);
            }
            Pending::SubRefresh(id, channel) => {
                let read = self.read(event, answer, responses::goes_on);
                self.sub_refreshed(id, &channel, read);
            }
        }
        self.go_on();
    }

    /// What an answer gives, if it is one.
    fn read<T>(
        &self,
        event: Event,
        answer: Option<&Result<Vec<u8>, Unanswered>>,
        result: impl FnOnce(&str) -> Result<T, Broken>,
    ) -> Result<T, Refused> {
        let none = |why: &str| {
            self.desk.no_answer(event, why);
            Err(Fault::INTERNAL.into())
        };
        match answer {
            None => none("it takes too long"),
            Some(Err(Unanswered(why))) => none(why),
            Some(Ok(json)) if json.len() > limits::ANSWER_BYTES => none("its answer is too long"),
            Some(Ok(json)) => responses::read(json, result).unwrap_or_else(none),
        }
    }

    /// Tells a client why not, if there is something to answer.
    pub(crate) fn refuse(&self, number: u32, why: Refused) {
        match why {
            Refused::Fault(fault) if self.seat.bare => self.seat.disconnect(disconnect_for(fault)),
            Refused::Error(_) if self.seat.bare => self.seat.disconnect(Disconnect::INTERNAL),
            Refused::Fault(fault) => self.seat.say(failed(number, fault)),
            Refused::Error(error) => self.seat.say(Reply {
                id: number,
                error: Some(error),
                ..Reply::default()
            }),
            Refused::Disconnect(why) => self.seat.disconnect(why),
            Refused::Away(why, reason) => self.seat.disconnect_because(why, &reason),
        }
    }

    /// The application has said who a client is, or that it may not come in.
    fn connected(
        &self,
        number: u32,
        request: &ConnectRequest,
        client: ClientId,
        gives: Result<crate::tokens::claims::Connecting, Refused>,
    ) {
        let Some(asker) = &self.seat.asker else { return };
        let done = gives.and_then(|gives| {
            if gives.lasts.is_over(self.desk.cx.wall()) {
                return Err(Fault::EXPIRED.into());
            }
            *asker.meta.borrow_mut() = gives.meta.clone();
            self.let_in(number, request, gives, client)
        });
        asker.connecting.set(false);
        match done {
            Ok(()) => {
                if let Some(welcome) = self.seat.welcome() {
                    self.seat.say(welcome);
                    self.drained();
                }
                let held = self.seat.held();
                self.carry_out(held.into_iter().map(Ok));
            }
            Err(why) => {
                // What it has said behind it was for a connection.
                drop(self.seat.held());
                self.refuse(number, why);
                if let (Outlet::Stream(stream), false) = (&*self.seat.outlet.borrow(), self.seat.bare) {
                    // It has no other way to ask again.
                    stream.end(Disconnect::BAD_REQUEST, b"");
                }
            }
        }
    }

    /// Carries out what has waited for an answer.
    fn go_on(&self) {
        let held = self.seat.asker.as_ref().map(|asker| asker.take_held());
        self.carry_out(held.into_iter().flatten().map(Ok));
    }

    /// The application has said whether a connection goes on. While it says nothing it does.
    fn refreshed(&self, id: ConnId, read: Result<GoesOn, Refused>) {
        let goes = match read {
            Ok(goes) => goes,
            Err(Refused::Away(why, reason)) => return self.seat.disconnect_because(why, &reason),
            Err(_) => return self.ends(id, Some(self.again())),
        };
        if goes.is_over || goes.lasts.is_over(self.desk.cx.wall()) {
            return self.seat.disconnect(Disconnect::EXPIRED);
        }
        if let Some(conn_info) = goes.info {
            // For what it publishes, and for channels that it subscribes to from now on.
            self.seat.identify(self.seat.identity().with_info(conn_info));
        }
        if let Some(caps) = goes.caps {
            self.seat.rights.borrow_mut().set_caps(caps);
        }
        if let (Some(asker), Some(meta)) = (&self.seat.asker, goes.meta) {
            *asker.meta.borrow_mut() = meta;
        }
        self.ends(id, goes.lasts.ends(Duration::ZERO));
    }

    /// The same of a subscription.
    fn sub_refreshed(&self, id: ConnId, channel: &Arc<str>, read: Result<GoesOn, Refused>) {
        let goes = match read {
            Ok(goes) => goes,
            Err(Refused::Away(why, reason)) => return self.seat.disconnect_because(why, &reason),
            Err(_) => return self.sub_ends(id, channel, Some(self.again())),
        };
        if goes.is_over || goes.lasts.is_over(self.desk.cx.wall()) {
            let mut local = self.desk.local.borrow_mut();
            local.unsubscribe(id, channel, Unsubscribed::EXPIRED);
            return;
        }
        if let (Some(info), Some(grant)) = (goes.info, self.seat.rights.borrow_mut().grant_mut(channel)) {
            grant.info = info;
        }
        self.sub_ends(id, channel, goes.lasts.ends(Duration::ZERO));
    }

    fn ends(&self, id: ConnId, ends: Option<u64>) {
        let before = self.seat.rights.borrow_mut().set_ends(ends);
        self.desk.due(id, None, before, ends);
    }

    /// If it is still subscribed.
    fn sub_ends(&self, id: ConnId, channel: &Arc<str>, ends: Option<u64>) {
        if let Some(grant) = self.seat.rights.borrow_mut().grant_mut(channel) {
            let before = std::mem::replace(&mut grant.ends, ends);
            self.desk.due(id, Some(channel), before, ends);
        }
    }

    /// When the application is asked again that has not answered.
    fn again(&self) -> u64 {
        let most = limits::REFRESH_AGAIN.as_secs();
        self.desk.cx.wall().as_secs() + most - self.desk.cx.random() % (most / 2)
    }
}
