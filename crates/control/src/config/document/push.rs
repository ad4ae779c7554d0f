//! Keys of push.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Maybe, Nats, Some1};
use crate::config::texts::{PageUrl, Size, Time, To};
use crate::config::values::{Either, Pairs, Text, secret};
use ringmain_gateway::model::{HeaderName, HeaderValue, Hostname, JwtAlgorithm, Path};

/// What is pushed to clients, who connect by rules with `push: true`: WebSocket, SSE and HTTP streams, by the protocol of
/// Centrifuge's SDKs or without any. A change holds from the next command of a client on; connections stay, also when the key goes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Push {
    /// Clients connect without saying who they are. `false` if it does not say.
    pub(in crate::config) anonymous: Maybe<bool>,
    /// By what others say who they are, and what they may: tokens (JWT).
    pub(in crate::config) tokens: Maybe<PushTokens>,
    /// Each user is subscribed to a channel of its own in this namespace: `NAMESPACE:#USER`.
    pub(in crate::config) user_channel: Maybe<String>,
    /// Pages that may connect besides those of the same host: `https://app.example.com`, `https://*.example.com`, or `*` for any.
    pub(in crate::config) origins: Some1<String>,
    /// What the owner's programs say in `X-API-Key` to publish by `/api/publish`, and what else there is in `/api/`; best as
    /// `${env:…}` or `${file:…}`. Without it there is none of it.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) api_key: Maybe<String>,
    /// What the application is asked about clients. Nothing if it does not say.
    pub(in crate::config) proxy: Maybe<PushProxy>,
    /// What channels without a `:` in their name do.
    pub(in crate::config) channels: Maybe<PushNamespace>,
    /// What others do, by what is before the `:`.
    pub(in crate::config) namespaces: Pairs<PushNamespace>,
    /// How often a client is pinged, in whole seconds. Default: `25s`.
    pub(in crate::config) ping_interval: Maybe<Text<Time>>,
    /// How long a client may take to answer a ping, in whole seconds: at least `2s`, and at least `2s` less than `ping_interval`.
    /// Default: `10s`. A connection whose sent bytes stay unacknowledged for the sum of both and five seconds more is closed.
    pub(in crate::config) pong_timeout: Maybe<Text<Time>>,
    /// How much there may be.
    pub(in crate::config) limits: Maybe<PushLimits>,
    /// A folder for what outlives the process at a restart: epochs and offsets of channels, what is kept of them, keys of publications.
    /// It is created if it does not exist. It is written when the process begins to drain, used once at the next start, and never after
    /// a crash. Without it a restart starts new epochs; a process that takes over (`SIGUSR2`) continues in either case.
    pub(in crate::config) state_dir: Maybe<String>,
    /// Brokers (NATS) whose messages are published in channels, by a name that metrics and logs have. Without the key none is
    /// listened to any more.
    pub(in crate::config) nats: Pairs<Nats>,
}

/// What the application is asked about clients, as Centrifugo's proxy asks it: by POST, in JSON. Of each the URL, or all about it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushProxy {
    /// Who a client is that connects without a token, and what it is given.
    pub(in crate::config) connect: Maybe<Either<Text<PageUrl>, PushAsk>>,
    /// Whether a connection goes on whose time is over.
    pub(in crate::config) refresh: Maybe<Either<Text<PageUrl>, PushAsk>>,
    /// What clients call (`rpc`).
    pub(in crate::config) rpc: Maybe<Either<Text<PageUrl>, PushAsk>>,
    /// Whether a client may listen to a channel without a token for it, where `subscribe_proxy` wants it so.
    pub(in crate::config) subscribe: Maybe<Either<Text<PageUrl>, PushAsk>>,
    /// Whether a client may publish something, where `publish_proxy` wants it so.
    pub(in crate::config) publish: Maybe<Either<Text<PageUrl>, PushAsk>>,
    /// Whether a subscription goes on whose time is over, where `sub_refresh_proxy` wants it so.
    pub(in crate::config) sub_refresh: Maybe<Either<Text<PageUrl>, PushAsk>>,
    /// How long an answer may take that does not say: `1s` if this does not, either; at most `20s`.
    pub(in crate::config) timeout: Maybe<Text<Time>>,
    /// Headers of the request by which a client has connected that the application sees, beside those that policies of its rule
    /// write: `Cookie`, `Authorization`, `Origin`, `X-Forwarded-For`. None if it does not say.
    pub(in crate::config) headers: Some1<Text<HeaderName>>,
    /// Headers that a client may say in place of those that it cannot set (`headers` of the SDKs). The application must check
    /// them: whatever stands there is the client's own word. None if it does not say.
    pub(in crate::config) emulated_headers: Some1<Text<HeaderName>>,
    /// More headers that the application sees, with their values: a secret by which it knows who asks, best as `${env:…}` or
    /// `${file:…}`.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) own_headers: Pairs<Text<HeaderValue>>,
    /// Data are told in base64, as `b64data`. `false` if it does not say: they are JSON.
    pub(in crate::config) binary: Maybe<bool>,
}

