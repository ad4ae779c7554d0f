//! Connections to one server, to the master that Sentinels name, or to a cluster.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisFuture, TlsCertificates, TlsMode, Value,
};
use ringmain_gateway::model::{BrokerTls, RedisAccess, RedisDeployment};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::failure::Failure;

/// The time that a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that a response may take. With [`BLOCK`] below [`SILENT_AFTER`](crate::limits::SILENT_AFTER).
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which a read waits for entries.
pub(super) const BLOCK: Duration = Duration::from_secs(1);
/// The interval at which Sentinels are queried for the master, which may be another while the connection lives.
pub(crate) const MASTER_INTERVAL: Duration = Duration::from_secs(2);
/// The time within which a Sentinel names the master, and the master its role.
const SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The port of a server without one.
const PORT: u16 = 6379;

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, redis::RedisError> {
        command.query_async(self).await
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Connection::Node(connection) => connection.req_packed_command(command),
            Connection::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Connection::Node(connection) => connection.req_packed_commands(pipeline, offset, count),
            Connection::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Connection::Node(connection) => connection.get_db(),
            Connection::Cluster(connection) => connection.get_db(),
        }
    }
}

/// The client of a deployment. The master of Sentinels is resolved when it is created.
pub(crate) struct Access<'a> {
    access: &'a RedisAccess,
    /// One server, the nodes of a cluster, or the master.
    servers: Vec<ConnectionInfo>,
}

