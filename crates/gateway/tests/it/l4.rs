//! Connections that are passed on as bytes: by the name in their first message, or all of a listener.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    Authorities, Balance, Certificate, ListenerTls, Network, Protocol, ProxyProtocol, ProxyProtocolVersion,
    Secret, Trust, UpstreamTls,
};
use ringmain_gateway::stats::ConnectionEnd;
use ringmain_tls::{Acceptor, PeerName, ServerSettings};
use ringmain_web::{App, ListenerProtocol};

use crate::l4_rig::{self, Gates, config, echo, gate, hosts, reserved, stream, to};
use crate::origin::upstream;
use crate::support::tls::{Authority, Secure, connector_of, now, trusting};
use crate::support::{self, End, PATIENCE, Server, get, pattern};

on_every_backend! {
    routed_by_sni,
    a_first_message_byte_by_byte,
    refused_connections,
    ends_go_each_way,
    a_reset_goes_each_way,
    much_both_ways,
    an_endpoint_that_is_gone_is_passed_over,
    no_endpoint_accepts,
    nothing_for_too_long,
    the_client_address_is_forwarded,
    tls_that_ends_here,
    tls_to_the_upstream,
    one_address_for_bytes_and_for_http,
    a_change_cuts_no_connection,
    a_shutdown_lets_them_go_on,
}

/// A TLS server of HTTP for these names that responds with its name.
fn origin(engine: &Config, authority: &Authority, names: &[&str]) -> Server {
    let settings = ServerSettings {
        certificates: names.iter().map(|name| authority.sign(name)).collect(),
        ..support::tls::settings()
    };
    let acceptor = Acceptor::new(&settings, now()).expect("settings");
    let own = names[0].to_owned();
    let app = App::new()
        .listener(0, ListenerProtocol::https(&acceptor))
        .fallback(move |_, reply| reply.text(own.clone()));
    support::serve_at(engine.clone(), app, None)
}

/// Returns the ClientHello for this SNI.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let connector = connector_of(&trusting(&support::tls::development().authority));
    Secure::begin(&connector, &PeerName::new(name).expect("a name")).hello()
}

/// A fatal alert in the clear.
pub(crate) fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

fn routed_by_sni(engine: Config) {
    let authority = Authority::new("tests");
    let one = origin(&engine, &authority, &["one.example"]);
    let wild = origin(&engine, &authority, &["two.example", "a.b.example"]);
    let rest = echo("rest");
    let gates = Gates::open(
        engine,
        config(
            vec![gate("gate", Protocol::TlsPassthrough)],
            vec![
                stream("one", &["one.example"]),
                stream("wild", &["*.example"]),
                stream("rest", &[]),
            ],
            vec![
                upstream("one", &[one.addr]),
                upstream("wild", &[wild.addr]),
                upstream("rest", &[rest]),
            ],
        ),
    );
    for (name, expected) in [
        ("one.example", "one.example"),
        ("two.example", "two.example"),
        ("a.b.example", "two.example"),
        ("ONE.example", "one.example"),
    ] {
        let mut client = gates
            .secure(0, name, &authority)
            .expect("the origin's own handshake");
        client.send(get("/"));
        client.answer().expect(200, expected);
        client.finish();
        client.expect_end();
    }
    // Another name, and none: an address is not sent as one.
    for name in ["other.test", "127.0.0.1"] {
        let said = hello(name);
        let mut client = gates.client(0);
        client.send(&said);
        assert_eq!(client.take(4), b"rest");
        assert_eq!(
            client.take(said.len()),
            said,
            "byte by byte what the client has said"
        );
        client.finish();
        client.expect_end();
    }
    let reports = gates.gateway.stream_reports();
    let begun: Vec<_> = reports
        .iter()
        .map(|report| (&*report.name, report.opened))
        .collect();
    assert_eq!(begun, [("one", 2), ("wild", 2), ("rest", 2)]);
    gates.shut_down();
    one.shut_down();
    wild.shut_down();
}

