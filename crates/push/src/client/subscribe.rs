//! How a client comes to listen to a channel: at its own wish, with a token for it or without, or at the server's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::mail::{EpochFilter, RecoverFrom};
use ringmain_hub::protocol::{
    ClientInfo, ConnectRequest, Fault, Reply, SubRefreshRequest, SubRefreshResult, SubscribeRequest,
};
use ringmain_hub::subscribers::ConnId;
use ringmain_jwt::TokenError;

use crate::client::commands::Session;
use crate::client::permissions::{Grant, Source, is_among};
use crate::client::{Asked, Kind};
use crate::limits;
use crate::options::{Namespace, Options};
use crate::tokens::Unproved;
use crate::tokens::claims::{Lasts, Subscribing, Terms};

/// Of a subscription's flags the one that asks for an error where recovery fails.
const REJECT_UNRECOVERED: i64 = 2;

/// What is asked for besides what the client says.
struct Asking {
    number: u32,
    kind: Kind,
    /// By a token, by the application or by the server.
    granted: Option<(Terms, Lasts)>,
    source: Source,
}

/// The position that a client recovers from. Without an epoch it has none: 0 is all that is retained, for one that may read it, and
/// another offset may be of another life of the channel.
fn since(request: &SubscribeRequest, may_read: bool) -> RecoverFrom {
    let epoch = match EpochFilter::parse(&request.epoch) {
        EpochFilter::Any if request.offset > 0 || !may_read => EpochFilter::Foreign,
        epoch => epoch,
    };
    RecoverFrom {
        offset: request.offset,
        epoch,
    }
}

impl Session {
    /// Carries out the command.
    pub(crate) fn subscribe(&self, id: ConnId, number: u32, request: &SubscribeRequest) -> Result<(), Fault> {
        if request.tf.is_some() {
            // Who wants some publications is not to be sent all.
            return Err(Fault::NOT_AVAILABLE);
        }
        let options = self.desk.options();
        if request.token.is_empty() && self.is_asked_about(&options, &request.channel)? {
            return match self.seat.bare {
                // The application has heard of what it named, and has not given it.
                true => Err(Fault::PERMISSION_DENIED),
                false => self.ask_subscribe(id, number, request),
            };
        }
        let (namespace, granted) = match request.token.is_empty() {
            true => {
                let rights = self.seat.rights.borrow();
                let identity = self.seat.identity();
                let reach = rights.reach(&options, &request.channel, identity.user())?;
                reach.may(true, |cap| cap.subscribe)?;
                (*reach.namespace, None)
            }
            false => {
                let namespace = *options.namespace(&request.channel)?;
                let gives = self.shown_for(&request.channel, &request.token)?;
                (namespace, Some((gives.terms, gives.lasts)))
            }
        };
        let kind = match self.seat.bare {
            true => Kind::Connecting,
            false => Kind::Own,
        };
        let asking = Asking {
            number,
            kind,
            granted,
            source: Source::Client,
        };
        self.ask(id, &namespace, request, asking)
    }

    /// Whether the application says who may subscribe to a channel without a token for it.
    fn is_asked_about(&self, options: &Options, channel: &str) -> Result<bool, Fault> {
        if !options.namespace(channel)?.subscribe_proxy || channel.contains('#') {
            return Ok(false);
        }
        let rights = self.seat.rights.borrow();
        let may = rights.grant(channel).is_some() || rights.cap(channel).is_some_and(|cap| cap.subscribe);
        Ok(!may && !channel.starts_with('$'))
    }

    /// Subscribes a client that the application lets.
    pub(crate) fn subscribe_granted(
        &self,
        id: ConnId,
        number: u32,
        request: &SubscribeRequest,
        granted: (Terms, Lasts),
    ) -> Result<(), Fault> {
        let options = self.desk.options();
        let asking = Asking {
            number,
            kind: Kind::Own,
            granted: Some(granted),
            source: Source::Client,
        };
        self.ask(id, options.namespace(&request.channel)?, request, asking)
    }

    /// Subscribes a client that connects to what the server says.
    pub(crate) fn subscribe_to(
        &self,
        id: ConnId,
        channels: BTreeMap<String, (Terms, Source)>,
        connect: &ConnectRequest,
    ) -> Result<(), Fault> {
        let options = self.desk.options();
        for (channel, (terms, source)) in channels {
            let namespace = options.namespace(&channel)?;
            let stood = connect.subs.get(&channel);
            let request = SubscribeRequest {
                recover: stood.is_some_and(|stood| stood.recover),
                epoch: stood.map(|stood| stood.epoch.clone()).unwrap_or_default(),
                offset: stood.map_or(0, |stood| stood.offset),
                channel,
                ..SubscribeRequest::default()
            };
            let asking = Asking {
                number: 0,
                kind: Kind::Connecting,
                granted: Some((terms, Lasts::default())),
                source,
            };
            self.ask(id, namespace, &request, asking)?;
        }
        Ok(())
    }

    /// Subscribes a client that is connected, since the server wants it so. One that listens already goes on as it does, and one
    /// that listens to as many channels as it may does not.
    pub(crate) fn be_subscribed(&self, id: ConnId, channel: &str, terms: Terms) -> Result<(), Fault> {
        let options = self.desk.options();
        let namespace = options.namespace(channel)?;
        let request = SubscribeRequest {
            channel: channel.to_owned(),
            ..SubscribeRequest::default()
        };
        let asking = Asking {
            number: 0,
            kind: Kind::Pushed,
            granted: Some((terms, Lasts::default())),
            source: Source::Server,
        };
        self.ask(id, namespace, &request, asking)
    }

