//! Executes the commands of one client, whatever its transport.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use ringmain_hub::history::HistoryQuery;
use ringmain_hub::mail::{ChannelQuery, EpochFilter};
use ringmain_hub::protocol::{
    Command, Commands, Disconnect, Fault, Format, HistoryRequest, PingResult, PublishRequest, Published,
    Reply, UnsubscribeResult,
};
use ringmain_hub::subscribers::ConnId;

use crate::app_proxy::{ProxyClient, channel_of};
use crate::client::reply_queue::publication_weight;
use crate::client::{Client, error_reply};
use crate::limits;
use crate::options::publication_limit;
use crate::transport::Transport;
use crate::worker::PushWorker;

/// The commands of a client with a transport.
pub(crate) struct CommandHandler {
    pub(crate) worker: PushWorker,
    pub(crate) client: Rc<Client>,
}

impl CommandHandler {
    /// Creates a client.
    pub(crate) fn new(
        worker: &PushWorker,
        format: Format,
        unidirectional: bool,
        transport: Transport,
        proxy_client: Option<Box<ProxyClient>>,
    ) -> CommandHandler {
        CommandHandler {
            worker: worker.clone(),
            client: Rc::new(Client::new(
                format,
                unidirectional,
                transport,
                worker.metrics(),
                proxy_client,
            )),
        }
    }

    /// Continues the session of a client.
    pub(crate) fn resume(worker: &PushWorker, client: Rc<Client>) -> CommandHandler {
        CommandHandler {
            worker: worker.clone(),
            client,
        }
    }

    /// Executes a message of the transport; a message of a client that was disconnected is dropped.
    pub(crate) fn receive_message(&self, message: Bytes) {
        if !self.client.transport.borrow().is_open() {
            return;
        }
        if message.len() > self.worker.options().message_bytes {
            return self.client.disconnect(Disconnect::BAD_REQUEST);
        }
        let commands = Commands::new(self.client.format, message);
        self.execute_all(commands.map(|command| command.map_err(|_| Disconnect::BAD_REQUEST)));
    }

    /// Executes commands, up to the first invalid one.
    pub(crate) fn execute_all(
        &self,
        commands: impl Iterator<Item = std::result::Result<Command, Disconnect>>,
    ) {
        let mut out = Vec::new();
        for command in commands {
            if let Err(disconnect) = command.and_then(|command| self.execute(command, &mut out)) {
                self.client.flush_replies(&mut out);
                self.client.disconnect(disconnect);
                break;
            }
        }
        self.client.flush_replies(&mut out);
        self.worker.wake();
    }

    /// Continues once the client has received the previous messages: sends the queued replies, executes the commands that were held behind
    /// these, and sends the queued pushes.
    pub(crate) fn on_drained(&self) {
        if self.client.send_queued_replies() {
            let ready = self.client.take_ready_commands();
            if !ready.is_empty() {
                self.execute_all(ready.into_iter().map(Ok));
            }
        }
        if let Some(id) = self.client.id.get() {
            self.worker.flush_client(id, &self.client);
        }
    }

    /// Removes the client of a closed transport.
    pub(crate) fn on_closed(&self) {
        self.client.pending.finish_handshake();
        if let Some(proxy_client) = &self.client.proxy_client {
            proxy_client.cancel_all(self.worker.cx());
        }
        if let Some(id) = self.client.id.take() {
            self.worker.remove_client(id);
        }
        *self.client.transport.borrow_mut() = Transport::None;
    }

    /// Executes a command. A reply that is available at once is written to `out`.
    fn execute(&self, command: Command, out: &mut Vec<u8>) -> std::result::Result<(), Disconnect> {
        let number = command.id;
        if command == Command::default() {
            self.client.set_awaits_pong(false);
            return Ok(());
        }
        let Some(command) = self.admit_in_order(command, out)? else {
            return Ok(());
        };
        if let Some(connect) = &command.connect {
            return self.connect(number, connect, out);
        }
        let Some(id) = self.client.id.get() else {
            return Err(Disconnect::BAD_REQUEST);
        };
        if command.send.is_some() {
            // No application handles this command.
            return Err(Disconnect::NOT_AVAILABLE);
        }
        if number == 0 {
            return Err(Disconnect::BAD_REQUEST);
        }
        if let Some(refresh) = &command.refresh {
            return self.refresh(id, number, &refresh.token, out);
        }
        if self.worker.is_frozen() && reads_channel_state(&command) {
            // The channel has moved to a successor: the client retries after it has reconnected.
            self.client.disconnect(Disconnect::SHUTDOWN);
            return Ok(());
        }
        match self.dispatch(id, number, &command, out) {
            Ok(()) => {}
            // The error would overtake the replies to commands about the channel.
            Err(_) if self.client.in_flight.get() > 0 && channel_of(&command).is_some() => {
                return self.client.hold_command(command);
            }
            Err(fault) => self.client.write_reply(error_reply(number, fault), out),
        }
        Ok(())
    }

    /// Returns the command if it can be executed now; otherwise it is held. Commands of a client about one channel are executed, and their
    /// replies sent, in their order:
    ///
    /// ```text
    /// reply of the channel (subscribe, publish, history, presence) ─▶ one queue to the channel's worker, and one back: in order
    /// reply made here, or by the application                       ─▶ once none is in flight; those behind it wait as well
    /// ```
    fn admit_in_order(
        &self,
        command: Command,
        out: &mut Vec<u8>,
    ) -> std::result::Result<Option<Command>, Disconnect> {
        let pending = &self.client.pending;
        let channel = channel_of(&command);
        if channel.is_some() && pending.holds_any(|held| channel_of(held) == channel) {
            return self.client.hold_command(command).map(|()| None);
        }
        let Some(command) = self.hold_if_in_flight(command, out) else {
            return Ok(None);
        };
        if self.must_wait(&command) {
            self.client.hold_command(command).map(|()| None)
        } else {
            Ok(Some(command))
        }
    }

