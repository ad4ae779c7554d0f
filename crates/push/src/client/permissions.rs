//! What one client may do with which channels: what its namespace lets everybody do, what its token adds, what it was granted.
//! Pure.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;

use crate::options::{Namespace, Options};
use crate::tokens::claims::Cap;

/// Of a connection. One that has shown no token has none, and holds nothing for them.
#[derive(Default)]
pub(crate) struct Rights(Option<Box<Given>>);

#[derive(Default)]
struct Given {
    caps: Box<[Cap]>,
    /// When the connection ends, in seconds since 1970.
    ends: Option<u64>,
    /// Subscriptions that were not everybody's to have: as many as there may be subscriptions.
    grants: Vec<Grant>,
}

/// A subscription by a token of its own, or of the server's.
pub(crate) struct Grant {
    pub(crate) channel: Arc<str>,
    /// What others in the channel are told of it.
    pub(crate) info: Bytes,
    /// When it ends, in seconds since 1970.
    pub(crate) ends: Option<u64>,
    pub(crate) source: Source,
}

/// Where a subscription is from. One that is not the client's own the client cannot renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The client's `subscribe`.
    Client,
    /// The token of its connection.
    Token,
    /// The server: the user's own channel, the application's answer to `connect`, an API call.
    Server,
}

/// A channel that a client has something to do with.
pub(crate) struct Reach<'a> {
    pub(crate) namespace: &'a Namespace,
    /// Whether it may what everybody may.
    is_open: bool,
    cap: Option<&'a Cap>,
}

impl Rights {
    /// Takes something, or changes it; `None`: there is nothing.
    fn change<T>(&mut self, change: impl FnOnce(&mut Given) -> T) -> Option<T> {
        let given = self.0.as_mut()?;
        let changed = change(given);
        if given.caps.is_empty() && given.ends.is_none() && given.grants.is_empty() {
            self.0 = None;
        }
        Some(changed)
    }

    fn grants(&self) -> &[Grant] {
        self.0.as_ref().map_or(&[], |given| &given.grants)
    }

    pub(crate) fn set_caps(&mut self, caps: Box<[Cap]>) {
        if !caps.is_empty() {
            self.0.get_or_insert_default();
        }
        self.change(|given| given.caps = caps);
    }

    /// When the connection ends, in seconds since 1970; when it ended by what held before.
    pub(crate) fn set_ends(&mut self, ends: Option<u64>) -> Option<u64> {
        if ends.is_some() {
            self.0.get_or_insert_default();
        }
        self.change(|given| std::mem::replace(&mut given.ends, ends))?
    }

    /// Whether a user has anything to do with a channel.
    ///
    /// # Errors
    /// As [`Options::namespace`]; [`Fault::PERMISSION_DENIED`] for a channel that is for others, or that wants a token.
    pub(crate) fn reach<'a>(
        &'a self,
        options: &'a Options,
        channel: &str,
        user: &str,
    ) -> Result<Reach<'a>, Fault> {
        let namespace = options.namespace(channel)?;
        if self.grant(channel).is_some() {
            let (is_open, cap) = (true, self.cap(channel));
            return Ok(Reach {
                namespace,
                is_open,
                cap,
            });
        }
        self.may_be_asked(channel, user)?;
        let (is_open, cap) = (namespace.listen.lets_in(user), self.cap(channel));
        match is_open || cap.is_some() {
            true => Ok(Reach {
                namespace,
                is_open,
                cap,
            }),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }

    /// Whether somebody else may be asked whether a user may do something in a channel.
    ///
    /// # Errors
    /// [`Fault::PERMISSION_DENIED`]: the channel is for others, or wants a token.
    pub(crate) fn may_be_asked(&self, channel: &str, user: &str) -> Result<(), Fault> {
        let is_open = !channel.starts_with('$') && is_among(channel, user);
        match is_open || self.grant(channel).is_some() {
            true => Ok(()),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }

    /// The first that is for the channel is the one that counts.
    pub(crate) fn cap(&self, channel: &str) -> Option<&Cap> {
        self.0.as_ref()?.caps.iter().find(|cap| cap.is_for(channel))
    }

    /// What others in a channel are told of its subscription there.
    pub(crate) fn info(&self, channel: &str) -> Bytes {
        self.grant(channel)
            .map_or_else(Bytes::new, |grant| grant.info.clone())
    }

    pub(crate) fn grant(&self, channel: &str) -> Option<&Grant> {
        self.grants().iter().find(|grant| &*grant.channel == channel)
    }

    pub(crate) fn grant_mut(&mut self, channel: &str) -> Option<&mut Grant> {
        let grants = &mut self.0.as_mut()?.grants;
        grants.iter_mut().find(|grant| &*grant.channel == channel)
    }

    pub(crate) fn add(&mut self, grant: Grant) {
        self.0.get_or_insert_default().grants.push(grant);
    }

    /// The subscriptions that are by the token of the connection.
    pub(crate) fn by_token(&self) -> impl Iterator<Item = &str> {
        let grants = self.grants().iter();
        let by_token = grants.filter(|grant| grant.source == Source::Token);
        by_token.map(|grant| &*grant.channel)
    }

    /// The subscription is over.
    pub(crate) fn remove(&mut self, channel: &str) -> Option<Grant> {
        let at = self
            .grants()
            .iter()
            .position(|grant| &*grant.channel == channel)?;
        self.change(|given| given.grants.swap_remove(at))
    }

    /// The connection is over: what there was of it.
    pub(crate) fn take_all(&mut self) -> Vec<Grant> {
        self.change(|given| std::mem::take(&mut given.grants))
            .unwrap_or_default()
    }
}

impl Reach<'_> {
    /// Whether it may do something that everybody may or not, or by a capability.
    ///
    /// # Errors
    /// [`Fault::PERMISSION_DENIED`].
    pub(crate) fn may(&self, everybody: bool, by: impl Fn(&Cap) -> bool) -> Result<(), Fault> {
        match (self.is_open && everybody) || self.cap.is_some_and(by) {
            true => Ok(()),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }
}

/// Whether a user is among those whom a channel is for: a name that ends in `#1,2` is for these alone. Users are behind the last `#`,
/// as in Centrifugo.
pub(crate) fn is_among(channel: &str, user: &str) -> bool {
    let users = channel.rsplit_once('#').map(|(_, users)| users);
    users.is_none_or(|users| !user.is_empty() && users.split(',').any(|one| one == user))
}

#[cfg(test)]
mod tests {
    use super::is_among;

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
                assert_eq!(is_among(channel, user), users.contains(&user), "{channel} {user}");
            }
        }
    }
}
