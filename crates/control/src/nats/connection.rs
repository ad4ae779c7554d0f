//! A connection to a server: made, signed in, and what is said over it.
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
use super::protocol::{self, Decoder, Event, Fault, Misuse};
use super::transport::{Read, Stream};
use crate::limits::{NATS_CONNECT_WITHIN, NATS_PAYLOAD_BYTES};

/// A connection that is open. What is to be sent waits until [`Connection::flush`].
pub struct Connection {
    stream: Stream,
    decoder: Decoder,
    /// What has come; the first `used` bytes are done with.
    kept: Vec<u8>,
    used: usize,
    out: Vec<u8>,
    info: Info,
}

/// What a server says of itself. What it does not say is as for one that wants nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Info {
    /// Its version.
    pub version: String,
    /// Bytes of a payload that it takes.
    pub max_payload: u64,
    /// It speaks TLS alone.
    tls_required: bool,
    /// It speaks TLS with whoever wants to.
    tls_available: bool,
    /// What an NKey signs.
    nonce: Option<String>,
}

/// Why there is no connection, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system's, or TLS's.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took longer than [`NATS_CONNECT_WITHIN`].
    #[error("not connected within {NATS_CONNECT_WITHIN:?}")]
    TooLate,
    /// Nothing was heard for too long, not even the answer to a ping.
    #[error("nothing was heard any more")]
    Silent,
    /// The server has closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// The server says why it does not go on. It is cut to 200 characters.
    #[error("the server says {0:?}")]
    Refused(String),
    /// It is no NATS, or not as it should be.
    #[error("{0}")]
    Protocol(#[from] Fault),
    /// What it needs is not there, or cannot be used.
    #[error("{0}")]
    Settings(String),
}

impl Failure {
    /// Whether another try would end the same: what is wrong is on this side, or nobody but the server's owner changes it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Failure::Settings(_) => true,
            Failure::Refused(why) => why.starts_with("Permissions Violation"),
            _ => false,
        }
    }
}

/// Who signs in, with what TLS needs: made once, for all servers.
pub struct Access {
    login: NatsLogin,
    credentials: Option<Credentials>,
    tls: Option<NatsTls>,
    client: Client,
    clock: Clock,
}

impl Access {
    /// Reads the host's authorities, if those vouch.
    ///
    /// # Errors
    /// [`Failure::Settings`]: credentials or certificates that cannot be used.
    pub fn new(access: &NatsAccess) -> Result<Access, Failure> {
        let credentials = match &access.login {
            NatsLogin::Credentials(file) => {
                let text = str::from_utf8(file.expose()).unwrap_or_default();
                let read = Credentials::parse(text);
                Some(read.map_err(|expected| Failure::Settings(expected.to_owned()))?)
            }
            _ => None,
        };
        let (tls, clock) = (access.tls.as_ref(), Clock::new(clock::realtime()));
        let pem = |what: &str, bytes: &[u8]| Pem {
            source: format!("{what} of NATS"),
            bytes: bytes.to_vec(),
        };
        let trust = match tls.and_then(|tls| tls.authorities.as_deref()) {
            Some(bytes) => Trust::Authorities(pem("authorities", bytes)),
            // Without any nobody is trusted, which matters to those alone who want TLS.
            None => system_roots().unwrap_or(Trust::Roots(Vec::new())),
        };
        let mut settings = ClientSettings::new(trust);
        settings.certificate = tls.and_then(|tls| tls.certificate.as_ref()).map(|shown| KeyPair {
            chain: pem("certificate", &shown.chain),
            key: pem("key", shown.key.expose()),
        });
        let client = settings.build(&clock).map_err(|findings| {
            let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
            Failure::Settings(format!("TLS cannot be set up: {}", told.join("; ")))
        })?;
        Ok(Access {
            login: access.login.clone(),
            credentials,
            tls: access.tls.clone(),
            client,
            clock,
        })
    }

    fn connect(&self, info: &Info, tls: bool) -> Result<String, Failure> {
        let mut said = Connect {
            name: "ringmain",
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            tls_required: tls,
            ..Connect::default()
        };
        let text = |secret: &[u8]| String::from_utf8_lossy(secret).into_owned();
        match (&self.login, &self.credentials) {
            (NatsLogin::User { user, password }, _) => {
                said.user = Some(user.to_string());
                said.pass = Some(text(password.expose()));
            }
            (NatsLogin::Token(token), _) => said.auth_token = Some(text(token.expose())),
            (NatsLogin::Credentials(_), Some(credentials)) => {
                let Some(nonce) = &info.nonce else {
                    let why = "the server has no nonce to sign: it wants no credentials";
                    return Err(Failure::Settings(why.to_owned()));
                };
                said.sig = Some(credentials.sign(nonce));
                said.nkey = credentials.jwt.is_none().then(|| credentials.public());
                said.jwt.clone_from(&credentials.jwt);
            }
            _ => {}
        }
        serde_json::to_string(&said).map_err(|error| Failure::Settings(error.to_string()))
    }
}