    /// Returns whether a command would overtake an earlier one, or its reply would be sent before the client has received the replies to
    /// these.
    fn must_wait(&self, command: &Command) -> bool {
        let (client, in_flight) = (&self.client, self.client.in_flight.get());
        if client.is_connecting() || client.pending.has_replies() || in_flight >= limits::COMMANDS_IN_FLIGHT {
            return true;
        }
        let Some(channel) = channel_of(command) else {
            return false;
        };
        if client.pending.has_held() {
            return true;
        }
        if in_flight == 0 {
            return false;
        }
        let options = self.worker.options();
        let is_proxied = options.namespace(channel).is_ok_and(|namespace| {
            (namespace.subscribe_proxy && command.subscribe.is_some())
                || (namespace.publish_proxy && command.publish.is_some())
        });
        let is_handled_here = command.unsubscribe.is_some() || command.sub_refresh.is_some();
        is_proxied || is_handled_here || client.pending.is_subscribing(channel)
    }

    /// Executes a command that has a reply.
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
            self.query_channel(id, number, &presence.channel, ChannelQuery::Presence)
        } else if let Some(presence) = &command.presence_stats {
            self.query_channel(id, number, &presence.channel, ChannelQuery::PresenceStats)
        } else if let Some(history) = &command.history {
            self.query_channel(id, number, &history.channel, history_query(history))
        } else if command.ping.is_some() {
            let ping = Some(PingResult {});
            self.client.write_reply(
                Reply {
                    id: number,
                    ping,
                    ..Reply::default()
                },
                out,
            );
            Ok(())
        } else if let Some(rpc) = &command.rpc {
            self.proxy_rpc(id, number, rpc.clone())
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
        self.worker.options().namespace(channel)?;
        // Also without a subscription. The client requested it and is not notified.
        self.worker.unsubscribe_silently(id, channel);
        self.client.remove_grant(&self.worker, id, channel);
        let unsubscribe = Some(UnsubscribeResult {});
        self.client.write_reply(
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
        let identity = self.client.identity();
        let (options, permissions) = (self.worker.options(), self.client.permissions.borrow());
        let namespace = options.namespace(&publish.channel)?;
        let is_proxied = namespace.publish_proxy;
        if is_proxied {
            permissions.check_reserved(&publish.channel, identity.user())?;
        } else {
            let access = permissions.channel_access(&options, &publish.channel, identity.user())?;
            access.require(access.namespace.publish, |capability| capability.publish)?;
        }
        if publish.data.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        match self.client.format {
            Format::Json => namespace.data_format.check_json(&publish.data)?,
            Format::Protobuf => namespace.data_format.check(&publish.data)?,
        }
        drop(permissions);
        if is_proxied {
            self.proxy_publish(id, number, publish.clone())
        } else {
            let data = publish.data.clone();
            self.publish_with_tags(id, number, &publish.channel, data, BTreeMap::new())
        }
    }

    /// Publishes with tags for a client that is permitted to. The data has the channel's format.
    pub(crate) fn publish_with_tags(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        data: Bytes,
        tags: BTreeMap<String, String>,
    ) -> std::result::Result<(), Fault> {
        if self.worker.is_frozen() {
            // The client publishes again after it has reconnected.
            self.client.disconnect(Disconnect::SHUTDOWN);
            return Ok(());
        }
        let options = self.worker.options();
        let channel_options = options.namespace(channel)?.channel_options;
        let chan_info = self.client.permissions.borrow().channel_info(channel);
        let published = Published {
            data,
            info: Some(self.client.identity().client_info(chan_info)),
            tags,
            ..Published::default()
        };
        if publication_weight(&published) > publication_limit(&channel_options) {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        self.worker
            .publish_as_client(id, number, channel, channel_options, published);
        self.client.count_in_flight();
        Ok(())
    }

    fn query_channel(
        &self,
        id: ConnId,
        number: u32,
        channel: &str,
        query: ChannelQuery,
    ) -> std::result::Result<(), Fault> {
        let (options, permissions) = (self.worker.options(), self.client.permissions.borrow());
        let access = permissions.channel_access(&options, channel, self.client.identity().user())?;
        let (namespace, is_history) = (access.namespace, matches!(query, ChannelQuery::History { .. }));
        let is_available = if is_history {
            namespace.channel_options.history.is_some()
        } else {
            namespace.channel_options.presence
        };
        if !is_available {
            return Err(Fault::NOT_AVAILABLE);
        }
        if is_history {
            access.require(namespace.history, |capability| capability.history)?
        } else {
            access.require(namespace.presence, |capability| capability.presence)?
        }
        self.worker
            .query_as_client(id, number, channel, namespace.channel_options, query);
        self.client.count_in_flight();
        Ok(())
    }
}

/// Returns whether the reply to a command is made from a channel's state.
fn reads_channel_state(command: &Command) -> bool {
    command.subscribe.is_some()
        || command.publish.is_some()
        || command.presence.is_some()
        || command.presence_stats.is_some()
        || command.history.is_some()
}

fn history_query(history: &HistoryRequest) -> ChannelQuery {
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
