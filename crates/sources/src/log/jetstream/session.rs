//! A connection to the cluster, and the stream, which is created if it does not exist.

use std::time::Duration;

use async_nats::Event;
use async_nats::jetstream::context::{ContextBuilder, GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use ringmain_cluster::limits::LOG_APPENDS;
use ringmain_cluster::log::Binding;
use ringmain_gateway::model::{JetStreamLog, PushLog, SubjectPattern};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::jetstream::connect;
use crate::limits;
use crate::log::binding;

/// The time within which the server responds to a request, other than a publication.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time within which the connection is opened and the stream is found.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest window within which a stream that is created recognizes the identities of messages.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// Events of the connection that are not handled yet.
const EVENTS: usize = 16;

/// See the module.
pub(super) struct Session {
    /// For requests other than publications.
    pub(super) context: Context,
    /// For publications: with another time limit.
    pub(super) publisher: Context,
    pub(super) stream: String,
    pub(super) prefix: String,
    pub(super) binding: Binding,
    pub(super) events: std::sync::Mutex<Option<mpsc::Receiver<Event>>>,
    /// Settings of the stream that are not the configured ones; empty for none.
    pub(super) differences: String,
}

/// The state of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamState {
    pub(super) binding: Binding,
    /// The oldest sequence that is retained, or the next one: 1 at least.
    pub(super) first: u64,
}

impl StreamState {
    pub(super) fn of(info: &Info) -> StreamState {
        let created = info.created.unix_timestamp_nanos();
        StreamState {
            binding: binding(&[b"jetstream", info.config.name.as_bytes(), &created.to_be_bytes()]),
            first: if info.state.messages == 0 {
                info.state.last_sequence + 1
            } else {
                info.state.first_sequence.max(1)
            },
        }
    }
}

impl Session {
    /// Connects, and finds or creates the stream.
    pub(super) async fn open(log: &PushLog, jetstream: &JetStreamLog) -> Result<Session, Failure> {
        match timeout(OPEN_TIMEOUT, Session::connect(log, jetstream)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Ended(format!("no stream within {OPEN_TIMEOUT:?}"))),
        }
    }

    async fn connect(log: &PushLog, jetstream: &JetStreamLog) -> Result<Session, Failure> {
        let (events, heard) = mpsc::channel(EVENTS);
        let client = connect(&jetstream.access, events).await?;
        let context = ContextBuilder::new()
            .timeout(REQUEST_TIMEOUT)
            .max_ack_inflight(LOG_APPENDS)
            .ack_timeout(limits::LOG_RESPONSE_TIME)
            .build(client);
        let info = match context.get_stream(&*jetstream.stream).await {
            Ok(stream) => stream.cached_info().clone(),
            Err(error) if is_missing(&error) => create(&context, log, jetstream).await?,
            Err(error) => return Err(Failure::client(error)),
        };
        let differences = differences(&info.config, log, jetstream);
        let mut publisher = context.clone();
        publisher.set_timeout(limits::LOG_RESPONSE_TIME);
        let subject = format!("{}.0", jetstream.prefix);
        let subjects = &info.config.subjects;
        if !subjects
            .iter()
            .any(|filter| SubjectPattern::nats(filter).matches(&subject))
        {
            return Err(Failure::Settings(format!(
                "stream {} has no subject {subject}; add {}.*, or correct the keys `stream` and `prefix`",
                jetstream.stream, jetstream.prefix
            )));
        }
        Ok(Session {
            context,
            publisher,
            stream: jetstream.stream.to_string(),
            prefix: jetstream.prefix.to_string(),
            binding: StreamState::of(&info).binding,
            events: std::sync::Mutex::new(Some(heard)),
            differences,
        })
    }
}

/// Returns whether there is no stream of the name.
pub(super) fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(found) if found.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Returns the settings of a stream that are not the configured ones, for the log.
fn differences(found: &Config, log: &PushLog, jetstream: &JetStreamLog) -> String {
    let replicas = usize::from(jetstream.replicas);
    let is_limited = found.max_bytes > 0 || found.max_messages > 0 || found.max_messages_per_subject > 0;
    let all = [
        (found.max_age != log.retention).then(|| {
            format!(
                "max_age {:?}, expected {:?} (`retention`)",
                found.max_age, log.retention
            )
        }),
        (found.num_replicas != replicas).then(|| {
            format!(
                "{} replicas, expected {replicas} (`replicas`)",
                found.num_replicas
            )
        }),
        (found.retention != RetentionPolicy::Limits)
            .then(|| format!("retention policy {:?}, expected Limits", found.retention)),
        (found.storage != StorageType::File).then(|| format!("storage {:?}, expected File", found.storage)),
        is_limited.then(|| "a limit of messages or bytes, expected none".to_owned()),
        (found.max_message_size > 0).then(|| {
            format!(
                "max_message_size {}, expected none: larger publications are refused",
                found.max_message_size
            )
        }),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Creates the stream. Another node may do so at the same time, with the same settings.
async fn create(context: &Context, log: &PushLog, jetstream: &JetStreamLog) -> Result<Info, Failure> {
    let config = Config {
        name: jetstream.stream.to_string(),
        subjects: vec![format!("{}.*", jetstream.prefix)],
        max_age: log.retention,
        storage: StorageType::File,
        num_replicas: usize::from(jetstream.replicas),
        discard: DiscardPolicy::Old,
        duplicate_window: DUPLICATE_WINDOW.min(log.retention),
        ..Config::default()
    };
    let stream = context.create_stream(config).await.map_err(Failure::client)?;
    log::info!(
        "push log (jetstream): stream {} was created with {} replicas",
        jetstream.stream,
        jetstream.replicas
    );
    Ok(stream.cached_info().clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_nats::jetstream::stream::Config;
    use ringmain_gateway::model::{
        JetStreamLog, NatsAccess, NatsLogin, PushLog, PushLogEngine, PushTakeover,
    };

    use super::differences;

    #[test]
    fn settings_of_a_stream_that_differ_are_named() {
        let jetstream = JetStreamLog {
            access: NatsAccess {
                servers: [].into(),
                login: NatsLogin::Anonymous,
                tls: None,
            },
            stream: "S".into(),
            prefix: "p".into(),
            replicas: 3,
        };
        let log = PushLog {
            engine: PushLogEngine::JetStream(jetstream.clone()),
            partitions: 4,
            retention: Duration::from_secs(600),
            takeover: PushTakeover {
                time: Duration::from_secs(2),
                bytes: 1,
            },
        };
        let config = Config {
            max_age: log.retention,
            num_replicas: 3,
            ..Config::default()
        };
        assert_eq!(differences(&config, &log, &jetstream), "");
        let other = Config {
            max_age: Duration::from_secs(60),
            num_replicas: 1,
            max_messages: 9,
            max_message_size: 4096,
            ..config
        };
        assert_eq!(
            differences(&other, &log, &jetstream),
            "max_age 60s, expected 600s (`retention`); 1 replicas, expected 3 (`replicas`); a limit of messages or bytes, expected none; \
             max_message_size 4096, expected none: larger publications are refused"
        );
    }
}
