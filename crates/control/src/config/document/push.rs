//! Keys of the push server.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Field, JetStreamSection, KafkaSection, NatsSection, OneOrManyField, PostgresSection, PushClusterSection,
    RedisPubSubSection, RedisStreamsSection,
};
use crate::config::fields::{OrderedMap, Parsed, ShortOrFull, deserialize_secret};
use crate::config::scalars::{ByteSize, PageUrl, Time, UpstreamTarget};
use ringmain_gateway::model::{HeaderName, HeaderValue, Hostname, JwtAlgorithm, Path};

/// The push server. Clients connect at rules with `push: true`, over WebSocket, SSE and HTTP streams, with the client protocol
/// of Centrifuge's SDKs or unidirectionally. Changes apply from the next command of a client on; connections stay open, even
/// when the key is removed. Example: `{anonymous: true}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Push")]
pub(in crate::config) struct PushSection {
    /// Admits clients without a token. Default: `false`.
    pub(in crate::config) anonymous: Field<bool>,
    /// The verification of tokens (JWT), which identify other clients and grant permissions.
    pub(in crate::config) tokens: Field<PushTokensSection>,
    /// The namespace of personal channels: each user is subscribed to its own channel `NAMESPACE:#USER`. Default: none.
    /// Example: `personal`.
    pub(in crate::config) user_channel: Field<String>,
    /// The origins that may connect besides the same host: `https://app.example.com`, `https://*.example.com`, or `*` for any.
    /// Example: `https://app.example.com`.
    pub(in crate::config) origins: OneOrManyField<String>,
    /// The key that programs of the operator send in `X-API-Key` to use `/api/publish` and the other methods of the server API
    /// below `/api/`; best as `${env:…}` or `${file:…}`. Default: none, the server API is disabled. Example: `${env:API_KEY}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) api_key: Field<String>,
    /// The events for which the application is queried. Default: none.
    pub(in crate::config) proxy: Field<PushProxySection>,
    /// The options of channels without a `:` in their name.
    pub(in crate::config) channels: Field<PushNamespaceSection>,
    /// The options of other channels, by the part of the name before the `:`.
    pub(in crate::config) namespaces: OrderedMap<PushNamespaceSection>,
    /// The ping interval, in whole seconds, at most `1h`. Default: `25s`.
    pub(in crate::config) ping_interval: Field<Parsed<Time>>,
    /// The timeout for a client's pong, in whole seconds: at least `2s`, and at least `2s` less than `ping_interval`. Default:
    /// `10s`. A connection whose sent bytes are not acknowledged for the sum of both plus five seconds is closed.
    pub(in crate::config) pong_timeout: Field<Parsed<Time>>,
    /// The limits of the push server.
    pub(in crate::config) limits: Field<PushLimitsSection>,
    /// A directory for the state that is restored after a restart: epochs and offsets of channels, retained publications,
    /// idempotency keys. It is created if it does not exist. It is written when the process starts to drain, used once at the
    /// next start, and never after a crash. Without it a restart starts new epochs; a process that takes over (`SIGUSR2`)
    /// continues in either case. Example: `/var/lib/ringmain`.
    pub(in crate::config) state_dir: Field<String>,
    /// The nodes that share channels with this one. Default: none, this process serves its channels alone.
    pub(in crate::config) cluster: Field<PushClusterSection>,
    /// The NATS clusters whose messages are published in channels, by the name used in metrics and logs. Removing the key stops
    /// all consumers.
    pub(in crate::config) nats: OrderedMap<NatsSection>,
    /// The Kafka topics whose records are published in channels, by the name used in metrics and logs. A name is unique among all
    /// sources.
    pub(in crate::config) kafka: OrderedMap<KafkaSection>,
    /// The JetStream streams whose messages are published in channels, by the name used in metrics and logs.
    pub(in crate::config) jetstream: OrderedMap<JetStreamSection>,
    /// The Redis streams whose entries are published in channels, by the name used in metrics and logs.
    pub(in crate::config) redis_streams: OrderedMap<RedisStreamsSection>,
    /// The Redis pub/sub channels whose messages are published in channels, by the name used in metrics and logs.
    pub(in crate::config) redis_pubsub: OrderedMap<RedisPubSubSection>,
    /// The PostgreSQL outbox tables whose rows are published in channels, by the name used in metrics and logs.
    pub(in crate::config) postgres: OrderedMap<PostgresSection>,
}

