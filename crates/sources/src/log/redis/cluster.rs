//! A Redis Cluster: which node has a partition, and whether its current node has lost no entry.
//!
//! A partition is at the master of its slot. The server that a partition is bound to is noted beside its stream: if another one has it, and
//! the former is still a master, the slot was moved, and nothing was lost. Otherwise a replica was promoted, or the master has restarted: the
//! partition has another binding.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{InfoDict, Value, cmd};
use ringmain_cluster::log::{Binding, Partition};
use ringmain_gateway::model::RedisLog;
use tokio::time::timeout;

use super::keys;
use super::partitions::{Placement, Search};
use super::server::{Server, lossless_binding};
use crate::failure::Failure;
use crate::limits;
use crate::redis::Access;

/// The time within which the nodes are found and their connections are opened.
const LOCATE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time within which a node responds. All nodes are queried at the same time.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// `KEYS`: the server of a partition. `ARGV`: the run ID that it has, or nothing, the run ID of this server, and the binding. Returns both.
const BIND: &str = "\
if (redis.call('HGET', KEYS[1], 'run_id') or '') == ARGV[1] then \
redis.call('HSET', KEYS[1], 'run_id', ARGV[2], 'binding', ARGV[3]) end \
return redis.call('HMGET', KEYS[1], 'run_id', 'binding')";

/// Partitions at one node.
pub(super) struct Located {
    pub(super) address: String,
    /// The connection, unless there was one.
    pub(super) server: Option<Server>,
    pub(super) partitions: Vec<Placement>,
}

/// The outcome of a search: the partitions that were found, and why others were not.
#[derive(Default)]
pub(super) struct Location {
    pub(super) nodes: Vec<Located>,
    pub(super) failure: Option<Failure>,
}

/// A node that is connected.
pub(super) struct KnownNode {
    pub(super) control: MultiplexedConnection,
    pub(super) run_id: String,
}

/// Finds the nodes of partitions, and connects to those that are not known.
pub(super) async fn locate(
    redis: &RedisLog,
    partitions: Vec<Search>,
    known: BTreeMap<String, KnownNode>,
) -> Location {
    match timeout(LOCATE_TIMEOUT, try_locate(redis, partitions, known)).await {
        Ok(Ok(location)) => location,
        Ok(Err(failure)) => Location {
            failure: Some(failure),
            ..Location::default()
        },
        Err(_) => Location {
            failure: Some(Failure::Ended(format!(
                "the cluster was not found within {LOCATE_TIMEOUT:?}"
            ))),
            ..Location::default()
        },
    }
}

async fn try_locate(
    redis: &RedisLog,
    partitions: Vec<Search>,
    known: BTreeMap<String, KnownNode>,
) -> Result<Location, Failure> {
    let access = Access::resolve(&redis.access).await?;
    let slots = query_slots(&access, &known).await?;
    let mut by_node: BTreeMap<String, AtNode> = BTreeMap::new();
    let mut location = Location::default();
    for search in partitions {
        let slot = keys::slot(&redis.prefix, search.partition.0);
        let master = slots.master(slot);
        match (search.asked, master) {
            // The slot has not moved yet.
            (Some((address, binding)), _) if master != Some(&*address) => {
                let placement = Placement {
                    partition: search.partition,
                    binding,
                    is_asking: true,
                };
                by_node.entry(address).or_default().asked.push(placement);
            }
            (_, Some(address)) => {
                let at_node = by_node.entry(address.to_owned()).or_default();
                at_node.owned.push((search.partition, search.stream));
            }
            (_, None) => {
                location.failure = Some(Failure::Ended(format!("no node of the cluster has slot {slot}")));
            }
        }
    }
    let located = by_node.into_iter().map(|(address, at_node)| {
        let known = known.get(&address);
        locate_at(redis, &access, &slots, address, known, at_node)
    });
    for located in join_all(located).await {
        match located {
            Ok(located) => location.nodes.push(located),
            Err(failure) => location.failure = Some(failure),
        }
    }
    Ok(location)
}

