//! Numbers by which clients know what to do: faults of commands, ends of subscriptions and of connections.
//!
//! A client comes back after a disconnect of 3000 to 3499 and of 4000 to 4499, and subscribes again after an unsubscription
//! from 2500 on. The others are for good.

use super::{DisconnectPush, Error, Unsubscribe};

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 100 to 399 the protocol's own.
    pub code: u32,
    /// For people.
    pub message: &'static str,
    /// Whether the client tries again by itself.
    pub temporary: bool,
}

impl Fault {
    /// Something that is the server's fault.
    pub const INTERNAL: Fault = Fault::temporary(100, "internal server error");
    /// Nobody knows who that is.
    pub const UNAUTHORIZED: Fault = Fault::lasting(101, "unauthorized");
    /// The channel's namespace is not there.
    pub const UNKNOWN_CHANNEL: Fault = Fault::lasting(102, "unknown channel");
    /// It may not.
    pub const PERMISSION_DENIED: Fault = Fault::lasting(103, "permission denied");
    /// There is no such method.
    pub const METHOD_NOT_FOUND: Fault = Fault::lasting(104, "method not found");
    /// It is subscribed.
    pub const ALREADY_SUBSCRIBED: Fault = Fault::lasting(105, "already subscribed");
    /// A limit is reached.
    pub const LIMIT_EXCEEDED: Fault = Fault::lasting(106, "limit exceeded");
    /// It cannot be understood.
    pub const BAD_REQUEST: Fault = Fault::lasting(107, "bad request");
    /// It is switched off for this channel.
    pub const NOT_AVAILABLE: Fault = Fault::lasting(108, "not available");
    /// The token's time is over; the client gets another one.
    pub const TOKEN_EXPIRED: Fault = Fault::lasting(109, "token expired");
    /// The connection's or the subscription's time is over.
    pub const EXPIRED: Fault = Fault::lasting(110, "expired");
    /// More than is let in.
    pub const TOO_MANY_REQUESTS: Fault = Fault::temporary(111, "too many requests");
    /// What is asked for is not kept any more.
    pub const UNRECOVERABLE_POSITION: Fault = Fault::lasting(112, "unrecoverable position");

    const fn lasting(code: u32, message: &'static str) -> Fault {
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

/// Why the server ended a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribed {
    /// From 2500 on the client subscribes again.
    pub code: u32,
    /// For people.
    pub reason: &'static str,
}

impl Unsubscribed {
    /// The server wants it so.
    pub const SERVER: Unsubscribed = Unsubscribed::new(2000, "server unsubscribe");
    /// Publications were missed: the client recovers them.
    pub const INSUFFICIENT: Unsubscribed = Unsubscribed::new(2500, "insufficient state");
    /// Its time is over.
    pub const EXPIRED: Unsubscribed = Unsubscribed::new(2501, "subscription expired");

    const fn new(code: u32, reason: &'static str) -> Unsubscribed {
        Unsubscribed { code, reason }
    }
}

impl From<Unsubscribed> for Unsubscribe {
    fn from(why: Unsubscribed) -> Unsubscribe {
        Unsubscribe {
            code: why.code,
            reason: why.reason.to_owned(),
        }
    }
}

/// Why a connection ends; on WebSocket the code and the reason of its close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// See the module.
    pub code: u32,
    /// For people. At most 32 bytes: a WebSocket's close frame has little room.
    pub reason: &'static str,
}

impl Disconnect {
    /// The server goes; others, or a new one, are there.
    pub const SHUTDOWN: Disconnect = Disconnect::new(3001, "shutdown");
    /// Something that is the server's fault.
    pub const INTERNAL: Disconnect = Disconnect::new(3004, "internal server error");
    /// Its time is over.
    pub const EXPIRED: Disconnect = Disconnect::new(3005, "connection expired");
    /// The time of a subscription is over.
    pub const SUBSCRIPTION_EXPIRED: Disconnect = Disconnect::new(3006, "subscription expired");
    /// More waits for it than its budget allows.
    pub const SLOW: Disconnect = Disconnect::new(3008, "slow");
    /// Publications were missed: the client recovers them.
    pub const INSUFFICIENT: Disconnect = Disconnect::new(3010, "insufficient state");
    /// To come back, perhaps elsewhere.
    pub const FORCE_RECONNECT: Disconnect = Disconnect::new(3011, "force reconnect");
    /// A ping was not answered in time.
    pub const NO_PONG: Disconnect = Disconnect::new(3012, "no pong");
    /// More commands than are let in.
    pub const TOO_MANY_REQUESTS: Disconnect = Disconnect::new(3013, "too many requests");
    /// Its token does not hold.
    pub const INVALID_TOKEN: Disconnect = Disconnect::new(3500, "invalid token");
    /// What it sent cannot be understood.
    pub const BAD_REQUEST: Disconnect = Disconnect::new(3501, "bad request");
    /// It did not say who it is in time.
    pub const STALE: Disconnect = Disconnect::new(3502, "stale");
    /// The application wants it so.
    pub const FORCED: Disconnect = Disconnect::new(3503, "force disconnect");
    /// Too many connections.
    pub const CONNECTION_LIMIT: Disconnect = Disconnect::new(3504, "connection limit");
    /// Too many subscriptions.
    pub const CHANNEL_LIMIT: Disconnect = Disconnect::new(3505, "channel limit");
    /// Something that the client's format cannot carry: bytes that are not JSON to one of the JSON format.
    pub const INAPPROPRIATE_PROTOCOL: Disconnect = Disconnect::new(3506, "inappropriate protocol");
    /// It may not.
    pub const PERMISSION_DENIED: Disconnect = Disconnect::new(3507, "permission denied");
    /// It is switched off.
    pub const NOT_AVAILABLE: Disconnect = Disconnect::new(3508, "not available");
    /// Too many of its commands could not be carried out.
    pub const TOO_MANY_ERRORS: Disconnect = Disconnect::new(3509, "too many errors");

    const fn new(code: u32, reason: &'static str) -> Disconnect {
        Disconnect { code, reason }
    }

    /// Whether the client comes back.
    #[must_use]
    pub const fn reconnects(self) -> bool {
        matches!(self.code, 3000..=3499 | 4000..=4499)
    }
}

impl From<Disconnect> for DisconnectPush {
    fn from(why: Disconnect) -> DisconnectPush {
        DisconnectPush {
            code: why.code,
            reason: why.reason.to_owned(),
            reconnect: why.reconnects(),
        }
    }
}
