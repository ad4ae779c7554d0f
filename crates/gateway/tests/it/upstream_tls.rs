//! TLS to upstreams: the required identity, and the outcome for other peers.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    ActiveHealth, Authorities, Certificate, HealthCheck, Hostname, Secret, StatusRange, SubjectName, Trust,
    Upstream, UpstreamProtocol, UpstreamTls,
};
use ringmain_testkit::wait::until;
use ringmain_tls::{Acceptor, ClientCertificates, DevCertificate, Pem, ServerSettings, Tls};
use ringmain_web::{App, ListenerProtocol, StreamConnection};
use ringmain_wire::h2::{Connection, Event, HeadBuffer, Limits, Role};

use crate::extended_connect::accept_of;
use crate::origin::{Edge, to};
use crate::support::tls::{Authority, development, now, settings};
use crate::support::{self, Server};

on_every_backend! {
    the_certificate_must_match,
    other_names_than_the_servers,
    a_peer_without_tls,
    our_own_certificate,
    certificates_that_are_replaced,
    protocols_by_alpn,
    websockets_of_an_upstream_that_chooses,
}

fn origin(engine: Config, settings: &ServerSettings) -> Server {
    let acceptor = Acceptor::new(settings, now()).expect("settings");
    let app = App::new()
        .listener(0, ListenerProtocol::https(&acceptor))
        .fallback(|req, reply| reply.text(format!("{} {}", req.scheme(), req.target())));
    support::serve(engine, app)
}

fn host(name: &str) -> Option<Hostname> {
    Some(Hostname::parse(name).expect("a name"))
}

fn tls(name: &str) -> UpstreamTls {
    UpstreamTls {
        server_name: host(name),
        trust: Trust::Authorities(vec!["own".into()]),
        ..UpstreamTls::default()
    }
}

fn config(
    origin: std::net::SocketAddr,
    authority: &Pem,
    change: impl FnOnce(&mut Upstream),
) -> ringmain_gateway::model::Config {
    let mut config = to(&[origin], |_, upstream| {
        upstream.tls = Some(tls("localhost"));
        change(upstream);
    });
    config.authorities = vec![Arc::new(Authorities {
        name: "own".into(),
        pem: authority.bytes.clone().into(),
    })];
    config
}

fn edge(engine: Config, config: ringmain_gateway::model::Config) -> Edge {
    let gateway = Gateway::new(Arc::new(config), now());
    assert_eq!(gateway.problems(), []);
    let server = support::serve(engine, gateway.app());
    Edge { server, gateway }
}

fn the_certificate_must_match(engine: Config) {
    let origin = origin(engine.clone(), &settings());
    let own = &development().authority;
    let right = edge(engine.clone(), config(origin.addr, own, |_| {}));
    for _ in 0..3 {
        right.server.get("/a").expect(200, "https /a");
    }
    right.server.shut_down();
    let other = DevCertificate::new(&[], now()).expect("a certificate").authority;
    let untrusted = "upstream certificate not trusted\n";
    let issuer = edge(engine.clone(), config(origin.addr, &other, |_| {}));
    issuer.server.get("/").expect(502, untrusted);
    issuer.server.shut_down();
    let name = edge(
        engine.clone(),
        config(origin.addr, own, |upstream| {
            upstream.tls = Some(tls("other.example"))
        }),
    );
    name.server.get("/").expect(502, untrusted);
    name.server.shut_down();
    // Nothing would tell who it is.
    let nameless = edge(
        engine,
        config(origin.addr, own, |upstream| {
            upstream.tls.as_mut().expect("there").server_name = None;
        }),
    );
    nameless.server.get("/").expect(502, untrusted);
    nameless.server.shut_down();
    origin.shut_down();
}

fn other_names_than_the_servers(engine: Config) {
    let authority = Authority::new("own");
    let spiffe = "spiffe://shop.example/cart";
    let pair = authority.sign_all(
        &["cart.internal", "*.pool.internal"],
        &[spiffe, "https://other.example/"],
    );
    let served = ServerSettings {
        certificates: vec![pair],
        alpn: vec![b"http/1.1".to_vec()],
        ..ServerSettings::default()
    };
    let origin = origin(engine.clone(), &served);
    let uri = |text: &str| SubjectName::Uri(text.into());
    let dns = |text: &str| SubjectName::Host(Hostname::parse(text).expect("a host"));
    let ask = |server: Option<Hostname>, names: Vec<SubjectName>, authority: &Pem| {
        let config = config(origin.addr, authority, |upstream| {
            let tls = upstream.tls.as_mut().expect("there");
            tls.server_name = server;
            tls.subject_names = names;
        });
        let edge = edge(engine.clone(), config);
        let status = edge.server.get("/").status;
        edge.server.shut_down();
        status
    };
    // The server's own name is not sufficient then, unless it is listed.
    let cases = [
        (host("cart.internal"), vec![], 200),
        (host("shop.internal"), vec![], 502),
        (host("shop.internal"), vec![dns("cart.internal")], 200),
        (
            host("shop.internal"),
            vec![uri("spiffe://shop.example/other"), uri(spiffe)],
            200,
        ),
        (host("shop.internal"), vec![dns("one.pool.internal")], 200),
        (host("shop.internal"), vec![dns("pool.internal")], 502),
        (
            host("cart.internal"),
            vec![uri("spiffe://shop.example/other")],
            502,
        ),
        (
            host("cart.internal"),
            vec![uri("spiffe://shop.example/cart/")],
            502,
        ),
        // An address needs no name when others tell who it is.
        (None, vec![uri(spiffe)], 200),
        (None, vec![dns("cart.internal")], 200),
        (None, vec![], 502),
    ];
    for (server, names, status) in cases {
        let told = format!("{server:?} {names:?}");
        assert_eq!(ask(server, names, &authority.pem), status, "{told}");
    }
    // A name alone is no trust.
    let other = Authority::new("other");
    assert_eq!(ask(host("cart.internal"), vec![uri(spiffe)], &other.pem), 502);
    origin.shut_down();
}

