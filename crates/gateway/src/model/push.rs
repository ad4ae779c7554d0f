//! What is pushed to clients, and where they connect.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_push::{KeySource, Limits, Look, Options, Proxy, Tokens};

use super::{
    HeaderName, HeaderValue, Hostname, JwtAlgorithm, JwtProvider, KeySet, Nats, Path, Secret, Source, Target,
};

/// What channels of a namespace do, and who may listen there.
pub use ringmain_push::{
    DataFormat as PushDataFormat, Event as PushEvent, Listen as PushListen, Namespace as PushNamespace,
};

/// Where a rule has clients of push connect: [`Action::Push`](super::Action::Push).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushAt {
    /// The path that its endpoints are below (`/connection/websocket` is at `/live/connection/websocket` then). Default: `None`, at
    /// the top.
    pub below: Option<Path>,
}

/// What is pushed to clients. There is one of it: rules are doors to the same channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// Whether clients connect without saying who they are. Default: `false`.
    pub anonymous: bool,
    /// By what others say who they are; `None`: nobody can.
    pub tokens: Option<PushTokens>,
    /// The namespace in which each user has a channel of its own that the server subscribes it to. Default: `None`.
    pub user_channel: Option<Arc<str>>,
    /// Pages that may connect besides those of the same origin; `*` is any.
    pub origins: Vec<Arc<str>>,
    /// What programs of the owner's say in `X-API-Key`. `None`: there is no `/api/`.
    pub api_key: Option<Secret>,
    /// What the application is asked about clients. Default: nothing.
    pub proxy: PushProxy,
    /// Of one connection.
    pub limits: Limits,
    /// Connections of one user.
    pub connections_per_user: u32,
    /// Clients of one worker that are about to say who they are.
    pub handshakes: u32,
    /// Clients that one worker lets in within a second. `None`: as many as come.
    pub connects_per_second: Option<u32>,
    /// How long keys of programs' publications are remembered.
    pub keys_remembered: Duration,
    /// Channels that are at home at one worker.
    pub channels: usize,
    /// Of channels without a `:`.
    pub plain: PushNamespace,
    /// Of others, by what is before it.
    pub namespaces: BTreeMap<Arc<str>, PushNamespace>,
    /// Bytes of a client's message.
    pub message_bytes: usize,
    /// Bytes of the body of a program's request.
    pub api_body_bytes: usize,
    /// How often clients are pinged.
    pub ping_interval: Duration,
    /// How long they may take to answer.
    pub pong_timeout: Duration,
    /// The folder in which what is kept of channels outlives the process. `None`: it does for a process that takes over alone.
    pub state_dir: Option<PathBuf>,
    /// What publishes in channels besides clients and the owner's programs, by name. Whoever follows the configuration has them at
    /// work: workers know nothing of them.
    pub nats: BTreeMap<Arc<str>, Arc<Nats>>,
    /// Brokers whose records are published at least once, by name.
    pub sources: BTreeMap<Arc<str>, Arc<Source>>,
}

/// What the application is asked about clients, as Centrifugo's proxy asks it: by POST, in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushProxy {
    /// By what it is asked about, who is asked.
    pub events: BTreeMap<PushEvent, PushAsk>,
    /// Headers of the request by which a client has connected that it sees, beside what the rule's policies write. What policies
    /// write or take out, and what is only taken from trusted proxies, a client cannot say; `X-Forwarded-For`, `-Proto` and
    /// `-Host` are the gateway's word.
    pub headers: Vec<HeaderName>,
    /// Headers that a client may say with its connection instead, which `headers` have precedence over.
    pub emulated_headers: Vec<HeaderName>,
    /// Headers of the gateway's own, which have precedence over both.
    pub own_headers: Vec<(HeaderName, HeaderValue)>,
    /// Data are told in base64. Default `false`.
    pub binary: bool,
}

