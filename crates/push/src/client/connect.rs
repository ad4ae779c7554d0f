//! Connects clients and renews their connections: identity, subscriptions by the server, expiry.
//!
//! ```text
//! connect ─▶ (token, or response of the application) ─▶ identified ─▶ subscriptions by the server, and those that a unidirectional client requests ─▶ one reply
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::protocol::{
    ConnectRequest, ConnectResult, Disconnect, Fault, Format, RefreshResult, Reply, SubscribeRequest,
    Variant, compact,
};
use ringmain_hub::subscribers::ConnId;
use ringmain_jwt::TokenError;

use crate::app_proxy::responses::Rejection;
use crate::client::commands::CommandHandler;
use crate::client::identity::{ClientId, Identity};
use crate::client::permissions::GrantSource;
use crate::client::subscribe::COMPACTION;
use crate::client::{PendingConnect, disconnect_for, error_reply};
use crate::limits;
use crate::tokens::VerifyError;
use crate::tokens::claims::{Capability, ConnectClaims, Expiry, SubscribeOptions};
use crate::transport::Transport;
use crate::transport::event_id::RESUMED;

const VERSION: &str = concat!("ringmain ", env!("CARGO_PKG_VERSION"));

impl CommandHandler {
    /// Executes the command.
    pub(crate) fn connect(
        &self,
        number: u32,
        connect: &ConnectRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        if self.client.id.get().is_some() || number == 0 {
            return Err(Disconnect::BAD_REQUEST);
        }
        if self.worker.cx().is_draining() {
            return Err(Disconnect::SHUTDOWN);
        }
        match self.start_connect(number, connect) {
            Ok(()) => {}
            Err(Rejection::Fault(fault)) => self.client.write_reply(error_reply(number, fault), out),
            Err(Rejection::Disconnect(rejection) | Rejection::Custom(rejection, _)) => return Err(rejection),
            Err(Rejection::Error(error)) => self.client.write_reply(
                Reply {
                    id: number,
                    error: Some(error),
                    ..Reply::default()
                },
                out,
            ),
        }
        if let Some(reply) = self.client.take_connect_reply() {
            self.client.write_reply(reply, out);
        }
        Ok(())
    }

    /// Connects a unidirectional client, with the channels that it requests. It receives one message for all, or is disconnected.
    pub(crate) fn connect_unidirectional(&self, connect: &ConnectRequest) {
        match self.start_connect(0, connect) {
            Ok(()) => {}
            Err(rejection) => self.reject(0, rejection),
        }
        if let Some(reply) = self.client.take_connect_reply() {
            self.client.send_reply(reply);
        }
        self.worker.wake();
    }

    /// Accepts a client by its token, or requests its identity from the application.
    fn start_connect(&self, number: u32, request: &ConnectRequest) -> Result<(), Rejection> {
        let lengths = [
            (request.name.len(), ringmain_hub::limits::CLIENT_NAME_BYTES),
            (request.version.len(), ringmain_hub::limits::CLIENT_VERSION_BYTES),
        ];
        if lengths.iter().any(|(length, limit)| length > limit) {
            return Err(Rejection::Disconnect(Disconnect::BAD_REQUEST));
        }
        if let Some(proxy_client) = &self.client.proxy_client {
            let stored = proxy_client.store_headers(&self.worker.options().proxy, request);
            stored.map_err(Rejection::Disconnect)?;
        }
        if request.token.is_empty() && self.is_connect_proxied() {
            return Ok(self.proxy_connect(number, request)?);
        }
        let claims = self.verify_token(&request.token)?;
        self.accept_connect(number, request, claims, ClientId::random(self.worker.cx()))
    }

