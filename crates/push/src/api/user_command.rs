//! Commands for the connections of a user, from records of sources.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;
use serde_json::value::RawValue;

use super::requests::Command;
use crate::options::Options;
use crate::worker::user_commands::ConnectionCommand;

/// A command for the connections of a user, with the payload of the HTTP API: `subscribe`, `unsubscribe`, `disconnect` or `refresh`.
#[derive(Clone, Debug)]
pub struct UserCommand {
    method: &'static str,
    user: Arc<str>,
    payload: Bytes,
}

impl UserCommand {
    /// The methods of such commands.
    pub const METHODS: [&'static str; 4] = ["subscribe", "unsubscribe", "disconnect", "refresh"];

    /// Parses a command. `None`: another method, or an invalid payload.
    #[must_use]
    pub fn parse(method: &str, payload: &RawValue) -> Option<UserCommand> {
        let method = *UserCommand::METHODS.iter().find(|name| **name == method)?;
        let command = Command::from_method(method, Some(payload)).ok()?;
        Some(UserCommand {
            method,
            user: command.user()?.into(),
            payload: Bytes::copy_from_slice(payload.get().as_bytes()),
        })
    }

    /// Returns the user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Checks the command against the options.
    pub(crate) fn to_connection_command(&self, options: &Options) -> Result<ConnectionCommand, Fault> {
        let payload: &RawValue = serde_json::from_slice(&self.payload).map_err(|_| Fault::BAD_REQUEST)?;
        match Command::from_method(self.method, Some(payload))? {
            Command::Subscribe(request) => request.read(options),
            Command::Unsubscribe(request) => request.read(options),
            Command::Disconnect(request) => request.read(),
            Command::Refresh(request) => request.read(),
            _ => Err(Fault::METHOD_NOT_FOUND),
        }
    }
}
