//! The permissions of one client in channels: of its namespace for all clients, of its token, and of its grants. Pure.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;

use crate::options::{Namespace, Options};
use crate::tokens::claims::Capability;

/// The permissions of a connection. One without a token or grants takes no memory.
#[derive(Default)]
pub(crate) struct Permissions(Option<Box<GrantedPermissions>>);

#[derive(Default)]
struct GrantedPermissions {
    capabilities: Box<[Capability]>,
    /// The deadline of the connection, in seconds since 1970.
    deadline: Option<u64>,
    /// Subscriptions that not every client may have: at most as many as the limit of subscriptions.
    grants: Vec<Grant>,
}

/// A subscription by a token of its own, or by the server.
pub(crate) struct Grant {
    pub(crate) channel: Arc<str>,
    /// The `info` of the subscription for other clients.
    pub(crate) info: Bytes,
    /// The deadline, in seconds since 1970.
    pub(crate) deadline: Option<u64>,
    pub(crate) source: GrantSource,
}

/// The origin of a subscription. A client can renew only its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantSource {
    /// The client's `subscribe`.
    Client,
    /// The token of the connection.
    Token,
    /// The server: the user's own channel, the application's response to `connect`, an API call.
    Server,
}

/// The permissions of a client in a channel.
pub(crate) struct ChannelAccess<'a> {
    pub(crate) namespace: &'a Namespace,
    /// The client has the permissions that every client has.
    is_open: bool,
    capability: Option<&'a Capability>,
}

impl Permissions {
    /// Changes the permissions, and frees them once they are empty. `None`: there are none.
    fn update<T>(&mut self, change: impl FnOnce(&mut GrantedPermissions) -> T) -> Option<T> {
        let grants = self.0.as_mut()?;
        let changed = change(grants);
        if grants.capabilities.is_empty() && grants.deadline.is_none() && grants.grants.is_empty() {
            self.0 = None;
        }
        Some(changed)
    }

    fn grants(&self) -> &[Grant] {
        self.0.as_ref().map_or(&[], |grants| &grants.grants)
    }

    pub(crate) fn set_capabilities(&mut self, capabilities: Box<[Capability]>) {
        if !capabilities.is_empty() {
            self.0.get_or_insert_default();
        }
        self.update(|grants| grants.capabilities = capabilities);
    }

    /// Sets when the connection expires, in seconds since 1970. Returns the previous deadline.
    pub(crate) fn set_deadline(&mut self, deadline: Option<u64>) -> Option<u64> {
        if deadline.is_some() {
            self.0.get_or_insert_default();
        }
        self.update(|grants| std::mem::replace(&mut grants.deadline, deadline))?
    }

