//! Every limit of channels and of their protocol, with its unit and what happens there.

/// Bytes of a message from a client; a longer one ends its connection ([`Disconnect::BAD_REQUEST`]).
///
/// [`Disconnect::BAD_REQUEST`]: crate::protocol::Disconnect::BAD_REQUEST
pub const MESSAGE_BYTES: usize = 64 << 10;

/// Commands of one message; a message with more ends the connection.
pub const COMMANDS_A_MESSAGE: usize = 256;

/// Bytes of a channel's name.
pub const CHANNEL_BYTES: usize = 255;

/// Bytes that a client may give as its name.
pub const CLIENT_NAME_BYTES: usize = 16;

/// Bytes that a client may give as its version.
pub const CLIENT_VERSION_BYTES: usize = 64;

/// Nodes of a filter by tags; a larger one is refused.
pub const FILTER_NODES: usize = 64;

/// Publications that one recovery brings; a client that has missed more is told that it is not recovered.
pub const RECOVERED_PUBLICATIONS: usize = 1000;
