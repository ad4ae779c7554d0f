//! NATS consumers, whose messages are published in channels.

use std::sync::Arc;

use super::{Certificate, ChannelBound, ChannelTemplate, Secret, SubjectPattern};

/// A consumer: its subjects, and the channels of its messages. Core NATS does not redeliver messages that were published while no consumer
/// was connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nats {
    /// The servers and the login.
    pub access: NatsAccess,
    /// Subjects to subscribe to, with the wildcards `*` and `>`.
    pub subjects: Vec<Arc<str>>,
    /// The channel of a message, by its subject.
    pub channel: ChannelTemplate,
    /// Makes the process ready only while this consumer is connected.
    pub readiness: bool,
}

impl Nats {
    /// Returns the bounds of the channel names of its messages: at most [`CHANNEL_BOUNDS`](super::CHANNEL_BOUNDS).
    #[must_use]
    pub fn bounds(&self) -> Vec<ChannelBound> {
        let subjects = self.subjects.iter();
        let subjects: Vec<_> = subjects.map(|subject| SubjectPattern::nats(subject)).collect();
        self.channel.bounds(&subjects)
    }
}

/// A NATS cluster and the login to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsAccess {
    /// Servers of one cluster, at least one. Each is tried when the one before cannot be reached.
    pub servers: Vec<NatsServer>,
    /// The login.
    pub login: NatsLogin,
    /// The TLS settings. `None`: [`NatsTls::default`], where a server requires TLS.
    pub tls: Option<NatsTls>,
}

/// A NATS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    /// A hostname, or an address without brackets.
    pub host: Arc<str>,
    /// The port; usually 4222.
    pub port: u16,
    /// Requires TLS after the server's greeting, before anything else is sent or read.
    pub tls: bool,
}

/// The login to a NATS cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NatsLogin {
    /// No login.
    #[default]
    Anonymous,
    /// A user with a password.
    User {
        /// The name of the user.
        user: Arc<str>,
        /// The password of the user.
        password: Secret,
    },
    /// A token.
    Token(Secret),
    /// A credentials file: a JWT and the seed of its key (NKey), or a seed alone.
    Credentials(Secret),
}

/// TLS settings for NATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// The name that certificates are verified for. `None`: the server's host.
    pub server_name: Option<Arc<str>>,
    /// Certificate authorities, in PEM. `None`: those of the system.
    pub authorities: Option<Arc<[u8]>>,
    /// The client certificate, for servers that request one.
    pub certificate: Option<Arc<Certificate>>,
}
