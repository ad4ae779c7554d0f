//! Certificates made for tests, and two sessions that talk to each other in memory.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair as Key, SignatureAlgorithm, date_time_ymd,
};
use ringmain_wire::tls::{
    Client, ClientSettings, Clock, Event, Fault, KeyPair, PeerName, Pem, Server, ServerSettings, Session,
    Tickets, Trust,
};

/// The moment at which tests happen: seconds since 1970, in 2026.
pub(crate) const NOW: u64 = 1_795_000_000;
pub(crate) const DAY: u64 = 86_400;

pub(crate) fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn pem(source: &str, text: impl Into<Vec<u8>>) -> Pem {
    Pem {
        source: source.to_owned(),
        bytes: text.into(),
    }
}

/// An authority of certificates.
pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, Key>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new(title: &str) -> Self {
        let key = Key::generate().expect("a key");
        let params = authority_params(title);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for `names`, valid a month around [`NOW`].
    pub(crate) fn issue(&self, names: &[&str]) -> KeyPair {
        self.issue_with(names, &rcgen::PKCS_ECDSA_P256_SHA256, NOW - DAY, NOW + 30 * DAY)
    }

    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        algorithm: &'static SignatureAlgorithm,
        from: u64,
        to: u64,
    ) -> KeyPair {
        let key = Key::generate_for(algorithm).expect("a key");
        let mut params = params(names, names.first().unwrap_or(&"nobody"), from, to);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let title = names.first().unwrap_or(&"none");
        KeyPair {
            chain: pem(&format!("{title}.pem"), certificate.pem()),
            key: pem(&format!("{title}.key"), key.serialize_pem()),
        }
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust::Authorities(pem("ca.pem", self.pem.clone()))
    }

    pub(crate) fn bundle(&self) -> Pem {
        pem("clients-ca.pem", self.pem.clone())
    }
}

pub(crate) fn authority_params(title: &str) -> CertificateParams {
    let mut params = params(&[], title, NOW - 100 * DAY, NOW + 1000 * DAY);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

pub(crate) fn params(names: &[&str], title: &str, from: u64, to: u64) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, title);
    params.not_before = date_time_ymd(1970, 1, 1) + at(from);
    params.not_after = date_time_ymd(1970, 1, 1) + at(to);
    params
}

/// One authority, one server for `a.example`, one client that trusts it.
pub(crate) struct World {
    pub(crate) authority: Authority,
    pub(crate) clock: Clock,
    pub(crate) tickets: Tickets,
    pub(crate) server: ServerSettings,
    pub(crate) client: ClientSettings,
}

impl World {
    pub(crate) fn new() -> Self {
        let authority = Authority::new("Test authority");
        let clock = Clock::new(at(NOW));
        Self {
            server: ServerSettings {
                certificates: vec![authority.issue(&["a.example"])],
                ..Default::default()
            },
            client: ClientSettings::new(authority.trust()),
            tickets: Tickets::new(&clock).expect("keys"),
            clock,
            authority,
        }
    }

    pub(crate) fn build(&self) -> (Server, Client) {
        (self.build_server(), self.build_client())
    }

    pub(crate) fn build_server(&self) -> Server {
        self.server.build(&self.tickets, &[]).expect("a server in order")
    }

    pub(crate) fn build_client(&self) -> Client {
        self.client.build(&self.clock).expect("a client in order")
    }

    /// A handshake with `a.example`.
    pub(crate) fn pair(&self) -> Pair {
        let (server, client) = self.build();
        let mut pair = Pair::new(&server, &client, "a.example");
        pair.run();
        pair
    }

    /// The faults of a handshake that fails: the client's and the server's.
    pub(crate) fn faults(&self) -> (Option<Fault>, Option<Fault>) {
        let pair = self.pair();
        (
            pair.client.session.fault().cloned(),
            pair.server.session.fault().cloned(),
        )
    }
}

pub(crate) fn name(name: &str) -> PeerName {
    PeerName::new(name).expect("a name")
}

/// One end: a session, what it has not read yet, and what came of it.
pub(crate) struct End {
    pub(crate) session: Session,
    pub(crate) input: Vec<u8>,
    pub(crate) plain: Vec<u8>,
    pub(crate) events: Vec<Event>,
    /// All that it sent.
    pub(crate) sent: Vec<u8>,
    /// What it sent and the other has not been given.
    pub(crate) wire: Vec<u8>,
}

impl End {
    pub(crate) fn new(mut session: Session) -> Self {
        let mut wire = Vec::new();
        session.begin(&mut wire);
        Self {
            session,
            input: Vec::new(),
            plain: Vec::new(),
            events: Vec::new(),
            sent: wire.clone(),
            wire,
        }
    }

    /// Reads `bytes`, as the engine does.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let start = self.wire.len();
            let step = self.session.receive(&mut self.input, &mut self.wire);
            self.sent.extend_from_slice(&self.wire[start..]);
            if let Event::Plain(range) = &step.event {
                assert!(range.end <= step.consumed, "{step:?}");
                self.plain.extend_from_slice(&self.input[range.clone()]);
            }
            self.input.drain(..step.consumed);
            match step.event {
                Event::Nothing if step.consumed == 0 => break,
                Event::Nothing => {}
                Event::NeedMore => break,
                Event::Plain(_) => {}
                event => {
                    let failed = event == Event::Failed;
                    self.events.push(event);
                    if failed {
                        break;
                    }
                }
            }
        }
    }

    pub(crate) fn send(&mut self, plain: &[u8]) {
        let start = self.wire.len();
        self.session.send(plain, &mut self.wire).expect("it can be sent");
        self.sent.extend_from_slice(&self.wire[start..]);
    }

    pub(crate) fn close(&mut self) {
        let start = self.wire.len();
        self.session.close(&mut self.wire);
        self.sent.extend_from_slice(&self.wire[start..]);
    }
}

/// A client and a server.
pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
}

impl Pair {
    pub(crate) fn new(server: &Server, client: &Client, peer: &str) -> Self {
        Self {
            client: End::new(client.session(&name(peer))),
            server: End::new(server.session()),
        }
    }

    /// Carries bytes until nobody says anything.
    pub(crate) fn run(&mut self) {
        while !(self.client.wire.is_empty() && self.server.wire.is_empty()) {
            let bytes = std::mem::take(&mut self.client.wire);
            self.server.feed(&bytes);
            let bytes = std::mem::take(&mut self.server.wire);
            self.client.feed(&bytes);
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        self.client.session.facts().is_some() && self.server.session.facts().is_some()
    }
}
