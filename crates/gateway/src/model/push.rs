//! What is pushed to clients, and where they connect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_push::{Limits, Options, Tokens};

use super::{JwtAlgorithm, KeySet, Nats, Path, Secret};

/// What channels of a namespace do, and who may listen there.
pub use ringmain_push::{Listen as PushListen, Namespace as PushNamespace};

/// Where a rule has clients of push connect: [`Action::Push`](super::Action::Push).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushAt {
    /// The path that its endpoints are below (`/connection/websocket` is at `/live/connection/websocket` then). Default: `None`, at
    /// the top.
    pub below: Option<Path>,
}

/// What is pushed to clients. There is one of it: rules are doors to the same channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Whether clients connect without saying who they are. Default: `false`.
    pub anonymous: bool,
    /// By what others say who they are; `None`: nobody can.
    pub tokens: Option<PushTokens>,
    /// The namespace in which each user has a channel of its own that the server subscribes it to. Default: `None`.
    pub user_channel: Option<Arc<str>>,
    /// Pages that may connect besides those of the same origin; `*` is any.
    pub origins: Vec<Arc<str>>,
    /// What programs of the owner's say in `X-API-Key`. `None`: there is no `/api/`.
    pub api_key: Option<Secret>,
    /// Of one connection.
    pub limits: Limits,
    /// Connections of one user.
    pub connections_per_user: u32,
    /// Channels that are at home at one worker.
    pub channels: usize,
    /// Of channels without a `:`.
    pub plain: PushNamespace,
    /// Of others, by what is before it.
    pub namespaces: BTreeMap<Arc<str>, PushNamespace>,
    /// What publishes in channels besides clients and the owner's programs, by name. Whoever follows the configuration has them at
    /// work: workers know nothing of them.
    pub nats: BTreeMap<Arc<str>, Arc<Nats>>,
}

/// Tokens of clients: who signs them, and what they must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTokens {
    /// By what signatures are checked.
    pub keys: PushKeys,
    /// Others are refused. Empty: those that the keys are for.
    pub algorithms: Vec<JwtAlgorithm>,
    /// What `iss` must be. `None`: it is not looked at.
    pub issuer: Option<Arc<str>>,
    /// One of these must be `aud`, or be among it. None: it is not looked at.
    pub audiences: Vec<Arc<str>>,
    /// By how much clocks may differ. Default 30 s.
    pub leeway: Duration,
}

/// By what signatures of tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushKeys {
    /// A secret of HMAC.
    Secret(Secret),
    /// A set.
    Set(KeySet),
}

impl PushTokens {
    /// # Errors
    /// A secret that is too short.
    fn tokens(&self) -> Result<Tokens, String> {
        let keys = match &self.keys {
            PushKeys::Secret(secret) => ringmain_push::KeySet::secret(secret.expose())?,
            PushKeys::Set(set) => ringmain_push::KeySet::parse(set.expose())?,
        };
        let mut tokens = Tokens::new(keys);
        if !self.algorithms.is_empty() {
            tokens.algorithms.clone_from(&self.algorithms);
        }
        tokens.issuer = self.issuer.as_ref().map(ToString::to_string);
        tokens.audiences = self.audiences.iter().map(ToString::to_string).collect();
        tokens.leeway = self.leeway;
        Ok(tokens)
    }
}

impl Default for Push {
    fn default() -> Push {
        let Options {
            plain,
            anonymous,
            limits,
            channels,
            connections_per_user,
            ..
        } = Options::default();
        Push {
            anonymous,
            origins: Vec::new(),
            tokens: None,
            user_channel: None,
            api_key: None,
            connections_per_user,
            limits,
            channels,
            plain,
            namespaces: BTreeMap::new(),
            nats: BTreeMap::new(),
        }
    }
}

impl Push {
    /// The same for who pushes.
    ///
    /// # Errors
    /// What cannot be, as `expected …, found …`.
    pub fn options(&self) -> Result<Options, String> {
        let namespaces = self.namespaces.iter();
        let key = self.api_key.as_ref().map(Secret::expose);
        let options = Options {
            plain: self.plain,
            namespaces: namespaces.map(|(name, it)| (name.to_string(), *it)).collect(),
            anonymous: self.anonymous,
            origins: self.origins.iter().map(ToString::to_string).collect(),
            // A key that is no text is nobody's: no header could say it.
            api_key: key.and_then(|key| String::from_utf8(key.to_vec()).ok()),
            limits: self.limits,
            channels: self.channels,
            tokens: self.tokens.as_ref().map(PushTokens::tokens).transpose()?,
            user_channel: self.user_channel.as_ref().map(ToString::to_string),
            connections_per_user: self.connections_per_user,
        };
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }
}
