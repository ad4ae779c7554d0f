//! Reads a broker's records with the same client library, and does nothing with them: the part of a source's CPU that is the library's.
//!
//! ```text
//! client_floor kafka 127.0.0.1:9092 TOPIC
//! client_floor jetstream nats://127.0.0.1:4222 STREAM
//! client_floor redis_streams 127.0.0.1:6379 STREAM
//! ```
//!
//! Prints the number of records so far whenever it has changed. `bench/sources.py --floor` measures it. Like the sources, the thread
//! pauses while records arrive.
#![expect(clippy::print_stdout, reason = "the counts are its output")]

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use futures_util::StreamExt;
use redis::{Value, cmd};
use ringmain_sys::clock;

type Error = Box<dyn std::error::Error>;

const LINGER: Duration = Duration::from_millis(1);
const PRINT_INTERVAL: Duration = Duration::from_millis(50);

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, address, name] =
        <[String; 3]>::try_from(arguments).map_err(|_| "expected KIND ADDRESS NAME")?;
    let read = Arc::new(AtomicU64::new(0));
    let (seen, slept) = (AtomicU64::new(0), AtomicU64::new(0));
    let counter = Arc::clone(&read);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(move || {
            let count = counter.load(Ordering::Relaxed);
            if seen.swap(count, Ordering::Relaxed) != count {
                let due = Duration::from_nanos(slept.load(Ordering::Relaxed)) + LINGER;
                #[expect(clippy::disallowed_methods, reason = "the thread does nothing for a moment")]
                std::thread::sleep(due.saturating_sub(clock::monotonic()));
                slept.store(clock::monotonic().as_nanos() as u64, Ordering::Relaxed);
            }
        })
        .build()?;
    runtime.block_on(async {
        let printed = Rc::new(Cell::new(u64::MAX));
        let print = async {
            loop {
                let count = read.load(Ordering::Relaxed);
                if printed.replace(count) != count {
                    println!("{count}");
                    std::io::stdout().flush()?;
                }
                tokio::time::sleep(PRINT_INTERVAL).await;
            }
        };
        tokio::select! {
            result = consume(&kind, &address, &name, &read) => result,
            result = print => result,
        }
    })
}

async fn consume(kind: &str, address: &str, name: &str, read: &AtomicU64) -> Result<(), Error> {
    match kind {
        "kafka" => kafka(address, name, read).await,
        "jetstream" => jetstream(address, name, read).await,
        "redis_streams" => redis_streams(address, name, read).await,
        _ => Err("expected kafka, jetstream or redis_streams".into()),
    }
}

async fn kafka(address: &str, topic: &str, read: &AtomicU64) -> Result<(), Error> {
    let client = krafka::Kafka::builder(address)
        .client_id("floor")
        .connect()
        .await?;
    let consumer = client
        .consumer_without_group()
        .enable_auto_commit(false)
        .fetch_max_wait(Duration::from_millis(100))
        .max_poll_records(1000)
        .max_buffered_records(4000)
        .build()
        .await?;
    consumer.subscribe(&[topic.to_owned()]).await?;
    loop {
        let records = consumer.poll(Duration::from_millis(100)).await?;
        read.fetch_add(records.len() as u64, Ordering::Relaxed);
    }
}

async fn jetstream(address: &str, stream: &str, read: &AtomicU64) -> Result<(), Error> {
    let context = async_nats::jetstream::new(async_nats::connect(address).await?);
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::New,
        ..OrderedConfig::default()
    };
    let consumer = context.get_stream(stream).await?.create_consumer(config).await?;
    let mut messages = consumer.messages().await?;
    while let Some(message) = messages.next().await {
        let message = message?;
        // Each source needs the number of the message.
        assert!(message.info().map_err(|error| error.to_string())?.stream_sequence > 0);
        read.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn redis_streams(address: &str, stream: &str, read: &AtomicU64) -> Result<(), Error> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    let mut create = cmd("XGROUP");
    create
        .arg("CREATE")
        .arg(stream)
        .arg("floor")
        .arg("$")
        .arg("MKSTREAM");
    create.query_async::<Value>(&mut connection).await?;
    loop {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg("floor").arg("c").arg("COUNT").arg(1000);
        command.arg("BLOCK").arg(100).arg("STREAMS").arg(stream).arg(">");
        let reply: Value = command.query_async(&mut connection).await?;
        let mut acknowledge = cmd("XACK");
        acknowledge.arg(stream).arg("floor");
        let mut count = 0;
        for id in entry_ids(&reply) {
            acknowledge.arg(id);
            count += 1;
        }
        if count > 0 {
            acknowledge.query_async::<Value>(&mut connection).await?;
            read.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// The identifiers of the entries in a reply of one stream.
fn entry_ids(reply: &Value) -> impl Iterator<Item = &[u8]> {
    fn items(value: &Value) -> &[Value] {
        match value {
            Value::Array(values) => values,
            _ => &[],
        }
    }
    let streams = items(reply).iter();
    let entries = streams.filter_map(|stream| items(stream).get(1)).flat_map(items);
    entries.filter_map(|entry| match items(entry).first() {
        Some(Value::BulkString(id)) => Some(&id[..]),
        _ => None,
    })
}
