//! What one client may do with which channels: what its namespace lets everybody do, what its token adds, what it was granted.
//! Pure.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;

use crate::options::{Namespace, Options};
use crate::tokens::claims::Capability;

/// Of a connection. One that has shown no token has none, and holds nothing for them.
#[derive(Default)]
pub(crate) struct Permissions(Option<Box<GrantedPermissions>>);

#[derive(Default)]
struct GrantedPermissions {
    capabilities: Box<[Capability]>,
    /// When the connection deadline, in seconds since 1970.
    deadline: Option<u64>,
    /// Subscriptions that were not everybody's to have: as many as there may be subscriptions.
    grants: Vec<Grant>,
}

/// A subscription by a token of its own, or of the server's.
pub(crate) struct Grant {
    pub(crate) channel: Arc<str>,
    /// What others in the channel are told of it.
    pub(crate) info: Bytes,
    /// When it deadline, in seconds since 1970.
    pub(crate) deadline: Option<u64>,
    pub(crate) source: GrantSource,
}

/// Where a subscription is from. One that is not the client's own the client cannot renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantSource {
    /// The client's `subscribe`.
    Client,
    /// The token of its connection.
    Token,
    /// The server: the user's own channel, the application's answer to `connect`, an API call.
    Server,
}

/// A channel that a client has something to do with.
pub(crate) struct ChannelAccess<'a> {
    pub(crate) namespace: &'a Namespace,
    /// Whether it may what everybody may.
    is_open: bool,
    capability: Option<&'a Capability>,
}

impl Permissions {
    /// Takes something, or changes it; `None`: there is nothing.
    fn update<T>(&mut self, change: impl FnOnce(&mut GrantedPermissions) -> T) -> Option<T> {
        let granted = self.0.as_mut()?;
        let changed = change(granted);
        if granted.capabilities.is_empty() && granted.deadline.is_none() && granted.grants.is_empty() {
            self.0 = None;
        }
        Some(changed)
    }

    fn grants(&self) -> &[Grant] {
        self.0.as_ref().map_or(&[], |granted| &granted.grants)
    }

    pub(crate) fn set_capabilities(&mut self, capabilities: Box<[Capability]>) {
        if !capabilities.is_empty() {
            self.0.get_or_insert_default();
        }
        self.update(|granted| granted.capabilities = capabilities);
    }

    /// When the connection deadline, in seconds since 1970; when it ended by what held before.
    pub(crate) fn set_deadline(&mut self, deadline: Option<u64>) -> Option<u64> {
        if deadline.is_some() {
            self.0.get_or_insert_default();
        }
        self.update(|granted| std::mem::replace(&mut granted.deadline, deadline))?
    }

    /// Whether a user has anything to do with a channel.
    ///
    /// # Errors
    /// As [`Options::namespace`]; [`Fault::PERMISSION_DENIED`] for a channel that is for others, or that wants a token.
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
        match is_open || capability.is_some() {
            true => Ok(ChannelAccess {
                namespace,
                is_open,
                capability,
            }),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }

    /// Whether somebody else may be asked whether a user may do something in a channel.
    ///
    /// # Errors
    /// [`Fault::PERMISSION_DENIED`]: the channel is for others, or wants a token.
    pub(crate) fn check_reserved(&self, channel: &str, user: &str) -> Result<(), Fault> {
        let is_open = !channel.starts_with('$') && is_channel_user(channel, user);
        match is_open || self.find_grant(channel).is_some() {
            true => Ok(()),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }

    /// The first that is for the channel is the one that counts.
    pub(crate) fn capability(&self, channel: &str) -> Option<&Capability> {
        self.0
            .as_ref()?
            .capabilities
            .iter()
            .find(|capability| capability.matches_channel(channel))
    }

    /// What others in a channel are told of its subscription there.
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

    /// The subscriptions that are by the token of the connection.
    pub(crate) fn token_channels(&self) -> impl Iterator<Item = &str> {
        let grants = self.grants().iter();
        let by_token = grants.filter(|grant| grant.source == GrantSource::Token);
        by_token.map(|grant| &*grant.channel)
    }

    /// The subscription is over.
    pub(crate) fn remove_grant(&mut self, channel: &str) -> Option<Grant> {
        let at = self
            .grants()
            .iter()
            .position(|grant| &*grant.channel == channel)?;
        self.update(|granted| granted.grants.swap_remove(at))
    }

    /// The connection is over: what there was of it.
    pub(crate) fn take_grants(&mut self) -> Vec<Grant> {
        self.update(|granted| std::mem::take(&mut granted.grants))
            .unwrap_or_default()
    }
}

impl ChannelAccess<'_> {
    /// Whether it may do something that everybody may or not, or by a capability.
    ///
    /// # Errors
    /// [`Fault::PERMISSION_DENIED`].
    pub(crate) fn require(
        &self,
        by_namespace: bool,
        by_capability: impl Fn(&Capability) -> bool,
    ) -> Result<(), Fault> {
        match (self.is_open && by_namespace) || self.capability.is_some_and(by_capability) {
            true => Ok(()),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }
}

/// Whether a user is among those whom a channel is for: a name that deadline in `#1,2` is for these alone. Users are behind the last `#`,
/// as in Centrifugo.
pub(crate) fn is_channel_user(channel: &str, user: &str) -> bool {
    let users = channel.rsplit_once('#').map(|(_, users)| users);
    users.is_none_or(|users| !user.is_empty() && users.split(',').any(|one| one == user))
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