/// The partitions that are searched at one node.
#[derive(Default)]
struct AtNode {
    /// Those whose slots it has.
    owned: Vec<(Partition, String)>,
    /// Those whose slots move to it.
    asked: Vec<Placement>,
}

async fn locate_at(
    redis: &RedisLog,
    access: &Access<'_>,
    slots: &Slots,
    address: String,
    known: Option<&KnownNode>,
    at_node: AtNode,
) -> Result<Located, Failure> {
    let (server, mut control, run_id) = match known {
        Some(known) => (None, known.control.clone(), known.run_id.clone()),
        None => {
            let server = Server::open(redis, access, Some(&address)).await?;
            let (control, run_id) = (server.control.clone(), server.run_id.clone());
            (Some(server), control, run_id)
        }
    };
    let mut masters = None;
    let mut partitions = at_node.asked;
    for (partition, stream) in at_node.owned {
        let binding = match lossless_binding(redis) {
            Some(binding) => binding,
            None => bind(&mut control, &stream, &run_id, access, slots, &mut masters).await?,
        };
        partitions.push(Placement {
            partition,
            binding,
            is_asking: false,
        });
    }
    Ok(Located {
        address,
        server,
        partitions,
    })
}

/// Returns the binding of a partition at the server with this run ID, and notes it.
async fn bind(
    control: &mut MultiplexedConnection,
    stream: &str,
    run_id: &str,
    access: &Access<'_>,
    slots: &Slots,
    masters: &mut Option<BTreeSet<String>>,
) -> Result<Binding, Failure> {
    let key = keys::server(stream);
    let mut read = cmd("HMGET");
    read.arg(&key).arg("run_id").arg("binding");
    let (before, noted): (Option<String>, Option<u64>) = read.query_async(control).await?;
    if before.as_deref() == Some(run_id)
        && let Some(noted) = noted
    {
        return Ok(Binding(noted));
    }
    let was_moved = match &before {
        None => false,
        Some(before) => {
            if masters.is_none() {
                *masters = Some(query_masters(access, slots).await);
            }
            masters.as_ref().is_some_and(|masters| masters.contains(before))
        }
    };
    let own = crate::log::binding(&[b"redis", run_id.as_bytes()]);
    let binding = noted.filter(|_| was_moved).unwrap_or(own.0);
    let mut command = cmd("EVAL");
    command.arg(BIND).arg(1).arg(&key);
    command.arg(before.unwrap_or_default()).arg(run_id).arg(binding);
    let (now, noted): (String, u64) = command.query_async(control).await?;
    if now != run_id {
        return Err(Failure::Ended(
            "a partition was moved at the same time".to_owned(),
        ));
    }
    Ok(Binding(noted))
}

/// Returns the run IDs of the masters that respond.
async fn query_masters(access: &Access<'_>, slots: &Slots) -> BTreeSet<String> {
    let masters = slots.masters().into_iter();
    let masters = masters.map(|address| timeout(NODE_TIMEOUT, query_master(access, address)));
    let found = join_all(masters).await.into_iter();
    found.filter_map(|found| found.ok().flatten()).collect()
}

/// Returns the run ID of a node that is a master.
async fn query_master(access: &Access<'_>, address: &str) -> Option<String> {
    let mut node = access.open_at(address, limits::LOG_RESPONSE_TIME).await.ok()?;
    let info: InfoDict = cmd("INFO").query_async(&mut node).await.ok()?;
    let is_master = info.get::<String>("role").as_deref() == Some("master");
    info.get("run_id").filter(|_| is_master)
}

/// The masters of ranges of slots.
#[derive(Debug, Default, PartialEq, Eq)]
struct Slots(Vec<(u16, u16, String)>);

