//! Lives of a stream: which one is read, and whether it is still the one that was.

use async_nats::jetstream::stream::{Info, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{Context, kv};
use ringmain_gateway::model::{JetStream, RecordFormat};
use ringmain_push::LogId;
use ringmain_sys::clock;

use super::{LIVES, Memory, SAMPLES};
use crate::epoch;
use crate::failure::Failure;
use crate::feed::Feed;

/// Finds the life of the stream. Returns the log whose life has ended, if one has.
pub(super) async fn follow_life(
    settings: &JetStream,
    feed: &mut Feed,
    context: &Context,
    stream: &Stream<Info>,
    info: &Info,
) -> Result<Option<LogId>, Failure> {
    if feed.mapping.format == RecordFormat::Commands {
        // Commands are for any channels, which other programs publish in as well.
        return Ok(None);
    }
    let created = info.created.unix_timestamp_nanos();
    let mut life = life_of(context, &settings.stream)
        .await?
        .map_or(0, |(life, _)| life);
    let before = feed.jetstream.log;
    let is_same_stream = before.is_some() && feed.jetstream.created == created;
    let is_known_life = feed.jetstream.lives.contains(&life);
    if is_same_stream && is_known_life && has_rolled_back(&feed.jetstream, stream, info).await? {
        life = draw_life(context, &settings.stream, &feed.jetstream.lives).await?;
    }
    let name = settings.stream.as_bytes();
    let epoch = epoch::of(&[b"jetstream", name, &created.to_be_bytes(), &life.to_be_bytes()]);
    let log = LogId {
        epoch,
        reader: feed.reader,
    };
    let memory = &mut feed.jetstream;
    if before == Some(log) {
        return Ok(None);
    }
    memory.lives.retain(|seen| *seen != life);
    memory.lives.push(life);
    if memory.lives.len() > SAMPLES {
        memory.lives.remove(0);
    }
    memory.log = Some(log);
    memory.created = created;
    memory.newest = 0;
    memory.samples.clear();
    memory.handled.clear();
    Ok(before)
}

/// Returns whether the stream lacks messages that were read and that it would still have.
async fn has_rolled_back(memory: &Memory, stream: &Stream<Info>, info: &Info) -> Result<bool, Failure> {
    let Some(&(newest, newest_time)) = memory.samples.back() else {
        return Ok(false);
    };
    let state = &info.state;
    if state.last_sequence < memory.newest {
        return Ok(true);
    }
    if state.last_sequence == newest {
        return Ok(state.last_timestamp.unix_timestamp_nanos() != newest_time);
    }
    for &(sequence, time) in memory.samples.iter().rev() {
        if sequence < state.first_sequence {
            break;
        }
        // One that was deleted says nothing.
        match stream.get_raw_message(sequence).await {
            Ok(message) => return Ok(message.time.unix_timestamp_nanos() != time),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {}
            Err(error) => return Err(Failure::client(error)),
        }
    }
    // None is left: the messages in between are missing in either case.
    Ok(true)
}

/// The life that the bucket has for a stream, with its revision.
async fn life_of(context: &Context, stream: &str) -> Result<Option<(u64, u64)>, Failure> {
    let Ok(bucket) = context.get_key_value(LIVES).await else {
        return Ok(None);
    };
    let entry = bucket.entry(key_of(stream)).await.map_err(Failure::client)?;
    Ok(entry.and_then(|entry| {
        let text = str::from_utf8(&entry.value).ok()?;
        Some((u64::from_str_radix(text, 16).ok()?, entry.revision))
    }))
}

/// Names of streams may have characters that keys may not.
fn key_of(stream: &str) -> String {
    stream.bytes().fold(String::new(), |mut key, byte| {
        if byte.is_ascii_alphanumeric() {
            key.push(char::from(byte));
        } else {
            key += &format!("_{byte:02x}");
        }
        key
    })
}

/// Draws another life, unless another node has since: then that one holds for all.
async fn draw_life(context: &Context, stream: &str, seen: &[u64]) -> Result<u64, Failure> {
    let bucket = match context.get_key_value(LIVES).await {
        Ok(bucket) => bucket,
        Err(_) => {
            let config = kv::Config {
                bucket: LIVES.to_owned(),
                description: "Lives of streams that were restored from an older copy".to_owned(),
                history: 1,
                ..kv::Config::default()
            };
            context.create_key_value(config).await.map_err(Failure::client)?
        }
    };
    let drawn = fastrand::Rng::with_seed(clock::realtime().as_nanos() as u64).u64(1..);
    let value = format!("{drawn:x}");
    let key = key_of(stream);
    let outcome = match life_of(context, stream).await? {
        Some((life, _)) if !seen.contains(&life) => return Ok(life),
        Some((_, revision)) => bucket.update(&key, value.into(), revision).await.is_ok(),
        None => bucket.create(&key, value.into()).await.is_ok(),
    };
    if outcome {
        return Ok(drawn);
    }
    let other = life_of(context, stream).await?.map(|(life, _)| life);
    other
        .filter(|life| !seen.contains(life))
        .ok_or_else(|| Failure::Ended("the life of the stream could not be noted".to_owned()))
}