    /// Accepts a client: it is identified from now on, and its reply waits for its channels.
    pub(crate) fn accept_connect(
        &self,
        number: u32,
        request: &ConnectRequest,
        claims: ConnectClaims,
        client: ClientId,
    ) -> Result<(), Rejection> {
        let source = if request.token.is_empty() {
            GrantSource::Server
        } else {
            GrantSource::Token
        };
        let channels = self.server_subscriptions(claims.channels, source, &claims.user)?;
        let is_json = |data: &Bytes| data.is_empty() || compact(data).is_ok();
        let are_json = channels
            .values()
            .all(|(subscribe_options, _)| is_json(&subscribe_options.data))
            && is_json(&claims.data);
        if self.client.format == Format::Json && !are_json {
            return Err(Rejection::Disconnect(Disconnect::INAPPROPRIATE_PROTOCOL));
        }
        let limit = self.worker.options().connections_per_user;
        if !claims.user.is_empty() && !self.worker.try_acquire_user(&claims.user, limit) {
            return Err(Rejection::Disconnect(Disconnect::CONNECTION_LIMIT));
        }
        let (id, mut connect) = self.register_client(Identity::new(client, &claims.user, claims.info));
        connect.data = claims.data;
        (connect.expires, connect.ttl) = self.apply_expiry(id, claims.capabilities, claims.expiry);
        let requested = request
            .subs
            .iter()
            .filter(|(channel, subscribe)| !channels.contains_key(*channel) && subscribe.flag != RESUMED);
        let requested: Vec<_> = requested.filter(|_| self.client.unidirectional).collect();
        self.client.pending.start_connect(PendingConnect {
            number,
            open_channels: channels.len() + requested.len(),
            room_bytes: limits::RECOVERED_WITH_REPLY_BYTES,
            result: connect,
        });
        let subscribed = self.subscribe_from_server(id, channels, request).and_then(|()| {
            requested.into_iter().try_for_each(|(channel, subscribe)| {
                // The client could only reconnect after a gap: no error if recovery fails.
                let subscribe = SubscribeRequest {
                    channel: channel.clone(),
                    flag: subscribe.flag & COMPACTION,
                    ..subscribe.clone()
                };
                self.subscribe(id, 0, &subscribe)
            })
        });
        subscribed.map_err(|fault| Rejection::Disconnect(disconnect_for(fault)))
    }

    /// Returns the claims of a client's token, or those of a client without one.
    fn verify_token(&self, token: &str) -> Result<ConnectClaims, Rejection> {
        if token.is_empty() {
            return if self.worker.options().anonymous {
                Ok(ConnectClaims::default())
            } else {
                Err(Fault::UNAUTHORIZED.into())
            };
        }
        let now = self.worker.wall_time();
        let options = self.worker.options();
        let tokens = options.tokens.as_ref();
        let tokens = tokens.ok_or(Rejection::Disconnect(Disconnect::INVALID_TOKEN))?;
        let claims = tokens
            .verify_connect(token, self.worker.cx())
            .map_err(|error| match error {
                VerifyError::Unavailable => Rejection::Fault(Fault::INTERNAL),
                // A token that is not valid yet will be: the client retries with another one.
                VerifyError::Invalid(TokenError::Expired | TokenError::NotYetValid) => {
                    Rejection::Fault(Fault::TOKEN_EXPIRED)
                }
                VerifyError::Invalid(error) => Rejection::Disconnect(reject_token(error)),
            })?;
        if claims.expiry.is_expired(now) {
            Err(Fault::EXPIRED.into())
        } else {
            Ok(claims)
        }
    }

    /// Returns the subscriptions by the server, checked as far as possible before the client is accepted.
    fn server_subscriptions(
        &self,
        channels: BTreeMap<String, SubscribeOptions>,
        source: GrantSource,
        user: &str,
    ) -> Result<BTreeMap<String, (SubscribeOptions, GrantSource)>, Fault> {
        let options = self.worker.options();
        let requested = channels.into_iter();
        let mut channels: BTreeMap<_, _> = requested
            .map(|(name, subscribe_options)| (name, (subscribe_options, source)))
            .collect();
        if let Some(user_channel) = options.user_channel_name(user)? {
            let user_channel = channels.entry(user_channel);
            user_channel.or_insert_with(|| (SubscribeOptions::default(), GrantSource::Server));
        }
        for (channel, (subscribe_options, _)) in &channels {
            let namespace = options.namespace(channel)?;
            subscribe_options.overrides.apply_to(namespace)?;
        }
        Ok(channels)
    }

