//! Connections to a NATS cluster with the configured login and TLS.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use ringmain_gateway::model::{NatsAccess, NatsLogin};
use tokio::sync::mpsc;

use super::REQUEST_TIMEOUT;
use crate::failure::Failure;
use crate::tls;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The client ends a connection at the third ping without an answer to the first: together with the next connect, less than
/// [`SILENT_AFTER`](crate::limits::SILENT_AFTER).
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Connects to one of the servers. What happens to the connection is sent to `events`.
pub(crate) async fn connect(access: &NatsAccess, events: mpsc::Sender<Event>) -> Result<Client, Failure> {
    let mut options = ConnectOptions::new()
        .name("ringmain")
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .ping_interval(PING_INTERVAL)
        .event_callback(move |event| {
            let events = events.clone();
            async move {
                // A full queue has one that ends the connection.
                let _ = events.try_send(event);
            }
        });
    let text = |secret: &[u8]| String::from_utf8_lossy(secret).into_owned();
    options = match &access.login {
        NatsLogin::Anonymous => options,
        NatsLogin::User { user, password } => {
            options.user_and_password(user.to_string(), text(password.expose()))
        }
        NatsLogin::Token(token) => options.token(text(token.expose())),
        NatsLogin::Credentials(file) => {
            let file = text(file.expose());
            if file.contains("-----BEGIN") {
                options
                    .credentials(&file)
                    .map_err(|error| Failure::Settings(format!("credentials: {error}")))?
            } else {
                options.nkey(file.trim().to_owned())
            }
        }
    };
    let needs_tls = access.tls.is_some() || access.servers.iter().any(|server| server.tls);
    if let Some(tls) = &access.tls {
        let config = tls::client_config(tls.authorities.as_deref(), tls.certificate.as_deref())?;
        options = options.tls_client_config(config);
    }
    let servers: Vec<String> = access
        .servers
        .iter()
        .map(|server| {
            let scheme = if server.tls { "tls" } else { "nats" };
            let host = if server.host.contains(':') {
                format!("[{}]", server.host)
            } else {
                server.host.to_string()
            };
            format!("{scheme}://{host}:{}", server.port)
        })
        .collect();
    let connected = options.require_tls(needs_tls).connect(servers).await;
    connected.map_err(Failure::client)
}
