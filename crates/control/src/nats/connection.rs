//! A connection to a server: established, authenticated, and its messages.
//!
//! ```text
//! TCP ─▶ INFO ─┬─────────▶ CONNECT, PING ─▶ PONG: it is open
//!              └─▶ TLS ──▶─┘        └─▶ -ERR: refused
//! ```

use std::io;

use ringmain_gateway::model::{NatsAccess, NatsLogin, NatsServer, NatsTls};
use ringmain_sys::clock;
use ringmain_tls::{ClientSettings, KeyPair, PeerName, Pem, Trust, system_roots};
use ringmain_wire::tls::{Client, Clock};
use serde::{Deserialize, Serialize};

use super::credentials::Credentials;
use super::protocol::{self, Decoder, EncodeError, ProtocolError, ServerEvent};
use super::transport::{NatsStream, ReadOutcome};
use crate::limits::{NATS_CONNECT_TIMEOUT, NATS_PAYLOAD_BYTES};

/// An open connection. Outgoing data is buffered until [`Connection::flush`].
pub struct Connection {
    stream: NatsStream,
    decoder: Decoder,
    /// Received bytes; the first `used` bytes are consumed.
    buffered: Vec<u8>,
    used: usize,
    out: Vec<u8>,
    info: ServerInfo,
}

/// The server's INFO. Missing fields have the values of a server without requirements.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// Its version.
    pub version: String,
    /// The maximum payload that it accepts, in bytes.
    pub max_payload: u64,
    /// It speaks TLS alone.
    tls_required: bool,
    /// It supports TLS.
    tls_available: bool,
    /// The nonce that an NKey signs.
    nonce: Option<String>,
}

/// The error of a connection, or of an attempt to connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The system's, or TLS's.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took longer than [`NATS_CONNECT_TIMEOUT`].
    #[error("not connected within {NATS_CONNECT_TIMEOUT:?}")]
    Timeout,
    /// No data, not even a pong, was received for too long.
    #[error("no response to a ping")]
    PongTimeout,
    /// The server has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// The server has sent an error, cut to 200 characters.
    #[error("server error: {0:?}")]
    Refused(String),
    /// The peer is not a NATS server, or violates the protocol.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// A requirement of the server or of the settings is not met.
    #[error("{0}")]
    Settings(String),
}

impl ConnectionError {
    /// Returns whether another attempt would fail as well: the cause is on this side, or in the permissions of the server.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            ConnectionError::Settings(_) => true,
            ConnectionError::Refused(problem) => problem.starts_with("Permissions Violation"),
            _ => false,
        }
    }
}

/// Credentials and TLS settings, prepared once for all servers.
pub struct ConnectOptions {
    login: NatsLogin,
    credentials: Option<Credentials>,
    tls: Option<NatsTls>,
    client: Client,
    clock: Clock,
}

impl ConnectOptions {
    /// Reads the host's certificate authorities, if they are trusted.
    ///
    /// # Errors
    /// [`ConnectionError::Settings`]: credentials or certificates that cannot be used.
    pub fn new(access: &NatsAccess) -> Result<ConnectOptions, ConnectionError> {
        let credentials = match &access.login {
            NatsLogin::Credentials(file) => {
                let text = str::from_utf8(file.expose()).unwrap_or_default();
                let read = Credentials::parse(text);
                Some(read.map_err(|expected| ConnectionError::Settings(expected.to_owned()))?)
            }
            _ => None,
        };
        let (tls, clock) = (access.tls.as_ref(), Clock::new(clock::realtime()));
        let pem = |field: &str, bytes: &[u8]| Pem {
            source: format!("{field} of NATS"),
            bytes: bytes.to_vec(),
        };
        let trust = match tls.and_then(|tls| tls.authorities.as_deref()) {
            Some(bytes) => Trust::Authorities(pem("authorities", bytes)),
            // Without roots no server is trusted, which only affects connections with TLS.
            None => system_roots().unwrap_or(Trust::Roots(Vec::new())),
        };
        let mut settings = ClientSettings::new(trust);
        settings.certificate = tls
            .and_then(|tls| tls.certificate.as_ref())
            .map(|certificate| KeyPair {
                chain: pem("certificate", &certificate.chain),
                key: pem("key", certificate.key.expose()),
            });
        let client = settings.build(&clock).map_err(|findings| {
            let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
            ConnectionError::Settings(format!("TLS cannot be set up: {}", messages.join("; ")))
        })?;
        Ok(ConnectOptions {
            login: access.login.clone(),
            credentials,
            tls: access.tls.clone(),
            client,
            clock,
        })
    }

