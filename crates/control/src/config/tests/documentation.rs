//! The documented defaults and examples of keys are those of the code.
//!
//! Each section has a file in which `@` is replaced by the section. With the documented default of a key the file must have the
//! meaning of the file without the key, and each example must be readable at its key.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::deserializer::NodeDeserializer;
use super::super::document::Document;
use super::super::error::Diagnostics;
use super::super::schema::{KeyDoc, schema};
use super::super::yaml;
use super::{all_errors_of, loaded};

const UPSTREAM: &str = "listen: ':80'\nto: app\nauthorities: {staff: ca.pem}\ncertificates: {site: {chain: a.crt, key: a.key}}\nupstreams: {app: @}\n";
const RULE: &str = "listen: ':80'\nauthorities: {staff: ca.pem}\njwt_providers: {id: {issuer: i, keys: jwks.json, algorithms: EdDSA}}\nroutes: {shop: {rules: [@]}}\n";
const LISTENER: &str = "to: http://127.0.0.1:1\nauthorities: {staff: ca.pem}\ncertificates: {site: {chain: a.crt, key: a.key}}\nlisteners: {main: @}\n";
const CLUSTER: &str = "listen: ':80'\nauthorities: {nodes: ca.pem}\ncertificates: {node: {chain: a.crt, key: a.key}}\nroutes: {live: {rules: [{push: true}]}}\npush: {anonymous: true, cluster: @}\n";
const PUSH: &str = "listen: ':80'\nauthorities: {staff: ca.pem}\ncertificates: {site: {chain: a.crt, key: a.key}}\njwt_providers: {id: {issuer: i, keys: jwks.json, algorithms: EdDSA}}\nroutes: {live: {rules: [{push: true}]}}\npush: @\n";
const PROCESS: &str = "listen: ':80'\nto: http://127.0.0.1:1\n";

