//! The identity of a client: the ID of its connection, and its user.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_hub::protocol::ClientInfo;

/// The ID of a connection: a random UUID (RFC 9562, version 4), stored as a number since it is seldom written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientId {
    high: u64,
    low: u64,
}

/// The identity of a client. An anonymous one without `info` takes no memory.
#[derive(Clone, Default)]
pub(crate) struct Identity {
    pub(crate) client: ClientId,
    known: Option<Rc<UserInfo>>,
}

struct UserInfo {
    user: Box<str>,
    info: Bytes,
}

impl ClientId {
    pub(crate) fn random(cx: &Cx) -> ClientId {
        let (high, low) = (cx.random(), cx.random());
        ClientId {
            high: (high & !0xf000) | 0x4000,
            low: (low & !(3 << 62)) | (2 << 62),
        }
    }

    /// Returns whether `name` is this ID.
    pub(crate) fn matches(self, name: &str) -> bool {
        self.to_string() == name
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientId { high, low } = self;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }
}

impl Identity {
    /// Creates an identity with the `info` of the connection for other clients.
    pub(crate) fn new(client: ClientId, user: &str, info: Bytes) -> Identity {
        let is_known = !user.is_empty() || !info.is_empty();
        let known = is_known.then(|| {
            let user = user.into();
            Rc::new(UserInfo { user, info })
        });
        Identity { client, known }
    }

    /// Returns the same identity with another `info`.
    pub(crate) fn with_info(&self, info: Bytes) -> Identity {
        Identity::new(self.client, self.user(), info)
    }

    /// Returns the user, empty for an anonymous client.
    pub(crate) fn user(&self) -> &str {
        self.known.as_ref().map_or("", |known| &known.user)
    }

    /// Returns the `info` of the connection for other clients.
    pub(crate) fn info(&self) -> Bytes {
        self.known
            .as_ref()
            .map_or_else(Bytes::new, |known| known.info.clone())
    }

    /// Returns the client as seen by others, with the `info` of its subscription.
    pub(crate) fn client_info(&self, chan_info: Bytes) -> ClientInfo {
        ClientInfo {
            user: self.user().to_owned(),
            client: self.client.to_string(),
            conn_info: self.info(),
            chan_info,
        }
    }
}