    fn connect(&self, info: &ServerInfo, tls: bool) -> Result<String, ConnectionError> {
        let mut message = ConnectMessage {
            name: "ringmain",
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            tls_required: tls,
            ..ConnectMessage::default()
        };
        let text = |secret: &[u8]| String::from_utf8_lossy(secret).into_owned();
        match (&self.login, &self.credentials) {
            (NatsLogin::User { user, password }, _) => {
                message.user = Some(user.to_string());
                message.pass = Some(text(password.expose()));
            }
            (NatsLogin::Token(token), _) => message.auth_token = Some(text(token.expose())),
            (NatsLogin::Credentials(_), Some(credentials)) => {
                let Some(nonce) = &info.nonce else {
                    let problem = "the server has sent no nonce: it does not use credentials";
                    return Err(ConnectionError::Settings(problem.to_owned()));
                };
                message.sig = Some(credentials.sign(nonce));
                message.nkey = credentials.jwt.is_none().then(|| credentials.public());
                message.jwt.clone_from(&credentials.jwt);
            }
            _ => {}
        }
        serde_json::to_string(&message).map_err(|error| ConnectionError::Settings(error.to_string()))
    }
}

/// The CONNECT message.
#[derive(Default, Serialize)]
struct ConnectMessage {
    verbose: bool,
    pedantic: bool,
    echo: bool,
    headers: bool,
    tls_required: bool,
    name: &'static str,
    lang: &'static str,
    version: &'static str,
    protocol: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

impl Connection {
    /// Connects and signs in, within [`NATS_CONNECT_TIMEOUT`].
    ///
    /// # Errors
    /// [`ConnectionError`].
    pub async fn open(access: &ConnectOptions, server: &NatsServer) -> Result<Connection, ConnectionError> {
        let opened = Connection::sign_in(access, server);
        tokio::time::timeout(NATS_CONNECT_TIMEOUT, opened)
            .await
            .unwrap_or(Err(ConnectionError::Timeout))
    }

    async fn sign_in(access: &ConnectOptions, server: &NatsServer) -> Result<Connection, ConnectionError> {
        let mut connection = Connection {
            stream: NatsStream::connect(&server.host, server.port).await?,
            decoder: Decoder::new(NATS_PAYLOAD_BYTES),
            buffered: Vec::new(),
            used: 0,
            out: Vec::new(),
            info: ServerInfo::default(),
        };
        let info = connection.read_greeting().await?;
        let tls = server.tls || access.tls.is_some() || info.tls_required;
        if tls {
            if !info.tls_required && !info.tls_available {
                let problem = "expected a server with TLS; it offers none";
                return Err(ConnectionError::Settings(problem.to_owned()));
            }
            // Data that an attacker injects after the greeting would be taken for the server's.
            if connection.used < connection.buffered.len() {
                let problem = "expected nothing between greeting and TLS; found something";
                return Err(ConnectionError::Settings(problem.to_owned()));
            }
            let name = access.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            let peer = PeerName::new(name.unwrap_or(&server.host));
            let peer = peer.map_err(|invalid| ConnectionError::Settings(invalid.to_string()))?;
            access.clock.set(clock::realtime());
            connection.stream.secure(&access.client, &peer).await?;
        }
        let connect = access.connect(&info, tls)?;
        protocol::encode_connect(&connect, &mut connection.out).map_err(settings_error)?;
        protocol::encode_ping(&mut connection.out);
        connection.info = info;
        connection.flush().await?;
        loop {
            match connection.event()? {
                Some(ServerEvent::Pong) => return Ok(connection),
                Some(ServerEvent::Error(problem)) => return Err(server_refusal(problem)),
                Some(_) => {}
                None => connection.fill().await?,
            }
        }
    }