/// Where the application is asked about something.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushAsk {
    /// The URL. Either this, or `to` and `path`.
    pub(in crate::config) url: Maybe<Text<PageUrl>>,
    /// Who is asked.
    pub(in crate::config) to: Maybe<Text<To>>,
    /// By which path.
    pub(in crate::config) path: Maybe<String>,
    /// The host that is asked for: that of the endpoint if it does not say.
    pub(in crate::config) host: Maybe<Text<Hostname>>,
    /// How long an answer may take; at most `20s`.
    pub(in crate::config) timeout: Maybe<Text<Time>>,
}

/// Tokens of clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushTokens {
    /// The secret that they are signed by (HS256, HS384, HS512), at least 32 bytes; best as `${env:…}` or `${file:…}`. This, `keys` or
    /// `provider`.
    #[serde(deserialize_with = "secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) secret: Maybe<String>,
    /// A file with the set of keys that they are signed by (JWKS).
    pub(in crate::config) keys: Maybe<String>,
    /// One of `jwt_providers`, whose tokens they are: its keys, which are fetched from where it serves them, and its `issuer`,
    /// `audience`, `algorithms` and `leeway`, which then do not stand here. While its keys are not there clients are told to try again.
    pub(in crate::config) provider: Maybe<String>,
    /// By what they may be signed. What the keys are for if it does not say.
    pub(in crate::config) algorithms: Some1<Text<JwtAlgorithm>>,
    /// What `iss` must be. It is not looked at if it does not say.
    pub(in crate::config) issuer: Maybe<String>,
    /// What `aud` must hold one of. It is not looked at if it does not say.
    pub(in crate::config) audience: Some1<String>,
    /// By how much clocks may differ: `30s` if it does not say.
    pub(in crate::config) leeway: Maybe<Text<Time>>,
}

/// Who may listen without a token for the channel.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushListen {
    /// Everybody who is connected.
    Anybody,
    /// Everybody of whom it is known who it is.
    Users,
    /// Nobody.
    Nobody,
}

/// What channels do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushNamespace {
    /// Who may listen without a token for the channel: `anybody`, `users` or `nobody`. `anybody` if it does not say.
    pub(in crate::config) listen: Maybe<PushListen>,
    /// What the data of publications must be: `json`, `json_object` or `binary`. Anything else is refused with error 107. Default: `json`.
    pub(in crate::config) data_format: Maybe<PushDataFormat>,
    /// Clients may publish. `false` if it does not say: the owner's programs alone do.
    pub(in crate::config) publish: Maybe<bool>,
    /// The application says who may listen without a token for the channel (`proxy.subscribe`), whatever `listen` says; but for
    /// channels of named users and private ones. `false` if it does not say.
    pub(in crate::config) subscribe_proxy: Maybe<bool>,
    /// The application says what clients publish (`proxy.publish`), whatever `publish` says. `false` if it does not say.
    pub(in crate::config) publish_proxy: Maybe<bool>,
    /// The application says whether subscriptions go on whose time is over (`proxy.sub_refresh`). `false` if it does not say.
    pub(in crate::config) sub_refresh_proxy: Maybe<bool>,
    /// What of the publications is kept, for those who come back. Nothing if it does not say.
    pub(in crate::config) keep: Maybe<PushKeep>,
    /// Clients recover what they have missed since a position (offset and epoch), without asking for that when they subscribe. Where it
    /// is `false` those recover that may read the history and ask for a recoverable subscription. Default: `false`.
    pub(in crate::config) recovery: Maybe<bool>,
    /// Clients may ask for what is kept, and recover all of it by the offset 0 without an epoch. Default: `false`.
    pub(in crate::config) history: Maybe<bool>,
    /// It is known who is there, and clients may ask. `false` if it does not say.
    pub(in crate::config) presence: Maybe<bool>,
    /// Those who are there are told who comes and goes. `false` if it does not say.
    pub(in crate::config) join_leave: Maybe<bool>,
    /// Who comes gets the last publication at once. `false` if it does not say.
    pub(in crate::config) cache: Maybe<bool>,
    /// At least so long between two publications that a client gets, the last of those in between, and all that is new in its
    /// channels at one moment. All publications if it does not say.
    pub(in crate::config) every: Maybe<Text<Time>>,
    /// What becomes of publications for a client that is too slow. `disconnect` if it does not say.
    pub(in crate::config) slow: Maybe<PushSlow>,
}