/// The events for which the application is queried, compatible with Centrifugo's proxy: POST requests with JSON. Each event has
/// a URL, or the full form. Example: `{connect: "http://127.0.0.1:3000/connect"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushProxy")]
pub(in crate::config) struct PushProxySection {
    /// Authenticates clients that connect without a token, and grants subscriptions and permissions.
    pub(in crate::config) connect: Field<ShortOrFull<Parsed<PageUrl>, PushEndpointSection>>,
    /// Decides whether an expired connection continues.
    pub(in crate::config) refresh: Field<ShortOrFull<Parsed<PageUrl>, PushEndpointSection>>,
    /// Handles the calls of clients (`rpc`).
    pub(in crate::config) rpc: Field<ShortOrFull<Parsed<PageUrl>, PushEndpointSection>>,
    /// Decides whether a client may subscribe to a channel without a token for it, in namespaces with `subscribe_proxy`.
    pub(in crate::config) subscribe: Field<ShortOrFull<Parsed<PageUrl>, PushEndpointSection>>,
    /// Decides whether a client may publish, in namespaces with `publish_proxy`.
    pub(in crate::config) publish: Field<ShortOrFull<Parsed<PageUrl>, PushEndpointSection>>,
    /// Decides whether an expired subscription continues, in namespaces with `sub_refresh_proxy`.
    pub(in crate::config) sub_refresh: Field<ShortOrFull<Parsed<PageUrl>, PushEndpointSection>>,
    /// The default timeout of requests to the application, at most `20s`. Default: `1s`.
    pub(in crate::config) timeout: Field<Parsed<Time>>,
    /// The headers of the client's connection request that are sent to the application, such as `Cookie`, `Authorization`,
    /// `Origin` and `X-Forwarded-For`, in addition to those that policies of its rule set. Default: none.
    pub(in crate::config) headers: OneOrManyField<Parsed<HeaderName>>,
    /// The headers that a client may send with its connect command in place of headers that it cannot set (`headers` of the
    /// SDKs). Their values are chosen by the client, and the application must verify these. Default: none.
    pub(in crate::config) emulated_headers: OneOrManyField<Parsed<HeaderName>>,
    /// Further headers of requests to the application, with their values, such as a secret that authenticates the gateway; best
    /// as `${env:…}` or `${file:…}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) own_headers: OrderedMap<Parsed<HeaderValue>>,
    /// Sends data in base64, as `b64data`. Default: `false`, data is sent as JSON.
    pub(in crate::config) binary: Field<bool>,
}

/// The application's endpoint for an event. Example: `{url: "http://127.0.0.1:3000/connect"}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushEndpoint")]
pub(in crate::config) struct PushEndpointSection {
    /// The URL. Either this, or `to` and `path`.
    pub(in crate::config) url: Field<Parsed<PageUrl>>,
    /// The upstream of the application.
    pub(in crate::config) to: Field<Parsed<UpstreamTarget>>,
    /// The path. Example: `/connect`.
    pub(in crate::config) path: Field<String>,
    /// The `Host` of the request. Default: the endpoint's host.
    pub(in crate::config) host: Field<Parsed<Hostname>>,
    /// The timeout of the request, at most `20s`. Default: the value of `proxy.timeout`.
    pub(in crate::config) timeout: Field<Parsed<Time>>,
}

