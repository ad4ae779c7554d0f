//! The words that both directions share: who this end is, and what kind a message is.

/// Which end of the connection this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Reads masked frames, writes plain ones.
    Server,
    /// Reads plain frames, writes masked ones.
    Client,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Any bytes.
    Binary,
}