/// Sections, each with its file: one of the above, and the keys between.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("Listener", LISTENER, "@"),
    ("ListenerTls", LISTENER, "{address: ':443', tls: @}"),
    (
        "ClientCertificates",
        LISTENER,
        "{address: ':443', tls: {certificates: site, clients: @}}",
    ),
    ("ProxyProtocol", LISTENER, "{address: ':80', proxy_protocol: @}"),
    (
        "HttpsRedirect",
        LISTENER,
        "{address: ':80', redirect_to_https: @}",
    ),
    ("ClientAddress", LISTENER, "{address: ':80', client_address: @}"),
    ("HttpLimits", LISTENER, "{address: ':80', limits: @}"),
    (
        "Certificate",
        "listen: ':80'\nto: http://127.0.0.1:1\ncertificates: {site: @}\n",
        "@",
    ),
    (
        "Stream",
        "listeners: {main: {address: ':1', protocol: tcp}}\nstreams: {db: @}\n",
        "@",
    ),
    ("Admin", PROCESS, "admin: @"),
    ("AccessLog", PROCESS, "access_log: @"),
    ("ProcessLog", PROCESS, "log: @"),
    ("Limits", PROCESS, "limits: @"),
    ("Kubernetes", PROCESS, "kubernetes: @"),
    ("GatewayAddresses", PROCESS, "kubernetes: {addresses: @}"),
    ("JwtProvider", PROCESS, "jwt_providers: {id: @}"),
    ("Jwks", PROCESS, "jwt_providers: {id: {issuer: i, jwks: @}}"),
    (
        "Route",
        "listeners: {main: {address: ':80'}}\nroutes: {shop: @}\n",
        "@",
    ),
    ("Rule", RULE, "@"),
    ("Match", RULE, "{match: @, respond: 200}"),
    ("Backend", RULE, "{to: @}"),
    ("HeaderChanges", RULE, "{respond: 200, request_headers: @}"),
    ("ResponseHeaders", RULE, "{respond: 200, response_headers: @}"),
    (
        "StatusHeaders",
        RULE,
        "{respond: 200, response_headers: {by_status: @}}",
    ),
    ("Rewrite", RULE, "{to: 'http://127.0.0.1:1', rewrite: @}"),
    ("Redirect", RULE, "{redirect: @}"),
    ("Respond", RULE, "{respond: @}"),
    ("ErrorPage", RULE, "{respond: 404, error_pages: @}"),
    ("Files", RULE, "{files: @}"),
    ("Mirror", RULE, "{to: 'http://127.0.0.1:1', mirror: @}"),
    ("Timeouts", RULE, "{to: 'http://127.0.0.1:1', timeouts: @}"),
    ("BodyLimits", RULE, "{to: 'http://127.0.0.1:1', body: @}"),
    ("Cors", RULE, "{respond: 200, cors: @}"),
    ("Retry", RULE, "{to: 'http://127.0.0.1:1', retry: @}"),
    ("Affinity", RULE, "{to: 'http://127.0.0.1:1', affinity: @}"),
    (
        "Cookie",
        RULE,
        "{to: 'http://127.0.0.1:1', affinity: {cookie: @}}",
    ),
    (
        "PushLocation",
        "listen: ':80'\npush: {anonymous: true}\nroutes: {live: {rules: [{push: @}]}}\n",
        "@",
    ),
    ("Policies", RULE, "{respond: 200, policies: @}"),
    ("Filter", RULE, "{respond: 200, policies: {filters: @}}"),
    ("Addresses", RULE, "{respond: 200, policies: {addresses: @}}"),
    (
        "ClientCertificate",
        "listeners: {main: {address: ':443', tls: {certificates: site, clients: {authorities: staff}}}}\nauthorities: {staff: ca.pem}\ncertificates: {site: {chain: a.crt, key: a.key}}\nroutes: {shop: {rules: [{to: 'http://127.0.0.1:1', policies: {client_certificate: @}}]}}\n",
        "@",
    ),
    ("BasicAuth", RULE, "{respond: 200, policies: {basic: @}}"),
    ("ApiKeys", RULE, "{respond: 200, policies: {api_keys: @}}"),
    ("Jwt", RULE, "{respond: 200, policies: {jwt: @}}"),
    ("ExternalAuth", RULE, "{respond: 200, policies: {authz: @}}"),
    (
        "GrpcCheck",
        RULE,
        "{respond: 200, policies: {authz: {to: 'h2c://127.0.0.1:9000', grpc: @}}}",
    ),
    (
        "ExternalProcessor",
        RULE,
        "{respond: 200, policies: {ext_proc: @}}",
    ),
    ("RateLimit", RULE, "{respond: 200, policies: {rate_limit: @}}"),
    (
        "Redis",
        RULE,
        "{respond: 200, policies: {rate_limit: {requests: 9, name: all, redis: @}}}",
    ),
    (
        "RateLimitService",
        RULE,
        "{respond: 200, policies: {rate_limit_service: @}}",
    ),
    (
        "RateLimitDescriptor",
        RULE,
        "{respond: 200, policies: {rate_limit_service: {to: 'h2c://127.0.0.1:9000', domain: a, descriptors: @}}}",
    ),
    (
        "RateLimitEntry",
        RULE,
        "{respond: 200, policies: {rate_limit_service: {to: 'h2c://127.0.0.1:9000', domain: a, descriptors: {entries: @}}}}",
    ),
    ("Concurrency", RULE, "{respond: 200, policies: {concurrency: @}}"),
    ("Shed", RULE, "{respond: 200, policies: {shed: @}}"),
    ("Inject", RULE, "{respond: 200, policies: {inject: @}}"),
    (
        "InjectDelay",
        RULE,
        "{respond: 200, policies: {inject: {delay: @}}}",
    ),
    (
        "InjectAbort",
        RULE,
        "{respond: 200, policies: {inject: {abort: @}}}",
    ),
    ("Upstream", UPSTREAM, "@"),
    (
        "RetryBudget",
        UPSTREAM,
        "{endpoints: '127.0.0.1:1', retry_budget: @}",
    ),
    ("Endpoint", UPSTREAM, "{endpoints: @}"),
    ("UpstreamTls", UPSTREAM, "{endpoints: '127.0.0.1:1', tls: @}"),
    (
        "PeakEwma",
        UPSTREAM,
        "{endpoints: '127.0.0.1:1', balance: {peak_ewma: @}}",
    ),
    (
        "PushBalance",
        UPSTREAM,
        "{endpoints: '127.0.0.1:1', health: {active: {path: /readyz}}, balance: {push: @}}",
    ),
    ("Pool", UPSTREAM, "{endpoints: '127.0.0.1:1', pool: @}"),
    ("SlowStart", UPSTREAM, "{endpoints: '127.0.0.1:1', slow_start: @}"),
    ("Health", UPSTREAM, "{endpoints: '127.0.0.1:1', health: @}"),
    (
        "ActiveHealth",
        UPSTREAM,
        "{endpoints: '127.0.0.1:1', health: {active: @}}",
    ),
    (
        "Outliers",
        UPSTREAM,
        "{endpoints: '127.0.0.1:1', health: {outliers: @}}",
    ),
    ("Push", PUSH, "@"),
    ("PushProxy", PUSH, "{anonymous: true, proxy: @}"),
    ("PushEndpoint", PUSH, "{anonymous: true, proxy: {connect: @}}"),
    ("PushTokens", PUSH, "{tokens: @}"),
    (
        "PushNamespace",
        PUSH,
        "{anonymous: true, namespaces: {prices: @}}",
    ),
    (
        "PushRetention",
        PUSH,
        "{anonymous: true, namespaces: {prices: {retention: @}}}",
    ),
    ("PushLimits", PUSH, "{anonymous: true, limits: @}"),
    ("PushCluster", PUSH, "{anonymous: true, cluster: @}"),
    (
        "PushNodes",
        PUSH,
        "{anonymous: true, cluster: {listen: '127.0.0.1:7946', nodes: @}}",
    ),
    (
        "PushService",
        PUSH,
        "{anonymous: true, cluster: {listen: '127.0.0.1:7946', nodes: {kubernetes: @}}}",
    ),
    (
        "PushClusterTls",
        CLUSTER,
        "{listen: '10.0.0.5:7946', nodes: 'push:7946', tls: @}",
    ),
    (
        "PushRebalance",
        CLUSTER,
        "{listen: '127.0.0.1:7946', nodes: 'push:7946', rebalance: @}",
    ),
    (
        "PushLog",
        CLUSTER,
        "{listen: '127.0.0.1:7946', nodes: 'push:7946', log: @}",
    ),
    (
        "PushTakeover",
        CLUSTER,
        "{listen: '127.0.0.1:7946', nodes: 'push:7946', log: {redis: {servers: 'a:1'}, takeover: @}}",
    ),
    (
        "PushLogRedis",
        CLUSTER,
        "{listen: '127.0.0.1:7946', nodes: 'push:7946', log: {redis: @}}",
    ),
    (
        "PushLogJetStream",
        CLUSTER,
        "{listen: '127.0.0.1:7946', nodes: 'push:7946', log: {jetstream: @}}",
    ),
    (
        "PushLogKafka",
        CLUSTER,
        "{listen: '127.0.0.1:7946', nodes: 'push:7946', log: {kafka: @}}",
    ),
    ("Nats", PUSH, "{anonymous: true, nats: {prices: @}}"),
    (
        "NatsTls",
        PUSH,
        "{anonymous: true, nats: {prices: {servers: 'nats://a', subjects: a, tls: @}}}",
    ),
    ("Kafka", PUSH, "{anonymous: true, kafka: {prices: @}}"),
    (
        "KafkaSasl",
        PUSH,
        "{anonymous: true, kafka: {prices: {servers: 'a:1', topics: a, sasl: @}}}",
    ),
    (
        "BrokerTls",
        PUSH,
        "{anonymous: true, kafka: {prices: {servers: 'a:1', topics: a, tls: @}}}",
    ),
    ("JetStream", PUSH, "{anonymous: true, jetstream: {prices: @}}"),
    (
        "RedisStreams",
        PUSH,
        "{anonymous: true, redis_streams: {prices: @}}",
    ),
    (
        "RedisPubSub",
        PUSH,
        "{anonymous: true, redis_pubsub: {prices: @}}",
    ),
    ("Postgres", PUSH, "{anonymous: true, postgres: {prices: @}}"),
];

