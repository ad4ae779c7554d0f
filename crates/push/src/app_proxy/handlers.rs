//! Sends requests of a session to the application and handles the responses. The response for a session that has ended is dropped.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::protocol::{
    Command, ConnectRequest, Disconnect, Fault, Format, PublishRequest, Reply, RpcRequest, RpcResult,
    SubscribeRequest, Unsubscribed,
};
use ringmain_hub::subscribers::ConnId;

use super::client::{InFlightGuard, channel_of, with_timeout};
use super::requests::RequestBody;
use super::responses::{self, InvalidResponse, RefreshResponse, Rejection};
use super::{ProxyError, ProxyEvent, ProxyRequest};
use crate::client::commands::CommandHandler;
use crate::client::identity::ClientId;
use crate::client::{disconnect_for, error_reply};
use crate::limits;
use crate::transport::Transport;

/// A request, with the data to handle its response.
enum ProxyCall {
    /// With the command's number (0 without one), and the future ID of the client.
    Connect(u32, ConnectRequest, ClientId),
    Refresh(ConnId),
    Rpc(ConnId, u32, RpcRequest),
    Subscribe(ConnId, u32, SubscribeRequest),
    Publish(ConnId, u32, PublishRequest),
    SubRefresh(ConnId, Arc<str>),
}

impl ProxyCall {
    fn event(&self) -> ProxyEvent {
        match self {
            ProxyCall::Connect(..) => ProxyEvent::Connect,
            ProxyCall::Refresh(_) => ProxyEvent::Refresh,
            ProxyCall::Rpc(..) => ProxyEvent::Rpc,
            ProxyCall::Subscribe(..) => ProxyEvent::Subscribe,
            ProxyCall::Publish(..) => ProxyEvent::Publish,
            ProxyCall::SubRefresh(..) => ProxyEvent::SubRefresh,
        }
    }

    fn conn(&self) -> Option<ConnId> {
        match self {
            ProxyCall::Connect(..) => None,
            ProxyCall::Refresh(id)
            | ProxyCall::Rpc(id, ..)
            | ProxyCall::Subscribe(id, ..)
            | ProxyCall::Publish(id, ..)
            | ProxyCall::SubRefresh(id, _) => Some(*id),
        }
    }

    fn channel(&self) -> Option<&str> {
        match self {
            ProxyCall::Connect(..) | ProxyCall::Refresh(_) | ProxyCall::Rpc(..) => None,
            ProxyCall::Subscribe(_, _, request) => Some(&request.channel),
            ProxyCall::Publish(_, _, request) => Some(&request.channel),
            ProxyCall::SubRefresh(_, channel) => Some(channel),
        }
    }
}

impl CommandHandler {
    /// Returns whether the application identifies clients without a token.
    pub(crate) fn is_connect_proxied(&self) -> bool {
        self.client.proxy_client.is_some() && self.worker.options().proxy.is_enabled(ProxyEvent::Connect)
    }

    /// Requests the identity of a client, which waits for it.
    pub(crate) fn proxy_connect(&self, number: u32, request: &ConnectRequest) -> Result<(), Fault> {
        let client = ClientId::random(self.worker.cx());
        self.start_call(ProxyCall::Connect(number, request.clone(), client))?;
        if let Some(proxy_client) = &self.client.proxy_client {
            proxy_client.connecting.set(true);
        }
        Ok(())
    }

    pub(crate) fn proxy_rpc(&self, id: ConnId, number: u32, request: RpcRequest) -> Result<(), Fault> {
        self.start_call(ProxyCall::Rpc(id, number, request))
    }

    pub(crate) fn proxy_subscribe(
        &self,
        id: ConnId,
        number: u32,
        request: &SubscribeRequest,
    ) -> Result<(), Fault> {
        self.start_call(ProxyCall::Subscribe(id, number, request.clone()))
    }

    pub(crate) fn proxy_publish(
        &self,
        id: ConnId,
        number: u32,
        request: PublishRequest,
    ) -> Result<(), Fault> {
        self.start_call(ProxyCall::Publish(id, number, request))
    }

    /// Returns whether the application renews the connection, and not its client.
    pub(crate) fn is_refresh_proxied(&self) -> bool {
        self.client.proxy_client.is_some() && self.worker.options().proxy.is_enabled(ProxyEvent::Refresh)
    }

    /// Requests the renewal of an expired connection. Returns `false` if the application does not renew connections.
    pub(crate) fn proxy_refresh(&self, id: ConnId) -> bool {
        let is_proxied = self.is_refresh_proxied();
        if is_proxied && self.start_call(ProxyCall::Refresh(id)).is_err() {
            self.set_deadline(id, Some(self.retry_deadline()));
        }
        is_proxied
    }

