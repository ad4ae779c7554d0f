//! Subscribes clients to channels: on request, with or without a token for the channel, or by the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::mail::{EpochFilter, RecoverFrom};
use ringmain_hub::protocol::{
    ClientInfo, ConnectRequest, Fault, Reply, SubRefreshRequest, SubRefreshResult, SubscribeRequest,
};
use ringmain_hub::subscribers::{ConnId, SubscriptionFeatures};
use ringmain_hub::tag_filter::TagFilter;
use ringmain_jwt::TokenError;

use crate::client::commands::CommandHandler;
use crate::client::permissions::{Grant, GrantSource, is_channel_user};
use crate::client::{PendingSubscribe, SubscribeReply};
use crate::limits;
use crate::options::{Namespace, Options};
use crate::tokens::VerifyError;
use crate::tokens::claims::{Expiry, SubscribeClaims, SubscribeOptions};

/// The flag of a subscription whose pushes may have the channel's number instead of its name.
pub(super) const COMPACTION: i64 = 1;

/// The flag of a subscription that requests an error if recovery fails.
const REJECT_UNRECOVERED: i64 = 2;

/// The parameters of a subscription besides the client's request.
struct SubscribeIntent {
    number: u32,
    kind: SubscribeReply,
    /// The options of a token, the application or the server.
    granted: Option<(SubscribeOptions, Expiry)>,
    source: GrantSource,
}

/// Returns the position that a client recovers from. Without an epoch it has none: offset 0 is all that is retained, for a client that may
/// read it, and another offset may be of another epoch.
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

/// Returns the features of a subscription that the client requests and the namespace permits.
///
/// # Errors
/// [`Fault::BAD_REQUEST`]: a filter that is invalid, or that the namespace does not permit, since the client must not receive all
/// publications then; an unknown kind of deltas.
fn requested_features(
    namespace: &Namespace,
    request: &SubscribeRequest,
) -> Result<SubscriptionFeatures, Fault> {
    let options = &namespace.channel_options;
    if !matches!(&*request.delta, "" | "fossil") {
        return Err(Fault::BAD_REQUEST);
    }
    let filter = match &request.tf {
        None => None,
        Some(filter) if options.tags_filter => {
            let filter = TagFilter::new(filter).map_err(|error| {
                log::debug!("push: {error}");
                Fault::BAD_REQUEST
            })?;
            Some(Arc::new(filter))
        }
        Some(_) => return Err(Fault::BAD_REQUEST),
    };
    Ok(SubscriptionFeatures {
        delta: options.delta && !request.delta.is_empty(),
        compaction: options.compaction && request.flag & COMPACTION != 0,
        filter,
    })
}

impl CommandHandler {
    /// Executes the command.
    pub(crate) fn subscribe(&self, id: ConnId, number: u32, request: &SubscribeRequest) -> Result<(), Fault> {
        let options = self.worker.options();
        if request.token.is_empty() && self.requires_proxy(&options, &request.channel)? {
            return if self.client.unidirectional {
                // The application has received the requested channels, and has not granted this one.
                Err(Fault::PERMISSION_DENIED)
            } else {
                self.proxy_subscribe(id, number, request)
            };
        }
        let (namespace, granted) = if request.token.is_empty() {
            let permissions = self.client.permissions.borrow();
            let identity = self.client.identity();
            let access = permissions.channel_access(&options, &request.channel, identity.user())?;
            access.require(true, |capability| capability.subscribe)?;
            (*access.namespace, None)
        } else {
            let namespace = *options.namespace(&request.channel)?;
            let claims = self.verify_channel_token(&request.channel, &request.token)?;
            (namespace, Some((claims.options, claims.expiry)))
        };
        let kind = if self.client.unidirectional {
            SubscribeReply::Connect
        } else {
            SubscribeReply::Command
        };
        let intent = SubscribeIntent {
            number,
            kind,
            granted,
            source: GrantSource::Client,
        };
        self.start_subscribe(id, &namespace, request, intent)
    }

    /// Returns whether the application decides about subscriptions to a channel without a token for it.
    fn requires_proxy(&self, options: &Options, channel: &str) -> Result<bool, Fault> {
        if !options.namespace(channel)?.subscribe_proxy || channel.contains('#') {
            return Ok(false);
        }
        let permissions = self.client.permissions.borrow();
        let is_allowed = permissions.find_grant(channel).is_some()
            || permissions
                .capability(channel)
                .is_some_and(|capability| capability.subscribe);
        Ok(!is_allowed && !channel.starts_with('$'))
    }

    /// Subscribes a client with the options of the application.
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

