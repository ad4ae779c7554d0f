//! Policies between a rule and its action.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Addresses, ApiKey, ApiKeys, BasicAuth, Cors, CredentialSource, DirectResponse, ErrorPage,
    HeaderName, HeaderValue, Network, PasswordHash, Policy, StaticBody, StatusRange, User,
};

use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::support;

on_every_backend! {
    addresses_are_allowed_or_denied,
    an_unknown_address_is_not_the_proxy,
    a_preflight_meets_addresses_and_no_more,
    a_refusal_is_an_error_like_another,
    passwords_admit,
    keys_admit,
}

/// With policies of its one rule, where the client's address is what `X-Forwarded-For` says.
pub(crate) fn with(mut config: model::Config, policies: Vec<Policy>) -> model::Config {
    Arc::make_mut(&mut config.routes[0]).rules[0].policies = policies;
    let trusted = Network::parse("127.0.0.0/8").expect("a network");
    Arc::make_mut(&mut config.listeners[0]).client_address.trusted = vec![trusted];
    config
}

pub(crate) fn addresses(allow: &[&str], deny: &[&str]) -> Policy {
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

fn addresses_are_allowed_or_denied(engine: Config) {
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
        // A value that the client puts in front of its proxy's is no proof.
        ("10.1.2.3, 192.0.2.1", 403),
        ("192.0.2.1, 10.1.2.3", 200),
        // A client whose address its proxy does not say may be any.
        ("unknown", 403),
        ("", 403),
        ("10.1.2.3, x", 403),
    ] {
        assert_eq!(ask(&edge, "GET", &from(address)).status, status, "{address}");
    }
    let faults = edge.gateway.fault_counts();
    let denied = faults.iter().find(|(fault, _)| fault.label() == "address_denied");
    assert_eq!(denied.map(|(_, count)| *count), Some(7));
    edge.server.shut_down();
}

fn an_unknown_address_is_not_the_proxy(engine: Config) {
    let origin = Origin::echo();
    for (allow, deny) in [(&["127.0.0.0/8"][..], &[][..]), (&[], &["192.0.2.0/24"])] {
        let config = with(to(&[origin.addr], |_, _| {}), vec![addresses(allow, deny)]);
        let edge = edge(engine.clone(), config);
        for address in ["unknown", "x", "", "10.0.0.1, ", "_hidden"] {
            assert_eq!(ask(&edge, "GET", &from(address)).status, 403, "{address}");
        }
        assert_eq!(ask(&edge, "GET", "").status, 200, "the proxy's own");
        edge.server.shut_down();
    }
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
    let edge = edge(engine, with(to(&[refusing_addr()], |_, _| {}), policies));
    let cross = "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n";
    let asked = |method: &str, address: &str| ask(&edge, method, &format!("{}{cross}", from(address)));
    assert_eq!(asked("OPTIONS", "10.1.2.3").status, 204);
    assert_eq!(asked("OPTIONS", "192.0.2.1").status, 403);
    let refused = asked("GET", "10.1.2.3");
    refused.expect(403, "client certificate required\n");
    // Scripts may read why.
    assert_eq!(refused.field("access-control-allow-origin"), Some("*"));
    edge.server.shut_down();
}