fn a_first_message_byte_by_byte(engine: Config) {
    let authority = Authority::new("tests");
    let own = origin(&engine, &authority, &["one.example"]);
    let gates = Gates::open(
        engine,
        to(Protocol::TlsPassthrough, &[own.addr], |_, route, _| {
            route.hostnames = hosts(&["one.example"]);
        }),
    );
    let connector = connector_of(&trusting(&authority.pem));
    let mut client = gates.client(0);
    let mut secure = Secure::begin(&connector, &PeerName::new("one.example").expect("a name"));
    for byte in secure.hello() {
        client.stream.write_all(&[byte]).expect("it reads");
    }
    secure
        .agree(&mut client.stream)
        .expect("the origin's own handshake");
    client.tls = Some(secure);
    client.send(get("/"));
    client.answer().expect(200, "one.example");
    gates.shut_down();
    own.shut_down();
}

fn refused_connections(engine: Config) {
    let own = echo("own");
    let gates = Gates::open(
        engine,
        to(Protocol::TlsPassthrough, &[own], |_, route, _| {
            route.hostnames = hosts(&["one.example"]);
        }),
    );
    let other = hello("other.example");
    let mut client = gates.client(0);
    client.send(&other);
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    gates.await_fault(Fault::NoRoute, 1);
    let mut client = gates.client(0);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("this port speaks TLS"));
    client.expect_end();
    gates.await_fault(Fault::NotTls, 1);
    drop(client);
    let mut client = gates.client(0);
    client.send(b"\x16\x03\x01\x00\x04\x01\x01\x00\x00");
    assert_eq!(client.rest().0, b"");
    gates.await_fault(Fault::HelloTooLong, 1);
    // A client that leaves within its ClientHello.
    let mut client = gates.client(0);
    client.send(&other[..other.len() - 1]);
    client.finish();
    assert_eq!(client.rest().0, b"");
    gates.await_fault(Fault::NoHello, 1);
    gates.await_ended(ConnectionEnd::Fault, 4);
    gates.shut_down();
}

fn ends_go_each_way(engine: Config) {
    // The client ends first, and is answered after that.
    let after = l4_rig::bytes(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the client's end");
        all.extend_from_slice(b" and its end");
        stream.write_all(&all).expect("the client still reads");
    });
    let gates = Gates::open(engine.clone(), to(Protocol::Tcp, &[after], |_, _, _| {}));
    let mut client = gates.client(0);
    client.send("what it said");
    client.finish();
    assert_eq!(
        client.rest(),
        (b"what it said and its end".to_vec(), End::Orderly)
    );
    gates.await_ended(ConnectionEnd::Client, 1);
    let report = gates.report();
    assert_eq!(
        (report.received, report.sent, report.open_connections()),
        (12, 24, 0)
    );
    gates.shut_down();
    // The upstream closes first, and receives more bytes after that.
    let (told, heard) = mpsc::channel();
    let told = Mutex::new(told);
    let before = l4_rig::bytes(move |mut stream| {
        stream.write_all(b"bye").expect("the client reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the client's end");
        told.lock().expect("one test").send(all).expect("somebody waits");
    });
    let gates = Gates::open(engine, to(Protocol::Tcp, &[before], |_, _, _| {}));
    let mut client = gates.client(0);
    assert_eq!(client.take(3), b"bye");
    client.expect_end();
    client.send("more");
    client.finish();
    assert_eq!(heard.recv_timeout(PATIENCE).expect("it is told"), b"more");
    gates.await_ended(ConnectionEnd::Upstream, 1);
    gates.shut_down();
}

