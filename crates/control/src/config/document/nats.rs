//! Keys of NATS consumers.

use ringmain_gateway::model::{ChannelTemplate, Hostname, NatsServer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, OneOrManyField};
use crate::config::error::quote;
use crate::config::fields::{ParseScalar, Parsed, deserialize_secret};
use crate::nats::protocol;

/// A NATS cluster whose messages (JSON) are published in channels. Core NATS: messages published while the connection is down
/// are lost; after a reconnect the channels start a new epoch and positioned clients are notified. Example:
/// `{servers: "nats://queue.internal:4222", subjects: "prices.>"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Nats")]
pub(in crate::config) struct NatsSection {
    /// The servers of one cluster. Each is tried when the one before is unreachable.
    pub(in crate::config) servers: OneOrManyField<Parsed<NatsServer>>,
    /// The subjects to subscribe to, optionally with `*` (any word) and `>` (any words at the end).
    pub(in crate::config) subjects: OneOrManyField<Parsed<NatsFilter>>,
    /// The channel that a message is published in. `{subject}` is replaced by the message's subject, `{2}` by the second word
    /// of the subject, `{2..}` by all words from the second on. Default: `{subject}`.
    pub(in crate::config) channel: Field<Parsed<ChannelTemplate>>,
    /// Includes this NATS cluster in readiness: `/readyz` of the administration returns 503 without a connection, and until the
    /// server has confirmed all subscriptions. Default: `true`.
    pub(in crate::config) readiness: Field<bool>,
    /// The user name; requires `password`. Example: `ringmain`.
    pub(in crate::config) user: Field<String>,
    /// The password of `user`; best as `${env:…}` or `${file:…}`. Example: `${env:NATS_PASSWORD}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) password: Field<String>,
    /// An authentication token, in place of `user`; best as `${env:…}` or `${file:…}`. Example: `${env:NATS_TOKEN}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) token: Field<String>,
    /// A credentials file, in place of the keys above: as written by `nsc` (JWT and NKey seed), or with an NKey seed only.
    /// Example: `ringmain.creds`.
    pub(in crate::config) credentials: Field<String>,
    /// TLS settings: trusted authorities and the client certificate. With this key TLS is required; without it TLS is used if
    /// the server requires it or its URL starts with `tls://`.
    pub(in crate::config) tls: Field<NatsTlsSection>,
}

/// TLS to a NATS server. Example: `{authorities: staff}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "NatsTls")]
pub(in crate::config) struct NatsTlsSection {
    /// The name that the certificate is verified against. Default: the server's host.
    pub(in crate::config) server_name: Field<Parsed<Hostname>>,
    /// The names of trusted authorities. Default: the system's trusted authorities. Example: `staff`.
    pub(in crate::config) authorities: OneOrManyField<String>,
    /// The name of the client certificate, which is presented on request. Example: `site`.
    pub(in crate::config) certificate: Field<String>,
}

/// A NATS subject filter.
#[derive(Clone, Debug)]
pub(in crate::config) struct NatsFilter(pub(in crate::config) String);

impl ParseScalar for NatsFilter {
    const NAME: &'static str = "NATS subject";
    const DESCRIPTION: &'static str = "A NATS subject: words separated by dots, `*` for any word, `>` at the end for any words: `prices.>`.";
    const EXAMPLES: &'static [&'static str] = &["prices.>", "orders.*.created"];

    fn parse(text: &str) -> Result<NatsFilter, String> {
        if protocol::is_filter(text) {
            return Ok(NatsFilter(text.to_owned()));
        }
        Err(format!(
            "expected a subject: words between dots, without spaces, `*` for any word, `>` at the end for any words, found {}",
            quote(text)
        ))
    }
}

impl ParseScalar for NatsServer {
    const NAME: &'static str = "NATS server";
    const DESCRIPTION: &'static str =
        "A NATS server: `nats://queue.internal:4222`, or `tls://queue.internal` for TLS. Default port: 4222.";
    const EXAMPLES: &'static [&'static str] = &["nats://queue.internal:4222", "tls://queue.internal"];
    const PATTERN: &'static str = "^(nats|tls)://";

    fn parse(text: &str) -> Result<NatsServer, String> {
        let invalid = |found: &str| {
            Err(format!(
                "expected nats://HOST:PORT, or tls://HOST:PORT for TLS, found {found}"
            ))
        };
        let (tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return invalid(&quote(text)),
        };
        if rest.contains('@') {
            // It may be a password, which is not repeated.
            return invalid("a URL with a user in it (there are the keys `user`, `password` and `token`)");
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
            _ => (authority, Some(4222)),
        };
        let Some(port) = port.filter(|port| *port > 0) else {
            return invalid(&quote(text));
        };
        match Hostname::parse(host) {
            Ok(name) if name.wildcard_suffix().is_none() => Ok(NatsServer {
                host: name.as_str().trim_matches(['[', ']']).into(),
                port,
                tls,
            }),
            _ => invalid(&quote(text)),
        }
    }
}
