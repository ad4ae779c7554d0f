//! Commands for the connections of a user, as nodes exchange them: JSON, with bytes in base64.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::tokens::claims::{Overrides, SubscribeOptions};
use crate::worker::user_commands::{ConnectionCommand, UserAction};

#[derive(Deserialize, Serialize)]
struct CommandJson {
    user: String,
    client: Option<String>,
    action: ActionJson,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum ActionJson {
    Disconnect {
        except: Vec<String>,
    },
    Expire,
    Refresh {
        until: Option<u64>,
        info: String,
    },
    Subscribe {
        channel: String,
        info: String,
        data: String,
        /// Presence, join and leave, their pushes, recovery, positioning.
        overrides: [Option<bool>; 5],
    },
    Unsubscribe {
        channel: String,
    },
}

/// Encodes a command.
pub(crate) fn encode(command: &ConnectionCommand) -> Bytes {
    let action = match &command.action {
        UserAction::Disconnect(except) => ActionJson::Disconnect {
            except: except.iter().map(|client| client.to_string()).collect(),
        },
        UserAction::Expire => ActionJson::Expire,
        UserAction::Refresh { until, info } => ActionJson::Refresh {
            until: *until,
            info: STANDARD.encode(info),
        },
        UserAction::Subscribe(channel, options) => {
            let Overrides {
                presence,
                join_leave,
                push_join_leave,
                recovery,
                positioning,
            } = options.overrides;
            ActionJson::Subscribe {
                channel: channel.to_string(),
                info: STANDARD.encode(&options.info),
                data: STANDARD.encode(&options.data),
                overrides: [presence, join_leave, push_join_leave, recovery, positioning],
            }
        }
        UserAction::Unsubscribe(channel) => ActionJson::Unsubscribe {
            channel: channel.to_string(),
        },
    };
    let command = CommandJson {
        user: command.user.to_string(),
        client: command.client.as_ref().map(|client| client.to_string()),
        action,
    };
    // Texts and numbers alone: serialization cannot fail.
    serde_json::to_vec(&command).unwrap_or_default().into()
}

/// Decodes a command. `None`: it is invalid, or of a newer version.
pub(crate) fn decode(payload: &[u8]) -> Option<ConnectionCommand> {
    let CommandJson { user, client, action } = serde_json::from_slice(payload).ok()?;
    let bytes = |text: String| STANDARD.decode(text).ok().map(Bytes::from);
    let action = match action {
        ActionJson::Disconnect { except } => {
            UserAction::Disconnect(except.into_iter().map(Arc::from).collect())
        }
        ActionJson::Expire => UserAction::Expire,
        ActionJson::Refresh { until, info } => UserAction::Refresh {
            until,
            info: bytes(info)?,
        },
        ActionJson::Subscribe {
            channel,
            info,
            data,
            overrides: [presence, join_leave, push_join_leave, recovery, positioning],
        } => {
            let options = SubscribeOptions {
                info: bytes(info)?,
                data: bytes(data)?,
                overrides: Overrides {
                    presence,
                    join_leave,
                    push_join_leave,
                    recovery,
                    positioning,
                },
            };
            UserAction::Subscribe(channel.into(), options)
        }
        ActionJson::Unsubscribe { channel } => UserAction::Unsubscribe(channel.into()),
    };
    Some(ConnectionCommand {
        user: user.into(),
        client: client.map(Arc::from),
        action,
        progress: None,
    })
}

#[cfg(test)]
mod tests;