fn a_reset_goes_each_way(engine: Config) {
    let resets = l4_rig::bytes(|mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it is told to");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    });
    let gates = Gates::open(engine.clone(), to(Protocol::Tcp, &[resets], |_, _, _| {}));
    let mut client = gates.client(0);
    client.send("x");
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    gates.await_ended(ConnectionEnd::UpstreamReset, 1);
    gates.shut_down();
    let (told, heard) = mpsc::channel();
    let told = Mutex::new(told);
    let waits = l4_rig::bytes(move |mut stream| {
        stream.write_all(b"x").expect("the client is there");
        let ended = stream.read(&mut [0]).map_err(|error| error.kind());
        told.lock()
            .expect("one test")
            .send(ended)
            .expect("somebody waits");
    });
    let gates = Gates::open(engine, to(Protocol::Tcp, &[waits], |_, _, _| {}));
    let mut client = gates.client(0);
    assert_eq!(client.take(1), b"x");
    client.reset();
    let ended = heard.recv_timeout(PATIENCE).expect("it is told");
    assert_eq!(ended, Err(std::io::ErrorKind::ConnectionReset));
    gates.await_ended(ConnectionEnd::ClientReset, 1);
    gates.shut_down();
}

fn much_both_ways(engine: Config) {
    const BYTES: usize = 6 << 20;
    let gates = Gates::open(engine, to(Protocol::Tcp, &[echo("")], |_, _, _| {}));
    let all = pattern(BYTES);
    let mut client = gates.client(0);
    rustix::net::sockopt::set_socket_recv_buffer_size(&client.stream, 32 * 1024).expect("a socket");
    let sending = client.send_behind(all.clone());
    // A slow reader: nothing at first, so that all in between is full, and then in small pieces.
    l4_rig::until(|| {
        gates
            .gateway
            .stream_reports()
            .iter()
            .any(|report| report.sent > 0)
    });
    let mut back = Vec::with_capacity(BYTES);
    let mut piece = vec![0; 3000];
    while back.len() < BYTES {
        let count = client.stream.read(&mut piece).expect("more");
        assert!(count > 0, "the end after {}", back.len());
        back.extend_from_slice(&piece[..count]);
    }
    assert!(back == all, "the same bytes in the same order");
    sending.join().expect("a thread").expect("all is taken");
    client.finish();
    client.expect_end();
    gates.await_ended(ConnectionEnd::Client, 1);
    let report = gates.report();
    assert_eq!((report.received, report.sent), (BYTES as u64, BYTES as u64));
    gates.shut_down();
}

fn an_endpoint_that_is_gone_is_passed_over(engine: Config) {
    let gates = Gates::open(
        engine,
        // More endpoints than a connection tries for other reasons.
        to(
            Protocol::Tcp,
            &[
                reserved(),
                reserved(),
                reserved(),
                reserved(),
                reserved(),
                echo("there"),
            ],
            |_, _, upstream| {
                upstream.balance = Balance::RoundRobin;
            },
        ),
    );
    for _ in 0..4 {
        let mut client = gates.client(0);
        assert_eq!(client.take(5), b"there");
        client.finish();
        client.expect_end();
    }
    let faults = gates.gateway.fault_counts();
    let refused = faults.iter().find(|(fault, _)| *fault == Fault::ConnectRefused);
    assert!(refused.is_some_and(|(_, count)| *count >= 1), "it was tried");
    let upstream = &gates.gateway.upstreams()[0];
    let [(Fault::ConnectRefused, refused)] = upstream.faults[..] else {
        panic!("expected refused connections, found {:?}", upstream.faults);
    };
    assert_eq!((upstream.attempts, upstream.responses), (4 + refused, [0; 5]));
    gates.await_ended(ConnectionEnd::Client, 4);
    gates.shut_down();
}

fn no_endpoint_accepts(engine: Config) {
    let gates = Gates::open(
        engine.clone(),
        to(Protocol::Tcp, &[reserved(), reserved()], |_, _, _| {}),
    );
    assert_eq!(gates.client(0).rest(), (Vec::new(), End::Reset));
    gates.await_ended(ConnectionEnd::Fault, 1);
    gates.shut_down();
    let gates = Gates::open(engine, to(Protocol::TlsPassthrough, &[reserved()], |_, _, _| {}));
    let mut client = gates.client(0);
    client.send(hello("one.example"));
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    gates.await_fault(Fault::ConnectRefused, 1);
    gates.shut_down();
}

fn nothing_for_too_long(engine: Config) {
    let gates = Gates::open(
        engine,
        to(Protocol::Tcp, &[echo("hello")], |_, route, _| {
            route.idle = Some(Duration::from_millis(100));
        }),
    );
    // The bytes received so far, and then no orderly end, which would make the stream look complete.
    assert_eq!(gates.client(0).rest().1, End::Reset);
    gates.await_ended(ConnectionEnd::Idle, 1);
    gates.shut_down();
}

fn the_client_address_is_forwarded(engine: Config) {
    for version in [ProxyProtocolVersion::V1, ProxyProtocolVersion::V2] {
        let gates = Gates::open(
            engine.clone(),
            to(Protocol::Tcp, &[echo("")], |listener, _, upstream| {
                listener.proxy_protocol = Some(ProxyProtocol {
                    from: vec![Network::parse("127.0.0.0/8").expect("a network")],
                    ..ProxyProtocol::default()
                });
                upstream.proxy_protocol = Some(version);
            }),
        );
        let mut client = gates.client(0);
        client.send("PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\nhello");
        match version {
            ProxyProtocolVersion::V1 => {
                let port = gates.addrs[0].port();
                let expected = format!("PROXY TCP4 192.0.2.1 127.0.0.1 56324 {port}\r\nhello");
                assert_eq!(client.take(expected.len()), expected.as_bytes());
            }
            ProxyProtocolVersion::V2 => {
                let header = client.take(28);
                assert_eq!(header[12..20], [0x21, 0x11, 0, 12, 192, 0, 2, 1]);
                assert_eq!(client.take(5), b"hello");
            }
        }
        client.finish();
        client.expect_end();
        gates.shut_down();
    }
}

/// A certificate for this name, as configurations have it.
pub(crate) fn certificate(authority: &Authority, name: &str) -> Arc<Certificate> {
    let pair = authority.sign(name);
    Arc::new(Certificate {
        name: name.into(),
        chain: pair.chain.bytes.into(),
        key: Secret::new(pair.key.bytes),
    })
}

pub(crate) fn with(name: &str) -> Option<ListenerTls> {
    Some(ListenerTls {
        certificates: vec![name.into()],
        ..ListenerTls::default()
    })
}

fn tls_that_ends_here(engine: Config) {
    let authority = Authority::new("tests");
    let mut config = to(Protocol::Tls, &[echo("plain")], |listener, route, _| {
        listener.tls = with("ends.example");
        route.hostnames = hosts(&["ends.example"]);
    });
    config.certificates = vec![certificate(&authority, "ends.example")];
    let gates = Gates::open(engine, config);
    let mut client = gates.secure(0, "ends.example", &authority).expect("a handshake");
    assert_eq!(client.take(5), b"plain");
    let all = pattern(300_000);
    let sending = client.send_behind(all.clone());
    assert!(client.take(all.len()) == all);
    sending.join().expect("a thread").expect("it is taken");
    client.finish();
    client.expect_end();
    gates.await_ended(ConnectionEnd::Client, 1);
    assert_eq!(gates.gateway.handshake_counts().finished, 1);
    // An end that TLS knows nothing of is passed on as none.
    let mut client = gates.secure(0, "ends.example", &authority).expect("a handshake");
    assert_eq!(client.take(5), b"plain");
    client.stream.shutdown(Shutdown::Write).expect("it is open");
    assert_ne!(client.rest().1, End::Orderly);
    gates.await_ended(ConnectionEnd::ClientReset, 1);
    assert!(gates.secure(0, "other.example", &authority).is_err());
    gates.await_fault(Fault::NoRoute, 1);
    // A client that trusts none of the authorities aborts the handshake.
    let stranger = Authority::new("stranger");
    assert!(gates.secure(0, "ends.example", &stranger).is_err());
    gates.await_fault(Fault::HandshakeFailed, 1);
    gates.shut_down();
}

fn tls_to_the_upstream(engine: Config) {
    let authority = Authority::new("tests");
    let own = origin(&engine, &authority, &["one.example"]);
    let mut config = to(Protocol::Tcp, &[own.addr], |_, _, upstream| {
        upstream.tls = Some(UpstreamTls {
            server_name: hosts(&["one.example"]).pop(),
            trust: Trust::Authorities(vec!["own".into()]),
            ..UpstreamTls::default()
        });
    });
    config.authorities = vec![Arc::new(Authorities {
        name: "own".into(),
        pem: authority.pem.bytes.clone().into(),
    })];
    let gates = Gates::open(engine.clone(), config.clone());
    let mut client = gates.client(0);
    client.send(get("/"));
    client.answer().expect(200, "one.example");
    gates.shut_down();
    Arc::make_mut(&mut config.authorities[0]).pem = Authority::new("stranger").pem.bytes.into();
    let gates = Gates::open(engine, config);
    assert_eq!(gates.client(0).rest(), (Vec::new(), End::Reset));
    gates.await_fault(Fault::TlsCertificate, 1);
    gates.shut_down();
    own.shut_down();
}

fn one_address_for_bytes_and_for_http(engine: Config) {
    let authority = Authority::new("tests");
    let own = origin(&engine, &authority, &["pass.example"]);
    let port = reserved();
    let at = |name: &str, protocol, host: &str| {
        let mut listener = gate(name, protocol);
        listener.addresses = vec![port.to_string().parse().expect("an address")];
        listener.hostnames = hosts(&[host]);
        listener
    };
    let mut web = at("web", Protocol::Https, "web.example");
    web.tls = with("web.example");
    let mut ends = at("ends", Protocol::Tls, "ends.example");
    ends.tls = with("ends.example");
    let pass = at("pass", Protocol::TlsPassthrough, "pass.example");
    let mut config = config(
        vec![web, ends, pass],
        vec![
            stream("pass", &["pass.example"]),
            stream("ends", &["ends.example"]),
        ],
        vec![upstream("pass", &[own.addr]), upstream("ends", &[echo("ends")])],
    );
    config.certificates = vec![
        certificate(&authority, "web.example"),
        certificate(&authority, "ends.example"),
    ];
    let gates = Gates::open(engine, config);
    let mut client = gates
        .secure(0, "pass.example", &authority)
        .expect("the origin's handshake");
    client.send(get("/"));
    client.answer().expect(200, "pass.example");
    let mut client = gates.secure(0, "ends.example", &authority).expect("a handshake");
    assert_eq!(client.take(4), b"ends");
    let mut client = gates.secure(0, "web.example", &authority).expect("a handshake");
    // HTTP it is, and no route for it.
    client.send("GET / HTTP/1.1\r\nHost: web.example\r\n\r\n");
    client.answer().expect(404, "no matching route\n");
    // On a connection for HTTP no host of the others is answered.
    client.send("GET / HTTP/1.1\r\nHost: pass.example\r\n\r\n");
    assert_eq!(client.answer().status, 421);
    // One of its listeners terminates TLS: `unrecognized_name`.
    let mut client = gates.client(0);
    client.send(hello("other.example"));
    assert_eq!(client.rest(), (alert(112), End::Orderly));
    gates.await_fault(Fault::NoListener, 1);
    let mut client = gates.client(0);
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    client.expect_end();
    gates.await_fault(Fault::NotTls, 1);
    gates.shut_down();
    own.shut_down();
}

fn a_change_cuts_no_connection(engine: Config) {
    let first = to(Protocol::Tcp, &[echo("first")], |_, _, _| {});
    let gates = Gates::open(engine, first.clone());
    let mut old = gates.client(0);
    assert_eq!(old.take(5), b"first");
    let mut next = first.clone();
    next.upstreams = vec![Arc::new(upstream("all", &[echo("second")]))];
    assert_eq!(gates.change(next), [""; 0]);
    let mut new = gates.client(0);
    assert_eq!(new.take(6), b"second");
    let mut none = first;
    none.streams.clear();
    none.upstreams.clear();
    assert_eq!(gates.change(none), [""; 0]);
    assert_eq!(gates.client(0).rest(), (Vec::new(), End::Reset));
    for client in [&mut old, &mut new] {
        client.send("still here");
        assert_eq!(client.take(10), b"still here");
        client.finish();
        client.expect_end();
    }
    gates.shut_down();
}

fn a_shutdown_lets_them_go_on(mut engine: Config) {
    engine.grace = PATIENCE;
    let gates = Gates::open(engine, to(Protocol::Tcp, &[echo("hello")], |_, _, _| {}));
    let mut client = gates.client(0);
    assert_eq!(client.take(5), b"hello");
    gates.running.shut_down();
    client.send("still here");
    assert_eq!(client.take(10), b"still here");
    client.finish();
    client.expect_end();
    gates.running.join().expect("an orderly end");
}
