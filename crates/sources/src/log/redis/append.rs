//! Batches of appends as commands, and the replies.

use redis::{Pipeline, RedisError, ServerErrorKind, Value, cmd};
use ringmain_cluster::log::AppendOutcome;

use super::keys;
use super::number::pack;
use super::server::{Durability, wait_command};
use crate::log::queue::Queued;
use crate::redis::EntryId;

/// The field of an entry.
pub(super) const FIELD: &str = "e";

/// `KEYS`: the stream, the identity. `ARGV`: the oldest entry to retain, the entry's identifier, its bytes, milliseconds of the window, and
/// an identifier that does not count. Returns the entry's identifier, and whether it existed before.
const APPEND_ONCE: &str = "\
local id = redis.call('GET', KEYS[2]) \
if id and id ~= ARGV[5] then return {id, 1} end \
id = redis.call('XADD', KEYS[1], 'MINID', '~', ARGV[1], ARGV[2], 'e', ARGV[3]) \
redis.call('SET', KEYS[2], id, 'PX', ARGV[4]) \
return {id, 0}";

/// `KEYS`: the stream. `ARGV`: the milliseconds and the sequence of the first entry's identifier, and the bytes of the entries, of which all are
/// appended or none. Others cannot lie between them.
const APPEND_CHAIN: &str = "\
redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. ARGV[2], 'e', ARGV[3]) \
for i = 4, #ARGV do \
redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. (ARGV[2] + i - 3), 'e', ARGV[i]) end \
return #ARGV - 2";

/// An append on its way.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) queued: Queued,
    /// The identifier that it got before, and that has no number.
    pub(super) numberless: Option<EntryId>,
    /// The identifier to request. `None`: the server's choice.
    pub(super) explicit: Option<EntryId>,
}

/// Adds the command of appends without keys whose identifiers follow each other.
pub(super) fn add_chain(pipeline: &mut Pipeline, stream: &str, first: EntryId, batch: &[Sent]) {
    let command = pipeline.cmd("EVAL").arg(APPEND_CHAIN).arg(1).arg(stream);
    command.arg(first.millis).arg(first.sequence);
    for sent in batch {
        command.arg(&*sent.queued.append.entry);
    }
}

/// Reads the reply to that command: the outcomes of so many appends.
pub(super) fn chain_outcomes(
    reply: Option<Result<Value, RedisError>>,
    first: EntryId,
    count: usize,
) -> Vec<Outcome> {
    let outcomes = (0..count as u64).map(|index| match &reply {
        Some(Ok(Value::Int(_))) => appended(EntryId {
            sequence: first.sequence + index,
            ..first
        }),
        Some(Err(error)) => failed(error.clone()),
        Some(Ok(_)) | None => Outcome::Unexpected,
    });
    outcomes.collect()
}

/// Adds the command of an append. `oldest`: entries before are deleted, if this one is to do so.
pub(super) fn add_command(pipeline: &mut Pipeline, stream: &str, sent: &Sent, oldest: Option<EntryId>) {
    let append = &sent.queued.append;
    let id = sent.explicit.map_or_else(|| "*".to_owned(), |id| id.to_string());
    if let Some(key) = &append.key {
        let command = pipeline.cmd("EVAL").arg(APPEND_ONCE).arg(2);
        command.arg(stream).arg(keys::identity(stream, key));
        command.arg(oldest.unwrap_or_default().to_string()).arg(id);
        command
            .arg(&*append.entry)
            .arg((key.window.as_millis() as u64).max(1));
        command.arg(sent.numberless.map(|id| id.to_string()).unwrap_or_default());
        return;
    }
    let mut command = cmd("XADD");
    command.arg(stream);
    if let Some(oldest) = oldest {
        command.arg("MINID").arg("~").arg(oldest.to_string());
    }
    command.arg(id).arg(FIELD).arg(&*append.entry);
    pipeline.add_command(command);
}

/// The reply to the command of one append.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    Done(AppendOutcome, EntryId),
    /// The entry has an identifier without a number: no reader delivers it.
    Numberless(EntryId),
    /// Another entry has a larger identifier than the requested one.
    TooLow,
    /// Another server has the partition, or has it soon: nothing was appended.
    Elsewhere(RedisError),
    /// The slot moves, and no server has both the stream and the identity: nothing was appended.
    TryAgain,
    /// The server does not accept writes at all: nothing was appended.
    NotMaster(RedisError),
    /// Nothing was appended.
    Refused(RedisError),
    /// There was no reply for this reason.
    Unknown(Option<RedisError>),
    /// The entry may be lost: the file or the replicas do not have it in time.
    NotDurable(EntryId),
    Unexpected,
}

impl Outcome {
    /// Returns the identifier of an entry that is in the log by this append.
    pub(super) fn appended_id(&self) -> Option<EntryId> {
        match self {
            Outcome::Done(AppendOutcome::Appended(_), id) | Outcome::NotDurable(id) => Some(*id),
            _ => None,
        }
    }
}

/// Reads a reply.
pub(super) fn outcome(reply: Result<Value, RedisError>) -> Outcome {
    match reply {
        Ok(Value::Array(parts)) => match &*parts {
            [id, Value::Int(was_there)] => match id_of(id) {
                Some(id) if *was_there == 0 => appended(id),
                Some(id) => match pack(id) {
                    Some(number) => Outcome::Done(AppendOutcome::Repeated(number), id),
                    // Its writer is about to append it again.
                    None => Outcome::Done(AppendOutcome::Unknown, id),
                },
                None => Outcome::Unexpected,
            },
            _ => Outcome::Unexpected,
        },
        Ok(reply) => id_of(&reply).map_or(Outcome::Unexpected, appended),
        Err(error) => failed(error),
    }
}

