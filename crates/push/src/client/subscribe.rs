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

use crate::client::commands::CommandHandler;
use crate::client::permissions::{Grant, GrantSource, is_channel_user};
use crate::client::{PendingSubscribe, SubscribeReply};
use crate::limits;
use crate::options::{Namespace, Options};
use crate::tokens::VerifyError;
use crate::tokens::claims::{Expiry, SubscribeClaims, SubscribeOptions};

/// Of a subscription's flags the one that asks for an error where recovery fails.
const REJECT_UNRECOVERED: i64 = 2;

/// What is asked for besides what the client says.
struct SubscribeIntent {
    number: u32,
    kind: SubscribeReply,
    /// By a token, by the application or by the server.
    granted: Option<(SubscribeOptions, Expiry)>,
    source: GrantSource,
}

/// The position that a client is_recovering from. Without an epoch it has none: 0 is all that is retained, for one that may read it, and
/// another offset may be of another life of the channel.
fn recovery_position(request: &SubscribeRequest, may_read: bool) -> RecoverFrom {
    let epoch = match EpochFilter::parse(&request.epoch) {
        EpochFilter::Any if request.offset > 0 || !may_read => EpochFilter::Foreign,
        epoch => epoch,
    };
    RecoverFrom {
        offset: request.offset,
        epoch,
    }
}

impl CommandHandler {
    /// Carries out the command.
    pub(crate) fn subscribe(&self, id: ConnId, number: u32, request: &SubscribeRequest) -> Result<(), Fault> {
        if request.tf.is_some() {
            // Who wants some publications is not to be sent all.
            return Err(Fault::NOT_AVAILABLE);
        }
        let options = self.worker.options();
        if request.token.is_empty() && self.requires_proxy(&options, &request.channel)? {
            return match self.client.unidirectional {
                // The application has heard of what it named, and has not given it.
                true => Err(Fault::PERMISSION_DENIED),
                false => self.proxy_subscribe(id, number, request),
            };
        }
        let (namespace, granted) = match request.token.is_empty() {
            true => {
                let permissions = self.client.permissions.borrow();
                let identity = self.client.identity();
                let access = permissions.channel_access(&options, &request.channel, identity.user())?;
                access.require(true, |capability| capability.subscribe)?;
                (*access.namespace, None)
            }
            false => {
                let namespace = *options.namespace(&request.channel)?;
                let claims = self.verify_channel_token(&request.channel, &request.token)?;
                (namespace, Some((claims.options, claims.expiry)))
            }
        };
        let kind = match self.client.unidirectional {
            true => SubscribeReply::Connect,
            false => SubscribeReply::Command,
        };
        let intent = SubscribeIntent {
            number,
            kind,
            granted,
            source: GrantSource::Client,
        };
        self.start_subscribe(id, &namespace, request, intent)
    }

    /// Whether the application says who may subscribe to a channel without a token for it.
    fn requires_proxy(&self, options: &Options, channel: &str) -> Result<bool, Fault> {
        if !options.namespace(channel)?.subscribe_proxy || channel.contains('#') {
            return Ok(false);
        }
        let permissions = self.client.permissions.borrow();
        let may = permissions.find_grant(channel).is_some()
            || permissions
                .capability(channel)
                .is_some_and(|capability| capability.subscribe);
        Ok(!may && !channel.starts_with('$'))
    }

    /// SubscribeResponse a client that the application lets.
    pub(crate) fn subscribe_granted(
        &self,
        id: ConnId,
        number: u32,
        request: &SubscribeRequest,
        granted: (SubscribeOptions, Expiry),
    ) -> Result<(), Fault> {
        let options = self.worker.options();
        let intent = SubscribeIntent {
            number,
            kind: SubscribeReply::Command,
            granted: Some(granted),
            source: GrantSource::Client,
        };
        self.start_subscribe(id, options.namespace(&request.channel)?, request, intent)
    }

