//! The keys of sources.

use std::time::Duration;

use ringmain_gateway::model::{
    RecordFormat, RedisDeployment, SaslMechanism, Secret, Source, SourceKind, StartPosition,
};

use super::{all_errors_of, valid_config};

fn with(push: &str) -> String {
    format!(
        "listen: :80\nto: http://127.0.0.1:1\nauthorities: {{own: own.pem}}\ncertificates: {{me: {{chain: a.crt, key: a.key}}}}\npush:\n{push}"
    )
}

fn source(push: &str, name: &str) -> Source {
    let config = valid_config(&with(push));
    Source::clone(&config.push.as_deref().expect("push").sources[name])
}

#[test]
fn the_examples_are_valid() {
    for text in [
        include_str!("../../../../../examples/push-kafka.yaml"),
        include_str!("../../../../../examples/push-jetstream.yaml"),
        include_str!("../../../../../examples/push-redis.yaml"),
        include_str!("../../../../../examples/push-postgres.yaml"),
    ] {
        // An example's secret is in the environment of its user.
        let config = valid_config(&text.replace("${env:PGPASSWORD}", "secret"));
        assert!(
            !config.push.as_deref().expect("push").sources.is_empty(),
            "{text}"
        );
    }
}

#[test]
fn kafka_is_read_with_its_defaults() {
    let plain = source("  kafka: {a: {servers: 'b:9092', topics: t}}\n", "a");
    assert!(plain.readiness);
    assert_eq!(
        (plain.mapping.in_flight, plain.mapping.format),
        (4096, RecordFormat::Data)
    );
    let SourceKind::Kafka(kafka) = &plain.kind else {
        panic!("{plain:?}");
    };
    assert_eq!((&*kafka.servers[0], &*kafka.topics[0]), ("b:9092", "t"));
    assert_eq!(
        (&kafka.group, kafka.start, kafka.read_committed),
        (&None, StartPosition::Back(Duration::from_secs(60)), true)
    );
    let full = source(
        "  kafka:
    a:
      servers: ['b:9092', '[::1]:9093']
      pattern: '^prices'
      group: g
      start: earliest
      read_committed: false
      sasl: {mechanism: scram-sha-256, user: ada, password: '${env:SECRET}'}
      tls: {server_name: kafka.example, authorities: own, certificate: me}
      channel: 'prices:{header:symbol}'
      format: commands
      dead_letters: dead
      in_flight: 10
      readiness: false
  namespaces: {prices: {}}
",
        "a",
    );
    assert!(!full.readiness);
    let mapping = &full.mapping;
    assert_eq!(
        (mapping.format, mapping.dead_letters.as_deref(), mapping.in_flight),
        (RecordFormat::Commands, Some("dead"), 10)
    );
    let SourceKind::Kafka(kafka) = &full.kind else {
        panic!("{full:?}");
    };
    let sasl = kafka.sasl.as_ref().expect("SASL");
    assert_eq!(sasl.mechanism, SaslMechanism::ScramSha256);
    assert_eq!(sasl.login.password, Secret::new(b"hun ter:2\n".as_slice()));
    let tls = kafka.tls.as_ref().expect("TLS");
    assert_eq!(tls.server_name.as_deref(), Some("kafka.example"));
    assert!(tls.authorities.is_some() && tls.certificate.is_some());
    assert_eq!(
        (kafka.pattern.as_deref(), kafka.start),
        (Some("^prices"), StartPosition::Earliest)
    );
}

#[test]
fn the_other_sources_are_read_with_their_defaults() {
    let push =
        "  jetstream: {j: {servers: 'nats://a', stream: S, subjects: 'p.>', durable: d, start: latest}}
  redis_streams: {r: {servers: ['a:1', 'b:2'], sentinel: main, streams: [s, t], password: p, claim_after: 5s}}
  redis_pubsub: {u: {servers: 'a:1', cluster: true, patterns: 'k*'}}
  postgres: {p: {server: 'a:5432', database: d, user: u, partitions: 4}}
";
    let SourceKind::JetStream(stream) = source(push, "j").kind else {
        panic!("no stream");
    };
    assert_eq!((&*stream.stream, stream.durable.as_deref()), ("S", Some("d")));
    assert_eq!(stream.start, StartPosition::Latest);
    let SourceKind::RedisStreams(streams) = source(push, "r").kind else {
        panic!("no streams");
    };
    assert_eq!(
        streams.access.deployment,
        RedisDeployment::Sentinel("main".into())
    );
    assert_eq!((&*streams.group, &*streams.field), ("ringmain", "data"));
    assert_eq!(streams.claim_after, Duration::from_secs(5));
    assert!(!streams.consumer.is_empty(), "the host's name");
    let SourceKind::RedisPubSub(pubsub) = source(push, "u").kind else {
        panic!("no pub/sub");
    };
    assert_eq!(pubsub.access.deployment, RedisDeployment::Cluster);
    let SourceKind::Postgres(postgres) = source(push, "p").kind else {
        panic!("no table");
    };
    assert_eq!((&*postgres.table, postgres.partitions), ("ringmain_outbox", 4));
}

