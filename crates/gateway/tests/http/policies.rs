//! What requests must pass before their rule's action.

use std::sync::Arc;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Addresses, Answer, Body, Cors, ErrorPage, HeaderName, HeaderValue, Network, Policy, StatusRange,
};

use crate::origin::{Edge, Origin, edge, nobody, to};
use crate::support;

on_every_backend! {
    addresses_are_let_in_or_not,
    a_preflight_meets_addresses_and_no_more,
    a_refusal_is_an_error_like_another,
}

/// With policies of its one rule, where the client's address is what `X-Forwarded-For` says.
pub(crate) fn with(mut config: model::Config, policies: Vec<Policy>) -> model::Config {
    Arc::make_mut(&mut config.routes[0]).rules[0].policies = policies;
    let trusted = Network::parse("127.0.0.0/8").expect("a network");
    Arc::make_mut(&mut config.listeners[0]).client_address.trusted = vec![trusted];
    config
}

fn addresses(allow: &[&str], deny: &[&str]) -> Policy {
    let networks = |texts: &[&str]| {
        let networks = texts.iter().map(|text| Network::parse(text).expect("a network"));
        networks.collect()
    };
    Policy::Addresses(Arc::new(Addresses {
        allow: networks(allow),
        deny: networks(deny),
    }))
}

pub(crate) fn ask(edge: &Edge, method: &str, fields: &str) -> support::Answer {
    edge.server
        .ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn from(address: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

fn addresses_are_let_in_or_not(engine: Config) {
    let origin = Origin::echo();
    let config = with(
        to(&[origin.addr], |_, _| {}),
        vec![addresses(&["10.0.0.0/8", "2001:db8::/32"], &["10.6.0.0/16"])],
    );
    let edge = edge(engine, config);
    for (address, status) in [
        ("10.1.2.3", 200),
        ("2001:db8::7", 200),
        ("10.6.6.6", 403),
        ("192.0.2.1", 403),
        ("2001:db9::7", 403),
        // What a client says in front of its proxy's word is no proof.
        ("10.1.2.3, 192.0.2.1", 403),
        ("192.0.2.1, 10.1.2.3", 200),
    ] {
        assert_eq!(ask(&edge, "GET", &from(address)).status, status, "{address}");
    }
    let faults = edge.gateway.faults();
    let denied = faults.iter().find(|(fault, _)| fault.label() == "address_denied");
    assert_eq!(denied.map(|(_, count)| *count), Some(4));
    edge.server.shut_down();
}

fn a_preflight_meets_addresses_and_no_more(engine: Config) {
    let policies = vec![
        Policy::ClientCertificate(Arc::new(model::ClientCertificate {
            required: true,
            ..model::ClientCertificate::default()
        })),
        Policy::Cors(Arc::new(Cors {
            origins: vec![model::Origin::Any],
            ..Cors::default()
        })),
        addresses(&[], &["192.0.2.0/24"]),
    ];
    let edge = edge(engine, with(to(&[nobody()], |_, _| {}), policies));
    let cross = "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n";
    let asked = |method: &str, address: &str| ask(&edge, method, &format!("{}{cross}", from(address)));
    assert_eq!(asked("OPTIONS", "10.1.2.3").status, 204);
    assert_eq!(asked("OPTIONS", "192.0.2.1").status, 403);
    let refused = asked("GET", "10.1.2.3");
    refused.expect(403, "a client certificate is needed here\n");
    // Scripts may read why.
    assert_eq!(refused.field("access-control-allow-origin"), Some("*"));
    edge.server.shut_down();
}

fn a_refusal_is_an_error_like_another(engine: Config) {
    let mut config = with(to(&[nobody()], |_, _| {}), vec![addresses(&["10.0.0.0/8"], &[])]);
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.error_pages.push(ErrorPage {
        statuses: StatusRange::one(403),
        answer: Answer {
            status: 403,
            content_type: None,
            body: Body(b"go away".as_slice().into()),
        },
    });
    let name = HeaderName::parse("X-Edge").expect("a name");
    rule.response_headers
        .set
        .push((name, HeaderValue::parse("yes").expect("a value")));
    let edge = edge(engine, config);
    let refused = ask(&edge, "GET", &from("192.0.2.1"));
    refused.expect(403, "go away");
    assert_eq!(refused.field("x-edge"), Some("yes"));
    edge.server.shut_down();
}
