//! Subjects of a JetStream stream: the one module here that knows `async-nats`.

use std::future::IntoFuture;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, jetstream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ringmain_load::push::broker::{Record, Reports};
use tokio::sync::oneshot;

use crate::url::Subject;
use crate::{ACKNOWLEDGE_TIMEOUT, Batches, CONNECT_TIMEOUT, Error, outcome};

/// Messages without an acknowledgement; more wait.
const IN_FLIGHT: usize = 10_000;

async fn connect(subject: &Subject) -> Result<Client, Error> {
    let options = ConnectOptions::new()
        .name("ringmain-bench")
        .connection_timeout(CONNECT_TIMEOUT);
    Ok(options.connect(&subject.server).await?)
}

/// Publishes until there are no more records. Acknowledged once the stream has stored the message.
pub(crate) async fn produce(subject: &Subject, reports: &Reports, mut batches: Batches) -> Result<(), Error> {
    let client = connect(subject).await?;
    let context = ContextBuilder::new()
        .ack_timeout(ACKNOWLEDGE_TIMEOUT)
        .max_ack_inflight(IN_FLIGHT)
        .build(client);
    let mut in_flight = FuturesUnordered::new();
    loop {
        tokio::select! {
            batch = batches.recv() => {
                let Some(batch) = batch else { break };
                for Record { token, channel, value } in batch {
                    // At the limit of messages in flight, acknowledgements have to be handled first.
                    while in_flight.len() >= IN_FLIGHT {
                        let Some(done) = in_flight.next().await else { break };
                        reports.acknowledged([done]);
                    }
                    match context.publish(subject.of(&channel), value.into()).await {
                        Ok(stored) => {
                            let stored = stored.into_future();
                            in_flight.push(async move {
                                let stored = stored.await;
                                outcome(token, stored.err().map(|error| error.to_string()))
                            });
                        }
                        Err(error) => reports.acknowledged([outcome(token, Some(error.to_string()))]),
                    }
                }
            }
            Some(first) = in_flight.next() => {
                let mut done = vec![first];
                while let Some(Some(more)) = futures_util::FutureExt::now_or_never(in_flight.next()) {
                    done.push(more);
                }
                reports.acknowledged(done);
            }
        }
    }
    Ok(())
}

/// Reads new messages with an ordered consumer.
pub(crate) async fn consume(
    subject: &Subject,
    reports: &Reports,
    ready: oneshot::Sender<()>,
) -> Result<(), Error> {
    let client = connect(subject).await?;
    let context = jetstream::new(client);
    let name = context.stream_by_subject(subject.of("*")).await?;
    let stream = context.get_stream(name).await?;
    let config = OrderedConfig {
        deliver_policy: DeliverPolicy::New,
        filter_subject: subject.of("*"),
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await?;
    let mut messages = consumer.messages().await?;
    let _ = ready.send(());
    while let Some(message) = messages.next().await {
        let message = message?;
        reports.consumed([&*message.payload], Reports::now());
    }
    Ok(())
}
