//! TLS of the client's connections: what begins it, and what it is called when it fails.
//!
//! Knows neither links nor figures.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_tls::{ConfigError, ConnectHandle, Connector, Facts, Fault, FaultKind, PeerName, Tls};

use crate::plan;

/// What the connections of all workers are secured with. Its sessions are resumed on any of them.
#[derive(Debug)]
pub(crate) struct Secures {
    connector: Connector,
    peer: PeerName,
}

/// Why nothing can be secured so.
#[derive(Debug)]
pub(crate) enum Unsecured {
    /// The name is none of a host.
    Name(String),
    /// What is trusted, shown or spoken.
    Settings(ConfigError),
}

impl Secures {
    /// By these settings, with that peer; none has a session yet.
    pub(crate) fn new(tls: &plan::Tls) -> Result<Secures, Unsecured> {
        let peer = PeerName::new(&tls.name).map_err(|error| Unsecured::Name(error.to_string()))?;
        let connector = Connector::new(&tls.settings, ringmain_sys::clock::realtime());
        Ok(Secures {
            connector: connector.map_err(Unsecured::Settings)?,
            peer,
        })
    }

    /// One worker's share.
    pub(crate) fn handle(&self) -> Secure {
        Secure {
            handle: self.connector.handle(),
            peer: self.peer.clone(),
        }
    }
}

/// What one worker secures its connections with.
#[derive(Debug)]
pub(crate) struct Secure {
    handle: ConnectHandle,
    peer: PeerName,
}

/// What a handshake agreed on, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) version: &'static str,
    pub(crate) suite: &'static str,
    pub(crate) resumed: bool,
}

impl Secure {
    /// Begins the handshake; `wall` is time since 1970.
    pub(crate) fn begin(&self, conn: Conn<'_>, wall: Duration) {
        conn.secure(Box::new(self.handle.connect(&self.peer, wall)));
    }
}

/// What the handshake agreed on.
pub(crate) fn agreed(conn: Conn<'_>) -> Option<Agreed> {
    let of = |facts: &Facts| Agreed {
        version: facts.version.name(),
        suite: facts.suite,
        resumed: facts.resumed,
    };
    conn.layer(|tls: &mut Tls| tls.facts().map(of)).flatten()
}

/// Whether the server has agreed to speak this over it.
pub(crate) fn speaks(conn: Conn<'_>, protocol: &[u8]) -> bool {
    let agreed = |tls: &mut Tls| {
        let facts = tls.facts()?;
        Some(facts.alpn.as_deref() == Some(protocol))
    };
    conn.layer(agreed).flatten().unwrap_or(false)
}

/// Why TLS failed: what is counted, and what was found.
pub(crate) fn failure(conn: Conn<'_>) -> (&'static str, String) {
    let fault = conn.layer(|tls: &mut Tls| tls.fault().cloned()).flatten();
    match fault {
        Some(fault) => (describe(&fault), fault.to_string()),
        None => ("TLS: failed", "TLS failed without a reason".to_owned()),
    }
}

fn describe(fault: &Fault) -> &'static str {
    match fault.kind {
        FaultKind::CertificateName => "TLS: certificate for other names",
        FaultKind::CertificateExpired => "TLS: certificate expired",
        FaultKind::CertificateNotYetValid => "TLS: certificate not valid yet",
        FaultKind::CertificateIssuer => "TLS: certificate of an unknown issuer",
        FaultKind::CertificateMissing | FaultKind::Certificate => "TLS: certificate not valid",
        FaultKind::Refused => "TLS: refused by the server",
        FaultKind::Version | FaultKind::Parameters | FaultKind::Alpn => "TLS: no common parameters",
        FaultKind::NotTls => "TLS: not supported",
        _ => "TLS: broke the protocol",
    }
}
