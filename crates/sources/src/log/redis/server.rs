//! A connected server: its identity, its clock, and its connections.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, InfoDict, cmd, pipe};
use ringmain_cluster::log::Binding;
use ringmain_gateway::model::{RedisLog, RedisLoss};
use ringmain_sys::clock;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::limits;
use crate::log::binding;
use crate::redis::Access;

/// The time for which a read waits for records.
pub(super) const BLOCK: Duration = Duration::from_secs(1);
/// The time within which the response to a read arrives.
pub(super) const READ_RESPONSE_TIME: Duration = Duration::from_millis(2900);
/// The time within which the server is located and its connections are opened.
const OPEN_TIMEOUT: Duration = Duration::from_millis(1500);

/// The failure of a configuration without the nodes of the cluster.
pub(super) const NODE_OF_CLUSTER: &str = "the server is a node of a cluster: set `cluster: true`";

/// A server that accepts writes.
pub(super) struct Server {
    /// For commands that return at once.
    pub(super) control: MultiplexedConnection,
    /// For reads that wait for records.
    pub(super) reading: MultiplexedConnection,
    /// The identifier of `reading` at the server, to end a wait.
    pub(super) reading_id: Option<i64>,
    /// The identifier that the server draws when it starts, and that a promoted replica has of its own.
    pub(super) run_id: String,
    /// Its address. `None`: it is a node of a cluster.
    pub(super) address: Option<ConnectionAddr>,
    /// Its clock, less that of this machine, in milliseconds.
    ahead_ms: i64,
    pub(super) durability: Durability,
}

/// The part of a batch that waits until its entries cannot be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// None: the server's acknowledgement is enough.
    None,
    /// So many replicas have it. The server itself writes its file before it acknowledges.
    Replicas(u16),
    /// The file of the server, and those of so many replicas, have it.
    Files(u16),
}

impl Server {
    /// Connects to the server that the configuration names, or to a node of a cluster.
    ///
    /// # Errors
    /// It cannot be reached, or does not keep the promise of the configuration.
    pub(super) async fn open(
        redis: &RedisLog,
        access: &Access<'_>,
        address: Option<&str>,
    ) -> Result<Server, Failure> {
        match timeout(OPEN_TIMEOUT, Server::connect(redis, access, address)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Ended(format!("no connection within {OPEN_TIMEOUT:?}"))),
        }
    }

    async fn connect(
        redis: &RedisLog,
        access: &Access<'_>,
        address: Option<&str>,
    ) -> Result<Server, Failure> {
        let open = async |response| match address {
            Some(address) => access.open_at(address, response).await,
            None => access.open_node(response).await,
        };
        let mut control = open(limits::LOG_RESPONSE_TIME).await?;
        let mut reading = open(READ_RESPONSE_TIME).await?;
        let (info, replication, time): (InfoDict, InfoDict, (i64, i64)) = pipe()
            .cmd("INFO")
            .arg("server")
            .cmd("INFO")
            .arg("replication")
            .cmd("TIME")
            .query_async(&mut control)
            .await?;
        if address.is_none() && is_cluster_node(&info) {
            return Err(Failure::Settings(NODE_OF_CLUSTER.to_owned()));
        }
        let own_address = access.connection_address().filter(|_| address.is_none());
        let name = own_address.as_ref().map(ToString::to_string);
        require_master(&replication, address.or(name.as_deref()).unwrap_or_default())?;
        let run_id: Option<String> = info.get("run_id");
        let run_id = run_id.ok_or_else(|| Failure::Ended("INFO server has no run_id".to_owned()))?;
        // A user may not have this permission: then new reads begin when the one before has ended.
        let reading_id = cmd("CLIENT").arg("ID").query_async(&mut reading).await.ok();
        let durability = match redis.loss {
            RedisLoss::Possible => Durability::None,
            RedisLoss::None { replicas } => durability(&mut control, replicas).await?,
        };
        Ok(Server {
            control,
            reading,
            reading_id,
            run_id,
            address: own_address,
            ahead_ms: time.0 * 1000 + time.1 / 1000 - now_ms(),
            durability,
        })
    }

    /// The state of the broker that this server's acknowledgements are about.
    pub(super) fn binding(&self, redis: &RedisLog) -> Binding {
        lossless_binding(redis).unwrap_or_else(|| binding(&[b"redis", self.run_id.as_bytes()]))
    }

    /// The time of the server, in milliseconds since the Unix epoch.
    pub(super) fn now_ms(&self) -> i64 {
        now_ms() + self.ahead_ms
    }
}

