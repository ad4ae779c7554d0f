//! The PROXY protocol on both sides: who the client is, and whom a connection is for.

use std::sync::Arc;

use ringmain_engine::Config;
use ringmain_gateway::model::{Network, ProxyProtocol, ProxyProtocolVersion};

use crate::origin::{Origin, edge, to};
use crate::support::get;

on_every_backend! {
    addresses_from_a_trusted_proxy,
    addresses_for_the_upstream,
    a_reload_that_wants_a_header_wants_it_of_open_connections,
}

fn addresses_from_a_trusted_proxy(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut config = to(&[origin.addr], |_, _| {});
    let listener = Arc::make_mut(&mut config.listeners[0]);
    let network = |text: &str| Network::parse(text).expect("a network");
    listener.proxy_protocol = Some(ProxyProtocol {
        from: vec![network("127.0.0.0/8")],
        ..ProxyProtocol::default()
    });
    let edge = edge(engine, config.clone());
    let mut client = edge.server.client();
    client.send(["PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n", &get("/")].concat());
    client.answer().expect(200, "ok");
    assert_eq!(
        origin.seen().field("x-forwarded-for").as_deref(),
        Some("192.0.2.1")
    );
    // The trusted senders follow the configuration, on open connections too.
    let mut change = |from: &[&str]| {
        let listener = Arc::make_mut(&mut config.listeners[0]);
        listener.proxy_protocol.as_mut().expect("there").from =
            from.iter().map(|text| network(text)).collect();
        let problems = edge
            .gateway
            .replace(Arc::new(config.clone()), std::time::Duration::ZERO);
        assert_eq!(problems, []);
    };
    change(&["10.0.0.0/8", "127.0.0.1/32"]);
    client.send(get("/"));
    client.answer().expect(200, "ok");
    change(&["10.0.0.0/8"]);
    let mut stranger = edge.server.client();
    let _ = stranger
        .send_behind(b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n".to_vec())
        .join();
    assert_eq!(stranger.rest().0, b"");
    client.send(get("/"));
    let answer = client.answer();
    assert_eq!((answer.status, answer.closes()), (421, true));
    client.expect_end();
    edge.server.shut_down();
}

/// Connections that were accepted without a header, when a reload wants one, and with one, when it wants none.
fn a_reload_that_wants_a_header_wants_it_of_open_connections(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxied = |wants: bool| {
        let mut config = to(&[origin.addr], |_, _| {});
        let listener = Arc::make_mut(&mut config.listeners[0]);
        listener.proxy_protocol = wants.then(|| ProxyProtocol {
            from: vec![Network::parse("127.0.0.0/8").expect("a network")],
            ..ProxyProtocol::default()
        });
        config
    };
    let header = "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
    for wanted in [false, true] {
        let edge = edge(engine.clone(), proxied(wanted));
        let mut client = edge.server.client();
        client.send([if wanted { header } else { "" }, &get("/")].concat());
        client.answer().expect(200, "ok");
        let change = proxied(!wanted);
        assert_eq!(
            edge.gateway.replace(Arc::new(change), std::time::Duration::ZERO),
            []
        );
        client.send(get("/"));
        assert_eq!(client.answer().status, 421);
        client.expect_end();
        edge.server.shut_down();
    }
}

fn addresses_for_the_upstream(engine: Config) {
    for version in [ProxyProtocolVersion::V1, ProxyProtocolVersion::V2] {
        let origin = Origin::new(move |mut peer| {
            let length = match version {
                // A line; how long depends on the ports.
                ProxyProtocolVersion::V1 => peer.line(),
                ProxyProtocolVersion::V2 => peer.take(28),
            };
            let Some(told) = length else { return };
            while peer.request().is_some() {
                let body = told.escape_ascii().to_string();
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ));
            }
        });
        let edge = edge(
            engine.clone(),
            to(&[origin.addr], |_, upstream| {
                upstream.proxy_protocol = Some(version)
            }),
        );
        for connection in 0..3 {
            let mut client = edge.server.client();
            let own = client.stream.local_addr().expect("connected");
            client.send(get("/"));
            let answer = client.answer();
            assert_eq!(answer.status, 200);
            match version {
                ProxyProtocolVersion::V1 => {
                    let expected = format!(
                        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}",
                        own.port(),
                        edge.server.addr.port()
                    );
                    assert!(answer.text().starts_with(&expected), "{}", answer.text());
                }
                ProxyProtocolVersion::V2 => assert!(
                    answer
                        .text()
                        .contains("QUIT\\n!\\x11\\x00\\x0c\\x7f\\x00\\x00\\x01")
                ),
            }
            assert_eq!(
                origin.seen().connection,
                connection,
                "a connection for each client"
            );
        }
        edge.server.shut_down();
    }
}