/// Names that cannot be in a certificate are reported, and the upstream is left out.
#[test]
fn names_that_are_none() {
    for (name, expected) in [
        (
            SubjectName::Host(Hostname::parse("*.internal").expect("a host")),
            "hosts without `*`",
        ),
        (SubjectName::Uri("cart".into()), "URIs with a scheme"),
        (SubjectName::Uri("spiffe://a b".into()), "URIs with a scheme"),
    ] {
        let own = Authority::new("own");
        let config = config(crate::origin::refusing_addr(), &own.pem, |upstream| {
            upstream.tls.as_mut().expect("there").subject_names = vec![name.clone()];
        });
        let problems = Gateway::new(Arc::new(config), now()).problems();
        let told = problems
            .iter()
            .find(|problem| problem.field == "tls.subject_names");
        let told = told.unwrap_or_else(|| panic!("{name:?}: {problems:?}"));
        assert!(told.expected.starts_with(expected), "{told:?}");
    }
}

fn a_peer_without_tls(engine: Config) {
    let own = &development().authority;
    let listener = || std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let garbage = listener();
    let addr = garbage.local_addr().expect("it is bound");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = garbage.accept().expect("the gateway connects");
        std::io::Write::write_all(&mut stream, b"220 mail.example ESMTP\r\n").expect("it is taken");
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let edge = edge(engine, config(addr, own, |_| {}));
    edge.server
        .get("/")
        .expect(502, "upstream TLS handshake failed\n");
    answering.join().expect("it was closed");
    // The kernel accepts the connection, and no process responds.
    let silent = listener();
    let late = config(silent.local_addr().expect("it is bound"), own, |upstream| {
        upstream.connect_timeout = Duration::from_millis(100);
    });
    assert_eq!(edge.gateway.replace(Arc::new(late), now()), []);
    edge.server.get("/").expect(503, "upstream connect timeout\n");
    edge.server.shut_down();
}

fn our_own_certificate(engine: Config) {
    let clients = Authority::new("clients");
    let pair = clients.sign("gateway.example");
    let asking = ServerSettings {
        client_certificates: ClientCertificates::Required(clients.pem.clone()),
        ..settings()
    };
    let origin = origin(engine.clone(), &asking);
    let own = &development().authority;
    let without = edge(engine.clone(), config(origin.addr, own, |_| {}));
    assert_eq!(without.server.get("/").status, 502);
    without.server.shut_down();
    let mut with = config(origin.addr, own, |upstream| {
        upstream.tls.as_mut().expect("there").certificate = Some("gateway".into());
    });
    with.certificates = vec![Arc::new(Certificate {
        name: "gateway".into(),
        chain: pair.chain.bytes.clone().into(),
        key: Secret::new(pair.key.bytes.clone()),
    })];
    let with = edge(engine, with);
    with.server.get("/a").expect(200, "https /a");
    with.server.shut_down();
    origin.shut_down();
}

fn certificates_that_are_replaced(engine: Config) {
    let origin = origin(engine.clone(), &settings());
    let other = DevCertificate::new(&[], now()).expect("a certificate").authority;
    let check = |upstream: &mut Upstream| {
        let check = HealthCheck::Http {
            target: "/".into(),
            host: None,
            statuses: StatusRange {
                first: 200,
                last: 299,
            },
        };
        upstream.health.active = Some(ActiveHealth {
            every: Duration::from_millis(20),
            ..ActiveHealth::new(check)
        });
    };
    let edge = edge(engine, config(origin.addr, &other, check));
    // As long as the health check has not failed for the same reason.
    let refused = edge.server.get("/");
    let expected = [
        (502, "upstream certificate not trusted\n"),
        (503, "no healthy upstream\n"),
    ];
    assert!(
        expected.contains(&(refused.status, refused.text())),
        "{refused:?}"
    );
    // The same names with other contents: state built from the former is not used.
    let right = config(origin.addr, &development().authority, check);
    assert_eq!(edge.gateway.replace(Arc::new(right), now()), []);
    until("the health check passes", || edge.server.get("/b").status == 200);
    edge.server.get("/b").expect(200, "https /b");
    edge.server.shut_down();
    origin.shut_down();
}