/// The verification of clients' tokens: one of `secret`, `keys` and `provider`. Example:
/// `{secret: "${env:TOKEN_SECRET}", algorithms: HS256}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushTokens")]
pub(in crate::config) struct PushTokensSection {
    /// The secret of tokens signed with HMAC (HS256, HS384, HS512), at least 32 bytes; best as `${env:…}` or `${file:…}`.
    /// Example: `${env:TOKEN_SECRET}`.
    #[serde(deserialize_with = "deserialize_secret")]
    #[schemars(extend("writeOnly" = true))]
    pub(in crate::config) secret: Field<String>,
    /// A JWKS file with the keys that verify tokens. Example: `jwks.json`.
    pub(in crate::config) keys: Field<String>,
    /// One of `jwt_providers`, which signs the tokens: its keys are fetched from its JWKS endpoint, and its `issuer`,
    /// `audience`, `algorithms` and `leeway` apply, which must not be set here. Until its keys are available clients receive a
    /// temporary error and retry. Example: `id`.
    pub(in crate::config) provider: Field<String>,
    /// The accepted signature algorithms. Default: those that the keys are for.
    pub(in crate::config) algorithms: OneOrManyField<Parsed<JwtAlgorithm>>,
    /// The expected value of `iss`. Default: none, `iss` is not checked. Example: `https://id.example`.
    pub(in crate::config) issuer: Field<String>,
    /// The accepted audiences: one must be in `aud`. Default: none, `aud` is not checked. Example: `shop`.
    pub(in crate::config) audience: OneOrManyField<String>,
    /// The tolerated clock skew. Default: `30s`.
    pub(in crate::config) leeway: Field<Parsed<Time>>,
}

/// The clients that may subscribe without a token for the channel.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushSubscribePolicy {
    /// Every connected client.
    Anybody,
    /// Every client whose user is known.
    Users,
    /// No client.
    Nobody,
}

/// The options of channels. Example: `{retention: {publications: 100}, history: true}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushNamespace")]
pub(in crate::config) struct PushNamespaceSection {
    /// The clients that may subscribe without a token for the channel. Default: `anybody`.
    pub(in crate::config) listen: Field<PushSubscribePolicy>,
    /// The format of publications' data; other data is rejected with error 107. Default: `json`.
    pub(in crate::config) data_format: Field<PushDataFormat>,
    /// Lets clients publish. Default: `false`, only the operator's programs publish.
    pub(in crate::config) publish: Field<bool>,
    /// The application decides which clients may subscribe without a token for the channel (`proxy.subscribe`), whatever
    /// `listen` is set to; except for channels of named users and private channels. Default: `false`.
    pub(in crate::config) subscribe_proxy: Field<bool>,
    /// The application decides whether clients may publish (`proxy.publish`), whatever `publish` is set to. Default: `false`.
    pub(in crate::config) publish_proxy: Field<bool>,
    /// The application decides whether expired subscriptions continue (`proxy.sub_refresh`). Default: `false`.
    pub(in crate::config) sub_refresh_proxy: Field<bool>,
    /// The retention of publications, for history and recovery. Default: none.
    pub(in crate::config) retention: Field<PushRetentionSection>,
    /// Lets clients recover publications missed since a position (offset and epoch) without requesting recovery in their
    /// subscription. With `false`, only clients that may read the history and request a recoverable subscription recover.
    /// Requires `retention`. Default: `false`.
    pub(in crate::config) recovery: Field<bool>,
    /// Lets clients query retained publications, and recover all retained publications with the offset 0 and no epoch. Requires
    /// `retention`. Default: `false`.
    pub(in crate::config) history: Field<bool>,
    /// Tracks the subscribers of each channel, and lets clients query presence. Default: `false`.
    pub(in crate::config) presence: Field<bool>,
    /// Notifies subscribers when clients join and leave. Default: `false`.
    pub(in crate::config) join_leave: Field<bool>,
    /// Sends the last publication to new subscribers immediately. Requires `retention`. Default: `false`.
    pub(in crate::config) cache: Field<bool>,
    /// The update interval (conflation): the minimum time between two publications of a channel that are sent to a client. At
    /// its next update the client receives the latest publication of each channel that has a new one. Requires `retention`. Default:
    /// none, every publication is sent.
    pub(in crate::config) update_interval: Field<Parsed<Time>>,
    /// The handling of publications for slow clients. Default: `disconnect`.
    pub(in crate::config) slow: Field<PushSlowPolicy>,
    /// The formats of deltas that clients may request in `subscribe` (Centrifugo's `allowed_delta_types`). Such a client receives
    /// each publication as a delta from the last one that it has received, if that is shorter. Publications are limited to 512 KiB.
    /// Default: none, publications are sent whole. Example: `fossil`.
    pub(in crate::config) delta: OneOrManyField<PushDelta>,
    /// Lets clients subscribe with a filter of publications by their tags (`tf`; Centrifugo's `allow_tags_filter`). Cannot be
    /// combined with `update_interval`. Default: `false`, such subscriptions are rejected with error 107.
    pub(in crate::config) tags_filter: Field<bool>,
    /// Sends clients that support it a number in place of the channel's name with each publication (Centrifugo PRO's
    /// `allow_channel_compaction`). Default: `false`.
    pub(in crate::config) compaction: Field<bool>,
}

