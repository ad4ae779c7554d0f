//! Connections to the server.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::Postgres;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

use super::HEARTBEAT_INTERVAL;
use super::tls::Tls;
use crate::failure::Failure;
use crate::limits;

/// The time that a response may take: with the interval before it, [`limits::SILENT_AFTER`].
pub(super) const RESPONSE_TIMEOUT: Duration = limits::SILENT_AFTER.saturating_sub(HEARTBEAT_INTERVAL);
/// The port of servers that are named without one.
const PORT: u16 = 5432;

/// The settings of a session, as far as the server knows them: a client that is gone, or hangs, loses its locks within 15 seconds, and rows are
/// found by the index however old the statistics of a table are that was empty a moment ago.
const SETTINGS: &str = "SELECT set_config(s.name, s.value, false) FROM (VALUES \
    ('idle_session_timeout', '15000'), ('tcp_keepalives_idle', '5'), ('tcp_keepalives_interval', '2'), \
    ('tcp_keepalives_count', '4'), ('tcp_user_timeout', '13000'), ('lock_timeout', '3000'), \
    ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off')) AS s(name, value) \
    JOIN pg_settings p ON p.name = s.name";

/// Awaits a response of the server, at most [`RESPONSE_TIMEOUT`].
pub(super) async fn within<T>(
    response: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    match timeout(RESPONSE_TIMEOUT, response).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(Failure::Ended(format!(
            "the server has not responded for {RESPONSE_TIMEOUT:?}"
        ))),
    }
}

/// Connects, and reads from the connection on a task that completes with its end.
pub(super) async fn connect(
    postgres: &Postgres,
    wake: &Arc<Notify>,
) -> Result<(Client, JoinHandle<Failure>), Failure> {
    let mut config = Config::new();
    match socket(&postgres.server)? {
        (host, port) if host.starts_with('/') => config.host_path(host).port(port),
        (host, port) => config.host(host).port(port),
    };
    config
        .dbname(&*postgres.database)
        .user(&*postgres.login.user)
        .application_name("ringmain")
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .connect_timeout(limits::SILENT_AFTER)
        .tcp_user_timeout(limits::SILENT_AFTER)
        .keepalives_idle(limits::SILENT_AFTER);
    let password = postgres.login.password.expose();
    if !password.is_empty() {
        config.password(password);
    }
    let refused = |failure: Failure| Failure::Ended(format!("{}: {failure}", postgres.server));
    let (client, task) = match &postgres.tls {
        None => {
            config.ssl_mode(SslMode::Disable);
            let (client, connection) = within(config.connect(NoTls)).await.map_err(refused)?;
            (client, drive(connection, wake))
        }
        Some(tls) => {
            config.ssl_mode(SslMode::Require);
            let connecting = within(config.connect(Tls::new(tls)?)).await;
            let (client, connection) = connecting.map_err(refused)?;
            (client, drive(connection, wake))
        }
    };
    within(client.batch_execute(SETTINGS)).await?;
    Ok((client, task))
}

/// Splits `HOST:PORT`, or a directory of Unix sockets.
fn socket(server: &str) -> Result<(&str, u16), Failure> {
    let (host, port) = match server.rsplit_once(':') {
        // An IPv6 address without a port.
        Some(_) if server.ends_with(']') => (server, None),
        Some((host, port)) => (host, Some(port)),
        None => (server, None),
    };
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let port = match port {
        None => PORT,
        Some(port) => port
            .parse()
            .map_err(|_| Failure::Settings(format!("expected a server as HOST:PORT, found {server}")))?,
    };
    Ok((host, port))
}

fn drive<S, T>(mut connection: Connection<S, T>, wake: &Arc<Notify>) -> JoinHandle<Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let wake = Arc::clone(wake);
    tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => wake.notify_one(),
                Some(Ok(AsyncMessage::Notice(notice))) => log::debug!("postgres: {notice}"),
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.into(),
                None => return Failure::Ended("the connection was closed".to_owned()),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::socket;

    #[test]
    fn servers_have_a_port_or_the_usual_one() {
        for (server, host, port) in [
            ("db", "db", 5432),
            ("db:6000", "db", 6000),
            ("[::1]:6000", "::1", 6000),
            ("[::1]", "::1", 5432),
            ("/run/postgresql", "/run/postgresql", 5432),
            ("/run/postgresql:6000", "/run/postgresql", 6000),
        ] {
            let found = socket(server).map_err(|error| error.to_string());
            assert_eq!(found, Ok((host, port)), "{server}");
        }
        assert!(socket("db:x").is_err());
    }
}