fn appended(id: EntryId) -> Outcome {
    match pack(id) {
        Some(number) => Outcome::Done(AppendOutcome::Appended(number), id),
        None => Outcome::Numberless(id),
    }
}

/// Returns whether another node of the cluster has a partition, or has it soon.
pub(super) fn is_elsewhere(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved, TryAgain};
    matches!(
        error.kind(),
        redis::ErrorKind::Server(Ask | ClusterDown | Moved | TryAgain)
    )
}

/// Returns the node that has a partition whose slot moves: it executes commands behind `ASKING`.
pub(super) fn asked_node(error: &RedisError) -> Option<&str> {
    let is_asked = error.kind() == redis::ErrorKind::Server(ServerErrorKind::Ask);
    let (address, _) = error.redirect_node().filter(|_| is_asked)?;
    Some(address)
}

fn failed(error: RedisError) -> Outcome {
    match error.kind() {
        redis::ErrorKind::Server(ServerErrorKind::TryAgain) => Outcome::TryAgain,
        _ if is_elsewhere(&error) => Outcome::Elsewhere(error),
        redis::ErrorKind::Server(kind) => match kind {
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading => {
                Outcome::NotMaster(error)
            }
            _ if error.to_string().contains("equal or smaller") => Outcome::TooLow,
            _ => Outcome::Refused(error),
        },
        _ => Outcome::Refused(error),
    }
}

fn id_of(value: &Value) -> Option<EntryId> {
    match value {
        Value::BulkString(text) => EntryId::parse(str::from_utf8(text).ok()?),
        Value::SimpleString(text) => EntryId::parse(text),
        _ => None,
    }
}

/// Adds the command that waits until a batch cannot be lost.
pub(super) fn add_wait(pipeline: &mut Pipeline, durability: Durability) {
    if durability != Durability::None {
        pipeline.add_command(wait_command(durability));
    }
}

/// Returns whether the reply to that command says that the batch cannot be lost.
pub(super) fn is_durable(durability: Durability, reply: Option<&Result<Value, RedisError>>) -> bool {
    let at_least =
        |count: &Value, least: u16| matches!(count, Value::Int(count) if *count >= i64::from(least));
    match (durability, reply) {
        (Durability::None, _) => true,
        (Durability::Replicas(replicas), Some(Ok(count))) => at_least(count, replicas),
        (Durability::Files(replicas), Some(Ok(Value::Array(counts)))) => {
            matches!(&**counts, [own, others] if at_least(own, 1) && at_least(others, replicas))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;
    use ringmain_cluster::log::AppendOutcome;

    use super::{Durability, Outcome, chain_outcomes, is_durable, outcome};
    use crate::log::redis::number::{SEQUENCES, unpack};
    use crate::redis::EntryId;

    fn bulk(id: EntryId) -> Value {
        Value::BulkString(id.to_string().into_bytes())
    }

    #[test]
    fn replies_to_appends() {
        let id = unpack(5 << 12 | 7);
        let number = 5 << 12 | 7;
        let numberless = EntryId {
            sequence: SEQUENCES,
            ..id
        };
        let once = |id, was_there| Value::Array(vec![bulk(id), Value::Int(was_there)]);
        for (reply, expected) in [
            (bulk(id), Outcome::Done(AppendOutcome::Appended(number), id)),
            (bulk(numberless), Outcome::Numberless(numberless)),
            (once(id, 0), Outcome::Done(AppendOutcome::Appended(number), id)),
            (once(id, 1), Outcome::Done(AppendOutcome::Repeated(number), id)),
            (once(numberless, 0), Outcome::Numberless(numberless)),
            (
                once(numberless, 1),
                Outcome::Done(AppendOutcome::Unknown, numberless),
            ),
            (Value::Nil, Outcome::Unexpected),
            (Value::Array(vec![Value::Int(1)]), Outcome::Unexpected),
        ] {
            assert_eq!(outcome(Ok(reply)), expected);
        }
    }

    #[test]
    fn appends_of_a_chain_have_identifiers_that_follow_each_other() {
        let number = 5 << 12 | 7;
        let first = unpack(number);
        let done = |number| Outcome::Done(AppendOutcome::Appended(number), unpack(number));
        assert_eq!(
            chain_outcomes(Some(Ok(Value::Int(2))), first, 2),
            [done(number), done(number + 1)]
        );
        for reply in [Some(Ok(Value::Nil)), None] {
            assert_eq!(chain_outcomes(reply, first, 1), [Outcome::Unexpected]);
        }
    }

    #[test]
    fn batches_are_durable_by_the_count_of_files_and_replicas() {
        let counts = |own, others| Value::Array(vec![Value::Int(own), Value::Int(others)]);
        for (durability, reply, expected) in [
            (Durability::None, None, true),
            (Durability::Replicas(2), Some(Value::Int(2)), true),
            (Durability::Replicas(2), Some(Value::Int(1)), false),
            (Durability::Replicas(1), None, false),
            (Durability::Files(0), Some(counts(1, 0)), true),
            (Durability::Files(1), Some(counts(1, 0)), false),
            (Durability::Files(1), Some(counts(0, 1)), false),
            (Durability::Files(0), Some(Value::Int(1)), false),
        ] {
            let reply = reply.map(Ok);
            assert_eq!(
                is_durable(durability, reply.as_ref()),
                expected,
                "{durability:?} {reply:?}"
            );
        }
    }
}
