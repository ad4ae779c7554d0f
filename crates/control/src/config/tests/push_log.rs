//! The keys of the log behind a push cluster.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{PushLog, PushLogEngine, PushTakeover, RedisDeployment, RedisLoss};

use super::{all_errors_of, valid_config};

fn with(log: &str) -> String {
    format!(
        "listen: :80\nto: http://127.0.0.1:1\npush:\n  cluster: {{listen: '127.0.0.1:7946', nodes: 'push:7946', log: {log}}}\n"
    )
}

fn log_of(log: &str) -> Arc<PushLog> {
    let push = valid_config(&with(log)).push.expect("push");
    let cluster = push.cluster.clone().expect("a cluster");
    cluster.log.clone().expect("a log")
}

#[test]
fn a_cluster_has_no_log_by_default() {
    let text = with("@").replace(", log: @", "");
    let push = valid_config(&text).push.expect("push");
    assert_eq!(push.cluster.as_ref().expect("a cluster").log, None);
}

#[cfg(feature = "brokers")]
#[test]
fn a_log_in_redis_is_read_with_its_defaults() {
    let log = log_of("{redis: {servers: '10.0.0.1:6379'}}");
    assert_eq!((log.partitions, log.retention), (64, Duration::from_secs(3600)));
    let takeover = PushTakeover {
        time: Duration::from_secs(2),
        bytes: 64 << 20,
    };
    assert_eq!(log.takeover, takeover);
    let PushLogEngine::Redis(redis) = &log.engine else {
        panic!("expected Redis, found {:?}", log.engine);
    };
    assert_eq!((&*redis.prefix, redis.loss), ("ringmain", RedisLoss::Possible));
    assert_eq!(redis.access.deployment, RedisDeployment::Single);
}

#[cfg(feature = "brokers")]
#[test]
fn a_log_in_redis_may_lose_nothing() {
    let log = log_of(
        "{redis: {servers: ['a:1', 'b:1'], sentinel: main, loss: none, replicas: 2, prefix: live}, partitions: 7, retention: 10m, takeover: {time: 1s, bytes: 1MiB}}",
    );
    let PushLogEngine::Redis(redis) = &log.engine else {
        panic!("expected Redis, found {:?}", log.engine);
    };
    assert_eq!(
        (&*redis.prefix, redis.loss),
        ("live", RedisLoss::None { replicas: 2 })
    );
    assert_eq!(redis.access.deployment, RedisDeployment::Sentinel("main".into()));
    assert_eq!((log.partitions, log.retention), (7, Duration::from_secs(600)));
    let takeover = PushTakeover {
        time: Duration::from_secs(1),
        bytes: 1 << 20,
    };
    assert_eq!(log.takeover, takeover);
}

#[cfg(feature = "brokers")]
#[test]
fn logs_in_jetstream_and_kafka_are_read_with_their_defaults() {
    let log = log_of("{jetstream: {servers: 'nats://a:4222', replicas: 3}}");
    let PushLogEngine::JetStream(jetstream) = &log.engine else {
        panic!("expected JetStream, found {:?}", log.engine);
    };
    let names = (&*jetstream.stream, &*jetstream.prefix, jetstream.replicas);
    assert_eq!(names, ("RINGMAIN", "ringmain.log", 3));
    let log = log_of("{kafka: {servers: ['a:9092', 'b:9092'], topic: live}}");
    let PushLogEngine::Kafka(kafka) = &log.engine else {
        panic!("expected Kafka, found {:?}", log.engine);
    };
    let servers: Vec<Arc<str>> = vec!["a:9092".into(), "b:9092".into()];
    assert_eq!(
        (&kafka.servers, &*kafka.topic, kafka.replicas),
        (&servers, "live", 1)
    );
}

#[test]
fn invalid_logs_are_reported() {
    for (log, expected) in [
        (
            "{}",
            "expected exactly one of the keys `redis`, `jetstream` and `kafka`, found none",
        ),
        (
            "{redis: {servers: 'a:1'}, kafka: {servers: 'a:1'}}",
            "expected exactly one of the keys `redis`, `jetstream` and `kafka`, found several",
        ),
        (
            "{redis: {}}",
            "expected the key `servers` with at least one, found none",
        ),
        (
            "{kafka: {}}",
            "expected the key `servers` with at least one, found none",
        ),
        (
            "{jetstream: {}}",
            "expected the key `servers` with at least one, found none",
        ),
        (
            "{redis: {servers: 'a:1'}, partitions: 0}",
            "expected a whole number from 1 to 1024, found `0`",
        ),
        (
            "{redis: {servers: 'a:1', replicas: 2}}",
            "expected the key `loss: none` beside `replicas`, found none",
        ),
        (
            "{redis: {servers: 'a:1', cluster: true, sentinel: main}}",
            "expected either the key `cluster` or the key `sentinel`, found both",
        ),
        (
            "{redis: {servers: 'a:1'}, takeover: {time: 5s}}",
            "expected a `time` of at most 4s: clients wait no longer, found 5s",
        ),
        (
            "{redis: {servers: 'a:1'}, retention: 59s}",
            "expected a `retention` of the log of at least 60s, found 59s",
        ),
        (
            "{redis: {servers: 'a:1'}, retention: 299s}",
            "expected a `retention` of the log of at least 300s, which is `push.limits.idempotency`: raise the one, or lower the other, found 299s",
        ),
        (
            "{jetstream: {servers: 'nats://a', stream: 'a.b'}}",
            "expected a name of 1 to 200 letters, digits and the characters -_, found `a.b`",
        ),
    ] {
        let errors = all_errors_of(&with(log)).join("\n");
        assert!(errors.contains(expected), "{log}: {errors}");
    }
}

#[test]
fn a_log_is_not_shorter_than_the_history_of_a_namespace() {
    let with_history = |log: &str| {
        let history = "push:\n  channels: {retention: {time: 30m}}\n  namespaces: {news: {retention: {time: 2h}}, chat: {}}\n";
        with(log).replace("push:\n", history)
    };
    for (log, found) in [
        ("{redis: {servers: 'a:1'}}", "3600s"),
        ("{redis: {servers: 'a:1'}, retention: 119m}", "7140s"),
        ("{redis: {servers: 'a:1'}, retention: 1s}", "1s"),
    ] {
        let errors = all_errors_of(&with_history(log)).join("\n");
        let expected = format!(
            "expected a `retention` of the log of at least 7200s, which is `retention.time` of `push.namespaces.news`: raise the one, or lower the other, found {found}"
        );
        assert!(errors.contains(&expected), "{log}: {errors}");
    }
    let errors = all_errors_of(&with_history("{redis: {servers: 'a:1'}, retention: 2h}")).join("\n");
    assert!(!errors.contains("retention"), "{errors}");
}