fn a_refusal_is_an_error_like_another(engine: Config) {
    let mut config = with(
        to(&[refusing_addr()], |_, _| {}),
        vec![addresses(&["10.0.0.0/8"], &[])],
    );
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.error_pages.push(ErrorPage {
        statuses: StatusRange::one(403),
        response: DirectResponse {
            status: 403,
            content_type: None,
            body: StaticBody(b"go away".as_slice().into()),
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

fn basic(pair: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(pair))
}

pub(crate) fn header(name: &str) -> HeaderName {
    HeaderName::parse(name).expect("a name")
}

fn passwords_admit(engine: Config) {
    let origin = Origin::echo();
    let user = |name: &str, password: &str| User {
        name: name.into(),
        password: PasswordHash::parse(&bcrypt::hash(password, 4).expect("a hash")).expect("a hash"),
    };
    let policy = BasicAuth {
        realm: "shop".into(),
        users: [user("eva", "wind:mill"), user("ada", "engine")].into(),
        user_header: Some(header("X-User")),
        hide: true,
    };
    let edge = edge(
        engine,
        with(
            to(&[origin.addr], |_, _| {}),
            vec![Policy::Basic(Arc::new(policy))],
        ),
    );
    // Twice: the second time it is known.
    for _ in 0..2 {
        for (pair, name) in [("ada:engine", "ada"), ("eva:wind:mill", "eva")] {
            let fields = format!("{}X-User: root\r\nX_User: root\r\n", basic(pair));
            assert_eq!(ask(&edge, "GET", &fields).status, 200, "{pair}");
            let seen = origin.seen();
            assert_eq!(seen.field("x-user").as_deref(), Some(name));
            assert_eq!((seen.field("x_user"), seen.field("authorization")), (None, None));
        }
        let (missing, wrong) = ("authentication required\n", "invalid credentials\n");
        for (fields, text) in [
            (String::new(), missing),
            ("Authorization: Bearer abc\r\n".to_owned(), missing),
            (basic("ada:wrong"), wrong),
            (basic("eva:engine"), wrong),
            (basic("nobody:engine"), wrong),
            (basic("ada"), wrong),
            (basic("ada:engine") + &basic("ada:engine"), wrong),
            ("Authorization: Basic !!\r\n".to_owned(), wrong),
        ] {
            let refused = ask(&edge, "GET", &fields);
            refused.expect(401, text);
            assert_eq!(
                refused.field("www-authenticate"),
                Some("Basic realm=\"shop\", charset=\"UTF-8\"")
            );
        }
    }
    edge.server.shut_down();
}

fn keys_admit(engine: Config) {
    let origin = Origin::echo();
    let key = |consumer: &str, key: &str| {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        ApiKey {
            consumer: consumer.into(),
            digest: sum,
        }
    };
    let policy = ApiKeys {
        from: vec![
            CredentialSource::Header(header("X-API-Key")),
            CredentialSource::Header(header("Authorization")),
            CredentialSource::Query("key".into()),
            CredentialSource::Cookie("key".into()),
        ],
        keys: [key("till", "one"), key("phone", "two"), key("phone", "t w+o")].into(),
        consumer_header: Some(header("X-Consumer")),
        hide: true,
    };
    let edge = edge(
        engine,
        with(
            to(&[origin.addr], |_, _| {}),
            vec![Policy::ApiKeys(Arc::new(policy))],
        ),
    );
    let asked = |target: &str, fields: &str| {
        let fields = format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Consumer: root\r\n{fields}\r\n");
        edge.server.ask(fields)
    };
    for (target, fields, consumer) in [
        ("/", "X-API-Key: one\r\n", "till"),
        ("/", "Authorization: bearer two\r\n", "phone"),
        ("/?key=t%20w%2bo", "", "phone"),
        ("/", "Cookie: a=b; key=one\r\n", "till"),
    ] {
        assert_eq!(asked(target, fields).status, 200, "{target} {fields}");
        let seen = origin.seen();
        assert_eq!(seen.field("x-consumer").as_deref(), Some(consumer));
        assert_eq!(
            (seen.field("x-api-key"), seen.field("authorization")),
            (None, None)
        );
    }
    for (target, fields, text) in [
        ("/", "", "required"),
        ("/?kei=one", "Authorization: Basic b25l\r\n", "required"),
        ("/", "X-API-Key: One\r\n", "invalid"),
        // The first place that has a key counts.
        ("/?key=one", "X-API-Key: three\r\n", "invalid"),
        ("/", "X-API-Key: one\r\nX-API-Key: one\r\n", "required"),
        ("/?key=one&key=one", "", "required"),
    ] {
        let refused = asked(target, fields);
        assert_eq!(refused.status, 401, "{target} {fields}");
        assert!(
            refused.text().contains(text),
            "{target} {fields}: {}",
            refused.text()
        );
        assert_eq!(refused.field("www-authenticate"), Some("ApiKey"));
    }
    edge.server.shut_down();
}
