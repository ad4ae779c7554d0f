//! What is pushed to clients, and where they connect.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_push::{Limits, Options};

use super::{Path, Secret};

/// What channels of a namespace do.
pub use ringmain_push::Namespace as PushNamespace;

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
    /// Pages that may connect besides those of the same origin; `*` is any.
    pub origins: Vec<Arc<str>>,
    /// What programs of the owner's say in `X-API-Key`. `None`: there is no `/api/`.
    pub api_key: Option<Secret>,
    /// Of one connection.
    pub limits: Limits,
    /// Channels that are at home at one worker.
    pub channels: usize,
    /// Of channels without a `:`.
    pub plain: PushNamespace,
    /// Of others, by what is before it.
    pub namespaces: BTreeMap<Arc<str>, PushNamespace>,
}

impl Default for Push {
    fn default() -> Push {
        let Options {
            plain,
            anonymous,
            limits,
            channels,
            ..
        } = Options::default();
        Push {
            anonymous,
            origins: Vec::new(),
            api_key: None,
            limits,
            channels,
            plain,
            namespaces: BTreeMap::new(),
        }
    }
}

impl Push {
    /// The same for who pushes.
    #[must_use]
    pub fn options(&self) -> Options {
        let namespaces = self.namespaces.iter();
        let key = self.api_key.as_ref().map(Secret::expose);
        Options {
            plain: self.plain,
            namespaces: namespaces.map(|(name, it)| (name.to_string(), *it)).collect(),
            anonymous: self.anonymous,
            origins: self.origins.iter().map(ToString::to_string).collect(),
            // A key that is no text is nobody's: no header could say it.
            api_key: key.and_then(|key| String::from_utf8(key.to_vec()).ok()),
            limits: self.limits,
            channels: self.channels,
            ..Options::default()
        }
    }
}