/// Who is asked about something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushAsk {
    /// Who.
    pub upstream: Target,
    /// `Host`. `None`: the endpoint's own.
    pub host: Option<Hostname>,
    /// Path and query.
    pub path: Arc<str>,
    /// How long it may take. Default 1 s.
    pub timeout: Duration,
}

/// What frames a message or belongs to a connection (RFC 9110 §7.6.1), and what each question has of its own.
const NEVER_TOLD: [&str; 14] = [
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
    /// Whether a question may have this header: it is none of the message's own or of the connection's.
    #[must_use]
    pub fn may_tell(name: &HeaderName) -> bool {
        let is = |other: &&str| name.as_str().eq_ignore_ascii_case(other);
        !NEVER_TOLD.iter().any(is)
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

/// Tokens of clients: who signs them, and what they must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTokens {
    /// By what signatures are checked.
    pub keys: PushKeys,
    /// Others are refused. Empty: those that the keys are for, or the provider's.
    pub algorithms: Vec<JwtAlgorithm>,
    /// What `iss` must be. `None`: it is not looked at. A provider has its own, and what follows here as well.
    pub issuer: Option<Arc<str>>,
    /// One of these must be `aud`, or be among it. None: it is not looked at.
    pub audiences: Vec<Arc<str>>,
    /// By how much clocks may differ. Default 30 s.
    pub leeway: Duration,
}

/// By what signatures of tokens are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushKeys {
    /// A secret of HMAC.
    Secret(Secret),
    /// A set.
    Set(KeySet),
    /// What this provider signs by; issuer, audiences and leeway are its own, too. While its keys are not there clients are told to
    /// try again.
    Provider(Arc<JwtProvider>),
}

/// Keys of a provider that nobody has.
#[derive(Debug)]
struct Nowhere;

impl KeySource for Nowhere {
    fn look(&self, _: JwtAlgorithm, _: Option<&str>, _: Time) -> Look {
        Look::Unavailable
    }
}

impl PushTokens {
    /// The provider that signs them.
    pub(crate) fn provider(&self) -> Option<&Arc<JwtProvider>> {
        match &self.keys {
            PushKeys::Provider(provider) => Some(provider),
            _ => None,
        }
    }

    /// `keys` are the provider's, if it signs them.
    ///
    /// # Errors
    /// A secret that is too short.
    fn tokens(&self, keys: Option<Arc<dyn KeySource>>) -> Result<Tokens, String> {
        let (mut tokens, [issuer, audiences], leeway) = match &self.keys {
            PushKeys::Provider(provider) => {
                let keys = keys.unwrap_or_else(|| Arc::new(Nowhere));
                let tokens = Tokens::kept_by(keys, provider.algorithms.clone());
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

    /// Who may have issued them, and whom they are for.
    fn wanted(&self) -> [&[Arc<str>]; 2] {
        [self.issuer.as_slice(), &self.audiences]
    }
}

impl Default for Push {
    fn default() -> Push {
        let Options {
            plain,
            anonymous,
            limits,
            channels,
            connections_per_user,
            handshakes,
            connects_per_second,
            keys_remembered,
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
            nats: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }
}

impl Push {
    /// The same for who pushes. `keys` are those of the provider whose tokens clients show; without them all are told to try again.
    ///
    /// # Errors
    /// What cannot be, as `expected …, found …`.
    pub fn options(&self, keys: Option<Arc<dyn KeySource>>) -> Result<Options, String> {
        let namespaces = self.namespaces.iter();
        let key = self.api_key.as_ref().map(Secret::expose);
        let options = Options {
            plain: self.plain,
            namespaces: namespaces.map(|(name, it)| (name.to_string(), *it)).collect(),
            anonymous: self.anonymous,
            origins: self.origins.iter().map(ToString::to_string).collect(),
            // A key that is no text is nobody's: no header could say it.
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
            handshakes: self.handshakes,
            connects_per_second: self.connects_per_second,
            keys_remembered: self.keys_remembered,
            // The process's, which knows it.
            drain: Options::default().drain,
        };
        options.check().map_err(|error| error.to_string())?;
        Ok(options)
    }
}
