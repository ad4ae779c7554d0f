//! Codes that tell clients how to proceed: faults of commands, ends of subscriptions and of connections.
//!
//! A client reconnects after a disconnect code from 3000 to 3499 or from 4000 to 4499, and subscribes again after an unsubscribe code from
//! 2500. After other codes it does not.

use super::{DisconnectPush, Error, Unsubscribe};

/// The reason why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Codes from 100 to 399 are the protocol's own.
    pub code: u32,
    /// A text for people.
    pub message: &'static str,
    /// True if the client retries by itself.
    pub temporary: bool,
}

impl Fault {
    /// An internal error of the server.
    pub const INTERNAL: Fault = Fault::temporary(100, "internal server error");
    /// The client is not authenticated.
    pub const UNAUTHORIZED: Fault = Fault::permanent(101, "unauthorized");
    /// The channel's namespace does not exist.
    pub const UNKNOWN_CHANNEL: Fault = Fault::permanent(102, "unknown channel");
    /// The client lacks the permission.
    pub const PERMISSION_DENIED: Fault = Fault::permanent(103, "permission denied");
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: Fault = Fault::permanent(104, "method not found");
    /// The client is already subscribed.
    pub const ALREADY_SUBSCRIBED: Fault = Fault::permanent(105, "already subscribed");
    /// A limit is reached.
    pub const LIMIT_EXCEEDED: Fault = Fault::permanent(106, "limit exceeded");
    /// The request is invalid.
    pub const BAD_REQUEST: Fault = Fault::permanent(107, "bad request");
    /// The feature is disabled for this channel.
    pub const NOT_AVAILABLE: Fault = Fault::permanent(108, "not available");
    /// The token has expired. The client obtains another one.
    pub const TOKEN_EXPIRED: Fault = Fault::permanent(109, "token expired");
    /// The connection or the subscription has expired.
    pub const EXPIRED: Fault = Fault::permanent(110, "expired");
    /// The rate limit is exceeded.
    pub const TOO_MANY_REQUESTS: Fault = Fault::temporary(111, "too many requests");
    /// The requested position is no longer available.
    pub const UNRECOVERABLE_POSITION: Fault = Fault::permanent(112, "unrecoverable position");

    const fn permanent(code: u32, message: &'static str) -> Fault {
        Fault {
            code,
            message,
            temporary: false,
        }
    }

    const fn temporary(code: u32, message: &'static str) -> Fault {
        Fault {
            code,
            message,
            temporary: true,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error {
            code: fault.code,
            message: fault.message.to_owned(),
            temporary: fault.temporary,
        }
    }
}

/// The reason why the server ended a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribed {
    /// From 2500 on the client subscribes again.
    pub code: u32,
    /// A text for people.
    pub reason: &'static str,
}

impl Unsubscribed {
    /// The server ended the subscription.
    pub const SERVER: Unsubscribed = Unsubscribed::new(2000, "server unsubscribe");
    /// Publications were missed: the client subscribes again and recovers.
    pub const INSUFFICIENT: Unsubscribed = Unsubscribed::new(2500, "insufficient state");
    /// The subscription has expired.
    pub const EXPIRED: Unsubscribed = Unsubscribed::new(2501, "subscription expired");

    const fn new(code: u32, reason: &'static str) -> Unsubscribed {
        Unsubscribed { code, reason }
    }
}

impl From<Unsubscribed> for Unsubscribe {
    fn from(reason: Unsubscribed) -> Unsubscribe {
        Unsubscribe {
            code: reason.code,
            reason: reason.reason.to_owned(),
        }
    }
}

/// The reason why the server disconnects a client. Over a WebSocket, code and reason are those of the close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// See the module.
    pub code: u32,
    /// A text for people, of at most 32 bytes: a WebSocket close frame has little room.
    pub reason: &'static str,
}

impl Disconnect {
    /// The server shuts down. The client reconnects, to another one or to its successor.
    pub const SHUTDOWN: Disconnect = Disconnect::new(3001, "shutdown");
    /// An internal error of the server.
    pub const INTERNAL: Disconnect = Disconnect::new(3004, "internal server error");
    /// The connection has expired.
    pub const EXPIRED: Disconnect = Disconnect::new(3005, "connection expired");
    /// A subscription has expired.
    pub const SUBSCRIPTION_EXPIRED: Disconnect = Disconnect::new(3006, "subscription expired");
    /// The client's queue exceeds its budget.
    pub const SLOW: Disconnect = Disconnect::new(3008, "slow");
    /// Publications were missed: the client reconnects and recovers.
    pub const INSUFFICIENT: Disconnect = Disconnect::new(3010, "insufficient state");
    /// The client must reconnect, possibly to another server.
    pub const FORCE_RECONNECT: Disconnect = Disconnect::new(3011, "force reconnect");
    /// A ping was not answered in time.
    pub const NO_PONG: Disconnect = Disconnect::new(3012, "no pong");
    /// The rate limit of commands is exceeded.
    pub const TOO_MANY_REQUESTS: Disconnect = Disconnect::new(3013, "too many requests");
    /// The token is invalid.
    pub const INVALID_TOKEN: Disconnect = Disconnect::new(3500, "invalid token");
    /// A message of the client is invalid.
    pub const BAD_REQUEST: Disconnect = Disconnect::new(3501, "bad request");
    /// The client did not send `connect` in time.
    pub const STALE: Disconnect = Disconnect::new(3502, "stale");
    /// The application disconnected the client.
    pub const FORCED: Disconnect = Disconnect::new(3503, "force disconnect");
    /// The limit of connections is reached.
    pub const CONNECTION_LIMIT: Disconnect = Disconnect::new(3504, "connection limit");
    /// The limit of subscriptions is reached.
    pub const CHANNEL_LIMIT: Disconnect = Disconnect::new(3505, "channel limit");
    /// The client's format cannot represent the data: bytes that are not JSON, for a client of the JSON format.
    pub const INAPPROPRIATE_PROTOCOL: Disconnect = Disconnect::new(3506, "inappropriate protocol");
    /// The client lacks the permission.
    pub const PERMISSION_DENIED: Disconnect = Disconnect::new(3507, "permission denied");
    /// The feature is disabled.
    pub const NOT_AVAILABLE: Disconnect = Disconnect::new(3508, "not available");
    /// Too many commands of the client failed.
    pub const TOO_MANY_ERRORS: Disconnect = Disconnect::new(3509, "too many errors");

    const fn new(code: u32, reason: &'static str) -> Disconnect {
        Disconnect { code, reason }
    }

    /// Returns whether the client reconnects.
    #[must_use]
    pub const fn should_reconnect(self) -> bool {
        matches!(self.code, 3000..=3499 | 4000..=4499)
    }
}

impl From<Disconnect> for DisconnectPush {
    fn from(reason: Disconnect) -> DisconnectPush {
        DisconnectPush {
            code: reason.code,
            reason: reason.reason.to_owned(),
            reconnect: reason.should_reconnect(),
        }
    }
}