/// A format of deltas.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushDelta {
    /// The format of Fossil, which Centrifuge's SDKs support.
    Fossil,
}

/// The retention of a channel's publications. Example: `{publications: 100, time: 10m}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushRetention")]
pub(in crate::config) struct PushRetentionSection {
    /// The maximum number of retained publications. Default: 1.
    pub(in crate::config) publications: Field<u32>,
    /// The maximum size of retained publications, besides `publications`. Default: `1MiB`, or 64 KiB for each of `publications`
    /// if that is more.
    pub(in crate::config) size: Field<Parsed<ByteSize>>,
    /// The retention time of publications. Default: `5m`.
    pub(in crate::config) time: Field<Parsed<Time>>,
    /// The retention time of a channel's offset and epoch after its last publication, or after its last subscriber has left
    /// (Centrifugo's `history_meta_ttl`), at least `time`; in a channel that has not published, `time` applies. At the limit of
    /// channels (`limits.channels`) the longest unused channel is removed earlier. Default: `30d`.
    pub(in crate::config) meta_time: Field<Parsed<Time>>,
}

/// The format of publications' data.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushDataFormat {
    /// One JSON value.
    Json,
    /// One JSON object.
    JsonObject,
    /// Any bytes. Data that is not JSON disconnects clients of the JSON format (3506).
    Binary,
}

/// The handling of publications for slow clients.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::config) enum PushSlowPolicy {
    /// Disconnects the client, which reconnects and recovers.
    Disconnect,
    /// Drops the oldest pending publications.
    DropOld,
    /// Drops new publications.
    DropNew,
    /// Replaces the pending publication of the same channel by the new one.
    Conflate,
    /// Drops all pending publications; the client subscribes again and recovers.
    Resync,
}

/// The limits of the push server. Example: `{subscriptions: 256}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushLimits")]
pub(in crate::config) struct PushLimitsSection {
    /// The maximum number of subscriptions per client. Default: 128.
    pub(in crate::config) subscriptions: Field<u32>,
    /// The maximum number of connections per user. Default: 128.
    pub(in crate::config) connections_per_user: Field<u32>,
    /// The maximum number of clients per worker that are connecting and not yet authenticated; further clients are rejected
    /// with 503 and retry later. Default: 8192.
    pub(in crate::config) handshakes: Field<u32>,
    /// The maximum number of clients that a worker admits per second; further clients are rejected with 503 and retry later.
    /// Default: unlimited. Example: `500`.
    pub(in crate::config) connects_per_second: Field<u32>,
    /// The retention time of an `idempotency_key`. Default: `5m`.
    pub(in crate::config) idempotency: Field<Parsed<Time>>,
    /// The maximum size of pushes that are pending for a client; beyond it `slow` applies. Default: `1MiB`.
    pub(in crate::config) waiting: Field<Parsed<ByteSize>>,
    /// The maximum size of a client's message, from `1KiB` to `1MiB`: beyond it a WebSocket is closed with 1009, and a request
    /// is rejected with 413. Default: `64KiB`.
    pub(in crate::config) message: Field<Parsed<ByteSize>>,
    /// The maximum size of a request body of the server API (`/api/`), from `1KiB` to `64MiB`: beyond it 413. Default: `1MiB`.
    pub(in crate::config) api_body: Field<Parsed<ByteSize>>,
    /// The maximum number of channels per worker. At the limit a new channel replaces the longest unused one without
    /// subscribers and retained publications. Default: 1048576.
    pub(in crate::config) channels: Field<u32>,
}

/// The location of the push endpoints. Example: `{below: /live}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "PushLocation")]
pub(in crate::config) struct PushLocationSection {
    /// The prefix of the endpoints' paths: with `/live`, clients connect to `/live/connection/websocket`. Default: none.
    pub(in crate::config) below: Field<Parsed<Path>>,
}