/// Who the client is and what it knows.
#[derive(Default, Serialize)]
struct Connect {
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
    /// Connects and signs in, within [`NATS_CONNECT_WITHIN`].
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn open(access: &Access, server: &NatsServer) -> Result<Connection, Failure> {
        let opened = Connection::sign_in(access, server);
        tokio::time::timeout(NATS_CONNECT_WITHIN, opened)
            .await
            .unwrap_or(Err(Failure::TooLate))
    }

    async fn sign_in(access: &Access, server: &NatsServer) -> Result<Connection, Failure> {
        let mut connection = Connection {
            stream: Stream::connect(&server.host, server.port).await?,
            decoder: Decoder::new(NATS_PAYLOAD_BYTES),
            kept: Vec::new(),
            used: 0,
            out: Vec::new(),
            info: Info::default(),
        };
        let info = connection.greeting().await?;
        let tls = server.tls || access.tls.is_some() || info.tls_required;
        if tls {
            if !info.tls_required && !info.tls_available {
                let why = "expected a server with TLS; it offers none";
                return Err(Failure::Settings(why.to_owned()));
            }
            // What somebody in between has put behind the greeting would be taken for the server's.
            if connection.used < connection.kept.len() {
                let why = "expected nothing between greeting and TLS; found something";
                return Err(Failure::Settings(why.to_owned()));
            }
            let name = access.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            let peer = PeerName::new(name.unwrap_or(&server.host));
            let peer = peer.map_err(|bad| Failure::Settings(bad.to_string()))?;
            access.clock.set(clock::realtime());
            connection.stream.secure(&access.client, &peer).await?;
        }
        let connect = access.connect(&info, tls)?;
        protocol::connect(&connect, &mut connection.out).map_err(misuse)?;
        protocol::ping(&mut connection.out);
        connection.info = info;
        connection.flush().await?;
        loop {
            match connection.event()? {
                Some(Event::Pong) => return Ok(connection),
                Some(Event::Error(why)) => return Err(refused(why)),
                Some(_) => {}
                None => connection.fill().await?,
            }
        }
    }

    /// What a server says first.
    async fn greeting(&mut self) -> Result<Info, Failure> {
        loop {
            match self.event()? {
                Some(Event::Info(json)) => {
                    let read = serde_json::from_slice(json);
                    return read.map_err(|_| {
                        Failure::Settings("expected JSON in the server's greeting; found none".to_owned())
                    });
                }
                Some(Event::Error(why)) => return Err(refused(why)),
                Some(_) => return Err(Fault::Unknown.into()),
                None => self.fill().await?,
            }
        }
    }

    /// What the server said of itself when the connection was made.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// What has come next. `None`: [`Connection::fill`] brings more.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn event(&mut self) -> Result<Option<Event<'_>>, Fault> {
        let (used, event) = self.decoder.decode(&self.kept[self.used..])?;
        self.used += used;
        Ok(event)
    }

    /// Waits for more. May be dropped: nothing is lost by that.
    ///
    /// # Errors
    /// [`Failure::Io`], [`Failure::Closed`].
    pub async fn fill(&mut self) -> Result<(), Failure> {
        self.kept.drain(..self.used);
        self.used = 0;
        match self.stream.read(&mut self.kept).await? {
            Read::Some => Ok(()),
            // What came with the end is looked at first.
            Read::End if self.kept.is_empty() => Err(Failure::Closed),
            Read::End => self.last_words(),
        }
    }

    /// The connection has ended: perhaps it was said why.
    fn last_words(&mut self) -> Result<(), Failure> {
        while let Ok(Some(event)) = self.event() {
            if let Event::Error(why) = event {
                return Err(refused(why));
            }
        }
        Err(Failure::Closed)
    }

    /// Wants what is published where `filter` matches, by this number.
    ///
    /// # Errors
    /// [`Failure::Settings`]: it is no filter.
    pub fn subscribe(&mut self, filter: &str, subscription: u64) -> Result<(), Failure> {
        protocol::subscribe(filter, subscription, &mut self.out).map_err(misuse)
    }

    /// Publishes.
    ///
    /// # Errors
    /// [`Failure::Settings`]: no subject, or more than the server takes.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), Failure> {
        if payload.len() as u64 > self.info.max_payload {
            let most = self.info.max_payload;
            let found = payload.len();
            let why = format!("expected a payload of at most {most} bytes, found {found}");
            return Err(Failure::Settings(why));
        }
        protocol::publish(subject, payload, &mut self.out).map_err(misuse)
    }

    /// Asks whether the server is there; [`Event::Pong`] follows.
    pub fn ping(&mut self) {
        protocol::ping(&mut self.out);
    }

    /// Answers a server that asks.
    pub fn pong(&mut self) {
        protocol::pong(&mut self.out);
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.out.len() + self.stream.waiting()
    }

    /// Sends what waits. May be dropped: what was not sent waits.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub async fn flush(&mut self) -> Result<(), Failure> {
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

fn misuse(misuse: Misuse) -> Failure {
    Failure::Settings(misuse.to_string())
}

/// What a server says is a stranger's text.
pub(super) fn refused(why: &str) -> Failure {
    Failure::Refused(why.chars().take(200).collect())
}
