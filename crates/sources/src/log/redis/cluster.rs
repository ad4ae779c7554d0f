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
use ringmain_cluster::log::Binding;
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
        match (&search.asked, master) {
            // The slot has not moved yet.
            (Some((asked, _)), _) if master != Some(&*asked.address) => {
                by_node
                    .entry(asked.address.to_string())
                    .or_default()
                    .asked
                    .push(search);
            }
            (_, Some(address)) => {
                let at_node = by_node.entry(address.to_owned()).or_default();
                at_node.owned.push(search);
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
    owned: Vec<Search>,
    /// Those whose slots move to it.
    asked: Vec<Search>,
}

/// Returns the binding that a partition retains at the node that its slot moves to, or has moved to. `None`: the node has another run ID than
/// when it was first asked, so that entries may be lost.
fn retained_binding(search: &Search, run_id: &str) -> Option<Binding> {
    let (asked, binding) = search.asked.as_ref()?;
    let is_same = asked.run_id.as_ref().is_none_or(|known| **known == *run_id);
    is_same.then_some(*binding)
}

/// Returns the binding of a partition that begins at the server with this run ID.
fn own_binding(run_id: &str) -> Binding {
    crate::log::binding(&[b"redis", run_id.as_bytes()])
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
    let mut partitions = Vec::with_capacity(at_node.asked.len() + at_node.owned.len());
    for search in at_node.asked {
        let retained = lossless_binding(redis).or_else(|| retained_binding(&search, &run_id));
        partitions.push(Placement {
            partition: search.partition,
            binding: retained.unwrap_or_else(|| own_binding(&run_id)),
            asked: Some(run_id.as_str().into()),
        });
    }
    let mut masters = Masters {
        access,
        slots,
        run_ids: None,
    };
    for search in at_node.owned {
        let binding = match lossless_binding(redis) {
            Some(binding) => binding,
            None => bind(&mut control, &search, &run_id, &mut masters).await?,
        };
        partitions.push(Placement {
            partition: search.partition,
            binding,
            asked: None,
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
    search: &Search,
    run_id: &str,
    masters: &mut Masters<'_>,
) -> Result<Binding, Failure> {
    let key = keys::server(&search.stream);
    let mut read = cmd("HMGET");
    read.arg(&key).arg("run_id").arg("binding");
    let (before, noted): (Option<String>, Option<u64>) = read.query_async(control).await?;
    if before.as_deref() == Some(run_id)
        && let Some(noted) = noted
    {
        return Ok(Binding(noted));
    }
    // The move that this node has followed is complete: the server of before may be gone since.
    let retained = retained_binding(search, run_id).filter(|_| search.is_followed());
    let binding = match (retained, &before, noted) {
        (Some(retained), ..) => retained,
        (None, Some(before), Some(noted)) if masters.have(control, before).await => Binding(noted),
        _ => own_binding(run_id),
    };
    let mut command = cmd("EVAL");
    command.arg(BIND).arg(1).arg(&key);
    command.arg(before.unwrap_or_default()).arg(run_id).arg(binding.0);
    let (now, noted): (String, u64) = command.query_async(control).await?;
    if now != run_id {
        return Err(Failure::Ended(
            "a partition was moved at the same time".to_owned(),
        ));
    }
    Ok(Binding(noted))
}

/// The masters that respond, which are queried when they are first needed.
struct Masters<'a> {
    access: &'a Access<'a>,
    slots: &'a Slots,
    run_ids: Option<BTreeSet<String>>,
}

impl Masters<'_> {
    /// Returns whether a master has this run ID. `control`: a node of the cluster.
    async fn have(&mut self, control: &mut MultiplexedConnection, run_id: &str) -> bool {
        if self.run_ids.is_none() {
            self.run_ids = Some(self.query(control).await);
        }
        self.run_ids
            .as_ref()
            .is_some_and(|masters| masters.contains(run_id))
    }

    async fn query(&self, control: &mut MultiplexedConnection) -> BTreeSet<String> {
        let mut command = cmd("CLUSTER");
        command.arg("NODES");
        // With those that have no slots any more.
        let nodes: String = command.query_async(control).await.unwrap_or_default();
        let mut addresses = masters_of(&nodes);
        addresses.extend(self.slots.masters());
        let masters = addresses.into_iter();
        let masters = masters.map(|address| timeout(NODE_TIMEOUT, query_master(self.access, address)));
        let found = join_all(masters).await.into_iter();
        found.filter_map(|found| found.ok().flatten()).collect()
    }
}

/// Reads the addresses of the masters in a reply to `CLUSTER NODES`.
fn masters_of(nodes: &str) -> BTreeSet<&str> {
    let masters = nodes.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (address, flags) = (fields.nth(1)?, fields.next()?);
        let is_master = flags.split(',').any(|flag| flag == "master");
        let address = address.split(['@', ',']).next()?;
        Some(address).filter(|address| is_master && !address.starts_with(':'))
    });
    masters.collect()
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

    use std::sync::Arc;

    use ringmain_cluster::log::{Binding, Partition};

    use super::{Slots, masters_of, retained_binding};
    use crate::log::redis::partitions::{AskedNode, Search};

    #[test]
    fn a_node_that_was_asked_retains_the_binding_unless_it_has_started_again() {
        let search = |run_id: Option<&str>| Search {
            partition: Partition(1),
            stream: "s".to_owned(),
            asked: Some((
                AskedNode {
                    address: "b:1".into(),
                    run_id: run_id.map(Arc::from),
                },
                Binding(7),
            )),
        };
        for (known, expected) in [
            (None, Some(Binding(7))),
            (Some("r"), Some(Binding(7))),
            (Some("q"), None),
        ] {
            assert_eq!(retained_binding(&search(known), "r"), expected, "{known:?}");
        }
        assert!(search(Some("r")).is_followed() && !search(None).is_followed());
    }

    #[test]
    fn masters_without_slots_are_masters() {
        let nodes = "a1 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460\n\
                     b2 10.0.0.2:7001@17001,host master - 0 0 2 connected\n\
                     c3 10.0.0.3:7002@17002 slave a1 0 0 1 connected\n\
                     d4 :0@0 master,noaddr - 0 0 4 disconnected\n";
        assert!(
            masters_of(nodes)
                .into_iter()
                .eq(["10.0.0.1:7000", "10.0.0.2:7001"])
        );
        assert!(masters_of("").is_empty());
    }

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