    /// SubscribeResponse a client that connects to what the server says.
    pub(crate) fn subscribe_from_server(
        &self,
        id: ConnId,
        channels: BTreeMap<String, (SubscribeOptions, GrantSource)>,
        connect: &ConnectRequest,
    ) -> Result<(), Fault> {
        let options = self.worker.options();
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
            let intent = SubscribeIntent {
                number: 0,
                kind: SubscribeReply::Connect,
                granted: Some((terms, Expiry::default())),
                source,
            };
            self.start_subscribe(id, namespace, &request, intent)?;
        }
        Ok(())
    }

    /// SubscribeResponse a client that is connected, since the server wants it so. One that listens already goes on as it does, and one
    /// that listens to as many channels as it may does not.
    pub(crate) fn subscribe_by_server(
        &self,
        id: ConnId,
        channel: &str,
        terms: SubscribeOptions,
    ) -> Result<(), Fault> {
        let options = self.worker.options();
        let namespace = options.namespace(channel)?;
        let request = SubscribeRequest {
            channel: channel.to_owned(),
            ..SubscribeRequest::default()
        };
        let intent = SubscribeIntent {
            number: 0,
            kind: SubscribeReply::Push,
            granted: Some((terms, Expiry::default())),
            source: GrantSource::Server,
        };
        self.start_subscribe(id, namespace, &request, intent)
    }

    /// What a client is given by a token for a channel.
    fn verify_channel_token(&self, channel: &str, token: &str) -> Result<SubscribeClaims, Fault> {
        let refused = |why| {
            log::debug!("push: a subscription's token is refused: {why}");
            Fault::PERMISSION_DENIED
        };
        let options = self.worker.options();
        let tokens = options.tokens.as_ref();
        let tokens = tokens.ok_or_else(|| refused("no tokens are known"))?;
        let now = self.worker.wall_time();
        let claims = tokens
            .verify_subscribe(token, self.worker.cx())
            .map_err(|unproved| match unproved {
                VerifyError::Unavailable => Fault::INTERNAL,
                VerifyError::Invalid(TokenError::Expired | TokenError::NotYetValid) => Fault::TOKEN_EXPIRED,
                VerifyError::Invalid(TokenError::Invalid(why)) => refused(why),
            })?;
        let identity = self.client.identity();
        if claims.channel != channel {
            return Err(refused("the token is for another channel"));
        }
        if claims.user != identity.user()
            || !(claims.client.is_empty() || identity.client.matches(&claims.client))
        {
            return Err(refused("the token is for somebody else"));
        }
        if !is_channel_user(channel, identity.user()) {
            return Err(refused("the channel is for others"));
        }
        match claims.expiry.is_expired(now) {
            true => Err(Fault::EXPIRED),
            false => Ok(claims),
        }
    }

    fn start_subscribe(
        &self,
        id: ConnId,
        namespace: &Namespace,
        request: &SubscribeRequest,
        intent: SubscribeIntent,
    ) -> Result<(), Fault> {
        let is_granted = intent.granted.is_some();
        let (terms, expiry) = intent.granted.unwrap_or_default();
        let shape = terms.overrides.apply_to(namespace)?;
        let may_read = self.may_read_history(namespace, &request.channel, is_granted);
        let is_kept = namespace.channel_options.history.is_some();
        let recovery = shape
            .recovery
            .unwrap_or(namespace.recovery || (request.recoverable && may_read));
        let is_recovering = request.recover && terms.overrides.recovery != Some(false);
        let may_recover = (is_kept && recovery) || namespace.sends_latest();
        let said = (is_recovering && may_recover).then(|| recovery_position(request, may_read));
        let since = said.or_else(|| namespace.sends_latest().then_some(RecoverFrom::BEGINNING));
        let is_told = namespace.channel_options.presence || namespace.channel_options.join_leave;
        let info = (shape.is_visible && is_told).then(|| self.client_info(&terms));
        let channel: Arc<str> = Arc::from(&*request.channel);
        self.worker
            .subscribe(id, &channel, namespace.channel_options, since, info)?;
        let is_refreshed = expiry.until.is_some() && self.is_sub_refresh_proxied(&channel);
        if is_granted {
            // Who only listens cannot show another token, and whom the application is asked about need not.
            let grace = match self.client.unidirectional || is_refreshed {
                true => Duration::ZERO,
                false => limits::REFRESH_GRACE,
            };
            let grant = Grant {
                channel: Arc::clone(&channel),
                info: terms.info,
                deadline: expiry.deadline(grace),
                source: intent.source,
            };
            self.worker.set_deadline(id, Some(&channel), None, grant.deadline);
            self.client.permissions.borrow_mut().add_grant(grant);
        }
        self.client.pending.add_subscribe(PendingSubscribe {
            channel,
            number: intent.number,
            kind: intent.kind,
            is_recovering,
            may_recover: is_recovering && may_recover,
            since_offset: request.offset,
            is_recoverable: is_kept && recovery,
            is_positioned: namespace.reports_gaps()
                && shape
                    .positioning
                    .unwrap_or(recovery || request.positioned || request.recoverable),
            rejects_unrecovered: request.flag & REJECT_UNRECOVERED != 0,
            data: terms.data,
            expiry: if is_refreshed { Expiry::default() } else { expiry },
        });
        self.client.count_in_flight();
        Ok(())
    }

    /// Whether the client may read what a channel retains: by its namespace where it may subscribe, or by a capability.
    fn may_read_history(&self, namespace: &Namespace, channel: &str, is_granted: bool) -> bool {
        let permissions = self.client.permissions.borrow();
        let is_open = is_granted
            || permissions.find_grant(channel).is_some()
            || namespace
                .subscribe_access
                .allows_user(self.client.identity().user());
        (is_open && namespace.history)
            || permissions
                .capability(channel)
                .is_some_and(|capability| capability.history)
    }

    /// Who it is to the others in a channel.
    fn client_info(&self, terms: &SubscribeOptions) -> Arc<ClientInfo> {
        Arc::new(self.client.identity().client_info(terms.info.clone()))
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
        self.worker.options().namespace(channel)?;
        if request.token.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        let claims = self.verify_channel_token(channel, &request.token)?;
        let permissions = &mut *self.client.permissions.borrow_mut();
        // One that it has no token for does not end, and another one is not to make it.
        let grant = permissions
            .find_grant_mut(channel)
            .filter(|grant| grant.source == GrantSource::Client);
        let grant = grant.ok_or(Fault::PERMISSION_DENIED)?;
        let deadline = claims.expiry.deadline(limits::REFRESH_GRACE);
        let before = std::mem::replace(&mut grant.deadline, deadline);
        self.worker
            .set_deadline(id, Some(&grant.channel), before, deadline);
        let (expires, ttl) = claims.expiry.client_ttl(self.worker.wall_time());
        let sub_refresh = Some(SubRefreshResult { expires, ttl });
        self.client.write_reply(
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
