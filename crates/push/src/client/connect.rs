//! How a client is let in, and stays: who it is, what the server subscribes it to, when its time is over.
//!
//! ```text
//! connect ─▶ (token, or the application's word) ─▶ known ─▶ subscriptions of the server's, and those that one who only listens names ─▶ told of all at once
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
use crate::client::{PendingConnect, disconnect_for, error_reply};
use crate::limits;
use crate::tokens::VerifyError;
use crate::tokens::claims::{Capability, ConnectClaims, Expiry, SubscribeOptions};
use crate::transport::Transport;
use crate::transport::event_id::RESUMED;

const VERSION: &str = concat!("ringmain ", env!("CARGO_PKG_VERSION"));

impl CommandHandler {
    /// Carries out the command.
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
            Err(Rejection::Disconnect(why) | Rejection::Custom(why, _)) => return Err(why),
            Err(Rejection::Error(error)) => self.client.write_reply(
                Reply {
                    id: number,
                    error: Some(error),
                    ..Reply::default()
                },
                out,
            ),
        }
        if let Some(welcome) = self.client.take_connect_reply() {
            self.client.write_reply(welcome, out);
        }
        Ok(())
    }

    /// Lets in a client whose transport only brings, with the channels that it names. It is told of all at once, or
    /// disconnected.
    pub(crate) fn connect_unidirectional(&self, connect: &ConnectRequest) {
        match self.start_connect(0, connect) {
            Ok(()) => {}
            Err(why) => self.reject(0, why),
        }
        if let Some(welcome) = self.client.take_connect_reply() {
            self.client.send_reply(welcome);
        }
        self.worker.wake();
    }

    /// Lets a client in, or asks who it is.
    fn start_connect(&self, number: u32, request: &ConnectRequest) -> Result<(), Rejection> {
        let lengths = [
            (request.name.len(), ringmain_hub::limits::CLIENT_NAME_BYTES),
            (request.version.len(), ringmain_hub::limits::CLIENT_VERSION_BYTES),
        ];
        if lengths.iter().any(|(length, most)| length > most) {
            return Err(Rejection::Disconnect(Disconnect::BAD_REQUEST));
        }
        if let Some(proxy_client) = &self.client.proxy_client {
            let heard = proxy_client.store_headers(&self.worker.options().proxy, request);
            heard.map_err(Rejection::Disconnect)?;
        }
        if request.token.is_empty() && self.is_connect_proxied() {
            return Ok(self.proxy_connect(number, request)?);
        }
        let claims = self.verify_token(&request.token)?;
        self.accept_connect(number, request, claims, ClientId::random(self.worker.cx()))
    }

    /// Lets a client in: from here on it is known, and what comes of its channels is waited for.
    pub(crate) fn accept_connect(
        &self,
        number: u32,
        request: &ConnectRequest,
        claims: ConnectClaims,
        client: ClientId,
    ) -> Result<(), Rejection> {
        let source = match request.token.is_empty() {
            true => GrantSource::Server,
            false => GrantSource::Token,
        };
        let channels = self.server_subscriptions(claims.channels, source, &claims.user)?;
        let is_said = |data: &Bytes| data.is_empty() || compact(data).is_ok();
        let are_said = channels.values().all(|(terms, _)| is_said(&terms.data)) && is_said(&claims.data);
        if self.client.format == Format::Json && !are_said {
            return Err(Rejection::Disconnect(Disconnect::INAPPROPRIATE_PROTOCOL));
        }
        let most = self.worker.options().connections_per_user;
        if !claims.user.is_empty() && !self.worker.try_acquire_user(&claims.user, most) {
            return Err(Rejection::Disconnect(Disconnect::CONNECTION_LIMIT));
        }
        let (id, mut connect) = self.register_client(Identity::new(client, &claims.user, claims.info));
        connect.data = claims.data;
        (connect.expires, connect.ttl) = self.apply_expiry(id, claims.capabilities, claims.expiry);
        let named = request
            .subs
            .iter()
            .filter(|(channel, subscribe)| !channels.contains_key(*channel) && subscribe.flag != RESUMED);
        let named: Vec<_> = named.filter(|_| self.client.unidirectional).collect();
        self.client.pending.start_connect(PendingConnect {
            number,
            open_channels: channels.len() + named.len(),
            room_bytes: limits::RECOVERED_WITH_REPLY_BYTES,
            result: connect,
        });
        let asked = self.subscribe_from_server(id, channels, request).and_then(|()| {
            named.into_iter().try_for_each(|(channel, subscribe)| {
                // It could not do anything about a gap but connect again.
                let subscribe = SubscribeRequest {
                    channel: channel.clone(),
                    flag: 0,
                    ..subscribe.clone()
                };
                self.subscribe(id, 0, &subscribe)
            })
        });
        asked.map_err(|fault| Rejection::Disconnect(disconnect_for(fault)))
    }

    /// What a client is given by the token that it shows, or without one.
    fn verify_token(&self, token: &str) -> Result<ConnectClaims, Rejection> {
        if token.is_empty() {
            return match self.worker.options().anonymous {
                true => Ok(ConnectClaims::default()),
                false => Err(Fault::UNAUTHORIZED.into()),
            };
        }
        let now = self.worker.wall_time();
        let options = self.worker.options();
        let tokens = options.tokens.as_ref();
        let tokens = tokens.ok_or(Rejection::Disconnect(Disconnect::INVALID_TOKEN))?;
        let claims = tokens
            .verify_connect(token, self.worker.cx())
            .map_err(|unproved| match unproved {
                VerifyError::Unavailable => Rejection::Fault(Fault::INTERNAL),
                // One that does not hold yet will: the client tries again, with another one.
                VerifyError::Invalid(TokenError::Expired | TokenError::NotYetValid) => {
                    Rejection::Fault(Fault::TOKEN_EXPIRED)
                }
                VerifyError::Invalid(wrong) => Rejection::Disconnect(reject_token(wrong)),
            })?;
        match claims.expiry.is_expired(now) {
            true => Err(Fault::EXPIRED.into()),
            false => Ok(claims),
        }
    }

    /// What the server subscribes it to: all of it can be, as far as can be known.
    fn server_subscriptions(
        &self,
        channels: BTreeMap<String, SubscribeOptions>,
        source: GrantSource,
        user: &str,
    ) -> Result<BTreeMap<String, (SubscribeOptions, GrantSource)>, Fault> {
        let options = self.worker.options();
        let named = channels.into_iter();
        let mut channels: BTreeMap<_, _> = named.map(|(name, terms)| (name, (terms, source))).collect();
        if let Some(own) = options.user_channel_name(user)? {
            let own = channels.entry(own);
            own.or_insert_with(|| (SubscribeOptions::default(), GrantSource::Server));
        }
        for (channel, (terms, _)) in &channels {
            let namespace = options.namespace(channel)?;
            terms.overrides.apply_to(namespace)?;
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
            // What it says comes by requests of their own, which say whose they are.
            let session = self.worker.create_session(id);
            stream.session.set(Some(session.secret));
            (result.session, result.node) = (session.to_string(), self.worker.node().to_string());
        }
        (id, result)
    }

    /// From now on it may this, and for so long. Returns what the client is told of the latter.
    fn apply_expiry(&self, id: ConnId, capabilities: Box<[Capability]>, expiry: Expiry) -> (bool, u32) {
        // Who only listens has no way to show another token, and whom the application is asked about need not.
        let is_refreshed = self.is_refresh_proxied();
        let grace = match self.client.unidirectional || is_refreshed {
            true => Duration::ZERO,
            false => limits::REFRESH_GRACE,
        };
        let deadline = expiry.deadline(grace);
        let permissions = &mut *self.client.permissions.borrow_mut();
        permissions.set_capabilities(capabilities);
        let before = permissions.set_deadline(deadline);
        self.worker.set_deadline(id, None, before, deadline);
        match is_refreshed {
            true => (false, 0),
            false => expiry.client_ttl(self.worker.wall_time()),
        }
    }

    /// Whether a token names a channel that the client is not subscribed to, or does not name one that it was subscribed to by the
    /// token before.
    fn channels_changed(&self, id: ConnId, named: &BTreeMap<String, SubscribeOptions>) -> bool {
        let permissions = self.client.permissions.borrow();
        let is_new = |channel: &String| !self.worker.is_subscribed(id, channel);
        named.keys().any(is_new)
            || permissions
                .token_channels()
                .any(|channel| !named.contains_key(channel))
    }

    /// Carries out the command: the connection goes on by another token of the same user.
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
                // It goes on until its time is over, and shows the token again before that.
                self.client.write_reply(error_reply(number, Fault::INTERNAL), out);
                return Ok(());
            }
            Err(VerifyError::Invalid(TokenError::Expired | TokenError::NotYetValid)) => {
                return Err(Disconnect::EXPIRED);
            }
            Err(VerifyError::Invalid(wrong)) => return Err(reject_token(wrong)),
        };
        let identity = self.client.identity();
        if claims.user != identity.user() {
            return Err(reject_token(TokenError::Invalid("the token is of another user")));
        }
        if claims.expiry.is_expired(now) {
            return Err(Disconnect::EXPIRED);
        }
        if self.channels_changed(id, &claims.channels) {
            // It connects again, and is subscribed to what the token names now.
            return Err(Disconnect::INSUFFICIENT);
        }
        if claims.info != identity.info() {
            // For what it publishes, and for channels that it subscribes to from now on.
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

/// Tells the owner why, which is not for the client.
fn reject_token(wrong: TokenError) -> Disconnect {
    log::debug!("push: a connection's token is refused: {wrong:?}");
    Disconnect::INVALID_TOKEN
}