    /// Subscribes a client that connects to the channels of the server.
    pub(crate) fn subscribe_from_server(
        &self,
        id: ConnId,
        channels: BTreeMap<String, (SubscribeOptions, GrantSource)>,
        connect: &ConnectRequest,
    ) -> Result<(), Fault> {
        let options = self.worker.options();
        for (channel, (subscribe_options, source)) in channels {
            let namespace = options.namespace(&channel)?;
            let previous = connect.subs.get(&channel);
            let request = SubscribeRequest {
                recover: previous.is_some_and(|previous| previous.recover),
                epoch: previous
                    .map(|previous| previous.epoch.clone())
                    .unwrap_or_default(),
                offset: previous.map_or(0, |previous| previous.offset),
                delta: previous
                    .map(|previous| previous.delta.clone())
                    .unwrap_or_default(),
                tf: previous.and_then(|previous| previous.tf.clone()),
                flag: previous.map_or(0, |previous| previous.flag & COMPACTION),
                channel,
                ..SubscribeRequest::default()
            };
            let intent = SubscribeIntent {
                number: 0,
                kind: SubscribeReply::Connect,
                granted: Some((subscribe_options, Expiry::default())),
                source,
            };
            self.start_subscribe(id, namespace, &request, intent)?;
        }
        Ok(())
    }

    /// Subscribes a connected client on behalf of the server. A client that is subscribed already, or at its limit of subscriptions, is not
    /// affected.
    pub(crate) fn subscribe_by_server(
        &self,
        id: ConnId,
        channel: &str,
        subscribe_options: SubscribeOptions,
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
            granted: Some((subscribe_options, Expiry::default())),
            source: GrantSource::Server,
        };
        self.start_subscribe(id, namespace, &request, intent)
    }

    /// Returns the claims of a token for a channel.
    fn verify_channel_token(&self, channel: &str, token: &str) -> Result<SubscribeClaims, Fault> {
        let refused = |reason| {
            log::debug!("push: token of a subscription rejected: {reason}");
            Fault::PERMISSION_DENIED
        };
        let options = self.worker.options();
        let tokens = options.tokens.as_ref();
        let tokens = tokens.ok_or_else(|| refused("push has no keys for tokens"))?;
        let now = self.worker.wall_time();
        let claims = tokens
            .verify_subscribe(token, self.worker.cx())
            .map_err(|error| match error {
                VerifyError::Unavailable => Fault::INTERNAL,
                VerifyError::Invalid(TokenError::Expired | TokenError::NotYetValid) => Fault::TOKEN_EXPIRED,
                VerifyError::Invalid(TokenError::Invalid(reason)) => refused(reason),
            })?;
        let identity = self.client.identity();
        if claims.channel != channel {
            return Err(refused("the token is for another channel"));
        }
        if claims.user != identity.user()
            || !(claims.client.is_empty() || identity.client.matches(&claims.client))
        {
            return Err(refused("the token is for another client"));
        }
        if !is_channel_user(channel, identity.user()) {
            return Err(refused("the channel is reserved for other users"));
        }
        if claims.expiry.is_expired(now) {
            Err(Fault::EXPIRED)
        } else {
            Ok(claims)
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
        let (subscribe_options, expiry) = intent.granted.unwrap_or_default();
        let flags = subscribe_options.overrides.apply_to(namespace)?;
        let may_read = self.may_read_history(namespace, &request.channel, is_granted);
        let is_retained = namespace.channel_options.history.is_some();
        let recovery = flags
            .recovery
            .unwrap_or(namespace.recovery || (request.recoverable && may_read));
        let is_recovering = request.recover && subscribe_options.overrides.recovery != Some(false);
        let may_recover = (is_retained && recovery) || namespace.sends_latest();
        let requested = (is_recovering && may_recover).then(|| recovery_position(request, may_read));
        let since = requested.or_else(|| namespace.sends_latest().then_some(RecoverFrom::BEGINNING));
        let is_announced = namespace.channel_options.presence || namespace.channel_options.join_leave;
        let info = (flags.is_visible && is_announced).then(|| self.client_info(&subscribe_options));
        let channel: Arc<str> = Arc::from(&*request.channel);
        let features = requested_features(namespace, request)?;
        let (has_delta, is_compacted) = (features.delta, features.compaction);
        self.worker
            .subscribe(id, &channel, namespace.channel_options, since, info, features)?;
        let is_refreshed = expiry.until.is_some() && self.is_sub_refresh_proxied(&channel);
        if is_granted {
            // A unidirectional client cannot send another token; a client that the application renews need not.
            let grace = if self.client.unidirectional || is_refreshed {
                Duration::ZERO
            } else {
                limits::REFRESH_GRACE
            };
            let grant = Grant {
                channel: Arc::clone(&channel),
                info: subscribe_options.info,
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
            is_recoverable: is_retained && recovery,
            is_positioned: namespace.reports_gaps()
                && flags
                    .positioning
                    .unwrap_or(recovery || request.positioned || request.recoverable),
            rejects_unrecovered: request.flag & REJECT_UNRECOVERED != 0,
            has_delta,
            is_compacted,
            data: subscribe_options.data,
            expiry: if is_refreshed { Expiry::default() } else { expiry },
        });
        self.client.count_in_flight();
        Ok(())
    }

    /// Returns whether the client may read the retained publications: by the namespace if it may subscribe, or by a capability.
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

    /// Returns the client as seen by the others in a channel.
    fn client_info(&self, subscribe_options: &SubscribeOptions) -> Arc<ClientInfo> {
        Arc::new(self.client.identity().client_info(subscribe_options.info.clone()))
    }

    /// Executes the command: renews a subscription by another token.
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
        // A subscription without a token does not expire, and a token must not make it expire.
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
