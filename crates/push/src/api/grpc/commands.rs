//! Commands of the HTTP API from messages of the definition. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_hub::protocol::{Fault, FilterNode};
use serde_json::value::RawValue;

use super::messages;
use crate::api::requests::{self, Command};
use crate::tokens::claims::OverridesJson;

/// Data as the HTTP API has it: JSON, or bytes in base64.
type Data = (Option<Box<RawValue>>, Option<String>);

/// Returns bytes in the form of the HTTP API; base64 takes precedence. The bytes are published unchanged: as JSON only if the HTTP API would
/// remove nothing from it.
fn data(bytes: Bytes, base64: String) -> Data {
    if !base64.is_empty() || bytes.is_empty() {
        return (None, Some(base64));
    }
    // White space around a value is not part of the value.
    let json = parse_json(&bytes).filter(|json| {
        let has_line_break = bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        json.get().len() == bytes.len() && !has_line_break
    });
    match json {
        Some(json) => (Some(json.to_owned()), None),
        None => (None, Some(STANDARD.encode(&bytes))),
    }
}

fn parse_json(bytes: &Bytes) -> Option<&RawValue> {
    serde_json::from_slice(bytes).ok()
}

fn tags(tags: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(tags).filter(|tags| !tags.is_empty())
}

/// Rejects the selection of connections by other properties than their user: a command must not reach more connections than requested.
fn check_selection(label_filter: Option<&FilterNode>, all_users: bool) -> Result<(), Fault> {
    if label_filter.is_some() || all_users {
        Err(Fault::NOT_AVAILABLE)
    } else {
        Ok(())
    }
}

fn since(position: Option<messages::StreamPosition>) -> Option<requests::SincePosition> {
    position.map(|position| requests::SincePosition {
        offset: Some(position.offset),
        epoch: Some(position.epoch),
    })
}

impl TryFrom<messages::Command> for Command {
    type Error = Fault;

    fn try_from(command: messages::Command) -> Result<Command, Fault> {
        macro_rules! first {
            ($($field:ident)*) => {
                $(if let Some(request) = command.$field {
                    return Command::try_from(request);
                })*
            };
        }
        first!(publish broadcast subscribe unsubscribe disconnect presence presence_stats history history_remove info
            rpc refresh channels);
        Err(Fault::METHOD_NOT_FOUND)
    }
}

impl TryFrom<messages::PublishRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::PublishRequest) -> Result<Command, Fault> {
        let (data, b64data) = data(request.data, request.b64data);
        Ok(requests::Publish {
            channel: request.channel,
            data,
            b64data,
            skip_history: Some(request.skip_history),
            tags: tags(request.tags),
            idempotency_key: Some(request.idempotency_key),
            _delta: Some(request.delta),
            version: Some(request.version),
            _version_epoch: Some(request.version_epoch),
        }
        .into())
    }
}

impl TryFrom<messages::BroadcastRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::BroadcastRequest) -> Result<Command, Fault> {
        let (data, b64data) = data(request.data, request.b64data);
        Ok(requests::Broadcast {
            channels: request.channels,
            data,
            b64data,
            skip_history: Some(request.skip_history),
            tags: tags(request.tags),
            idempotency_key: Some(request.idempotency_key),
            _delta: Some(request.delta),
            version: Some(request.version),
            _version_epoch: Some(request.version_epoch),
        }
        .into())
    }
}

impl TryFrom<messages::SubscribeRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::SubscribeRequest) -> Result<Command, Fault> {
        check_selection(request.label_filter.as_ref(), request.all_users)?;
        let (info, b64info) = data(request.info, request.b64info);
        let (data, b64data) = data(request.data, request.b64data);
        let value = |value: Option<messages::BoolValue>| value.map(|value| value.value);
        Ok(requests::Subscribe {
            user: request.user,
            channel: request.channel,
            client: Some(request.client),
            session: Some(request.session),
            expire_at: Some(request.expire_at),
            info,
            b64info,
            data,
            b64data,
            recover_since: since(request.recover_since),
            r#override: request.r#override.map(|switches| {
                OverridesJson::new(
                    value(switches.presence),
                    value(switches.join_leave),
                    value(switches.force_push_join_leave),
                    value(switches.force_recovery),
                    value(switches.force_positioning),
                )
            }),
        }
        .into())
    }
}

impl TryFrom<messages::UnsubscribeRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::UnsubscribeRequest) -> Result<Command, Fault> {
        check_selection(request.label_filter.as_ref(), request.all_users)?;
        Ok(requests::Unsubscribe {
            user: request.user,
            channel: request.channel,
            client: Some(request.client),
            session: Some(request.session),
        }
        .into())
    }
}

impl TryFrom<messages::DisconnectRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::DisconnectRequest) -> Result<Command, Fault> {
        check_selection(request.label_filter.as_ref(), request.all_users)?;
        Ok(requests::Disconnect {
            user: request.user,
            client: Some(request.client),
            session: Some(request.session),
            whitelist: Some(request.whitelist),
            disconnect: request.disconnect.map(|disconnect| requests::DisconnectReason {
                code: disconnect.code,
                _reason: Some(disconnect.reason),
                _reconnect: None,
            }),
        }
        .into())
    }
}

impl TryFrom<messages::RefreshRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::RefreshRequest) -> Result<Command, Fault> {
        check_selection(request.label_filter.as_ref(), request.all_users)?;
        let info = parse_json(&request.info).map(RawValue::to_owned);
        if info.is_none() && !request.info.is_empty() {
            // As in the HTTP API, which has JSON only.
            return Err(Fault::BAD_REQUEST);
        }
        Ok(requests::Refresh {
            user: request.user,
            client: Some(request.client),
            session: Some(request.session),
            expired: Some(request.expired),
            expire_at: Some(request.expire_at),
            info,
        }
        .into())
    }
}

impl TryFrom<messages::HistoryRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::HistoryRequest) -> Result<Command, Fault> {
        Ok(requests::History {
            channel: request.channel,
            limit: Some(request.limit.into()),
            since: since(request.since),
            reverse: Some(request.reverse),
        }
        .into())
    }
}

impl TryFrom<messages::ChannelsRequest> for Command {
    type Error = Fault;

    fn try_from(request: messages::ChannelsRequest) -> Result<Command, Fault> {
        let pattern = Some(request.pattern).filter(|pattern| !pattern.is_empty());
        Ok(requests::Channels { pattern }.into())
    }
}

impl TryFrom<messages::InfoRequest> for Command {
    type Error = Fault;

    fn try_from(_: messages::InfoRequest) -> Result<Command, Fault> {
        Ok(requests::Info {}.into())
    }
}

impl TryFrom<messages::RpcRequest> for Command {
    type Error = Fault;

    /// There are no methods to call.
    fn try_from(_: messages::RpcRequest) -> Result<Command, Fault> {
        Err(Fault::METHOD_NOT_FOUND)
    }
}

macro_rules! channel_requests {
    ($($message:ident $request:ident;)*) => {
        $(impl TryFrom<messages::$message> for Command {
            type Error = Fault;

            fn try_from(request: messages::$message) -> Result<Command, Fault> {
                let channel = request.channel;
                Ok(requests::$request { channel }.into())
            }
        })*
    };
}

channel_requests! {
    PresenceRequest Presence;
    PresenceStatsRequest PresenceStats;
    HistoryRemoveRequest HistoryRemove;
}