    /// Returns whether the application, rather than its clients, renews subscriptions to a channel.
    pub(crate) fn is_sub_refresh_proxied(&self, channel: &str) -> bool {
        let options = self.worker.options();
        let is_wanted = options
            .namespace(channel)
            .is_ok_and(|namespace| namespace.sub_refresh_proxy);
        self.client.proxy_client.is_some() && is_wanted && options.proxy.is_enabled(ProxyEvent::SubRefresh)
    }

    /// Requests the renewal of an expired subscription. Returns `false` if the application does not renew it.
    pub(crate) fn proxy_sub_refresh(&self, id: ConnId, channel: &Arc<str>) -> bool {
        let is_proxied = self.is_sub_refresh_proxied(channel);
        if is_proxied
            && self
                .start_call(ProxyCall::SubRefresh(id, Arc::clone(channel)))
                .is_err()
        {
            self.set_sub_deadline(id, channel, Some(self.retry_deadline()));
        }
        is_proxied
    }

    /// Holds a command about a channel with a request in flight: commands about a channel are executed in their order. Returns the command
    /// if it need not wait.
    pub(crate) fn hold_if_in_flight(&self, command: Command, out: &mut Vec<u8>) -> Option<Command> {
        let Some(proxy_client) = &self.client.proxy_client else {
            return Some(command);
        };
        if !channel_of(&command).is_some_and(|channel| proxy_client.holds_channel(channel)) {
            return Some(command);
        }
        if proxy_client.is_at_limit() {
            self.client
                .write_reply(error_reply(command.id, Fault::TOO_MANY_REQUESTS), out)
        } else {
            proxy_client.hold_command(command)
        }
        None
    }

    /// Sends a request; its response is handled in a task.
    ///
    /// # Errors
    /// [`Fault::NOT_AVAILABLE`] if the application does not handle the event, [`Fault::TOO_MANY_REQUESTS`] at a limit of requests in
    /// flight.
    fn start_call(&self, pending: ProxyCall) -> Result<(), Fault> {
        let options = self.worker.options();
        let event = pending.event();
        let (Some(proxy_client), Some(&timeout)) =
            (&self.client.proxy_client, options.proxy.events.get(&event))
        else {
            return Err(Fault::NOT_AVAILABLE);
        };
        if proxy_client.is_at_limit() {
            return Err(Fault::TOO_MANY_REQUESTS);
        }
        let request = ProxyRequest {
            event,
            body: self.encode_request(&pending, options.proxy.binary)?,
            emulated: Rc::clone(&proxy_client.emulated.borrow()),
            timeout,
        };
        let guard = InFlightGuard::acquire(&self.worker).ok_or(Fault::TOO_MANY_REQUESTS)?;
        let (number, channel) = (proxy_client.next_number(), pending.channel().map(Arc::from));
        let response = proxy_client.application.send(request);
        let session = CommandHandler::resume(&self.worker, Rc::clone(&self.client));
        let task = self.worker.cx().spawn(async move {
            let response = with_timeout(session.worker.cx(), timeout, response).await;
            drop(guard);
            session.handle_response(number, pending, response);
        });
        let task = task.map_err(|_| Fault::TOO_MANY_REQUESTS)?;
        proxy_client.add_in_flight(number, task, channel);
        Ok(())
    }

    fn encode_request(&self, pending: &ProxyCall, binary: bool) -> Result<Vec<u8>, Fault> {
        let identity = self.client.identity();
        let client = match pending {
            ProxyCall::Connect(_, _, client) => client.to_string(),
            _ => identity.client.to_string(),
        };
        let meta = self
            .client
            .proxy_client
            .as_ref()
            .map(|proxy_client| proxy_client.meta.borrow().clone());
        let meta = meta.unwrap_or_default();
        let body = RequestBody {
            client: &client,
            transport: self.transport_name(),
            protocol: match self.client.format {
                Format::Json => "json",
                Format::Protobuf => "protobuf",
            },
            user: Some(identity.user()),
            channel: pending.channel(),
            meta: serde_json::from_slice(&meta).ok(),
            ..RequestBody::default()
        };
        let failed = Bytes::new();
        match pending {
            ProxyCall::Connect(_, request, _) => RequestBody {
                user: None,
                name: &request.name,
                version: &request.version,
                channels: request.subs.keys().map(String::as_str).collect(),
                ..body
            }
            .with_data(&request.data, binary)?
            .to_json(),
            ProxyCall::Rpc(_, _, request) => RequestBody {
                method: &request.method,
                ..body
            }
            .with_data(&request.data, binary)?
            .to_json(),
            ProxyCall::Subscribe(_, _, request) => body.with_data(&request.data, binary)?.to_json(),
            ProxyCall::Publish(_, _, request) => body.with_data(&request.data, binary)?.to_json(),
            ProxyCall::Refresh(_) | ProxyCall::SubRefresh(..) => body.with_data(&failed, binary)?.to_json(),
        }
    }

