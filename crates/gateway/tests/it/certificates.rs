//! Certificates that clients show by TLS, told to upstreams (RFC 9440), and what clients say of them themselves.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Authorities, Certificate, ClientCertificate, ClientCertificateMode, ClientCertificates,
    ListenerTls, Policy, Protocol, Secret,
};
use ringmain_tls::{ClientSettings, Connector, KeyPair};

use crate::gates::Gates;
use crate::origin::{Origin, Seen, to};
use crate::policies::header;
use crate::support::tls::{Authority, connector_of, development, localhost, trusting};

on_every_backend! {
    whose_certificate_it_is_is_told,
    what_clients_say_of_it_is_not,
    a_rule_that_needs_one,
    one_of_another_authority_does_not_come_in,
}

/// All that a policy writes, as clients would.
const FORGED: &str = "Client-Cert: :AAAA:\r\nclient-cert-chain: :AAAA:\r\nClient_Cert: :AAAA:\r\nX-Client-Fingerprint: root\r\n\
    x_client_fingerprint: root\r\nConnection: Client-Cert\r\n";

const WRITTEN: [&str; 5] = [
    "client-cert",
    "client-cert-chain",
    "client_cert",
    "x-client-fingerprint",
    "x_client_fingerprint",
];

/// A listener that asks for certificates of that authority, and tells the origin of them.
fn config(origin: &Origin, clients: &Authority, policy: ClientCertificate) -> model::Config {
    let mut config = to(&[origin.addr], |_, _| {});
    let own = &development().pair;
    config.certificates = vec![Arc::new(Certificate {
        name: "own".into(),
        chain: own.chain.bytes.clone().into(),
        key: Secret::new(own.key.bytes.clone()),
    })];
    config.authorities = vec![Arc::new(Authorities {
        name: "clients".into(),
        pem: clients.pem.bytes.clone().into(),
    })];
    let listener = Arc::make_mut(&mut config.listeners[0]);
    listener.protocol = Protocol::Https;
    listener.tls = Some(ListenerTls {
        certificates: vec!["own".into()],
        clients: Some(ClientCertificates {
            authorities: vec!["clients".into()],
            mode: ClientCertificateMode::Optional,
        }),
        ..ListenerTls::default()
    });
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.policies = vec![Policy::ClientCertificate(policy.into())];
    config
}

fn showing(certificate: Option<KeyPair>) -> Connector {
    connector_of(&ClientSettings {
        certificate,
        ..trusting(&development().authority)
    })
}

/// Certificates of a text of PEM, as RFC 9440 writes each.
fn told(pem: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(pem);
    let all = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let body = |one: &str| {
        one.split("-----END")
            .next()
            .map(|body| body.split_whitespace().collect::<String>())
    };
    all.filter_map(body).map(|base64| format!(":{base64}:")).collect()
}

fn ask(gates: &Gates, connector: &Connector, fields: &str) -> u16 {
    let mut client = gates
        .client(0)
        .secure(connector, &localhost())
        .expect("a handshake");
    client.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
    client.answer().status
}

fn none(seen: &Seen) {
    for name in WRITTEN {
        assert_eq!(seen.field(name), None, "{name}");
    }
}

fn whose_certificate_it_is_is_told(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let mut pair = clients.sign("ada.example");
    let own = told(&pair.chain.bytes);
    // It shows its authority's, too.
    pair.chain.bytes.extend_from_slice(&clients.pem.bytes);
    let chain = told(&pair.chain.bytes);
    assert_eq!((own.len(), chain.len()), (1, 2));
    for with_chain in [false, true] {
        let policy = ClientCertificate {
            chain: with_chain,
            fingerprint: Some(header("X-Client-Fingerprint")),
            ..ClientCertificate::default()
        };
        let gates = Gates::open(engine.clone(), config(&origin, &clients, policy));
        assert_eq!(ask(&gates, &showing(Some(pair.clone())), FORGED), 200);
        let seen = origin.seen();
        assert_eq!(seen.field("client-cert").as_deref(), Some(&*own[0]));
        let expected = with_chain.then(|| chain[1].clone());
        assert_eq!(seen.field("client-cert-chain"), expected);
        let der = STANDARD.decode(own[0].trim_matches(':')).expect("base64");
        let hex: String = digest(&SHA256, &der)
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(seen.field("x-client-fingerprint"), Some(hex));
        assert_eq!(
            (seen.field("client_cert"), seen.field("x_client_fingerprint")),
            (None, None)
        );
        gates.shut_down();
    }
}

fn what_clients_say_of_it_is_not(engine: Config) {
    let origin = Origin::echo();
    let policy = ClientCertificate {
        chain: true,
        fingerprint: Some(header("X-Client-Fingerprint")),
        ..ClientCertificate::default()
    };
    let gates = Gates::open(engine, config(&origin, &Authority::new("clients"), policy));
    // Nobody: he shows none.
    assert_eq!(ask(&gates, &showing(None), FORGED), 200);
    none(&origin.seen());
    gates.shut_down();
}

fn a_rule_that_needs_one(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let policy = ClientCertificate {
        required: true,
        ..ClientCertificate::default()
    };
    let gates = Gates::open(engine, config(&origin, &clients, policy));
    assert_eq!(ask(&gates, &showing(None), FORGED), 403);
    assert_eq!(ask(&gates, &showing(Some(clients.sign("ada.example"))), ""), 200);
    let seen = origin.seen();
    assert!(seen.field("client-cert").is_some() && seen.field("client-cert-chain").is_none());
    gates.shut_down();
}

fn one_of_another_authority_does_not_come_in(engine: Config) {
    let origin = Origin::echo();
    let policy = ClientCertificate::default();
    let gates = Gates::open(engine, config(&origin, &Authority::new("clients"), policy));
    let theirs = showing(Some(Authority::new("clients").sign("ada.example")));
    // In TLS 1.3 a client hears of that behind its own handshake.
    let refused = match gates.client(0).secure(&theirs, &localhost()) {
        Ok(mut client) => client.receive().is_err(),
        Err(_) => true,
    };
    assert!(refused, "its certificate is nobody's");
    gates.shut_down();
}
