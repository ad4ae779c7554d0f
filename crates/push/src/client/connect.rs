//! How a client is let in, and stays: who it is, what the server subscribes it to, when its time is over.
//!
//! ```text
//! connect ─▶ (token, or the application's word) ─▶ known ─▶ subscriptions of the server's, and those that one who only listens names ─▶ told of all at once
//! ```

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::protocol::{
    ConnectRequest, ConnectResult, Disconnect, Fault, Format, RefreshResult, Reply, SubscribeRequest,
    Variant, compact,
};
use ringmain_hub::subscribers::ConnId;
use ringmain_jwt::TokenError;

use crate::app_proxy::responses::Refused;
use crate::client::commands::Session;
use crate::client::identity::{ClientId, Identity};
use crate::client::permissions::Source;
use crate::client::{Joining, disconnect_for, failed};
use crate::limits;
use crate::tokens::Unproved;
use crate::tokens::claims::{Cap, Connecting, Lasts, Terms};
use crate::transport::Outlet;
use crate::transport::event_id::RESUMED;

const VERSION: &str = concat!("ringmain ", env!("CARGO_PKG_VERSION"));

impl Session {
    /// Carries out the command.
    pub(crate) fn connect(
        &self,
        number: u32,
        connect: &ConnectRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        if self.seat.id.get().is_some() || number == 0 {
            return Err(Disconnect::BAD_REQUEST);
        }
        if self.desk.cx.is_draining() {
            return Err(Disconnect::SHUTDOWN);
        }
        match self.begin(number, connect) {
            Ok(()) => {}
            Err(Refused::Fault(fault)) => self.seat.write(failed(number, fault), out),
            Err(Refused::Disconnect(why) | Refused::Away(why, _)) => return Err(why),
            Err(Refused::Error(error)) => self.seat.write(
                Reply {
                    id: number,
                    error: Some(error),
                    ..Reply::default()
                },
                out,
            ),
        }
        if let Some(welcome) = self.seat.welcome() {
            self.seat.write(welcome, out);
        }
        Ok(())
    }

    /// Lets in a client whose transport only brings, with the channels that it names. It is told of all at once, or
    /// disconnected.
    pub(crate) fn join(&self, connect: &ConnectRequest) {
        match self.begin(0, connect) {
            Ok(()) => {}
            Err(why) => self.refuse(0, why),
        }
        if let Some(welcome) = self.seat.welcome() {
            self.seat.say(welcome);
        }
        self.desk.ring();
    }

    /// Lets a client in, or asks who it is.
    fn begin(&self, number: u32, request: &ConnectRequest) -> Result<(), Refused> {
        let lengths = [
            (request.name.len(), ringmain_hub::limits::CLIENT_NAME_BYTES),
            (request.version.len(), ringmain_hub::limits::CLIENT_VERSION_BYTES),
        ];
        if lengths.iter().any(|(length, most)| length > most) {
            return Err(Refused::Disconnect(Disconnect::BAD_REQUEST));
        }
        if let Some(asker) = &self.seat.asker {
            let heard = asker.hear(&self.desk.options().proxy, request);
            heard.map_err(Refused::Disconnect)?;
        }
        if request.token.is_empty() && self.asks_who() {
            return Ok(self.ask_who(number, request)?);
        }
        let gives = self.shown(&request.token)?;
        self.let_in(number, request, gives, ClientId::draw(&self.desk.cx))
    }

