//! The adapter without a server.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use ringmain_cluster::log::{Append, AppendKey, Binding, Partition};
use ringmain_gateway::model::{
    PushLog, PushLogEngine, PushTakeover, RedisAccess, RedisDeployment, RedisLog, RedisLoss,
};
use tokio::sync::mpsc;

use super::outcomes::take_batch;
use super::partitions::{Partitions, Placement};
use super::{Adapter, ServerId};
use crate::log::outbox::Outbox;
use crate::log::queue::AppendQueue;
use crate::log::tests::beat;

const ONE: Partition = Partition(1);

fn placement(partition: Partition) -> Placement {
    Placement {
        partition,
        binding: Binding(7),
        asked: None,
    }
}

fn with_adapter(test: impl FnOnce(&mut Adapter<'_>)) {
    let redis = RedisLog {
        access: RedisAccess {
            servers: ["127.0.0.1:1".into()].into(),
            deployment: RedisDeployment::Cluster,
            database: 0,
            login: None,
            tls: None,
        },
        prefix: "p".into(),
        loss: RedisLoss::Possible,
    };
    let log = PushLog {
        engine: PushLogEngine::Redis(redis.clone()),
        partitions: 2,
        retention: Duration::from_secs(600),
        takeover: PushTakeover {
            time: Duration::from_secs(2),
            bytes: 1 << 20,
        },
    };
    let (sender, _receiver) = mpsc::channel(1);
    test(&mut Adapter::new(&log, &redis, Outbox::new(sender, "redis")));
}

#[test]
fn a_late_reply_of_a_server_of_before_displaces_nothing() {
    with_adapter(|adapter| {
        adapter.partitions.place(ServerId(1), placement(ONE));
        let moved = || -> RedisError {
            let kind = ErrorKind::Server(ServerErrorKind::Moved);
            (kind, "moved", "1 127.0.0.1:2".to_owned()).into()
        };
        adapter.displace(ServerId(0), ONE, &moved());
        assert_eq!(adapter.partitions.queue_of(ONE), Some(ServerId(1)));
        assert!(!adapter.is_connecting, "nothing is searched");
        adapter.displace(ServerId(1), ONE, &moved());
        assert_eq!(adapter.partitions.queue_of(ONE), None);
    });
}

#[test]
fn appends_of_a_partition_keep_their_order() {
    let mut partitions = Partitions::new("p", 2);
    let append = |id, partition, key: Option<&str>| Append {
        id,
        partition: Partition(partition),
        entry: [1, 2].as_slice().into(),
        decoded: Box::new(beat(id)),
        key: key.map(|key| AppendKey {
            channel: "news".into(),
            key: key.into(),
            window: Duration::from_secs(1),
        }),
    };
    let all = [
        append(1, 0, None),
        append(2, 0, Some("a")),
        append(3, 0, None),
        append(4, 1, None),
    ];
    let taken = |partitions: &Partitions, is_cluster| {
        let mut queue = AppendQueue::default();
        all.iter()
            .for_each(|append| queue.push(append.clone(), Duration::ZERO));
        let batch = take_batch(&mut queue, partitions, is_cluster);
        batch.iter().map(|queued| queued.append.id).collect::<Vec<u64>>()
    };
    assert_eq!(taken(&partitions, false), [1, 2, 3, 4]);
    assert_eq!(taken(&partitions, true), [1, 2, 4], "the key may have to wait");
    // A batch at another server is in flight.
    partitions.set_appending([Partition(0)].into_iter(), true);
    assert_eq!(taken(&partitions, true), [4]);
}