    /// Returns the name of the transport for the application.
    fn transport_name(&self) -> &'static str {
        match (&*self.client.transport.borrow(), self.client.unidirectional) {
            (Transport::Ws(_), false) => "websocket",
            (Transport::Ws(_), true) => "uni_websocket",
            (Transport::Stream(stream), unidirectional) => stream.transport_name(unidirectional),
            (Transport::None, _) => "none",
        }
    }

    fn handle_response(
        &self,
        number: u64,
        pending: ProxyCall,
        response: Option<Result<Vec<u8>, ProxyError>>,
    ) {
        if let Some(proxy_client) = &self.client.proxy_client {
            proxy_client.remove_in_flight(number);
        }
        if !self.client.transport.borrow().is_open() || pending.conn() != self.client.id() {
            return;
        }
        let (event, response) = (pending.event(), response.as_ref());
        match pending {
            ProxyCall::Connect(number, request, client) => {
                let claims = self.parse_response(event, response, responses::parse_connect);
                self.on_connect_response(number, &request, client, claims);
            }
            ProxyCall::Rpc(_, number, _) => {
                match self.parse_response(event, response, responses::parse_rpc) {
                    Ok(data) => self.client.send_reply(Reply {
                        id: number,
                        rpc: Some(RpcResult { data }),
                        ..Reply::default()
                    }),
                    Err(rejection) => self.reject(number, rejection),
                }
            }
            ProxyCall::Subscribe(id, number, request) => {
                let read = self.parse_response(event, response, responses::parse_subscribe);
                let outcome = read.and_then(|claims| {
                    if claims.expiry.is_expired(self.worker.wall_time()) {
                        return Err(Fault::EXPIRED.into());
                    }
                    let granted = (claims.options, claims.expiry);
                    Ok(self.subscribe_granted(id, number, &request, granted)?)
                });
                outcome.unwrap_or_else(|rejection| self.reject(number, rejection));
            }
            ProxyCall::Publish(id, number, request) => {
                let read = self.parse_response(event, response, responses::parse_publish);
                let outcome = read.and_then(|claims| {
                    let data = if claims.data.is_empty() {
                        request.data
                    } else {
                        let options = self.worker.options();
                        let namespace = options.namespace(&request.channel)?;
                        namespace.data_format.check(&claims.data)?;
                        claims.data
                    };
                    Ok(self.publish_with_tags(id, number, &request.channel, data, claims.tags)?)
                });
                outcome.unwrap_or_else(|rejection| self.reject(number, rejection));
            }
            ProxyCall::Refresh(id) => {
                let read = self.parse_response(event, response, responses::parse_refresh);
                self.on_refresh_response(id, read);
            }
            ProxyCall::SubRefresh(id, channel) => {
                let read = self.parse_response(event, response, responses::parse_refresh);
                self.on_sub_refresh_response(id, &channel, read);
            }
        }
        self.resume_held();
    }

    /// Parses a response. A missing or invalid one is logged, and is [`Fault::INTERNAL`].
    fn parse_response<T>(
        &self,
        event: ProxyEvent,
        response: Option<&Result<Vec<u8>, ProxyError>>,
        result: impl FnOnce(&str) -> Result<T, InvalidResponse>,
    ) -> Result<T, Rejection> {
        let failed = |reason: &str| {
            let now = self.worker.cx().now();
            self.worker.proxy_requests().report_failure(now, event, reason);
            Err(Fault::INTERNAL.into())
        };
        match response {
            None => failed("timed out"),
            Some(Err(ProxyError(reason))) => failed(reason),
            Some(Ok(json)) if json.len() > limits::PROXY_RESPONSE_BYTES => failed("the response is too long"),
            Some(Ok(json)) => responses::parse(json, result).unwrap_or_else(failed),
        }
    }

    /// Reports a rejection to the client: by an error reply to its command if there is one, otherwise by a disconnect.
    pub(crate) fn reject(&self, number: u32, rejection: Rejection) {
        match rejection {
            Rejection::Fault(fault) if self.client.unidirectional => {
                self.client.disconnect(disconnect_for(fault))
            }
            Rejection::Error(_) if self.client.unidirectional => self.client.disconnect(Disconnect::INTERNAL),
            Rejection::Fault(fault) => self.client.send_reply(error_reply(number, fault)),
            Rejection::Error(error) => self.client.send_reply(Reply {
                id: number,
                error: Some(error),
                ..Reply::default()
            }),
            Rejection::Disconnect(disconnect) => self.client.disconnect(disconnect),
            Rejection::Custom(disconnect, reason) => self.client.disconnect_with_reason(disconnect, &reason),
        }
    }

    /// Accepts or rejects a client by the application's response.
    fn on_connect_response(
        &self,
        number: u32,
        request: &ConnectRequest,
        client: ClientId,
        claims: Result<crate::tokens::claims::ConnectClaims, Rejection>,
    ) {
        let Some(proxy_client) = &self.client.proxy_client else {
            return;
        };
        let outcome = claims.and_then(|claims| {
            if claims.expiry.is_expired(self.worker.wall_time()) {
                return Err(Fault::EXPIRED.into());
            }
            *proxy_client.meta.borrow_mut() = claims.meta.clone();
            self.accept_connect(number, request, claims, client)
        });
        proxy_client.connecting.set(false);
        match outcome {
            Ok(()) => {
                if let Some(welcome) = self.client.take_connect_reply() {
                    self.client.send_reply(welcome);
                    self.on_drained();
                }
                let ready = self.client.take_ready_commands();
                self.execute_all(ready.into_iter().map(Ok));
            }
            Err(rejection) => {
                // The commands behind `connect` were for a connection.
                drop(self.client.take_ready_commands());
                self.reject(number, rejection);
                if let (Transport::Stream(stream), false) =
                    (&*self.client.transport.borrow(), self.client.unidirectional)
                {
                    // The client has no other way to retry.
                    stream.finish(Disconnect::BAD_REQUEST, b"");
                }
            }
        }
    }

    /// Executes the commands that were held for a response.
    fn resume_held(&self) {
        let ready = self
            .client
            .proxy_client
            .as_ref()
            .map(|proxy_client| proxy_client.take_held());
        self.execute_all(ready.into_iter().flatten().map(Ok));
    }

    /// Renews or closes a connection by the application's response; without one the connection remains open.
    fn on_refresh_response(&self, id: ConnId, read: Result<RefreshResponse, Rejection>) {
        let response = match read {
            Ok(response) => response,
            Err(Rejection::Custom(disconnect, reason)) => {
                return self.client.disconnect_with_reason(disconnect, &reason);
            }
            Err(_) => return self.set_deadline(id, Some(self.retry_deadline())),
        };
        if response.is_expired || response.expiry.is_expired(self.worker.wall_time()) {
            return self.client.disconnect(Disconnect::EXPIRED);
        }
        if let Some(conn_info) = response.info {
            // Applies to the client's publications and to subscriptions from now on.
            self.client
                .set_identity(self.client.identity().with_info(conn_info));
        }
        if let Some(capabilities) = response.capabilities {
            self.client
                .permissions
                .borrow_mut()
                .set_capabilities(capabilities);
        }
        if let (Some(proxy_client), Some(meta)) = (&self.client.proxy_client, response.meta) {
            *proxy_client.meta.borrow_mut() = meta;
        }
        self.set_deadline(id, response.expiry.deadline(Duration::ZERO));
    }

    /// Renews or ends a subscription by the application's response; without one the subscription remains.
    fn on_sub_refresh_response(
        &self,
        id: ConnId,
        channel: &Arc<str>,
        read: Result<RefreshResponse, Rejection>,
    ) {
        let response = match read {
            Ok(response) => response,
            Err(Rejection::Custom(disconnect, reason)) => {
                return self.client.disconnect_with_reason(disconnect, &reason);
            }
            Err(_) => return self.set_sub_deadline(id, channel, Some(self.retry_deadline())),
        };
        if response.is_expired || response.expiry.is_expired(self.worker.wall_time()) {
            self.worker.unsubscribe(id, channel, Unsubscribed::EXPIRED);
            return;
        }
        if let (Some(info), Some(grant)) = (
            response.info,
            self.client.permissions.borrow_mut().find_grant_mut(channel),
        ) {
            grant.info = info;
        }
        self.set_sub_deadline(id, channel, response.expiry.deadline(Duration::ZERO));
    }

    fn set_deadline(&self, id: ConnId, deadline: Option<u64>) {
        let before = self.client.permissions.borrow_mut().set_deadline(deadline);
        self.worker.set_deadline(id, None, before, deadline);
    }

    /// Sets the deadline of a subscription that still exists.
    fn set_sub_deadline(&self, id: ConnId, channel: &Arc<str>, deadline: Option<u64>) {
        if let Some(grant) = self.client.permissions.borrow_mut().find_grant_mut(channel) {
            let before = std::mem::replace(&mut grant.deadline, deadline);
            self.worker.set_deadline(id, Some(channel), before, deadline);
        }
    }

    /// Returns the time of the next request to an application that has not responded, in seconds since 1970.
    fn retry_deadline(&self) -> u64 {
        let seconds = limits::REFRESH_RETRY.as_secs();
        self.worker.wall_time().as_secs() + seconds - self.worker.cx().random() % (seconds / 2)
    }
}
