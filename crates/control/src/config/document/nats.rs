//! Keys of NATS consumers.

use ringmain_gateway::model::{ChannelTemplate, Hostname, NatsServer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Some1};
use crate::config::error::quoted;
use crate::config::fields::{Parse, Text, secret};
use crate::nats::protocol;

/// A NATS cluster whose messages (JSON) are published in channels. Core NATS: messages published while the connection is down
/// are lost; after a reconnect the channels start a new epoch and positioned clients are notified.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Nats {
    /// The servers of one cluster. Each is tried when the one before is unreachable.
    pub(in crate::config) servers: Some1<Text<NatsServer>>,
    /// The subjects to subscribe to, optionally with `*` (any word) and `>` (any words at the end).
    pub(in crate::config) subjects: Some1<Text<NatsFilter>>,
    /// The channel that a message is published in. `{subject}` is replaced by the message's subject, `{2}` by the second word
    /// of the subject, `{2..}` by all words from the second on. Default: `{subject}`.
    pub(in crate::config) channel: Maybe<Text<ChannelTemplate>>,
    /// Includes this NATS cluster in readiness: `/readyz` of the administration returns 503 without a connection, and until the
    /// server has confirmed all subscriptions. Default: `true`.
    pub(in crate::config) readiness: Maybe<bool>,
    /// The user name; requires `password`.
    pub(in crate::config) user: Maybe<String>,
    /// The password of `user`; best as `${env:…}` or `${file:…}`.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Maybe<String>,
    /// An authentication token, in place of `user`; best as `${env:…}` or `${file:…}`.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) token: Maybe<String>,
    /// A credentials file, in place of the keys above: as written by `nsc` (JWT and NKey seed), or with an NKey seed only.
    pub(in crate::config) credentials: Maybe<String>,
    /// TLS settings: trusted authorities and the client certificate. With this key TLS is required; without it TLS is used if
    /// the server requires it or its URL starts with `tls://`.
    pub(in crate::config) tls: Maybe<NatsTls>,
}

/// TLS to a NATS server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct NatsTls {
    /// The name that the certificate is verified against. Default: the server's host.
    pub(in crate::config) server_name: Maybe<Text<Hostname>>,
    /// The names of trusted authorities. Default: the system's trusted authorities.
    pub(in crate::config) authorities: Some1<String>,
    /// The name of the client certificate, which is presented on request.
    pub(in crate::config) certificate: Maybe<String>,
}

/// A NATS subject filter.
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
    const ABOUT: &'static str = "A server of NATS: `nats://queue.internal:4222`, or `tls://queue.internal` for one with TLS. Default port: 4222.";
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