/// The protocol that ALPN negotiates is used.
fn protocols_by_alpn(engine: Config) {
    let own = &development().authority;
    let both = settings();
    let old = ServerSettings {
        alpn: vec![b"http/1.1".to_vec()],
        ..settings()
    };
    let none = ServerSettings {
        alpn: Vec::new(),
        ..settings()
    };
    let unspoken = "upstream does not support HTTP/2\n";
    // A peer without a common protocol ends the handshake (RFC 7301, section 3.2); the log has the reason.
    let refused = "upstream TLS handshake failed\n";
    for (settings, expected) in [
        (&both, [(200, "Http11"), (200, "Http2"), (200, "Http2")]),
        (&old, [(200, "Http11"), (502, refused), (200, "Http11")]),
        (&none, [(200, "Http11"), (502, unspoken), (200, "Http11")]),
    ] {
        let acceptor = Acceptor::new(settings, now()).expect("settings");
        let app = App::new()
            .listener(0, ListenerProtocol::https(&acceptor))
            .fallback(|req, reply| reply.text(format!("{:?}", req.version())));
        let origin = support::serve(engine.clone(), app);
        let protocols = [
            UpstreamProtocol::Http1,
            UpstreamProtocol::Http2,
            UpstreamProtocol::Auto,
        ];
        for (protocol, (status, body)) in protocols.into_iter().zip(expected) {
            let config = config(origin.addr, own, |upstream| upstream.protocol = protocol);
            let edge = edge(engine.clone(), config);
            // Many at once, and then one by one.
            let mut clients: Vec<_> = (0..10).map(|_| edge.server.client()).collect();
            for _ in 0..3 {
                clients
                    .iter_mut()
                    .for_each(|client| client.send(support::get("/")));
                for client in &mut clients {
                    client.answer().expect(status, body);
                }
            }
            edge.server.shut_down();
        }
        origin.shut_down();
    }
}

/// Answers requests over HTTP/2, without WebSockets there; over HTTP/1.1 a WebSocket can be opened, and echoes.
async fn choosy(incoming: StreamConnection) {
    if incoming.secure().await.is_err() {
        return;
    }
    let stream = &incoming.stream;
    let alpn = stream.layer(|tls: &mut Tls| tls.facts().and_then(|facts| facts.alpn.clone()));
    if alpn.flatten().as_deref() == Some(b"h2") {
        return by_streams(stream).await;
    }
    let mut buffer = vec![0; 4096];
    let mut length = 0;
    while !buffer[..length].ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer[length..]).await {
            Ok(count @ 1..) => length += count,
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&buffer[..length]).into_owned();
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned())
    };
    let answer = match (field("upgrade").as_deref(), field("sec-websocket-key")) {
        (Some("websocket"), Some(key)) => format!(
            "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept_of(&key)
        ),
        _ => "HTTP/1.1 200 x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlines".to_owned(),
    };
    let mut said = answer.into_bytes();
    while stream.write_all(&said).await.is_ok() {
        let Ok(count @ 1..) = stream.read(&mut buffer).await else {
            return;
        };
        said = buffer[..count].to_vec();
    }
}

async fn by_streams(stream: &ringmain_engine::stream::Stream) {
    let limits = Limits {
        extended_connect: false,
        ..Limits::INTERNET
    };
    let mut out = Vec::new();
    let mut wire = Connection::new(Role::Server, &limits, Duration::ZERO, &mut out);
    let mut heads = HeadBuffer::new(&limits);
    let (mut buffer, mut input) = (vec![0; 4096], Vec::new());
    loop {
        if stream.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
        let Ok(count @ 1..) = stream.read(&mut buffer).await else {
            return;
        };
        input.extend_from_slice(&buffer[..count]);
        let mut at = 0;
        loop {
            let step = wire.receive(&input[at..], Duration::ZERO, &mut heads, &mut out);
            let step = step.expect("the gateway keeps the rules");
            at += step.consumed;
            match step.event {
                Event::Request { stream, .. } => {
                    wire.respond(stream, 200, &mut out).expect("open").finish(false);
                    wire.data(stream, b"streams", true, &mut out).expect("open");
                }
                Event::NeedMore => break,
                _ => {}
            }
        }
        input.drain(..at);
    }
}

fn websockets_of_an_upstream_that_chooses(engine: Config) {
    let acceptor = Acceptor::new(&settings(), now()).expect("settings");
    let app = App::new().listener(0, ListenerProtocol::stream(choosy).stream_tls(&acceptor));
    let origin = support::serve(engine.clone(), app);
    let own = &development().authority;
    let config = config(origin.addr, own, |upstream| {
        upstream.protocol = UpstreamProtocol::Auto;
    });
    let edge = edge(engine, config);
    for _ in 0..3 {
        edge.server.get("/").expect(200, "streams");
        let mut client = edge.server.client();
        client.send(
            "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let answer = client.answer();
        assert_eq!(answer.status, 101);
        let accepted = accept_of("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer.field("sec-websocket-accept"), Some(&*accepted));
        client.send("echo");
        assert_eq!(client.take(4), b"echo");
    }
    edge.server.shut_down();
    origin.shut_down();
}
