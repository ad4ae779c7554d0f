//! What channels do and who may do what: by namespaces, which are the part of a channel's name before `:`.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::limits::{CHANNEL_BYTES, CHANNELS_A_WORKER, WAITING_BYTES};
use ringmain_hub::local::Limits;
use ringmain_hub::mail::{Rules, Slow};
use ringmain_hub::protocol::Fault;
use ringmain_web::Origins;

/// Settings of push.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of channels without a `:`.
    pub plain: Namespace,
    /// Of others, by what is before it.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Whether clients connect without saying who they are.
    pub anonymous: bool,
    /// Which pages may connect besides those of the same origin (`https://example.com`); `*` is any.
    pub origins: Vec<String>,
    /// What programs of the owner's say in `X-API-Key`. `None`: there is no `/api/`.
    pub api_key: Option<String>,
    /// Of one connection.
    pub limits: Limits,
    /// Channels that are at home at one worker.
    pub channels: usize,
}

/// What channels of a namespace do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// What they keep and tell.
    pub rules: Rules,
    /// Clients may publish.
    pub publish: bool,
    /// Clients may ask what was published.
    pub history: bool,
    /// Clients may ask who is there.
    pub presence: bool,
    /// Clients recover what they have missed, whether or not they ask for that beforehand.
    pub recovery: bool,
}

impl Namespace {
    /// Whether who subscribes is given the last publication without asking ([`Rules::cache`], [`Rules::every`]).
    pub(crate) fn shows_last(&self) -> bool {
        self.rules.cache || self.rules.every.is_some()
    }
}

impl Default for Namespace {
    /// Channels that keep nothing and that clients may only listen to.
    fn default() -> Self {
        Namespace {
            rules: Rules {
                keep: None,
                remember: Duration::from_secs(30 * 24 * 3600),
                presence: false,
                join_leave: false,
                slow: Slow::Disconnect,
                cache: false,
                every: None,
            },
            publish: false,
            history: false,
            presence: false,
            recovery: false,
        }
    }
}

impl Default for Options {
    /// Channels without a namespace, as [`Namespace::default`]; nobody is let in yet.
    fn default() -> Self {
        Options {
            plain: Namespace::default(),
            namespaces: BTreeMap::new(),
            anonymous: false,
            origins: Vec::new(),
            api_key: None,
            limits: Limits {
                subscriptions: 128,
                waiting_bytes: WAITING_BYTES,
            },
            channels: CHANNELS_A_WORKER,
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("push: {0}")]
pub struct OptionsError(String);

/// Settings that can be, as they are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    options: Options,
    /// Which pages may connect.
    pub(crate) pages: Origins,
}

impl Checked {
    pub(crate) fn new(options: Options) -> Result<Checked, OptionsError> {
        let mut pages = Origins::default();
        for origin in &options.origins {
            match &**origin {
                "*" => pages.allow_any(),
                origin => pages.allow(origin).map_err(OptionsError)?,
            }
        }
        Ok(Checked { options, pages })
    }
}

impl std::ops::Deref for Checked {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Options {
    /// Whether these can be.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn check(&self) -> Result<(), OptionsError> {
        Checked::new(self.clone()).map(|_| ())
    }

    /// The namespace of a channel.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`] for what is no name: empty, longer than [`CHANNEL_BYTES`], or with bytes that are not printable
    /// ASCII; [`Fault::UNKNOWN_CHANNEL`] for a namespace that is not there.
    pub fn namespace(&self, channel: &str) -> Result<&Namespace, Fault> {
        let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if channel.is_empty() || channel.len() > CHANNEL_BYTES || !channel.bytes().all(is_printable) {
            return Err(Fault::BAD_REQUEST);
        }
        // A channel may be private (`$`) in any namespace.
        let name = channel.strip_prefix('$').unwrap_or(channel);
        match name.split_once(':') {
            Some((namespace, _)) => self.namespaces.get(namespace).ok_or(Fault::UNKNOWN_CHANNEL),
            None => Ok(&self.plain),
        }
    }

    /// The same, for a user who wants to listen: a name that ends in `#1,2` is for these users alone.
    ///
    /// # Errors
    /// Also [`Fault::PERMISSION_DENIED`] for a channel that is for others, or that is private: there are no tokens for those yet.
    pub fn namespace_for(&self, channel: &str, user: &str) -> Result<&Namespace, Fault> {
        let namespace = self.namespace(channel)?;
        let users = channel.split_once('#').map(|(_, users)| users);
        let is_let_in = users.is_none_or(|users| !user.is_empty() && users.split(',').any(|one| one == user));
        match is_let_in && !channel.starts_with('$') {
            true => Ok(namespace),
            false => Err(Fault::PERMISSION_DENIED),
        }
    }
}