    /// Reads the greeting.
    async fn read_greeting(&mut self) -> Result<ServerInfo, ConnectionError> {
        loop {
            match self.event()? {
                Some(ServerEvent::Info(json)) => {
                    let read = serde_json::from_slice(json);
                    return read.map_err(|_| {
                        ConnectionError::Settings(
                            "expected JSON in the server's greeting; found none".to_owned(),
                        )
                    });
                }
                Some(ServerEvent::Error(problem)) => return Err(server_refusal(problem)),
                Some(_) => return Err(ProtocolError::Unknown.into()),
                None => self.fill().await?,
            }
        }
    }

    /// Returns the server's INFO at the time of the connection.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Returns the next event. `None`: more data is needed, see [`Connection::fill`].
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn event(&mut self) -> Result<Option<ServerEvent<'_>>, ProtocolError> {
        let (used, event) = self.decoder.decode(&self.buffered[self.used..])?;
        self.used += used;
        Ok(event)
    }

    /// Waits for more. Cancel-safe.
    ///
    /// # Errors
    /// [`ConnectionError::Io`], [`ConnectionError::Closed`].
    pub async fn fill(&mut self) -> Result<(), ConnectionError> {
        self.buffered.drain(..self.used);
        self.used = 0;
        match self.stream.read(&mut self.buffered).await? {
            ReadOutcome::Some => Ok(()),
            // Data received with the end is processed first.
            ReadOutcome::End if self.buffered.is_empty() => Err(ConnectionError::Closed),
            ReadOutcome::End => self.final_error(),
        }
    }

    /// Returns the error that the server has sent before it closed the connection.
    fn final_error(&mut self) -> Result<(), ConnectionError> {
        while let Ok(Some(event)) = self.event() {
            if let ServerEvent::Error(problem) = event {
                return Err(server_refusal(problem));
            }
        }
        Err(ConnectionError::Closed)
    }

    /// Subscribes to `filter` under a number.
    ///
    /// # Errors
    /// [`ConnectionError::Settings`]: it is no filter.
    pub fn subscribe(&mut self, filter: &str, subscription: u64) -> Result<(), ConnectionError> {
        protocol::encode_subscribe(filter, subscription, &mut self.out).map_err(settings_error)
    }

    /// Publishes.
    ///
    /// # Errors
    /// [`ConnectionError::Settings`]: an invalid subject, or a larger payload than the server accepts.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), ConnectionError> {
        if payload.len() as u64 > self.info.max_payload {
            let max = self.info.max_payload;
            let found = payload.len();
            let problem = format!("expected a payload of at most {max} bytes, found {found}");
            return Err(ConnectionError::Settings(problem));
        }
        protocol::encode_publish(subject, payload, &mut self.out).map_err(settings_error)
    }

    /// Sends a ping; [`ServerEvent::Pong`] follows.
    pub fn ping(&mut self) {
        protocol::encode_ping(&mut self.out);
    }

    /// Responds to a ping.
    pub fn pong(&mut self) {
        protocol::encode_pong(&mut self.out);
    }

    /// Returns the number of bytes that are not sent yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.out.len() + self.stream.waiting()
    }

    /// Sends buffered data. Cancel-safe: unsent data stays buffered.
    ///
    /// # Errors
    /// [`ConnectionError::Io`].
    pub async fn flush(&mut self) -> Result<(), ConnectionError> {
        if !self.out.is_empty() {
            self.stream.put(&self.out)?;
            self.out.clear();
        }
        Ok(self.stream.flush().await?)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

fn settings_error(misuse: EncodeError) -> ConnectionError {
    ConnectionError::Settings(misuse.to_string())
}

/// Limits the length of a server's text, which is not trusted.
pub(super) fn server_refusal(problem: &str) -> ConnectionError {
    ConnectionError::Refused(problem.chars().take(200).collect())
}