fn file(section: &str, keys: &Value) -> String {
    let (_, file, between) = SECTIONS
        .iter()
        .find(|(name, ..)| *name == section)
        .unwrap_or_else(|| panic!("expected a file for the section {section}"));
    let between = between.replace('@', &keys.to_string());
    if file.contains('@') {
        file.replace('@', &between)
    } else {
        format!("{file}{between}\n")
    }
}

/// A section of the schema.
struct SectionSchema {
    name: String,
    /// The schemas of its keys.
    keys: Map<String, Value>,
    example: Map<String, Value>,
}

fn sections() -> Vec<SectionSchema> {
    let schema = schema();
    let definitions = schema["$defs"].as_object().unwrap();
    let sections = definitions.iter().filter_map(|(name, definition)| {
        let keys = definition["properties"].as_object()?.clone();
        let example = definition["examples"][0].as_object();
        let example = example.unwrap_or_else(|| panic!("expected an example of {name}"));
        Some(SectionSchema {
            name: name.clone(),
            keys,
            example: example.clone(),
        })
    });
    sections.collect()
}

#[test]
fn documentation_is_cut_into_its_parts() {
    let doc = KeyDoc::parse(
        "The period, at least `1ms`.\nDefault: `1s`, as `limits.body` has it. From `1.5` on. Example: `{a: b.c}`. Required.",
    );
    assert_eq!(doc.text, "The period, at least `1ms`. From `1.5` on.");
    assert_eq!(doc.default.as_deref(), Some("`1s`, as `limits.body` has it"));
    assert_eq!(doc.examples, ["{a: b.c}"]);
    assert!(doc.is_required);
}