impl Slots {
    fn master(&self, slot: u16) -> Option<&str> {
        let found = self.0.iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
        found.map(|(_, _, address)| &**address)
    }

    fn masters(&self) -> BTreeSet<&str> {
        self.0.iter().map(|(_, _, address)| &**address).collect()
    }

    /// Reads a reply to `CLUSTER SLOTS` of the node at `host`.
    fn parse(reply: &Value, host: &str) -> Option<Slots> {
        let Value::Array(ranges) = reply else { return None };
        let range = |range: &Value| {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(from), Value::Int(to), Value::Array(master), ..] = &**parts else {
                return None;
            };
            let [name, Value::Int(port), ..] = &**master else {
                return None;
            };
            // A node that does not know its own name leaves it out.
            let name = match name {
                Value::BulkString(name) => str::from_utf8(name).ok().filter(|name| !name.is_empty()),
                Value::SimpleString(name) => Some(&**name).filter(|name| !name.is_empty()),
                _ => None,
            };
            let name = name.unwrap_or(host);
            Some((
                u16::try_from(*from).ok()?,
                u16::try_from(*to).ok()?,
                format!("{name}:{port}"),
            ))
        };
        ranges.iter().map(range).collect::<Option<_>>().map(Slots)
    }
}

/// Queries the slots: of the nodes that are connected, or else of those that the configuration names. The first response counts.
async fn query_slots(access: &Access<'_>, known: &BTreeMap<String, KnownNode>) -> Result<Slots, Failure> {
    let of_known = known
        .iter()
        .map(|(address, node)| slots_of(address, node.control.clone()));
    if let Ok(slots) = first_of(of_known).await {
        return Ok(slots);
    }
    let of_configured = access.names().map(async |address| {
        let node = access.open_at(address, limits::LOG_RESPONSE_TIME).await?;
        slots_of(address, node).await
    });
    first_of(of_configured).await
}

async fn slots_of(address: &str, mut node: MultiplexedConnection) -> Result<Slots, Failure> {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = command.query_async::<Value>(&mut node).await?;
    Slots::parse(&reply, host_of(address))
        .ok_or_else(|| Failure::Ended(format!("an unexpected reply to CLUSTER SLOTS of {address}")))
}

/// Returns the first success of queries that are made at the same time, or else the last failure.
async fn first_of<T>(
    queries: impl Iterator<Item = impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    let mut queries: FuturesUnordered<_> = queries.map(|query| timeout(NODE_TIMEOUT, query)).collect();
    let mut failure = Failure::Settings("expected a node of the cluster, found none".to_owned());
    while let Some(outcome) = queries.next().await {
        match outcome {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(found)) => failure = found,
            Err(_) => {
                failure = Failure::Ended(format!(
                    "no node of the cluster has responded within {NODE_TIMEOUT:?}"
                ));
            }
        }
    }
    Err(failure)
}

fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::Slots;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn slots_have_the_addresses_of_their_masters() {
        let range = |from, to, name: &str, port| {
            let node = |port| Value::Array(vec![bulk(name), Value::Int(port), bulk("id")]);
            Value::Array(vec![Value::Int(from), Value::Int(to), node(port), node(port + 1)])
        };
        let reply = Value::Array(vec![range(0, 99, "10.0.0.1", 7000), range(100, 200, "", 7001)]);
        let slots = Slots::parse(&reply, "10.0.0.9").expect("slots");
        for (slot, expected) in [
            (0, Some("10.0.0.1:7000")),
            (99, Some("10.0.0.1:7000")),
            (100, Some("10.0.0.9:7001")),
            (201, None),
        ] {
            assert_eq!(slots.master(slot), expected, "{slot}");
        }
        assert_eq!(slots.masters().len(), 2);
        for reply in [Value::Nil, Value::Array(vec![Value::Int(1)])] {
            assert_eq!(Slots::parse(&reply, "h"), None);
        }
    }
}