/// The binding of servers that lose nothing: a constant. `None`: they may lose something.
pub(super) fn lossless_binding(redis: &RedisLog) -> Option<Binding> {
    match redis.loss {
        RedisLoss::Possible => None,
        RedisLoss::None { .. } => Some(binding(&[b"redis", redis.prefix.as_bytes()])),
    }
}

/// Checks that a server is a master: a replica accepts nothing.
///
/// # Errors
/// It is not, or does not respond.
pub(super) async fn check_role(
    control: &mut MultiplexedConnection,
    address: &ConnectionAddr,
) -> Result<(), Failure> {
    let info: InfoDict = cmd("INFO").arg("replication").query_async(control).await?;
    require_master(&info, &address.to_string())
}

fn require_master(replication: &InfoDict, address: &str) -> Result<(), Failure> {
    match replication.get::<String>("role") {
        Some(role) if role != "master" => Err(Failure::Ended(format!(
            "expected a master at {address}, found role:{role}"
        ))),
        _ => Ok(()),
    }
}

/// Returns whether `INFO server` is that of a cluster's node.
fn is_cluster_node(info: &InfoDict) -> bool {
    // Valkey has another name for it, unless it is to be as Redis.
    let mode = |name| info.get::<String>(name).is_some_and(|mode| mode == "cluster");
    mode("redis_mode") || mode("server_mode")
}

fn now_ms() -> i64 {
    clock::realtime().as_millis() as i64
}

/// Finds out how the server can be made to lose nothing.
async fn durability(control: &mut MultiplexedConnection, replicas: u16) -> Result<Durability, Failure> {
    // Redis 7.2 and later; an error unless the server has a file.
    let probe = wait_command(Durability::Files(0));
    if probe.query_async::<redis::Value>(control).await.is_ok() {
        return Ok(Durability::Files(replicas));
    }
    let mut setting = async |name: &str| -> Result<String, Failure> {
        let found: Vec<String> = cmd("CONFIG").arg("GET").arg(name).query_async(control).await?;
        Ok(found.into_iter().nth(1).unwrap_or_default())
    };
    let (file, fsync) = (setting("appendonly").await?, setting("appendfsync").await?);
    if file == "yes" && fsync == "always" {
        let is_enough = replicas == 0;
        return Ok(if is_enough {
            Durability::None
        } else {
            Durability::Replicas(replicas)
        });
    }
    Err(Failure::Settings(format!(
        "`loss: none` needs `appendonly yes` at the server, and `appendfsync always` or Redis 7.2 or later; found appendonly {file}, appendfsync {fsync}"
    )))
}

/// The time for which a batch waits for files and replicas; less than that for the response.
const WAIT_TIME: Duration = Duration::from_millis(1500);

/// The command that waits at the end of a batch.
pub(super) fn wait_command(durability: Durability) -> redis::Cmd {
    let mut command = match durability {
        Durability::Files(replicas) => {
            let mut command = cmd("WAITAOF");
            command.arg(1).arg(replicas);
            command
        }
        Durability::None | Durability::Replicas(_) => {
            let replicas = if let Durability::Replicas(replicas) = durability {
                replicas
            } else {
                0
            };
            let mut command = cmd("WAIT");
            command.arg(replicas);
            command
        }
    };
    command.arg(WAIT_TIME.as_millis() as u64);
    command
}
