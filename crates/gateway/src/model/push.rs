//! Realtime push: channels, permissions, and the endpoints that clients connect to.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_push::{KeyLookup, KeySource, Limits, Options, Proxy, Tokens};

use super::{
    HeaderName, HeaderValue, Hostname, JwtAlgorithm, JwtProvider, KeySet, Nats, Path, PushCluster, Secret,
    Source, Target,
};

/// The options of a namespace's channels, and the permissions there.
pub use ringmain_push::{
    DataFormat as PushDataFormat, Namespace as PushNamespace, ProxyEvent as PushEvent,
    SubscribeAccess as PushListen,
};

/// The endpoints for push clients at a rule: [`Action::Push`](super::Action::Push).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushEndpoints {
    /// The path prefix of the endpoints: with `/live`, `/connection/websocket` is at `/live/connection/websocket`. Default: `None`, no
    /// prefix.
    pub below: Option<Path>,
}

/// The settings of realtime push. One instance serves the whole gateway: all rules reach the same channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Lets clients connect without a token. Default: `false`.
    pub anonymous: bool,
    /// Verification of client tokens; `None`: no client can authenticate.
    pub tokens: Option<PushTokens>,
    /// The namespace with a personal channel for each user, which the server subscribes the user to. Default: `None`.
    pub user_channel: Option<Arc<str>>,
    /// Origins of pages that may connect, besides the same origin; `*`: any.
    pub origins: Vec<Arc<str>>,
    /// The key that applications send in `X-API-Key`. `None`: `/api/` is disabled.
    pub api_key: Option<Secret>,
    /// Queries to the application about clients. Default: none.
    pub proxy: PushProxy,
    /// Limits of one connection.
    pub limits: Limits,
    /// Limit of connections of one user.
    pub connections_per_user: u32,
    /// Limit of clients of one worker that are about to connect. With more: 503.
    pub handshakes: u32,
    /// Limit of clients that one worker admits per second. With more: 503. `None`: unlimited.
    pub connects_per_second: Option<u32>,
    /// Time for which idempotency keys of publications are remembered.
    pub keys_remembered: Duration,
    /// Limit of channels whose home is one worker.
    pub channels: usize,
    /// Options of channels without a `:`.
    pub plain: PushNamespace,
    /// Options of other channels, by the text before the `:`.
    pub namespaces: BTreeMap<Arc<str>, PushNamespace>,
    /// Bytes of a message from a client.
    pub message_bytes: usize,
    /// Bytes of the body of an API request.
    pub api_body_bytes: usize,
    /// Interval of pings to clients.
    pub ping_interval: Duration,
    /// Time limit for a pong.
    pub pong_timeout: Duration,
    /// The directory in which channel state outlives the process. `None`: only a process that takes over inherits it.
    pub state_dir: Option<PathBuf>,
    /// The nodes that share the channels. `None`: this process alone. The component that follows the configuration runs the links.
    pub cluster: Option<Arc<PushCluster>>,
    /// NATS consumers that publish in channels, by name. The component that follows the configuration runs them; workers know nothing about
    /// them.
    pub nats: BTreeMap<Arc<str>, Arc<Nats>>,
    /// Brokers whose records are published at least once, by name.
    pub sources: BTreeMap<Arc<str>, Arc<Source>>,
}

/// Queries to the application about clients, like Centrifugo's proxy: POST with JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushProxy {
    /// The query for each kind of event.
    pub events: BTreeMap<PushEvent, PushQuery>,
    /// Headers of the client's connect request that the application receives, besides those that the rule's policies write. A client cannot
    /// set headers that policies write or remove, or that are accepted from trusted proxies only; `X-Forwarded-For`, `-Proto` and `-Host`
    /// are the gateway's own.
    pub headers: Vec<HeaderName>,
    /// Headers that a client may send in its connect command instead; `headers` take precedence.
    pub emulated_headers: Vec<HeaderName>,
    /// Fixed headers, which take precedence over both.
    pub own_headers: Vec<(HeaderName, HeaderValue)>,
    /// Encodes data in base64. Default: `false`.
    pub binary: bool,
}

/// A query to the application about one kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushQuery {
    /// The upstream of the application.
    pub upstream: Target,
    /// The `Host`. `None`: the endpoint's own.
    pub host: Option<Hostname>,
    /// The path and query.
    pub path: Arc<str>,
    /// Time limit. Default: 1 s.
    pub timeout: Duration,
}

/// Headers that frame a message or belong to a connection (RFC 9110 §7.6.1), and those that each query sets itself.
const NEVER_SENT: [&str; 14] = [
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Expect",
    "Host",
    "Keep-Alive",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Via",
];

impl PushProxy {
    /// Returns whether a query may have this header: it neither frames the message nor belongs to the connection.
    #[must_use]
    pub fn may_send(name: &HeaderName) -> bool {
        let is_name = |other: &&str| name.as_str().eq_ignore_ascii_case(other);
        !NEVER_SENT.iter().any(is_name)
    }

    fn proxy(&self) -> Proxy {
        let events = self.events.iter();
        let emulated = self.emulated_headers.iter();
        Proxy {
            events: events.map(|(event, ask)| (*event, ask.timeout)).collect(),
            binary: self.binary,
            emulated: emulated.map(|name| name.as_str().to_owned()).collect(),
        }
    }
}

