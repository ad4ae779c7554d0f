//! A gateway of one worker in a simulated world, one client and one origin.

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

/// The simulation's wall clock starts about here.
const NOW: Duration = Duration::from_secs(1_750_000_000);

/// Steps in which an answer must come.
const STEPS: usize = 100_000;

/// See the module.
pub(crate) struct Stage {
    cluster: SimCluster<Server>,
    origin: PeerListener,
    guests: Vec<(Peer, Vec<u8>)>,
    client: Peer,
    tls: Option<Tls>,
    /// What the client has received and not opened.
    wire: Vec<u8>,
    set: String,
    _gateway: Gateway,
}

impl Stage {
    /// With the rule of a case; `bare`: without what is measured.
    pub(crate) fn new(case: &Case, bare: bool, signer: &Signer) -> Stage {
        let mut plan = Plan::calm();
        plan.trace = 0;
        plan.whole = true;
        let world = World::new(1, plan, 1);
        let origin = SocketAddr::from(([127, 0, 0, 1], 8000));
        let front: Addr = "127.0.0.1:80".parse().expect("an address");
        let mut config = cases::config(vec![cases::rule(case, bare)], origin);
        Arc::make_mut(&mut config.listeners[0]).addresses = vec![front.clone()];
        let connector = case.secure.then(|| secure(&mut config));
        let gateway = Gateway::new(Arc::new(config), NOW);
        assert_eq!(gateway.problems(), []);
        let site = gateway.app().build().expect("an application");
        let cluster_config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let listeners = [(0, front.clone(), 0)];
        let cluster = SimCluster::new(&world, cluster_config, &listeners, |start| site.server(start));
        let tls =
            connector.map(|connector| connector.connect(&PeerName::new("localhost").expect("a name"), NOW));
        let mut stage = Stage {
            cluster,
            origin: world.peer_listen(&Addr::Inet(origin)),
            guests: Vec::new(),
            client: world.connect(&front).expect("somebody listens"),
            tls,
            wire: Vec::new(),
            set: signer.set(),
            _gateway: gateway,
        };
        stage.agree();
        stage
    }

    /// The handshake, if there is one.
    fn agree(&mut self) {
        let Some(tls) = &mut self.tls else { return };
        let mut hello = Vec::new();
        tls.begin(&mut hello);
        self.write(&hello);
        while self.tls.as_ref().is_some_and(|tls| tls.facts().is_none()) {
            let _ = self.read();
        }
    }

    /// Asks once; the answer must be 200.
    pub(crate) fn ask(&mut self, request: &[u8]) {
        match &mut self.tls {
            None => self.write(request),
            Some(tls) => {
                let mut wire = Vec::new();
                tls.send(request, &mut wire).expect("the session is open");
                self.write(&wire);
            }
        }
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nhello") {
            answer.extend_from_slice(&self.read());
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", answer.escape_ascii());
    }

    fn write(&self, bytes: &[u8]) {
        let written = self
            .client
            .write(bytes)
            .expect("the gateway holds the connection");
        assert_eq!(written, bytes.len(), "there is room for a request");
    }

    /// What comes next.
    fn read(&mut self) -> Vec<u8> {
        for _ in 0..STEPS {
            self.cluster.step();
            self.serve();
            let bytes = self.client.read(usize::MAX);
            if !bytes.is_empty() {
                return self.open(bytes);
            }
            assert!(!self.client.eof(), "the gateway goes on");
        }
        panic!("expected an answer within {STEPS} steps");
    }

    fn open(&mut self, bytes: Vec<u8>) -> Vec<u8> {
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

    /// The origin's part.
    fn serve(&mut self) {
        while let Some(peer) = self.origin.accept() {
            self.guests.push((peer, Vec::new()));
        }
        for (peer, kept) in &mut self.guests {
            kept.extend_from_slice(&peer.read(usize::MAX));
            if !kept.ends_with(b"\r\n\r\n") {
                continue;
            }
            let answer = if kept.starts_with(format!("GET {JWKS} ").as_bytes()) {
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                    self.set.len(),
                    self.set
                )
            } else {
                "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/plain\r\nX-Powered-By: y\r\n\
                 Content-Length: 5\r\n\r\nhello"
                    .to_owned()
            };
            kept.clear();
            let written = peer.write(answer.as_bytes()).expect("the gateway reads");
            assert_eq!(written, answer.len(), "there is room for an answer");
        }
    }
}

/// Has the listener speak TLS and ask for certificates, and makes who shows one.
fn secure(config: &mut Config) -> ConnectHandle {
    let pair = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    let (chain, key) = pair();
    config.certificates = vec![Arc::new(Certificate {
        name: "own".into(),
        chain: chain.into_bytes().into(),
        key: Secret::new(key.as_bytes()),
    })];
    let (own_chain, own_key) = pair();
    config.authorities = vec![Arc::new(Authorities {
        name: "clients".into(),
        pem: own_chain.clone().into_bytes().into(),
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
        source: "a client's".to_owned(),
        bytes: text.into_bytes(),
    };
    let settings = ClientSettings {
        certificate: Some(KeyPair {
            chain: pem(own_chain),
            key: pem(own_key),
        }),
        alpn: vec![b"http/1.1".to_vec()],
        ..ClientSettings::new(Trust::AnybodyInsecure)
    };
    Connector::new(&settings, NOW).expect("settings").handle()
}