/// Sources, each with a part of the error that is reported.
const WRONG: &[(&str, &str)] = &[
    (
        "kafka: {a: {}}",
        "6:11: expected the key `servers` with at least one, found none",
    ),
    (
        "kafka: {a: {servers: 'b:1'}}",
        "expected either the key `topics` or the key `pattern`, found none",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, pattern: p}}",
        "expected either the key `topics` or the key `pattern`, found both",
    ),
    (
        "kafka: {a: {servers: 'b', topics: t}}",
        "expected HOST:PORT, such as queue.internal:9092, found `b`",
    ),
    (
        "kafka: {a: {servers: 'b:1', pattern: '('}}",
        "expected a regular expression, found `(`",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: ''}}",
        "expected a name, found ``",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, channel: '{name}'}}",
        "in it, found `{name}`",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, in_flight: 0}}",
        "expected a whole number from 1 to 65536, found `0`",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, start: soon}}",
        "expected `earliest`, `latest`, or a time with its unit",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, sasl: {user: u}}}",
        "expected the key `password`, found none",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, sasl: {password: p}}}",
        "expected the key `user`, found none",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, tls: true}}",
        "expected a map with the keys `server_name`, `authorities`, `certificate`, found `true`",
    ),
    (
        "kafka: {servers: 'b:1', topics: t}",
        "6:20: expected a map under a name of your choice, such as `main: {servers: …}`, found `b:1`",
    ),
    (
        "nats: {servers: 'nats://b', subjects: s}",
        "expected a map under a name of your choice, such as `main: {subjects: …}`, found `s`",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, channel: 'prices:{key}'}}",
        "expected a channel without a namespace, as `push.namespaces` has none, found the namespace `prices`",
    ),
    (
        "namespaces: {price: {}, other: {}}\n  redis_pubsub: {a: {servers: 'b:1', patterns: p, channel: '$prices:{channel}'}}",
        "expected a channel of one of the namespaces `other`, `price`, found the namespace `prices`; did you mean `price`?",
    ),
    (
        "nats: {a: {servers: 'nats://b', subjects: s, channel: 'prices:{subject}'}}",
        "found the namespace `prices`",
    ),
    (
        "nats: {a: {servers: 'nats://b', subjects: s, user: u}}",
        "expected either `user` and `password`, or `token`, or `credentials`, found `user` alone",
    ),
    (
        "jetstream: {a: {servers: 'nats://b', stream: S, user: u, token: t}}",
        "expected either `user` and `password`, or `token`, or `credentials`, found `user` and `token`",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: t, sasl: {mechanism: gssapi, user: u, password: p}}}",
        "expected `plain`, `scram-sha-256` or `scram-sha-512`, found `gssapi`",
    ),
    (
        "jetstream: {a: {servers: 'nats://b'}}",
        "expected the key `stream`, found none",
    ),
    (
        "redis_streams: {a: {servers: 'b:1'}}",
        "expected the key `streams` with at least one, found none",
    ),
    (
        "redis_streams: {a: {servers: 'b:1', streams: s, cluster: true, sentinel: m}}",
        "expected either the key `cluster` or the key `sentinel`, found both",
    ),
    (
        "redis_pubsub: {a: {servers: 'b:1', patterns: p, user: u}}",
        "expected the key `password` beside `user`, found none",
    ),
    ("postgres: {a: {}}", "expected the key `server`, found none"),
    (
        "postgres: {a: {server: s, database: d, user: u, partitions: 0}}",
        "expected a whole number from 1 to 1024, found `0`",
    ),
    (
        "postgres: {a: {server: 'postgres://s/d', database: d, user: u}}",
        "expected HOST:PORT, such as db.internal:5432, or the directory of its socket, found `postgres://s/d`",
    ),
    (
        "jetstream: {a: {servers: 'nats://b', stream: P.1}}",
        "expected a name without spaces and none of the characters . * > / \\, found `P.1`",
    ),
    (
        "jetstream: {a: {servers: 'nats://b', stream: s, durable: 'a b'}}",
        "found `a b`",
    ),
    (
        "redis_pubsub: {a: {servers: 'b:1', patterns: p, channel: 'a:{header:x}'}}",
        "messages of pub/sub have no keys and no headers, found `{key}` or `{header:NAME}`",
    ),
    (
        "kafka: {a: {servers: 'b:1', topics: [s, t], dead_letters: t}}",
        "expected a destination that the source does not read, as it would read its dead letters again, found `t`",
    ),
    (
        "kafka: {a: {servers: 'b:1', pattern: '^t', dead_letters: tea}}",
        "found `tea`",
    ),
    (
        "jetstream: {a: {servers: 'nats://b', stream: s, subjects: 't.>', dead_letters: t.dead}}",
        "found `t.dead`",
    ),
    (
        "redis_streams: {a: {servers: 'b:1', streams: s, dead_letters: s}}",
        "found `s`",
    ),
    (
        "postgres: {a: {server: s, database: d, user: u, dead_letters: ringmain_outbox}}",
        "found `ringmain_outbox`",
    ),
];

#[test]
fn invalid_sources_are_reported_with_positions() {
    for (push, expected) in WRONG {
        let wrong = all_errors_of(&with(&format!("  {push}\n")));
        let found = wrong.iter().any(|error| error.contains(expected));
        assert!(found, "{push}: {wrong:?}");
    }
    let twice =
        "  kafka: {a: {servers: 'b:1', topics: t}}\n  jetstream: {a: {servers: 'nats://b', stream: s}}\n";
    let wrong = all_errors_of(&with(twice));
    let found = wrong
        .iter()
        .any(|error| error.contains("expected a name that no other source has, found `a`"));
    assert!(found, "{wrong:?}");
}
