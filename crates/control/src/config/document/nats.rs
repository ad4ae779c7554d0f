//! Keys of consumers of NATS.

use ringmain_gateway::model::{Hostname, NatsChannel, NatsServer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Some1};
use crate::config::error::quoted;
use crate::config::values::{Parse, Text, secret};
use crate::nats::protocol;

/// A NATS whose messages (JSON) are published in channels. Core NATS: what is published there while the connection is down does not
/// arrive; when it is back, the channels start a new epoch and positioned clients are notified.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Nats {
    /// Servers of one cluster. Each is tried when the one before cannot be reached.
    pub(in crate::config) servers: Some1<Text<NatsServer>>,
    /// Subjects that are listened to, perhaps with `*` (any word) and `>` (any words at the end).
    pub(in crate::config) subjects: Some1<Text<NatsFilter>>,
    /// The channel that a message is published in. `{subject}` stands for its subject, `{2}` for the second word of that, `{2..}` for
    /// all from the second on. `{subject}` if it does not say.
    pub(in crate::config) channel: Maybe<Text<NatsChannel>>,
    /// `/readyz` of the administration returns 503 while this NATS does not deliver: without a connection, and until the server has
    /// confirmed all subscriptions. Default: `true`.
    pub(in crate::config) readiness: Maybe<bool>,
    /// Who signs in, with `password`.
    pub(in crate::config) user: Maybe<String>,
    /// The user's password; best as `${env:…}` or `${file:…}`.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Maybe<String>,
    /// A token to sign in by, in place of a user; best as `${env:…}` or `${file:…}`.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) token: Maybe<String>,
    /// A file to sign in by, in place of these: credentials as `nsc` writes them (JWT and NKey seed), or the seed of an NKey alone.
    pub(in crate::config) credentials: Maybe<String>,
    /// TLS: whose certificates are taken, and what is shown. Without it a server decides whether there is TLS, or its URL with
    /// `tls://`; with it there is no connection without.
    pub(in crate::config) tls: Maybe<NatsTls>,
}

/// TLS towards a NATS.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct NatsTls {
    /// The name that the certificate must be for: the server's host if it does not say.
    pub(in crate::config) server_name: Maybe<Text<Hostname>>,
    /// Names of authorities that vouch: those that this system trusts if it does not say.
    pub(in crate::config) authorities: Some1<String>,
    /// The name of the certificate that is shown if one is asked for.
    pub(in crate::config) certificate: Maybe<String>,
}

/// Subjects of NATS.
#[derive(Clone, Debug)]
pub(in crate::config) struct NatsFilter(pub(in crate::config) String);

impl Parse for NatsFilter {
    const NAME: &'static str = "NATS subject";
    const ABOUT: &'static str =
        "A subject of NATS: words between dots, `*` for any word, `>` at the end for any words: `prices.>`.";

    fn parse(text: &str) -> Result<NatsFilter, String> {
        match protocol::is_filter(text) {
            true => Ok(NatsFilter(text.to_owned())),
            false => Err(format!(
                "expected a subject: words between dots, without spaces, `*` for any word, `>` at the end for any words, found {}",
                quoted(text)
            )),
        }
    }
}

impl Parse for NatsServer {
    const NAME: &'static str = "NATS server";
    const ABOUT: &'static str = "A server of NATS: `nats://queue.internal:4222`, or `tls://queue.internal` for one with TLS. Port 4222 if it does not say.";
    const SHAPE: &'static str = "^(nats|tls)://";

    fn parse(text: &str) -> Result<NatsServer, String> {
        let wrong = |found: &str| {
            Err(format!(
                "expected nats://HOST:PORT, or tls://HOST:PORT for TLS, found {found}"
            ))
        };
        let (tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return wrong(&quoted(text)),
        };
        if rest.contains('@') {
            // It may be a password, which is not repeated.
            return wrong("a URL with a user in it (there are the keys `user`, `password` and `token`)");
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
            _ => (authority, Some(4222)),
        };
        let Some(port) = port.filter(|port| *port > 0) else {
            return wrong(&quoted(text));
        };
        match Hostname::parse(host) {
            Ok(name) if name.wildcard_suffix().is_none() => Ok(NatsServer {
                host: name.as_str().trim_matches(['[', ']']).into(),
                port,
                tls,
            }),
            _ => wrong(&quoted(text)),
        }
    }
}

impl Parse for NatsChannel {
    const NAME: &'static str = "channel of a subject";
    const ABOUT: &'static str = "A channel's name with parts of a subject in it: `{subject}`, `{2}` for its second word, `{2..}` for all from that on: `prices:{2}`.";

    fn parse(text: &str) -> Result<NatsChannel, String> {
        NatsChannel::parse(text)
    }
}