    fn register_client(&self, identity: Identity) -> (ConnId, ConnectResult) {
        let client = identity.client.to_string();
        self.client.set_identity(identity);
        let variant = Variant {
            format: self.client.format,
            unidirectional: self.client.unidirectional,
            framed: self.client.transport.borrow().takes_frames(),
        };
        let id = self.worker.add_client(variant, &self.client);
        let mut result = ConnectResult {
            client,
            version: VERSION.to_owned(),
            ping: self.worker.options().ping_interval.as_secs() as u32,
            pong: !self.client.unidirectional,
            ..ConnectResult::default()
        };
        if let (Transport::Stream(stream), false) =
            (&*self.client.transport.borrow(), self.client.unidirectional)
        {
            // Its commands arrive in requests of their own, which name the session.
            let session = self.worker.create_session(id);
            stream.session.set(Some(session.secret));
            (result.session, result.node) = (session.to_string(), self.worker.node().to_string());
        }
        (id, result)
    }

    /// Sets capabilities and expiry of a connection. Returns the expiry for its client.
    fn apply_expiry(&self, id: ConnId, capabilities: Box<[Capability]>, expiry: Expiry) -> (bool, u32) {
        // A unidirectional client cannot send another token, and one that the application renews need not.
        let is_refreshed = self.is_refresh_proxied();
        let grace = if self.client.unidirectional || is_refreshed {
            Duration::ZERO
        } else {
            limits::REFRESH_GRACE
        };
        let deadline = expiry.deadline(grace);
        let permissions = &mut *self.client.permissions.borrow_mut();
        permissions.set_capabilities(capabilities);
        let before = permissions.set_deadline(deadline);
        self.worker.set_deadline(id, None, before, deadline);
        if is_refreshed {
            (false, 0)
        } else {
            expiry.client_ttl(self.worker.wall_time())
        }
    }

    /// Returns whether a token names a channel that the client is not subscribed to, or omits one of the token before.
    fn channels_changed(&self, id: ConnId, requested: &BTreeMap<String, SubscribeOptions>) -> bool {
        let permissions = self.client.permissions.borrow();
        let is_new = |channel: &String| !self.worker.is_subscribed(id, channel);
        requested.keys().any(is_new)
            || permissions
                .token_channels()
                .any(|channel| !requested.contains_key(channel))
    }

    /// Executes the command: renews the connection by another token of the same user.
    pub(crate) fn refresh(
        &self,
        id: ConnId,
        number: u32,
        token: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let options = self.worker.options();
        let Some(tokens) = &options.tokens else {
            self.client
                .write_reply(error_reply(number, Fault::NOT_AVAILABLE), out);
            return Ok(());
        };
        if token.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let now = self.worker.wall_time();
        let claims = match tokens.verify_connect(token, self.worker.cx()) {
            Ok(claims) => claims,
            Err(VerifyError::Unavailable) => {
                // The connection remains open until it expires, and the client sends the token again before that.
                self.client.write_reply(error_reply(number, Fault::INTERNAL), out);
                return Ok(());
            }
            Err(VerifyError::Invalid(TokenError::Expired | TokenError::NotYetValid)) => {
                return Err(Disconnect::EXPIRED);
            }
            Err(VerifyError::Invalid(error)) => return Err(reject_token(error)),
        };
        let identity = self.client.identity();
        if claims.user != identity.user() {
            return Err(reject_token(TokenError::Invalid("the token is for another user")));
        }
        if claims.expiry.is_expired(now) {
            return Err(Disconnect::EXPIRED);
        }
        if self.channels_changed(id, &claims.channels) {
            // The client reconnects, and is subscribed to the channels of its token.
            return Err(Disconnect::INSUFFICIENT);
        }
        if claims.info != identity.info() {
            // For its publications, and for channels that it subscribes to from now on.
            self.client.set_identity(identity.with_info(claims.info));
        }
        let (expires, ttl) = self.apply_expiry(id, claims.capabilities, claims.expiry);
        let refresh = Some(RefreshResult {
            client: identity.client.to_string(),
            version: VERSION.to_owned(),
            expires,
            ttl,
        });
        self.client.write_reply(
            Reply {
                id: number,
                refresh,
                ..Reply::default()
            },
            out,
        );
        Ok(())
    }
}

/// Logs the reason, which is not for the client.
fn reject_token(error: TokenError) -> Disconnect {
    log::debug!("push: token of a connection rejected: {error:?}");
    Disconnect::INVALID_TOKEN
}
