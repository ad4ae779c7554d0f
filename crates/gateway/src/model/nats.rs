//! Messages of a NATS that are published in channels.

use std::sync::Arc;

use super::{Certificate, ChannelBound, ChannelTemplate, Secret, SubjectPattern};

/// A consumer: what it hears, and where that is published. Core NATS: what is published while nobody listens is not heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nats {
    /// Where it listens, and as whom.
    pub access: NatsAccess,
    /// Subjects that it listens to, perhaps with `*` and `>`.
    pub subjects: Vec<Arc<str>>,
    /// The channel that a message is published in, by its subject.
    pub channel: ChannelTemplate,
    /// Whether the process counts as ready only while this delivers.
    pub readiness: bool,
}

impl Nats {
    /// The names of the channels that its messages can be published in: at most [`CHANNEL_BOUNDS`](super::CHANNEL_BOUNDS).
    #[must_use]
    pub fn bounds(&self) -> Vec<ChannelBound> {
        let subjects = self.subjects.iter();
        let subjects: Vec<_> = subjects.map(|subject| SubjectPattern::nats(subject)).collect();
        self.channel.bounds(&subjects)
    }
}

/// A NATS and how it is signed in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsAccess {
    /// Servers of one cluster, at least one: each is tried when the one before cannot be reached.
    pub servers: Vec<NatsServer>,
    /// Who signs in.
    pub login: NatsLogin,
    /// What TLS is about. `None`: as [`NatsTls::default`], where a server wants TLS.
    pub tls: Option<NatsTls>,
}

/// A server of NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    /// A name, or an address without brackets.
    pub host: Arc<str>,
    /// Its port; 4222 as a rule.
    pub port: u16,
    /// Nothing but its greeting is heard, and nothing said, without TLS.
    pub tls: bool,
}

/// Who signs in to a NATS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NatsLogin {
    /// Nobody says who it is.
    #[default]
    Nobody,
    /// A user with a password.
    User {
        /// Its name.
        user: Arc<str>,
        /// Its password.
        password: Secret,
    },
    /// Whoever has a token.
    Token(Secret),
    /// A file of credentials: a JWT and the seed of its key (NKey), or a seed alone.
    Credentials(Secret),
}

/// TLS towards a NATS. Without authorities those that this system trusts vouch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// The name that certificates must be for. `None`: the server's host.
    pub server_name: Option<Arc<str>>,
    /// Authorities that vouch, in PEM.
    pub authorities: Option<Arc<[u8]>>,
    /// What is shown if a certificate is asked for.
    pub certificate: Option<Arc<Certificate>>,
}
