//! Client certificates over TLS, reported to upstreams (RFC 9440), and forged headers about them.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Authorities, Certificate, ClientCertificate, ClientCertificateMode, ClientCertificates,
    ListenerTls, Policy, Protocol, Secret,
};
use ringmain_tls::{ClientSettings, Connector, KeyPair, PeerName};
use ringmain_wire::h2::Limits;

use crate::http2::Http2;
use crate::l4_rig::{Gates, hosts};
use crate::observability::access_log;
use crate::origin::{Origin, Seen, to};
use crate::policies::header;
use crate::support::Client;
use crate::support::tls::{Authority, Secure, connector_of, development, localhost, trusting};

on_every_backend! {
    the_certificate_is_reported,
    forged_headers_are_dropped,
    a_rule_that_needs_one,
    another_authority_is_refused,
    unchecked_certificates_prove_nothing,
    unchecked_certificates_are_no_identities,
    sessions_of_unchecked_certificates_are_resumed_nowhere_else,
    one_host_of_an_address_takes_unchecked_certificates,
    a_reload_of_the_authorities_is_for_open_connections_too,
    a_version_that_a_reload_does_not_speak_any_more,
    a_misdirected_request_ends_its_connection,
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

/// Builds a listener that requests certificates of that authority and reports them to the origin.
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

fn the_certificate_is_reported(engine: Config) {
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

fn forged_headers_are_dropped(engine: Config) {
    let origin = Origin::echo();
    let policy = ClientCertificate {
        chain: true,
        fingerprint: Some(header("X-Client-Fingerprint")),
        ..ClientCertificate::default()
    };
    let gates = Gates::open(engine, config(&origin, &Authority::new("clients"), policy));
    // The client presents none.
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

fn another_authority_is_refused(engine: Config) {
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

fn with_mode(mut config: model::Config, mode: ClientCertificateMode) -> model::Config {
    let listener = Arc::make_mut(&mut config.listeners[0]);
    let tls = listener.tls.as_mut().expect("there");
    tls.clients.as_mut().expect("there").mode = mode;
    config
}

/// Clients with all kinds of certificates.
fn shown_by_all(clients: &Authority) -> [(&'static str, Connector); 4] {
    // Settings are made while it is valid.
    let settings = ClientSettings {
        certificate: Some(clients.sign_for("ada.example", 0, 1000)),
        ..trusting(&development().authority)
    };
    let expired = Connector::new(&settings, Duration::from_secs(500)).expect("settings");
    let strangers = Authority::new("clients");
    [
        ("none", showing(None)),
        ("valid", showing(Some(clients.sign("ada.example")))),
        ("stranger's", showing(Some(strangers.sign("ada.example")))),
        ("expired", expired),
    ]
}

/// Gateway API, `AllowInsecureFallback`: a certificate that is absent or not valid does not end the handshake. It counts as none.
fn unchecked_certificates_prove_nothing(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let all = shown_by_all(&clients);
    let open = |policy: ClientCertificate| {
        let config = with_mode(
            config(&origin, &clients, policy),
            ClientCertificateMode::Unchecked,
        );
        Gates::open(engine.clone(), config)
    };
    // Without `verification` an upstream receives valid certificates alone.
    let gates = open(ClientCertificate {
        fingerprint: Some(header("X-Client-Fingerprint")),
        ..ClientCertificate::default()
    });
    for (name, connector) in &all {
        assert_eq!(ask(&gates, connector, FORGED), 200, "{name}");
        let seen = origin.seen();
        match *name {
            "valid" => assert!(seen.field("client-cert").is_some()),
            _ => none(&seen),
        }
    }
    gates.shut_down();
    let gates = open(ClientCertificate {
        verification: Some(header("X-Client-Verify")),
        ..ClientCertificate::default()
    });
    for (name, connector) in &all {
        assert_eq!(
            ask(&gates, connector, "X-Client-Verify: verified\r\n"),
            200,
            "{name}"
        );
        let seen = origin.seen();
        let (verification, told) = match *name {
            "none" => ("none", false),
            "valid" => ("verified", true),
            _ => ("unverified", true),
        };
        assert_eq!(
            seen.field("x-client-verify").as_deref(),
            Some(verification),
            "{name}"
        );
        assert_eq!(seen.field("client-cert").is_some(), told, "{name}");
    }
    gates.shut_down();
    let gates = open(ClientCertificate {
        required: true,
        verification: Some(header("X-Client-Verify")),
        ..ClientCertificate::default()
    });
    for (name, connector) in &all {
        let expected = if *name == "valid" { 200 } else { 403 };
        assert_eq!(ask(&gates, connector, ""), expected, "{name}");
    }
    gates.shut_down();
}

/// In the access log and at the upstream, over HTTP/1.1, HTTP/2 and in resumed sessions.
fn unchecked_certificates_are_no_identities(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let config = config(&origin, &clients, ClientCertificate::default());
    let config = with_mode(config, ClientCertificateMode::Unchecked);
    let (log, mut lines) = access_log();
    let gates = Gates::open_with(engine, config, |app| app.access_log(log));
    let pair = clients.sign("ada.example");
    let der = STANDARD
        .decode(told(&pair.chain.bytes)[0].trim_matches(':'))
        .expect("base64");
    let hex = digest(&SHA256, &der)
        .as_ref()
        .iter()
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let identity = format!("sha256:{hex}");
    let expired = clients.sign_for("ada.example", 0, 1000);
    let stranger = Authority::new("clients").sign("ada.example");
    for (name, certificate) in [
        ("none", None),
        ("valid", Some(pair)),
        ("stranger's", Some(stranger)),
        ("expired", Some(expired)),
    ] {
        let connector = |alpn: &[u8]| {
            let settings = ClientSettings {
                certificate: certificate.clone(),
                alpn: vec![alpn.to_vec()],
                ..trusting(&development().authority)
            };
            // Settings are made while the certificate is valid.
            Connector::new(&settings, Duration::from_secs(500)).expect("settings")
        };
        let expected = (name == "valid").then_some(&*identity);
        let mut check = |is_resumed: bool| {
            let seen = origin.seen();
            assert_eq!(seen.field("client-cert").is_some(), expected.is_some(), "{name}");
            let line = lines.next();
            assert_eq!(
                line["identity"].as_str(),
                expected,
                "{name}, resumed: {is_resumed}: {line}"
            );
        };
        let by_h1 = connector(b"http/1.1");
        for is_resumed in [false, true] {
            let client = gates.client(0).secure(&by_h1, &localhost());
            let mut client = client.expect("a handshake");
            client.send(REQUEST);
            assert_eq!(client.answer().status, 200, "{name}");
            let facts = client.tls.as_ref().and_then(Secure::facts);
            assert_eq!(facts.map(|facts| facts.resumed), Some(is_resumed), "{name}");
            check(is_resumed);
        }
        let by_h2 = connector(b"h2");
        for is_resumed in [false, true] {
            let client = gates.client(0).secure(&by_h2, &localhost());
            let mut client = Http2::over(client.expect("a handshake"), &Limits::INTERNET);
            assert_eq!(client.ask("/").status, 200, "{name}");
            check(is_resumed);
        }
    }
    gates.shut_down();
}

/// A client has one cache of sessions for all ports of a host: a session that began where certificates are not checked must not carry
/// its outcome to a port where they are.
fn sessions_of_unchecked_certificates_are_resumed_nowhere_else(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let mut config = config(&origin, &clients, ClientCertificate::default());
    let listener = config.listeners.remove(0);
    for (name, mode) in [
        ("unchecked", ClientCertificateMode::Unchecked),
        ("optional", ClientCertificateMode::Optional),
        ("required", ClientCertificateMode::Required),
    ] {
        let mut listener = (*listener).clone();
        listener.name = name.into();
        listener.addresses = vec![crate::l4_rig::reserved().into()];
        let tls = listener.tls.as_mut().expect("there");
        tls.clients.as_mut().expect("there").mode = mode;
        config.listeners.push(Arc::new(listener));
    }
    Arc::make_mut(&mut config.routes[0]).listeners = Vec::new();
    let gates = Gates::open(engine, config);
    // The status, and whether the session was resumed; `None`: the handshake failed.
    let ask = |gate: usize, connector: &Connector| {
        let mut client = gates.client(gate).secure(connector, &localhost()).ok()?;
        client.send(REQUEST);
        // Over TLS 1.3 a client receives the refusal after its own handshake.
        client.receive().ok()?;
        let facts = client.tls.as_ref().and_then(Secure::facts);
        let is_resumed = facts.is_some_and(|facts| facts.resumed);
        Some((client.answer().status, is_resumed))
    };
    let shown = shown_by_all(&clients);
    for (name, connector) in &shown {
        assert_eq!(ask(0, connector), Some((200, false)), "{name}");
        assert_eq!(ask(0, connector), Some((200, true)), "{name}");
        let [optional, required] = match *name {
            "none" => [Some((200, false)), None],
            "valid" => [Some((200, false)), Some((200, false))],
            _ => [None, None],
        };
        // Each begins from a session of the unchecked port.
        assert_eq!(ask(1, connector), optional, "{name}");
        ask(0, connector);
        assert_eq!(ask(2, connector), required, "{name}");
    }
    gates.shut_down();
}

/// A certificate that the handshake of an address admits for one listener is refused by the others.
fn one_host_of_an_address_takes_unchecked_certificates(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let servers = Authority::new("servers");
    let names = ["unchecked", "optional", "required"];
    let showing = |certificate| {
        connector_of(&ClientSettings {
            certificate,
            ..trusting(&servers.pem)
        })
    };
    let shown = [
        showing(None),
        showing(Some(clients.sign("ada.example"))),
        showing(Some(Authority::new("clients").sign("ada.example"))),
    ];
    let mut config = config(&origin, &clients, ClientCertificate::default());
    let pair = servers.sign_all(&names, &[]);
    config.certificates = vec![Arc::new(Certificate {
        name: "own".into(),
        chain: pair.chain.bytes.into(),
        key: Secret::new(pair.key.bytes),
    })];
    let addr = crate::l4_rig::reserved();
    let listener = config.listeners.remove(0);
    for (name, mode) in names.into_iter().zip([
        ClientCertificateMode::Unchecked,
        ClientCertificateMode::Optional,
        ClientCertificateMode::Required,
    ]) {
        let mut listener = (*listener).clone();
        listener.name = name.into();
        listener.addresses = vec![addr.into()];
        listener.hostnames = hosts(&[name]);
        let tls = listener.tls.as_mut().expect("there");
        tls.clients.as_mut().expect("there").mode = mode;
        config.listeners.push(Arc::new(listener));
    }
    Arc::make_mut(&mut config.routes[0]).listeners = Vec::new();
    let gates = Gates::open(engine, config);
    let ask = |connector: &Connector, host: &str| {
        let name = PeerName::new(host).expect("a name");
        let mut client = gates.client(0).secure(connector, &name).expect("a handshake");
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.answer().status
    };
    for (host, expected) in names
        .into_iter()
        .zip([[200, 200, 200], [200, 200, 403], [403, 200, 403]])
    {
        let found = shown.each_ref().map(|connector| ask(connector, host));
        assert_eq!(found, expected, "{host}: none, valid, a stranger's");
    }
    gates.shut_down();
}

/// A client of HTTP/2 that shows this certificate.
fn framed(gates: &Gates, certificate: Option<KeyPair>) -> Http2 {
    let connector = connector_of(&ClientSettings {
        certificate,
        alpn: vec![b"h2".to_vec()],
        ..trusting(&development().authority)
    });
    let client = gates.client(0).secure(&connector, &localhost());
    Http2::over(client.expect("a handshake"), &Limits::INTERNET)
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn misdirected(client: &mut Client) {
    client.send(REQUEST);
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (421, true));
    client.expect_end();
}

/// A certificate of an authority that a reload removes is not valid on the connections that showed it before.
fn a_reload_of_the_authorities_is_for_open_connections_too(engine: Config) {
    let origin = Origin::echo();
    let [first, second] = ["first", "second"].map(Authority::new);
    for mode in [
        ClientCertificateMode::Required,
        ClientCertificateMode::Optional,
        ClientCertificateMode::Unchecked,
    ] {
        let with = |authorities: &[&Authority]| {
            let mut config = with_mode(config(&origin, &first, ClientCertificate::default()), mode);
            let pem = authorities.iter().flat_map(|it| it.pem.bytes.clone());
            config.authorities = vec![Arc::new(Authorities {
                name: "clients".into(),
                pem: pem.collect(),
            })];
            config
        };
        let gates = Gates::open(engine.clone(), with(&[&first]));
        let pair = first.sign("ada.example");
        let connector = showing(Some(pair.clone()));
        let mut old = gates
            .client(0)
            .secure(&connector, &localhost())
            .expect("a handshake");
        let mut streams = framed(&gates, Some(pair));
        let mut ask = |status: u16| {
            old.send(REQUEST);
            assert_eq!(old.answer().status, status, "{mode:?}");
            assert_eq!(streams.ask("/").status, status, "{mode:?}");
        };
        ask(200);
        // One more authority: rotation begins, and no client has to reconnect.
        assert_eq!(gates.change(with(&[&first, &second])), [""; 0]);
        ask(200);
        assert_eq!(gates.change(with(&[&second])), [""; 0]);
        misdirected(&mut old);
        assert_eq!(streams.ask("/").status, 421, "{mode:?}");
        while streams.away.is_none() {
            assert!(streams.turn(), "GOAWAY");
        }
        gates.shut_down();
    }
}

fn a_version_that_a_reload_does_not_speak_any_more(engine: Config) {
    let origin = Origin::echo();
    let clients = Authority::new("clients");
    let at_least = |version| {
        let mut config = config(&origin, &clients, ClientCertificate::default());
        let listener = Arc::make_mut(&mut config.listeners[0]);
        listener.tls.as_mut().expect("there").minimum = version;
        config
    };
    let gates = Gates::open(engine, at_least(model::TlsVersion::Tls12));
    let mut clients = [Some("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()), None].map(|suite| {
        let connector = connector_of(&ClientSettings {
            suites: suite.into_iter().collect(),
            ..trusting(&development().authority)
        });
        gates
            .client(0)
            .secure(&connector, &localhost())
            .expect("a handshake")
    });
    for client in &mut clients {
        client.send(REQUEST);
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(gates.change(at_least(model::TlsVersion::Tls13)), [""; 0]);
    let [old, new] = &mut clients;
    misdirected(old);
    new.send(REQUEST);
    assert_eq!(new.answer().status, 200);
    gates.shut_down();
}

/// A client that pools connections by address would use the connection for its next attempt too (RFC 9110 §15.5.20). Over HTTP/2
/// streams of other hosts continue.
fn a_misdirected_request_ends_its_connection(engine: Config) {
    let origin = Origin::echo();
    let mut config = config(&origin, &Authority::new("clients"), ClientCertificate::default());
    let listener = Arc::make_mut(&mut config.listeners[0]);
    listener.hostnames = hosts(&["localhost"]);
    let gates = Gates::open(engine, config);
    let mut client = gates
        .client(0)
        .secure(&showing(None), &localhost())
        .expect("a handshake");
    client.send("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (421, true));
    client.expect_end();
    let mut streams = framed(&gates, None);
    streams.authority = "other.example".to_owned();
    assert_eq!(streams.ask("/").status, 421);
    streams.authority = "localhost".to_owned();
    assert_eq!((streams.ask("/").status, streams.away), (200, None));
    gates.shut_down();
}