/// Verification of client tokens: the keys and the required claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTokens {
    /// The keys that verify signatures.
    pub keys: PushKeys,
    /// The accepted algorithms. Empty: those of the keys, or the provider's.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The required `iss`. `None`: not checked. A provider has its own issuer, audiences and leeway.
    pub issuer: Option<Arc<str>>,
    /// Audiences, one of which `aud` must be or contain. Empty: not checked.
    pub audiences: Vec<Arc<str>>,
    /// Tolerated clock skew. Default: 30 s.
    pub leeway: Duration,
}

/// The keys that verify the signatures of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushKeys {
    /// An HMAC secret.
    Secret(Secret),
    /// A key set.
    Set(KeySet),
    /// The keys of this provider, with its issuer, audiences and leeway. While its keys are unavailable clients receive a temporary error.
    Provider(Arc<JwtProvider>),
}

/// A source for the keys of a provider that is not available.
#[derive(Debug)]
struct NoKeySource;

impl KeySource for NoKeySource {
    fn find_keys(&self, _: JwtAlgorithm, _: Option<&str>, _: Time) -> KeyLookup {
        KeyLookup::Unavailable
    }
}

impl PushTokens {
    /// Returns the provider of the keys.
    pub(crate) fn provider(&self) -> Option<&Arc<JwtProvider>> {
        match &self.keys {
            PushKeys::Provider(provider) => Some(provider),
            _ => None,
        }
    }

    /// Builds the verifier. `keys` are the provider's, if there is one.
    ///
    /// # Errors
    /// The secret is too short, or the key set is invalid.
    fn tokens(&self, keys: Option<Arc<dyn KeySource>>) -> Result<Tokens, String> {
        let (mut tokens, [issuer, audiences], leeway) = match &self.keys {
            PushKeys::Provider(provider) => {
                let keys = keys.unwrap_or_else(|| Arc::new(NoKeySource));
                let tokens = Tokens::from_source(keys, provider.algorithms.clone());
                let issuer = std::slice::from_ref(&provider.issuer);
                (tokens, [issuer, &provider.audiences], provider.leeway)
            }
            PushKeys::Secret(secret) => {
                let keys = ringmain_push::KeySet::from_secret(secret.expose())?;
                (Tokens::new(keys), self.wanted(), self.leeway)
            }
            PushKeys::Set(set) => {
                let keys = ringmain_push::KeySet::parse(set.expose())?;
                (Tokens::new(keys), self.wanted(), self.leeway)
            }
        };
        if !self.algorithms.is_empty() {
            tokens.algorithms.clone_from(&self.algorithms);
        }
        tokens.issuer = issuer.first().map(ToString::to_string);
        tokens.audiences = audiences.iter().map(ToString::to_string).collect();
        tokens.leeway = leeway;
        Ok(tokens)
    }

    /// Returns the accepted issuer and audiences.
    fn wanted(&self) -> [&[Arc<str>]; 2] {
        [self.issuer.as_slice(), &self.audiences]
    }
}

impl Default for Push {
    fn default() -> Push {
        let Options {
            default_namespace: plain,
            anonymous,
            limits,
            channels,
            connections_per_user,
            pending_connects: handshakes,
            connects_per_second,
            idempotency_window: keys_remembered,
            message_bytes,
            api_body_bytes,
            ping_interval,
            pong_timeout,
            ..
        } = Options::default();
        Push {
            anonymous,
            origins: Vec::new(),
            tokens: None,
            user_channel: None,
            api_key: None,
            proxy: PushProxy::default(),
            connections_per_user,
            handshakes,
            connects_per_second,
            keys_remembered,
            limits,
            channels,
            plain,
            namespaces: BTreeMap::new(),
            message_bytes,
            api_body_bytes,
            ping_interval,
            pong_timeout,
            state_dir: None,
            cluster: None,
            nats: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }
}

impl Push {
    /// Builds the options of the push server. `keys` are those of the provider that signs tokens; without them clients receive a temporary
    /// error.
    ///
    /// # Errors
    /// An option, or a combination of options, is invalid. The message is `expected …, found …`.
    pub fn options(&self, keys: Option<Arc<dyn KeySource>>) -> Result<Options, String> {
        let namespaces = self.namespaces.iter();
        let key = self.api_key.as_ref().map(Secret::expose);
        let options = Options {
            default_namespace: self.plain,
            namespaces: namespaces.map(|(name, it)| (name.to_string(), *it)).collect(),
            anonymous: self.anonymous,
            origins: self.origins.iter().map(ToString::to_string).collect(),
            // A key that is not UTF-8 disables the API: no header could contain it.
            api_key: key.and_then(|key| String::from_utf8(key.to_vec()).ok()),
            proxy: self.proxy.proxy(),
            limits: self.limits,
            message_bytes: self.message_bytes,
            api_body_bytes: self.api_body_bytes,
            ping_interval: self.ping_interval,
            pong_timeout: self.pong_timeout,
            channels: self.channels,
            tokens: self
                .tokens
                .as_ref()
                .map(|tokens| tokens.tokens(keys))
                .transpose()?,
            user_channel: self.user_channel.as_ref().map(ToString::to_string),
            connections_per_user: self.connections_per_user,
            pending_connects: self.handshakes,
            connects_per_second: self.connects_per_second,
            idempotency_window: self.keys_remembered,
        };
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }
}
