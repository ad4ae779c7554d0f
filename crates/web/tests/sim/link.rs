//! A client's connection, with or without TLS: the same calls, so that no client knows which it has.
//!
//! Random bytes of TLS differ from run to run; their number does not, so that a seed always gives the same run.

use std::sync::OnceLock;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair as Key, PKCS_ED25519};
use ringmain_engine::{Layer, LayerEvent};
use ringmain_sim::Peer;
use ringmain_tls::{
    Acceptor, ClientSettings, Connector, KeyPair, PeerName, Pem, ServerSettings, Tls, Trust, http_protocols,
};

/// The time at which the tests' certificates are verified. Signatures with Ed25519 have a fixed length.
const NOW: Duration = Duration::from_secs(1_800_000_000);

pub(crate) struct Link {
    peer: Peer,
    tls: Option<Box<Side>>,
}

struct Side {
    tls: Tls,
    /// Received and not yet opened.
    wire: Vec<u8>,
    /// Opened and not yet read.
    plain: Vec<u8>,
    /// To be sent.
    out: Vec<u8>,
    /// There was no room for it.
    stuck: bool,
    /// Our end follows `out`, announced or not.
    fin: bool,
    /// Our FIN preceded our part of the handshake: the server never reaches its close_notify.
    early: bool,
    announces: bool,
    /// The server has announced its end.
    ended: bool,
    fault: Option<String>,
}

/// The credentials of servers and clients: a certificate for localhost, and its issuer.
fn certificate() -> &'static (KeyPair, Pem) {
    static MADE: OnceLock<(KeyPair, Pem)> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "sim");
        let key = Key::generate_for(&PKCS_ED25519).expect("a key");
        let authority = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let key = Key::generate_for(&PKCS_ED25519).expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let chain = params.signed_by(&key, &issuer).expect("a certificate").pem();
        let pair = KeyPair {
            chain: pem(chain),
            key: pem(key.serialize_pem()),
        };
        (pair, pem(authority))
    })
}

fn pem(text: String) -> Pem {
    Pem {
        source: "test".to_owned(),
        bytes: text.into_bytes(),
    }
}

pub(crate) fn acceptor() -> Acceptor {
    let settings = ServerSettings {
        certificates: vec![certificate().0.clone()],
        alpn: http_protocols(),
        ..ServerSettings::default()
    };
    Acceptor::new(&settings, NOW).expect("settings")
}

/// Of clients that offer these protocols.
pub(crate) fn connector(alpn: &[Vec<u8>]) -> Connector {
    let settings = ClientSettings {
        alpn: alpn.to_vec(),
        ..ClientSettings::new(Trust::Authorities(certificate().1.clone()))
    };
    Connector::new(&settings, NOW).expect("settings")
}

impl Link {
    /// Opens a link, with TLS if there is a connector; `announces`: it sends close_notify before it shuts down its side.
    pub(crate) fn new(peer: Peer, connector: Option<&Connector>, announces: bool) -> Link {
        let tls = connector.map(|connector| {
            let name = PeerName::new("localhost").expect("a name");
            let mut tls = connector.handle().connect(&name, NOW);
            let mut out = Vec::new();
            tls.begin(&mut out);
            Box::new(Side {
                tls,
                wire: Vec::new(),
                plain: Vec::new(),
                out,
                stuck: false,
                fin: false,
                early: false,
                announces,
                ended: false,
                fault: None,
            })
        });
        Link { peer, tls }
    }

    /// As [`Peer::write`]; over TLS all or nothing.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.flush();
        let Some(side) = &mut self.tls else {
            return self.peer.write(bytes);
        };
        if !side.takes() {
            return Ok(0);
        }
        if side.tls.send(bytes, &mut side.out).is_err() {
            return Ok(0);
        }
        self.flush();
        Ok(bytes.len())
    }

    /// As [`Peer::read`].
    pub(crate) fn read(&mut self, limit: usize) -> Vec<u8> {
        self.flush();
        let received = self.peer.read(limit);
        let Some(side) = &mut self.tls else {
            return received;
        };
        side.wire.extend_from_slice(&received);
        side.open();
        let count = side.plain.len().min(limit);
        let plain = side.plain.drain(..count).collect();
        self.flush();
        plain
    }

    fn flush(&mut self) {
        let Some(side) = &mut self.tls else { return };
        if !side.out.is_empty() {
            let count = self.peer.write(&side.out).unwrap_or(0);
            side.stuck = count == 0;
            side.out.drain(..count);
        }
        if side.fin && side.out.is_empty() {
            side.fin = false;
            self.peer.shutdown_write();
        }
    }

    /// Returns true if bytes that could not be written before could be now.
    pub(crate) fn takes(&self) -> bool {
        self.tls.as_ref().is_some_and(|side| side.takes())
    }

    /// Returns true if the link itself has work to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.readable() > 0
            || self
                .tls
                .as_ref()
                .is_some_and(|side| !side.out.is_empty() && !side.stuck)
    }

    pub(crate) fn readable(&self) -> usize {
        self.peer.readable() + self.tls.as_ref().map_or(0, |side| side.plain.len())
    }

    pub(crate) fn eof(&self) -> bool {
        match &self.tls {
            Some(side) => side.plain.is_empty() && (side.ended || self.peer.eof()),
            None => self.peer.eof(),
        }
    }

    /// Returns true if the session was established and has ended without the server's close_notify.
    pub(crate) fn was_cut(&self) -> bool {
        let cut = |side: &Side| side.tls.facts().is_some() && !side.early && !side.ended;
        self.peer.eof() && self.tls.as_ref().is_some_and(|side| cut(side))
    }

    pub(crate) fn failed(&self) -> bool {
        self.peer.failed()
    }

    /// Returns the fault of the server's TLS, if any.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.tls.as_ref()?.fault.as_deref()
    }

    pub(crate) fn shutdown_write(&mut self) {
        match &mut self.tls {
            None => self.peer.shutdown_write(),
            Some(side) => {
                side.early = side.tls.facts().is_none();
                if side.announces && !side.early {
                    side.tls.end(&mut side.out);
                }
                side.fin = true;
                self.flush();
            }
        }
    }

    pub(crate) fn close(&self) {
        self.peer.close();
    }

    pub(crate) fn reset(&self) {
        self.peer.reset();
    }
}

impl Side {
    fn takes(&self) -> bool {
        self.out.is_empty() && !self.fin && self.fault.is_none() && self.tls.facts().is_some()
    }

    fn open(&mut self) {
        while !self.ended && self.fault.is_none() {
            let step = self.tls.receive(&mut self.wire, &mut self.out);
            match step.event {
                LayerEvent::Plain(range) => self.plain.extend_from_slice(&self.wire[range]),
                LayerEvent::End => self.ended = true,
                LayerEvent::Failed | LayerEvent::Refused => {
                    self.fault = Some(self.tls.fault().map_or_else(String::new, ToString::to_string));
                }
                LayerEvent::Established => {}
                LayerEvent::Nothing if step.consumed > 0 => {}
                LayerEvent::Nothing | LayerEvent::NeedMore => return,
            }
            self.wire.drain(..step.consumed);
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.peer)?;
        if let Some(side) = &self.tls {
            let (wire, out, ended) = (side.wire.len(), side.out.len(), side.ended);
            write!(
                f,
                " by TLS ({:?}: {wire} to open, {out} to send, ended {ended})",
                side.tls
            )?;
        }
        Ok(())
    }
}