#[test]
fn examples_of_sections_are_valid_files() {
    for SectionSchema { name, example, .. } in sections() {
        let text = file(&name, &Value::Object(example));
        assert_eq!(all_errors_of(&text), Vec::<String>::new(), "{name}:\n{text}");
    }
}

#[test]
fn examples_of_keys_can_be_read() {
    let mut count = 0;
    for SectionSchema { name, keys, example } in sections() {
        for (key, schema) in keys {
            let examples = schema["examples"].as_array().unwrap();
            assert!(!examples.is_empty(), "expected an example of {name}.{key}");
            for value in examples {
                let mut section = example.clone();
                section.insert(key.clone(), value.clone());
                let text = file(&name, &Value::Object(section));
                let errors = Diagnostics::new("f");
                let node = yaml::parse(&text, &errors).expect("YAML");
                let _ = Document::deserialize(NodeDeserializer::new(&node, &errors));
                let (all, ..) = errors.finish();
                assert!(all.is_empty(), "{name}.{key}: {value}: {all:?}");
                count += 1;
            }
        }
    }
    assert!(count > 400, "{count}");
}

#[test]
fn documented_defaults_are_those_of_omitted_keys() {
    let (mut count, mut wrong) = (0, Vec::new());
    for SectionSchema {
        name,
        keys,
        mut example,
    } in sections()
    {
        for (key, schema) in keys {
            let default = &schema["default"];
            let id = format!("{name}.{key}");
            if default.is_null() {
                continue;
            }
            let set = example.remove(&key);
            let omitted = file(&name, &Value::Object(example.clone()));
            example.insert(key.clone(), default.clone());
            let explicit = file(&name, &Value::Object(example.clone()));
            example.remove(&key);
            example.extend(set.map(|value| (key, value)));
            let meanings = [&omitted, &explicit].map(|text| {
                let loaded = loaded(text);
                (all_errors_of(text), loaded.config, loaded.kubernetes)
            });
            if meanings[0] != meanings[1] || meanings[0].1.is_none() {
                wrong.push(format!("{id}: {default}: {:?}", meanings[1].0));
            }
            count += 1;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count > 100, "{count}");
}

#[test]
fn defaults_of_the_file_are_those_of_an_empty_one() {
    let schema = schema();
    let keys = schema["properties"].as_object().unwrap();
    assert!(
        keys.values().all(|key| key["default"].is_null()),
        "add the default to the test above"
    );
    assert_eq!(json!(keys.len()), 16);
}