    /// Lets a client in: from here on it is known, and what comes of its channels is waited for.
    pub(crate) fn let_in(
        &self,
        number: u32,
        request: &ConnectRequest,
        gives: Connecting,
        client: ClientId,
    ) -> Result<(), Refused> {
        let source = match request.token.is_empty() {
            true => Source::Server,
            false => Source::Token,
        };
        let channels = self.servers(gives.channels, source, &gives.user)?;
        let is_said = |data: &Bytes| data.is_empty() || compact(data).is_ok();
        let are_said = channels.values().all(|(terms, _)| is_said(&terms.data)) && is_said(&gives.data);
        if self.seat.format == Format::Json && !are_said {
            return Err(Refused::Disconnect(Disconnect::INAPPROPRIATE_PROTOCOL));
        }
        let most = self.desk.options().connections_per_user;
        if !gives.user.is_empty() && !self.desk.admission.admit(&gives.user, most) {
            return Err(Refused::Disconnect(Disconnect::CONNECTION_LIMIT));
        }
        let (id, mut connect) = self.enter(Identity::new(client, &gives.user, gives.info));
        connect.data = gives.data;
        (connect.expires, connect.ttl) = self.bounded(id, gives.caps, gives.lasts);
        let named = request
            .subs
            .iter()
            .filter(|(channel, subscribe)| !channels.contains_key(*channel) && subscribe.flag != RESUMED);
        let named: Vec<_> = named.filter(|_| self.seat.bare).collect();
        self.seat.pending.join(Joining {
            number,
            left: channels.len() + named.len(),
            room: limits::RECOVERED_WITH_REPLY_BYTES,
            connect,
        });
        let asked = self.subscribe_to(id, channels, request).and_then(|()| {
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
        asked.map_err(|fault| Refused::Disconnect(disconnect_for(fault)))
    }

    /// What a client is given by the token that it shows, or without one.
    fn shown(&self, token: &str) -> Result<Connecting, Refused> {
        if token.is_empty() {
            return match self.desk.options().anonymous {
                true => Ok(Connecting::default()),
                false => Err(Fault::UNAUTHORIZED.into()),
            };
        }
        let now = self.desk.cx.wall();
        let options = self.desk.options();
        let tokens = options.tokens.as_ref();
        let tokens = tokens.ok_or(Refused::Disconnect(Disconnect::INVALID_TOKEN))?;
        let gives = tokens
            .connecting(token, &self.desk.cx)
            .map_err(|unproved| match unproved {
                Unproved::Unavailable => Refused::Fault(Fault::INTERNAL),
                // One that does not hold yet will: the client tries again, with another one.
                Unproved::Wrong(TokenError::Expired | TokenError::NotYetValid) => {
                    Refused::Fault(Fault::TOKEN_EXPIRED)
                }
                Unproved::Wrong(wrong) => Refused::Disconnect(invalid(wrong)),
            })?;
        match gives.lasts.is_over(now) {
            true => Err(Fault::EXPIRED.into()),
            false => Ok(gives),
        }
    }

    /// What the server subscribes it to: all of it can be, as far as can be known.
    fn servers(
        &self,
        channels: BTreeMap<String, Terms>,
        source: Source,
        user: &str,
    ) -> Result<BTreeMap<String, (Terms, Source)>, Fault> {
        let options = self.desk.options();
        let named = channels.into_iter();
        let mut channels: BTreeMap<_, _> = named.map(|(name, terms)| (name, (terms, source))).collect();
        if let Some(own) = options.channel_of(user)? {
            let own = channels.entry(own);
            own.or_insert_with(|| (Terms::default(), Source::Server));
        }
        for (channel, (terms, _)) in &channels {
            let namespace = options.namespace(channel)?;
            terms.overrides.over(namespace)?;
        }
        Ok(channels)
    }

    fn enter(&self, identity: Identity) -> (ConnId, ConnectResult) {
        let client = identity.client.to_string();
        self.seat.identify(identity);
        let variant = Variant {
            format: self.seat.format,
            unidirectional: self.seat.bare,
            framed: self.seat.outlet.borrow().takes_frames(),
        };
        let id = self.desk.local.borrow_mut().open(variant, None);
        self.seat.id.set(Some(id));
        self.desk.seat(id, Rc::clone(&self.seat));
        let mut result = ConnectResult {
            client,
            version: VERSION.to_owned(),
            ping: self.desk.options().ping_interval.as_secs() as u32,
            pong: !self.seat.bare,
            ..ConnectResult::default()
        };
        if let (Outlet::Stream(stream), false) = (&*self.seat.outlet.borrow(), self.seat.bare) {
            // What it says comes by requests of their own, which say whose they are.
            let session = self.desk.name(id);
            stream.session.set(Some(session.secret));
            (result.session, result.node) = (session.to_string(), self.desk.node.to_string());
        }
        (id, result)
    }

    /// From now on it may this, and for so long. Returns what the client is told of the latter.
    fn bounded(&self, id: ConnId, caps: Box<[Cap]>, lasts: Lasts) -> (bool, u32) {
        // Who only listens has no way to show another token, and whom the application is asked about need not.
        let is_refreshed = self.is_refreshed();
        let grace = match self.seat.bare || is_refreshed {
            true => Duration::ZERO,
            false => limits::REFRESH_WITHIN,
        };
        let ends = lasts.ends(grace);
        let rights = &mut *self.seat.rights.borrow_mut();
        rights.set_caps(caps);
        let before = rights.set_ends(ends);
        self.desk.due(id, None, before, ends);
        match is_refreshed {
            true => (false, 0),
            false => lasts.told(self.desk.cx.wall()),
        }
    }

    /// Whether a token names a channel that the client is not subscribed to, or does not name one that it was subscribed to by the
    /// token before.
    fn has_other_channels(&self, id: ConnId, named: &BTreeMap<String, Terms>) -> bool {
        let local = self.desk.local.borrow();
        let rights = self.seat.rights.borrow();
        let is_new = |channel: &String| !local.is_subscribed(id, channel);
        named.keys().any(is_new) || rights.by_token().any(|channel| !named.contains_key(channel))
    }

    /// Carries out the command: the connection goes on by another token of the same user.
    pub(crate) fn refresh(
        &self,
        id: ConnId,
        number: u32,
        token: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), Disconnect> {
        let options = self.desk.options();
        let Some(tokens) = &options.tokens else {
            self.seat.write(failed(number, Fault::NOT_AVAILABLE), out);
            return Ok(());
        };
        if token.is_empty() {
            return Err(Disconnect::BAD_REQUEST);
        }
        let now = self.desk.cx.wall();
        let gives = match tokens.connecting(token, &self.desk.cx) {
            Ok(gives) => gives,
            Err(Unproved::Unavailable) => {
                // It goes on until its time is over, and shows the token again before that.
                self.seat.write(failed(number, Fault::INTERNAL), out);
                return Ok(());
            }
            Err(Unproved::Wrong(TokenError::Expired | TokenError::NotYetValid)) => {
                return Err(Disconnect::EXPIRED);
            }
            Err(Unproved::Wrong(wrong)) => return Err(invalid(wrong)),
        };
        let identity = self.seat.identity();
        if gives.user != identity.user() {
            return Err(invalid(TokenError::Invalid("the token is of another user")));
        }
        if gives.lasts.is_over(now) {
            return Err(Disconnect::EXPIRED);
        }
        if self.has_other_channels(id, &gives.channels) {
            // It connects again, and is subscribed to what the token names now.
            return Err(Disconnect::INSUFFICIENT);
        }
        if gives.info != identity.info() {
            // For what it publishes, and for channels that it subscribes to from now on.
            self.seat.identify(identity.with_info(gives.info));
        }
        let (expires, ttl) = self.bounded(id, gives.caps, gives.lasts);
        let refresh = Some(RefreshResult {
            client: identity.client.to_string(),
            version: VERSION.to_owned(),
            expires,
            ttl,
        });
        self.seat.write(
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
fn invalid(wrong: TokenError) -> Disconnect {
    log::debug!("push: a connection's token is refused: {wrong:?}");
    Disconnect::INVALID_TOKEN
}
