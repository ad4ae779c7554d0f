//! Who a client is: the number of its connection, and what is known of its user.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::Cx;
use ringmain_hub::protocol::ClientInfo;

/// What a connection is called: a random UUID (RFC 9562, version 4). Kept as a number, since it is seldom said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientId {
    high: u64,
    low: u64,
}

/// Who it is. One that nobody knows, and of whom the application says nothing, holds nothing for that.
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

    /// Whether it is called so.
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
    /// With what others are told of the connection.
    pub(crate) fn new(client: ClientId, user: &str, info: Bytes) -> Identity {
        let is_known = !user.is_empty() || !info.is_empty();
        let known = is_known.then(|| {
            let user = user.into();
            Rc::new(UserInfo { user, info })
        });
        Identity { client, known }
    }

    /// The same, of whom others are told something else.
    pub(crate) fn with_info(&self, info: Bytes) -> Identity {
        Identity::new(self.client, self.user(), info)
    }

    /// Empty: nobody knows who it is.
    pub(crate) fn user(&self) -> &str {
        self.known.as_ref().map_or("", |known| &known.user)
    }

    /// What others are told of the connection.
    pub(crate) fn info(&self) -> Bytes {
        self.known
            .as_ref()
            .map_or_else(Bytes::new, |known| known.info.clone())
    }

    /// As others are told, with what they are told of its subscription.
    pub(crate) fn client_info(&self, chan_info: Bytes) -> ClientInfo {
        ClientInfo {
            user: self.user().to_owned(),
            client: self.client.to_string(),
            conn_info: self.info(),
            chan_info,
        }
    }
}
