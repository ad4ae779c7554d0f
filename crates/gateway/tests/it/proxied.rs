//! The PROXY protocol on both sides: who the client is, and whom a connection is for.

use std::sync::Arc;

use ringmain_engine::Config;
use ringmain_gateway::model::{Network, ProxyProtocol, ProxyProtocolVersion};

use crate::origin::{Origin, edge, to};
use crate::support::get;

on_every_backend! {
    told_by_who_is_in_front,
    told_to_who_is_behind,
}

fn told_by_who_is_in_front(engine: Config) {
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
    // Who may say it follows the configuration.
    let listener = Arc::make_mut(&mut config.listeners[0]);
    listener.proxy_protocol.as_mut().expect("there").from = vec![network("10.0.0.0/8")];
    assert_eq!(
        edge.gateway.replace(Arc::new(config), std::time::Duration::ZERO),
        []
    );
    let mut stranger = edge.server.client();
    let _ = stranger
        .send_behind(b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n".to_vec())
        .join();
    assert_eq!(stranger.rest().0, b"");
    client.send(get("/"));
    client.answer().expect(200, "ok");
    edge.server.shut_down();
}

fn told_to_who_is_behind(engine: Config) {
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
