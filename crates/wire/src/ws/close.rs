//! Close codes, and the closing handshake as a machine (RFC 6455 §7). Writes and reads no frame.

use super::role::Role;

/// A close code that may stand in a Close frame (RFC 6455 §7.4, and the codes registered since).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// Done.
    pub const NORMAL: Self = Self(1000);
    /// The server goes down, the user left the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A kind of data that is not taken, such as binary.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// Data that is not of its kind, such as text that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    /// A rule of the application or of its operator was broken.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message too big.
    pub const TOO_BIG: Self = Self(1009);
    /// The server did not agree to an extension that the client needs.
    pub const EXTENSION_MISSING: Self = Self(1010);
    /// This end failed.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The service restarts: come back after a random delay.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// Too much to do: come back later, or to another address.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// A gateway got no valid answer from behind it.
    pub const BAD_GATEWAY: Self = Self(1014);

    /// A code by its number; `None` if it may not be sent. 3000 to 3999 are registered by libraries, 4000 to 4999 free.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// What a Close says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// Why, for programs.
    pub code: CloseCode,
    /// Why, for people; at most 123 bytes. May be empty.
    pub reason: &'a str,
}

/// How far the closing handshake is.
///
/// ```text
///          send Close               receive Close
/// Open ──────────────────▶ Sent ──────────────────▶ Over
///   │                                                ▲
///   │ receive Close                     send Close   │
///   └────────────────────▶ Received ─────────────────┘
/// ```
///
/// In `Sent` data still arrives and may be used; the caller bounds how long it waits. In `Received` a Close must be
/// sent, with the code received or with none; a message under way may be finished first. In `Over` the server
/// disconnects, and the client waits for that, but not for long (RFC 6455 §7.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Closing {
    /// Neither side closes.
    #[default]
    Open,
    /// A Close was sent, none received.
    Sent,
    /// A Close was received, none sent.
    Received,
    /// Both.
    Over,
}

impl Closing {
    /// After a Close was sent.
    #[must_use]
    pub const fn sent(self) -> Self {
        match self {
            Self::Open | Self::Sent => Self::Sent,
            Self::Received | Self::Over => Self::Over,
        }
    }

    /// After a Close was received.
    #[must_use]
    pub const fn received(self) -> Self {
        match self {
            Self::Open | Self::Received => Self::Received,
            Self::Sent | Self::Over => Self::Over,
        }
    }

    /// Whether frames may be sent.
    #[must_use]
    pub const fn may_send(self) -> bool {
        matches!(self, Self::Open | Self::Received)
    }

    /// Whether this end is the one to disconnect now.
    #[must_use]
    pub const fn disconnects(self, role: Role) -> bool {
        matches!((self, role), (Self::Over, Role::Server))
    }
}