/// What is kept of a channel's publications.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushKeep {
    /// So many: 1 if it does not say.
    pub(in crate::config) publications: Maybe<u32>,
    /// At most so much of them, beside `publications`. Default: `1MiB`, or 64 KiB for each of `publications` if that is more.
    pub(in crate::config) size: Maybe<Text<Size>>,
    /// For so long: `5m` if it does not say.
    pub(in crate::config) time: Maybe<Text<Time>>,
    /// How long the offset and the epoch of a channel are retained after its last publication, or after its last subscriber has left
    /// (Centrifugo's `history_meta_ttl`); those of a channel that has not published for `time`. At the limit of channels
    /// (`limits.channels`) the longest unused is removed before. Default: `30d`.
    pub(in crate::config) meta_time: Maybe<Text<Time>>,
}

/// What the data of publications must be.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushDataFormat {
    /// One JSON value.
    Json,
    /// One JSON object.
    JsonObject,
    /// Any bytes: clients of the JSON format are disconnected (3506) by data that is not JSON.
    Binary,
}

/// What becomes of publications for a client that is too slow.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushSlow {
    /// The client is disconnected, comes back and recovers.
    Disconnect,
    /// The oldest that wait go.
    DropOld,
    /// New ones go.
    DropNew,
    /// A new one takes the place of the one of its channel that waits.
    Conflate,
    /// All that wait go, and the client subscribes again and recovers.
    Resync,
}

/// How much there may be of what is pushed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushLimits {
    /// Subscriptions of a client: 128 if it does not say.
    pub(in crate::config) subscriptions: Maybe<u32>,
    /// Connections of a user: 128 if it does not say.
    pub(in crate::config) connections_per_user: Maybe<u32>,
    /// Clients of a worker that are about to say who they are: 8192 if it does not say. More come back a little later.
    pub(in crate::config) handshakes: Maybe<u32>,
    /// Clients that a worker lets in within a second; more come back a little later. As many as come if it does not say.
    pub(in crate::config) connects_per_second: Maybe<u32>,
    /// How long an `idempotency_key` is remembered: `5m` if it does not say.
    pub(in crate::config) idempotency: Maybe<Text<Time>>,
    /// What waits for a client: `1MiB` if it does not say.
    pub(in crate::config) waiting: Maybe<Text<Size>>,
    /// Bytes of a client's message: a WebSocket with a longer one is closed with 1009, a request is answered 413. From `1KiB` to
    /// `1MiB`. Default: `64KiB`.
    pub(in crate::config) message: Maybe<Text<Size>>,
    /// Bytes of the body of a program's request (`/api/`); more is answered 413. From `1KiB` to `64MiB`. Default: `1MiB`.
    pub(in crate::config) api_body: Maybe<Text<Size>>,
    /// Channels of a worker: for one more the longest unused is removed, of those without subscribers and without publications that
    /// are kept. Default: 1048576.
    pub(in crate::config) channels: Maybe<u32>,
}

/// Where clients connect.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PushAt {
    /// The path that the endpoints are below: with `/live` clients connect to `/live/connection/websocket`.
    pub(in crate::config) below: Maybe<Text<Path>>,
}
