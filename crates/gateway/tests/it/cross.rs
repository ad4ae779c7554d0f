//! Cross-origin resource sharing: what preflights and answers say to browsers.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Cors, HeaderName, Hostname, Match, MethodName, Origin as Allowed, Policy,
};

use crate::origin::{Edge, Origin, edge, nobody, to};
use crate::support::Answer;

on_every_backend! {
    preflights_are_answered,
    answers_say_who_may_read_them,
    origins,
    a_star_and_credentials,
    answers_of_the_gateways_own,
}

fn of(https: bool, host: &str, port: Option<u16>) -> Allowed {
    Allowed::Of {
        https,
        host: Hostname::parse(host).expect("a host"),
        port,
    }
}

fn header(name: &str) -> HeaderName {
    HeaderName::parse(name).expect("a name")
}

fn cors() -> Cors {
    Cors {
        origins: vec![of(true, "shop.example", None), of(true, "*.shop.example", None)],
        methods: vec![MethodName::parse("PUT").expect("a method")],
        request_headers: vec![header("X-One"), header("X-Two")],
        exposed_headers: vec![header("X-Three")],
        max_age: Some(Duration::from_secs(600)),
        ..Cors::default()
    }
}

fn with(mut config: model::Config, cors: Cors) -> model::Config {
    let route = Arc::make_mut(&mut config.routes[0]);
    route.rules[0].policies = vec![Policy::Cors(Arc::new(cors))];
    config
}

fn ask(edge: &Edge, method: &str, fields: &str) -> Answer {
    edge.server
        .ask(format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

/// The fields that are about it, in order.
fn told(answer: &Answer) -> String {
    let about = |name: &str| name.starts_with("access-control-") || name == "vary";
    let fields = answer.fields.iter().filter(|(name, _)| about(name));
    let fields: Vec<_> = fields.map(|(name, value)| format!("{name}: {value}")).collect();
    fields.join("\n").replace("access-control-", "ac-")
}

const PREFLIGHT: &str =
    "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-one, authorization\r\n";
const VARY: &str = "vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

fn preflights_are_answered(engine: Config) {
    // Nobody is asked: there is nobody.
    let mut config = with(to(&[nobody()], |_, _| {}), cors());
    let route = Arc::make_mut(&mut config.routes[0]);
    // It belongs to the rule of the method that it asks for.
    route.rules[0].matches = vec![Match {
        method: Some(MethodName::parse("PUT").expect("a method")),
        ..Match::default()
    }];
    let edge = edge(engine, config);
    let answer = ask(
        &edge,
        "OPTIONS",
        &format!("Origin: https://shop.example\r\n{PREFLIGHT}"),
    );
    assert_eq!(answer.status, 204);
    assert_eq!(
        told(&answer),
        format!(
            "{VARY}\nac-allow-origin: https://shop.example\nac-allow-methods: GET, HEAD, POST, PUT\n\
             ac-allow-headers: X-One, X-Two\nac-max-age: 600"
        )
    );
    let other = ask(
        &edge,
        "OPTIONS",
        &format!("Origin: https://evil.example\r\n{PREFLIGHT}"),
    );
    assert_eq!((other.status, told(&other).as_str()), (204, VARY));
    // Without what makes it a preflight it is a request like another, which no rule takes.
    assert_eq!(
        ask(&edge, "OPTIONS", "Origin: https://shop.example\r\n").status,
        404
    );
    assert_eq!(ask(&edge, "OPTIONS", PREFLIGHT).status, 404);
    edge.server.shut_down();
}

fn answers_say_who_may_read_them(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\naccess-control-allow-credentials: true\r\n\
         Vary: Accept\r\nContent-Length: 2\r\n\r\nok",
    );
    let edge = edge(engine, with(to(&[origin.addr], |_, _| {}), cors()));
    let answer = ask(&edge, "GET", "Origin: https://a.shop.example\r\n");
    answer.expect(200, "ok");
    assert_eq!(
        told(&answer),
        "vary: Accept\nvary: Origin\nac-allow-origin: https://a.shop.example\nac-expose-headers: X-Three"
    );
    // Another one's answer is his to have, and no browser shows it to his scripts.
    for fields in ["Origin: https://evil.example\r\n", ""] {
        let answer = ask(&edge, "GET", fields);
        answer.expect(200, "ok");
        assert_eq!(told(&answer), "vary: Accept\nvary: Origin");
    }
    edge.server.shut_down();
}

fn origins(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut policy = cors();
    policy.origins.push(of(false, "dev.example", Some(3000)));
    let edge = edge(engine, with(to(&[origin.addr], |_, _| {}), policy));
    for (origin, allowed) in [
        ("https://shop.example", true),
        ("https://shop.example:443", true),
        ("https://SHOP.example", true),
        ("https://a.b.shop.example", true),
        ("http://dev.example:3000", true),
        ("http://shop.example", false),
        ("https://shop.example:8443", false),
        ("https://evilshop.example", false),
        ("https://shop.example.evil.example", false),
        ("https://shop.example/", false),
        ("https://evil.example#.shop.example", false),
        ("https://user@shop.example", false),
        ("http://dev.example", false),
        ("null", false),
        ("", false),
    ] {
        let answer = ask(&edge, "GET", &format!("Origin: {origin}\r\n"));
        let expected = allowed.then_some(origin);
        assert_eq!(answer.field("access-control-allow-origin"), expected, "{origin}");
    }
    edge.server.shut_down();
}

fn a_star_and_credentials(engine: Config) {
    let any = Cors {
        origins: vec![Allowed::Any],
        any_method: true,
        any_request_header: true,
        ..Cors::default()
    };
    let config = with(to(&[nobody()], |_, _| {}), any.clone());
    let edge = edge(engine, config.clone());
    let preflight =
        |edge: &Edge, origin: &str| told(&ask(edge, "OPTIONS", &format!("Origin: {origin}\r\n{PREFLIGHT}")));
    assert_eq!(
        preflight(&edge, "https://x.example"),
        format!("{VARY}\nac-allow-origin: *\nac-allow-methods: *\nac-allow-headers: x-one, authorization")
    );
    assert_eq!(told(&ask(&edge, "GET", "Origin: null\r\n")), "ac-allow-origin: *");
    // With credentials a star would be no star.
    let credentials = Cors {
        credentials: true,
        ..any
    };
    let config = Arc::new(with(config, credentials));
    assert_eq!(edge.gateway.replace(config, Duration::ZERO), []);
    assert_eq!(
        preflight(&edge, "https://x.example"),
        format!(
            "{VARY}\nac-allow-origin: https://x.example\nac-allow-credentials: true\nac-allow-methods: PUT\n\
             ac-allow-headers: x-one, authorization"
        )
    );
    assert_eq!(preflight(&edge, "null"), VARY);
    edge.server.shut_down();
}

fn answers_of_the_gateways_own(engine: Config) {
    let edge = edge(engine, with(to(&[nobody()], |_, _| {}), cors()));
    let answer = ask(&edge, "GET", "Origin: https://shop.example\r\n");
    answer.expect(503, "the upstream refuses connections\n");
    assert_eq!(
        told(&answer),
        "vary: Origin\nac-allow-origin: https://shop.example\nac-expose-headers: X-Three"
    );
    edge.server.shut_down();
}
