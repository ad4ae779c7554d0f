//! A simulated world: a gateway with one worker, one client and one origin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Layer, LayerEvent};
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    Authorities, Certificate, ClientCertificateMode, ClientCertificates, Config, ListenerTls, Protocol,
    Secret,
};
use ringmain_sim::{ClusterConfig, Peer, PeerListener, Plan, SimCluster, World};
use ringmain_tls::{ClientSettings, ConnectHandle, Connector, KeyPair, PeerName, Pem, Tls, Trust};
use ringmain_web::Server;

use crate::cases::{self, Case, JWKS, Signer};

/// The approximate start of the simulation's wall clock, since the Unix epoch.
const NOW: Duration = Duration::from_secs(1_750_000_000);

/// The maximum number of simulation steps until a response arrives.
const STEPS: usize = 100_000;

/// The simulated world.
pub(crate) struct Simulation {
    cluster: SimCluster<Server>,
    origin: PeerListener,
    origin_conns: Vec<(Peer, Vec<u8>)>,
    client: Peer,
    tls: Option<Tls>,
    /// Received TLS records that are not decrypted yet.
    wire: Vec<u8>,
    key_set: String,
    _gateway: Gateway,
}

impl Simulation {
    /// Creates a world with the rule of a case; `bare`: without its policies.
    pub(crate) fn new(case: &Case, bare: bool, signer: &Signer) -> Simulation {
        let mut plan = Plan::calm();
        plan.trace = 0;
        plan.whole = true;
        let world = World::new(1, plan, 1);
        let origin = SocketAddr::from(([127, 0, 0, 1], 8000));
        let address: Addr = "127.0.0.1:80".parse().expect("an address");
        let mut config = cases::config(vec![cases::rule(case, bare)], origin);
        Arc::make_mut(&mut config.listeners[0]).addresses = vec![address.clone()];
        let connector = case.secure.then(|| secure(&mut config));
        let gateway = Gateway::new(Arc::new(config), NOW);
        assert_eq!(gateway.problems(), []);
        let app = gateway.app().build().expect("an application");
        let cluster_config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let listeners = [(0, address.clone(), 0)];
        let cluster = SimCluster::new(&world, cluster_config, &listeners, |start| app.server(start));
        let tls =
            connector.map(|connector| connector.connect(&PeerName::new("localhost").expect("a name"), NOW));
        let mut simulation = Simulation {
            cluster,
            origin: world.peer_listen(&Addr::Inet(origin)),
            origin_conns: Vec::new(),
            client: world.connect(&address).expect("the gateway listens"),
            tls,
            wire: Vec::new(),
            key_set: signer.set(),
            _gateway: gateway,
        };
        simulation.handshake();
        simulation
    }

    /// Completes the TLS handshake, if the case uses TLS.
    fn handshake(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let mut hello = Vec::new();
        tls.begin(&mut hello);
        self.write(&hello);
        while self.tls.as_ref().is_some_and(|tls| tls.facts().is_none()) {
            let _ = self.read();
        }
    }

    /// Sends a request and waits for its response.
    ///
    /// # Panics
    /// The status is not 200.
    pub(crate) fn request(&mut self, request: &[u8]) {
        match &mut self.tls {
            None => self.write(request),
            Some(tls) => {
                let mut wire = Vec::new();
                tls.send(request, &mut wire).expect("the session is open");
                self.write(&wire);
            }
        }
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nhello") {
            response.extend_from_slice(&self.read());
        }
        assert!(
            response.starts_with(b"HTTP/1.1 200 "),
            "{}",
            response.escape_ascii()
        );
    }

    fn write(&self, bytes: &[u8]) {
        let written = self.client.write(bytes).expect("an open connection");
        assert_eq!(written, bytes.len(), "the request fits the send buffer");
    }

    /// Returns the next received bytes.
    fn read(&mut self) -> Vec<u8> {
        for _ in 0..STEPS {
            self.cluster.step();
            self.run_origin();
            let bytes = self.client.read(usize::MAX);
            if !bytes.is_empty() {
                return self.decrypt(bytes);
            }
            assert!(!self.client.eof(), "the gateway has closed the connection");
        }
        panic!("expected a response within {STEPS} steps");
    }

    fn decrypt(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(tls) = &mut self.tls else { return bytes };
        self.wire.extend_from_slice(&bytes);
        let (mut plain, mut out, mut at) = (Vec::new(), Vec::new(), 0);
        loop {
            let step = tls.receive(&mut self.wire[at..], &mut out);
            if let LayerEvent::Plain(range) = &step.event {
                plain.extend_from_slice(&self.wire[at + range.start..at + range.end]);
            }
            at += step.consumed;
            if step.consumed == 0 && matches!(step.event, LayerEvent::Nothing | LayerEvent::NeedMore) {
                break;
            }
        }
        self.wire.drain(..at);
        if !out.is_empty() {
            self.write(&out);
        }
        plain
    }

    /// Runs the origin: responds to complete requests.
    fn run_origin(&mut self) {
        while let Some(peer) = self.origin.accept() {
            self.origin_conns.push((peer, Vec::new()));
        }
        for (peer, received) in &mut self.origin_conns {
            received.extend_from_slice(&peer.read(usize::MAX));
            if !received.ends_with(b"\r\n\r\n") {
                continue;
            }
            let response = if received.starts_with(format!("GET {JWKS} ").as_bytes()) {
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                    self.key_set.len(),
                    self.key_set
                )
            } else {
                "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/plain\r\nX-Powered-By: y\r\n\
                 Content-Length: 5\r\n\r\nhello"
                    .to_owned()
            };
            received.clear();
            let written = peer.write(response.as_bytes()).expect("the gateway reads");
            assert_eq!(written, response.len(), "the response fits the send buffer");
        }
    }
}

/// Enables TLS with client certificates at the listener. Returns a connector with a valid client certificate.
fn secure(config: &mut Config) -> ConnectHandle {
    let pair = || {
        let certified =
            rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        (certified.cert.pem(), certified.signing_key.serialize_pem())
    };
    let (chain, key) = pair();
    config.certificates = vec![Arc::new(Certificate {
        name: "own".into(),
        chain: chain.into_bytes().into(),
        key: Secret::new(key.as_bytes()),
    })];
    let (client_chain, client_key) = pair();
    config.authorities = vec![Arc::new(Authorities {
        name: "clients".into(),
        pem: client_chain.clone().into_bytes().into(),
    })];
    let listener = Arc::make_mut(&mut config.listeners[0]);
    listener.protocol = Protocol::Https;
    listener.tls = Some(ListenerTls {
        certificates: vec!["own".into()],
        clients: Some(ClientCertificates {
            authorities: vec!["clients".into()],
            mode: ClientCertificateMode::Required,
        }),
        ..ListenerTls::default()
    });
    let pem = |text: String| Pem {
        source: "the client certificate".to_owned(),
        bytes: text.into_bytes(),
    };
    let settings = ClientSettings {
        certificate: Some(KeyPair {
            chain: pem(client_chain),
            key: pem(client_key),
        }),
        alpn: vec![b"http/1.1".to_vec()],
        ..ClientSettings::new(Trust::AnybodyInsecure)
    };
    Connector::new(&settings, NOW).expect("settings").handle()
}