    /// What a client is given by a token for a channel.
    fn shown_for(&self, channel: &str, token: &str) -> Result<Subscribing, Fault> {
        let refused = |why| {
            log::debug!("push: a subscription's token is refused: {why}");
            Fault::PERMISSION_DENIED
        };
        let options = self.desk.options();
        let tokens = options.tokens.as_ref();
        let tokens = tokens.ok_or_else(|| refused("no tokens are known"))?;
        let now = self.desk.cx.wall();
        let gives = tokens
            .subscribing(token, &self.desk.cx)
            .map_err(|unproved| match unproved {
                Unproved::Unavailable => Fault::INTERNAL,
                Unproved::Wrong(TokenError::Expired | TokenError::NotYetValid) => Fault::TOKEN_EXPIRED,
                Unproved::Wrong(TokenError::Invalid(why)) => refused(why),
            })?;
        let identity = self.seat.identity();
        if gives.channel != channel {
            return Err(refused("the token is for another channel"));
        }
        if gives.user != identity.user() || !(gives.client.is_empty() || identity.client.is(&gives.client)) {
            return Err(refused("the token is for somebody else"));
        }
        if !is_among(channel, identity.user()) {
            return Err(refused("the channel is for others"));
        }
        match gives.lasts.is_over(now) {
            true => Err(Fault::EXPIRED),
            false => Ok(gives),
        }
    }

    fn ask(
        &self,
        id: ConnId,
        namespace: &Namespace,
        request: &SubscribeRequest,
        asking: Asking,
    ) -> Result<(), Fault> {
        let is_granted = asking.granted.is_some();
        let (terms, lasts) = asking.granted.unwrap_or_default();
        let shape = terms.overrides.over(namespace)?;
        let may_read = self.may_read(namespace, &request.channel, is_granted);
        let is_kept = namespace.rules.history.is_some();
        let recovery = shape
            .recovery
            .unwrap_or(namespace.recovery || (request.recoverable && may_read));
        let recovers = request.recover && terms.overrides.recovery != Some(false);
        let may_recover = (is_kept && recovery) || namespace.shows_last();
        let said = (recovers && may_recover).then(|| since(request, may_read));
        let since = said.or_else(|| namespace.shows_last().then_some(RecoverFrom::BEGINNING));
        let is_told = namespace.rules.presence || namespace.rules.join_leave;
        let info = (shape.is_shown && is_told).then(|| self.info_of(&terms));
        let channel: Arc<str> = Arc::from(&*request.channel);
        self.desk
            .local
            .borrow_mut()
            .subscribe_as(id, &channel, namespace.rules, since, info)?;
        let is_refreshed = lasts.until.is_some() && self.is_sub_refreshed(&channel);
        if is_granted {
            // Who only listens cannot show another token, and whom the application is asked about need not.
            let grace = match self.seat.bare || is_refreshed {
                true => Duration::ZERO,
                false => limits::REFRESH_WITHIN,
            };
            let grant = Grant {
                channel: Arc::clone(&channel),
                info: terms.info,
                ends: lasts.ends(grace),
                source: asking.source,
            };
            self.desk.due(id, Some(&channel), None, grant.ends);
            self.seat.rights.borrow_mut().add(grant);
        }
        self.seat.pending.ask(Asked {
            channel,
            number: asking.number,
            kind: asking.kind,
            recovers,
            may_recover: recovers && may_recover,
            from: request.offset,
            is_recoverable: is_kept && recovery,
            is_positioned: namespace.tells_gaps()
                && shape
                    .positioning
                    .unwrap_or(recovery || request.positioned || request.recoverable),
            wants_all: request.flag & REJECT_UNRECOVERED != 0,
            data: terms.data,
            lasts: if is_refreshed { Lasts::default() } else { lasts },
        });
        self.seat.begins();
        Ok(())
    }

    /// Whether the client may read what a channel retains: by its namespace where it may subscribe, or by a capability.
    fn may_read(&self, namespace: &Namespace, channel: &str, is_granted: bool) -> bool {
        let rights = self.seat.rights.borrow();
        let is_open = is_granted
            || rights.grant(channel).is_some()
            || namespace.listen.lets_in(self.seat.identity().user());
        (is_open && namespace.history) || rights.cap(channel).is_some_and(|cap| cap.history)
    }

    /// Who it is to the others in a channel.
    fn info_of(&self, terms: &Terms) -> Arc<ClientInfo> {
        Arc::new(self.seat.identity().told(terms.info.clone()))
    }

    /// Carries out the command: a subscription goes on by another token.
    pub(crate) fn sub_refresh(
        &self,
        id: ConnId,
        number: u32,
        request: &SubRefreshRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let channel = &*request.channel;
        self.desk.options().namespace(channel)?;
        if request.token.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        let gives = self.shown_for(channel, &request.token)?;
        let rights = &mut *self.seat.rights.borrow_mut();
        // One that it has no token for does not end, and another one is not to make it.
        let grant = rights
            .grant_mut(channel)
            .filter(|grant| grant.source == Source::Client);
        let grant = grant.ok_or(Fault::PERMISSION_DENIED)?;
        let ends = gives.lasts.ends(limits::REFRESH_WITHIN);
        let before = std::mem::replace(&mut grant.ends, ends);
        self.desk.due(id, Some(&grant.channel), before, ends);
        let (expires, ttl) = gives.lasts.told(self.desk.cx.wall());
        let sub_refresh = Some(SubRefreshResult { expires, ttl });
        self.seat.write(
            Reply {
                id: number,
                sub_refresh,
                ..Reply::default()
            },
            out,
        );
        Ok(())
    }
}