impl<'a> Access<'a> {
    pub(crate) async fn resolve(access: &'a RedisAccess) -> Result<Access<'a>, Failure> {
        let servers = match &access.deployment {
            RedisDeployment::Sentinel(_) => vec![find_master(access).await?],
            RedisDeployment::Single | RedisDeployment::Cluster => {
                let servers = access.servers.iter();
                servers
                    .map(|server| info(access, server))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(Access { access, servers })
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.access.deployment == RedisDeployment::Cluster
    }

    /// Opens a connection whose commands may block the server's side for so long.
    pub(super) async fn open(&self, blocks: Duration) -> Result<Connection, Failure> {
        let response = RESPONSE_TIMEOUT + blocks;
        if self.is_cluster() {
            let mut builder = ClusterClientBuilder::new(self.servers.clone())
                .connection_timeout(CONNECT_TIMEOUT)
                .response_timeout(response);
            if let Some(tls) = &self.access.tls {
                builder = builder.tls(TlsMode::Secure).certs(certificates(tls));
            }
            let connection = builder.build()?.get_async_connection().await?;
            return Ok(Connection::Cluster(connection));
        }
        self.open_node(response).await.map(Connection::Node)
    }

    /// Opens a connection to a server, of a cluster to the first node that can be reached, with this limit for responses.
    pub(crate) async fn open_node(&self, response: Duration) -> Result<MultiplexedConnection, Failure> {
        let mut failure = no_server();
        for server in &self.servers {
            match open_server(server, response).await {
                Ok(connection) => return Ok(connection),
                Err(found) => failure = found,
            }
        }
        Err(failure)
    }

    /// Returns the address of the server, or of the master. `None`: it is a cluster.
    pub(crate) fn connection_address(&self) -> Option<ConnectionAddr> {
        let server = self.servers.first().filter(|_| !self.is_cluster());
        server.map(|server| server.addr().clone())
    }

    /// Returns the configured servers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.access.servers.iter().map(|server| &**server)
    }

    /// Opens a connection to the node of a cluster at an address.
    pub(crate) async fn open_at(
        &self,
        address: &str,
        response: Duration,
    ) -> Result<MultiplexedConnection, Failure> {
        open_server(&info(self.access, address)?, response).await
    }

    /// Opens a connection for subscriptions: with any node of a cluster, which has the messages of all.
    pub(super) async fn open_pubsub(&self) -> Result<PubSub, Failure> {
        let mut failure = no_server();
        for server in &self.servers {
            let client = Client::open(server.clone())?;
            match opened(server, timeout(CONNECT_TIMEOUT, client.get_async_pubsub()).await) {
                Ok(connection) => return Ok(connection),
                Err(found) => failure = found,
            }
        }
        Err(failure)
    }

    /// Returns once Sentinels name another master: the one that is connected may accept no writes, or be cut off.
    pub(crate) async fn watch_master(&self, interval: Duration) -> Failure {
        match self.servers.first() {
            Some(master) => watch_master(self.access, master.addr(), interval).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns once Sentinels name another master than this one: it may accept no writes, or be cut off. Without Sentinels it never returns.
pub(crate) async fn watch_master(
    access: &RedisAccess,
    address: &ConnectionAddr,
    interval: Duration,
) -> Failure {
    if !matches!(access.deployment, RedisDeployment::Sentinel(_)) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(interval).await;
        // Without a response of a Sentinel the master is the same as before.
        if let Ok(master) = find_master(access).await
            && master.addr() != address
        {
            return Failure::Ended(format!("the master is {} now", master.addr()));
        }
    }
}

async fn open_server(server: &ConnectionInfo, response: Duration) -> Result<MultiplexedConnection, Failure> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(response));
    let client = Client::open(server.clone())?;
    let connecting = connect(&client, &config);
    opened(server, timeout(CONNECT_TIMEOUT, connecting).await)
}

/// Connects. A server that requires a login refuses the first command only: that is not left to the reader of a stream.
async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> redis::RedisResult<MultiplexedConnection> {
    let mut connection = client
        .get_multiplexed_async_connection_with_config(config)
        .await?;
    let pong: redis::RedisResult<()> = redis::cmd("PING").query_async(&mut connection).await;
    match pong {
        // A user without the permission is logged in.
        Err(error) if error.code() == Some("NOPERM") => Ok(connection),
        pong => pong.map(|()| connection),
    }
}

fn no_server() -> Failure {
    Failure::Settings("expected a server, found none".to_owned())
}

fn opened<T>(server: &ConnectionInfo, outcome: Result<redis::RedisResult<T>, Elapsed>) -> Result<T, Failure> {
    let address = server.addr();
    match outcome {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(Failure::Ended(format!("{address}: {error}"))),
        Err(_) => Err(Failure::Ended(format!(
            "{address}: no connection within {CONNECT_TIMEOUT:?}"
        ))),
    }
}

/// Queries Sentinels for the master, which is asked for its role: the next one if one does not respond.
pub(crate) async fn find_master(access: &RedisAccess) -> Result<ConnectionInfo, Failure> {
    let mut failure = no_server();
    for sentinel in &access.servers {
        // Sentinels seldom have passwords, and refuse one if they have none.
        let found = match query_sentinel(access, sentinel, false).await {
            Err(Failure::Client(_)) if access.login.is_some() => query_sentinel(access, sentinel, true).await,
            outcome => outcome,
        };
        match found {
            Ok(master) => return Ok(master),
            Err(found) => failure = found,
        }
    }
    Err(failure)
}

async fn query_sentinel(
    access: &RedisAccess,
    sentinel: &str,
    logs_in: bool,
) -> Result<ConnectionInfo, Failure> {
    let RedisDeployment::Sentinel(name) = &access.deployment else {
        return Err(Failure::Settings("expected Sentinels".to_owned()));
    };
    let sentinels = vec![address(access, sentinel)?];
    let mut builder = SentinelClientBuilder::new(sentinels, name, SentinelServerType::Master)?
        .set_client_to_redis_db(access.database);
    if let Some(login) = &access.login {
        let password = String::from_utf8_lossy(login.password.expose()).into_owned();
        if !login.user.is_empty() {
            builder = builder.set_client_to_redis_username(&login.user);
        }
        builder = builder.set_client_to_redis_password(&password);
        if logs_in {
            if !login.user.is_empty() {
                builder = builder.set_client_to_sentinel_username(&login.user);
            }
            builder = builder.set_client_to_sentinel_password(&password);
        }
    }
    if let Some(tls) = &access.tls {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates(tls))
            .set_client_to_sentinel_certificates(certificates(tls));
    }
    let mut client = builder.build()?;
    match timeout(SENTINEL_TIMEOUT, client.async_get_client()).await {
        Ok(client) => Ok(client?.get_connection_info().clone()),
        Err(_) => Err(Failure::Ended(format!(
            "the Sentinel at {sentinel} names no master within {SENTINEL_TIMEOUT:?}"
        ))),
    }
}

fn info(access: &RedisAccess, server: &str) -> Result<ConnectionInfo, Failure> {
    let mut settings = RedisConnectionInfo::default().set_db(access.database);
    if let Some(login) = &access.login {
        if !login.user.is_empty() {
            settings = settings.set_username(&login.user);
        }
        settings = settings.set_password(String::from_utf8_lossy(login.password.expose()));
    }
    let info = address(access, server)?.into_connection_info()?;
    let info = info.set_redis_settings(settings);
    Ok(match &access.tls {
        Some(tls) => Client::build_with_tls(info, certificates(tls))?
            .get_connection_info()
            .clone(),
        None => info,
    })
}

/// `HOST:PORT`, `HOST`, or the path of a Unix socket.
fn address(access: &RedisAccess, server: &str) -> Result<ConnectionAddr, Failure> {
    if server.starts_with('/') {
        return Ok(ConnectionAddr::Unix(server.into()));
    }
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (server, Some(PORT)),
    };
    let port = port.ok_or_else(|| Failure::Settings(format!("expected HOST:PORT, found {server}")))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let Some(tls) = &access.tls else {
        return Ok(ConnectionAddr::Tcp(host, port));
    };
    if tls.server_name.as_deref().is_some_and(|name| name != host) {
        return Err(Failure::Settings(format!(
            "certificates of Redis are verified against the server's host, {host}: a `server_name` of its own is not supported"
        )));
    }
    Ok(ConnectionAddr::TcpTls {
        host,
        port,
        insecure: false,
        tls_params: None,
    })
}

fn certificates(tls: &BrokerTls) -> TlsCertificates {
    TlsCertificates {
        client_tls: tls.certificate.as_ref().map(|certificate| ClientTlsConfig {
            client_cert: certificate.chain.to_vec(),
            client_key: certificate.key.expose().to_vec(),
        }),
        root_cert: tls.authorities.as_ref().map(|pem| pem.to_vec()),
    }
}