    /// Returns the permissions of a user in a channel.
    ///
    /// # Errors
    /// As [`Options::namespace`]; [`Fault::PERMISSION_DENIED`] for a channel that is reserved for others, or that requires a token.
    pub(crate) fn channel_access<'a>(
        &'a self,
        options: &'a Options,
        channel: &str,
        user: &str,
    ) -> Result<ChannelAccess<'a>, Fault> {
        let namespace = options.namespace(channel)?;
        if self.find_grant(channel).is_some() {
            let (is_open, capability) = (true, self.capability(channel));
            return Ok(ChannelAccess {
                namespace,
                is_open,
                capability,
            });
        }
        self.check_reserved(channel, user)?;
        let (is_open, capability) = (
            namespace.subscribe_access.allows_user(user),
            self.capability(channel),
        );
        if is_open || capability.is_some() {
            Ok(ChannelAccess {
                namespace,
                is_open,
                capability,
            })
        } else {
            Err(Fault::PERMISSION_DENIED)
        }
    }

    /// Checks that a channel is not reserved for others, and does not require a token.
    ///
    /// # Errors
    /// [`Fault::PERMISSION_DENIED`].
    pub(crate) fn check_reserved(&self, channel: &str, user: &str) -> Result<(), Fault> {
        let is_open = !channel.starts_with('$') && is_channel_user(channel, user);
        if is_open || self.find_grant(channel).is_some() {
            Ok(())
        } else {
            Err(Fault::PERMISSION_DENIED)
        }
    }

    /// Returns the first capability for the channel, which takes precedence.
    pub(crate) fn capability(&self, channel: &str) -> Option<&Capability> {
        self.0
            .as_ref()?
            .capabilities
            .iter()
            .find(|capability| capability.matches_channel(channel))
    }

    /// Returns the `info` of the subscription for other clients.
    pub(crate) fn channel_info(&self, channel: &str) -> Bytes {
        self.find_grant(channel)
            .map_or_else(Bytes::new, |grant| grant.info.clone())
    }

    pub(crate) fn find_grant(&self, channel: &str) -> Option<&Grant> {
        self.grants().iter().find(|grant| &*grant.channel == channel)
    }

    pub(crate) fn find_grant_mut(&mut self, channel: &str) -> Option<&mut Grant> {
        let grants = &mut self.0.as_mut()?.grants;
        grants.iter_mut().find(|grant| &*grant.channel == channel)
    }

    pub(crate) fn add_grant(&mut self, grant: Grant) {
        self.0.get_or_insert_default().grants.push(grant);
    }

    /// Returns the channels of the connection's token.
    pub(crate) fn token_channels(&self) -> impl Iterator<Item = &str> {
        let grants = self.grants().iter();
        let by_token = grants.filter(|grant| grant.source == GrantSource::Token);
        by_token.map(|grant| &*grant.channel)
    }

    /// Removes the grant of a subscription that has ended.
    pub(crate) fn remove_grant(&mut self, channel: &str) -> Option<Grant> {
        let at = self
            .grants()
            .iter()
            .position(|grant| &*grant.channel == channel)?;
        self.update(|grants| grants.grants.swap_remove(at))
    }

    /// Removes the grants of a connection that has closed.
    pub(crate) fn take_grants(&mut self) -> Vec<Grant> {
        self.update(|grants| std::mem::take(&mut grants.grants))
            .unwrap_or_default()
    }
}

impl ChannelAccess<'_> {
    /// Checks a permission that the namespace grants to all clients, or that a capability grants.
    ///
    /// # Errors
    /// [`Fault::PERMISSION_DENIED`].
    pub(crate) fn require(
        &self,
        by_namespace: bool,
        by_capability: impl Fn(&Capability) -> bool,
    ) -> Result<(), Fault> {
        if (self.is_open && by_namespace) || self.capability.is_some_and(by_capability) {
            Ok(())
        } else {
            Err(Fault::PERMISSION_DENIED)
        }
    }
}

/// Returns whether a user is among those that a channel is reserved for, which are named behind the last `#` (`#1,2`), as in Centrifugo.
pub(crate) fn is_channel_user(channel: &str, user: &str) -> bool {
    let users = channel.rsplit_once('#').map(|(_, users)| users);
    users.is_none_or(|users| !user.is_empty() && users.split(',').any(|name| name == user))
}

#[cfg(test)]
mod tests {
    use super::is_channel_user;

    #[test]
    fn users_of_a_channel_are_behind_its_last_number_sign() {
        for (channel, users) in [
            ("a", &["7", "8", "", "7,8", "7#8"][..]),
            ("a#7", &["7"]),
            ("a#7,8", &["7", "8"]),
            ("a#7#8", &["8"]),
            ("a#8,7#7", &["7"]),
            ("personal:#7,8#", &[]),
            ("a#", &[]),
            ("a#,", &[]),
        ] {
            for user in ["7", "8", "", "7,8", "7#8"] {
                assert_eq!(
                    is_channel_user(channel, user),
                    users.contains(&user),
                    "{channel} {user}"
                );
            }
        }
    }
}
