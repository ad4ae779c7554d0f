//! Cross-origin resource sharing: what preflights and answers say to browsers.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{self, Cors, HeaderName, Match, MethodName, Origin as Allowed, Policy};
use ringmain_wire::h2::Limits;

use crate::http2::{Http2, fields};
use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::support::Answer;

on_every_backend! {
    preflights_are_answered,
    methods_are_those_that_are_configured,
    the_filter_of_the_gateway_api,
    responses_name_the_allowed_origin,
    origins,
    a_star_and_credentials,
    all_headers_are_exposed_without_credentials,
    answers_of_the_gateways_own,
}

fn allowed(text: &str) -> Allowed {
    Allowed::parse(text).expect("an origin")
}

fn header(name: &str) -> HeaderName {
    HeaderName::parse(name).expect("a name")
}

fn cors() -> Cors {
    Cors {
        origins: ["https://shop.example", "https://*.shop.example"]
            .map(allowed)
            .into(),
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
    // No connection to the upstream is attempted: its address refuses them.
    let mut config = with(to(&[refusing_addr()], |_, _| {}), cors());
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
            "{VARY}\nac-allow-origin: https://shop.example\nac-expose-headers: X-Three\nac-allow-methods: PUT\n\
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

/// Browsers allow GET, HEAD and POST whatever is listed (Fetch, CORS-safelisted methods): they are listed where nothing else is.
fn methods_are_those_that_are_configured(engine: Config) {
    let config = with(to(&[refusing_addr()], |_, _| {}), cors());
    let edge = edge(engine, config.clone());
    for (configured, expected) in [
        (&[][..], "GET, HEAD, POST"),
        (&["PUT"], "PUT"),
        (&["GET", "OPTIONS"], "GET, OPTIONS"),
        (&["DELETE", "POST", "PATCH"], "DELETE, POST, PATCH"),
    ] {
        let methods = configured.iter().copied().map(MethodName::parse);
        let cors = Cors {
            methods: methods.map(|method| method.expect("a method")).collect(),
            ..cors()
        };
        let config = Arc::new(with(config.clone(), cors));
        assert_eq!(edge.gateway.replace(config, Duration::ZERO), []);
        let answer = ask(
            &edge,
            "OPTIONS",
            &format!("Origin: https://shop.example\r\n{PREFLIGHT}"),
        );
        assert_eq!(answer.status, 204);
        assert_eq!(answer.field("access-control-allow-methods"), Some(expected));
    }
    edge.server.shut_down();
}

/// The filter of the test HTTPRouteCORS (Gateway API 1.7) with several origins, methods and headers.
fn the_filter_of_the_gateway_api(engine: Config) {
    let filter = Cors {
        origins: ["https://www.foo.com", "https://*.bar.com"].map(allowed).into(),
        methods: ["GET", "OPTIONS"]
            .map(|method| MethodName::parse(method).expect("a method"))
            .into(),
        request_headers: ["x-header-1", "x-header-2"].map(header).into(),
        exposed_headers: ["x-header-3", "x-header-4"].map(header).into(),
        credentials: true,
        max_age: Some(Duration::from_secs(3600)),
        ..Cors::default()
    };
    let edge = edge(engine, with(to(&[refusing_addr()], |_, _| {}), filter));
    let preflight = |origin: &str| {
        let fields = format!(
            "Origin: {origin}\r\naccess-control-request-method: GET\r\n\
             access-control-request-headers: x-header-1, x-header-2\r\n"
        );
        let answer = ask(&edge, "OPTIONS", &fields);
        assert_eq!(answer.status, 204);
        told(&answer)
    };
    for origin in [
        "https://www.foo.com",
        "https://www.bar.com",
        "https://xpto.www.bar.com",
    ] {
        assert_eq!(
            preflight(origin),
            format!(
                "{VARY}\nac-allow-origin: {origin}\nac-allow-credentials: true\n\
                 ac-expose-headers: x-header-3, x-header-4\nac-allow-methods: GET, OPTIONS\n\
                 ac-allow-headers: x-header-1, x-header-2\nac-max-age: 3600"
            )
        );
    }
    assert_eq!(preflight("https://foobar.com"), VARY);
    // Over HTTP/2 as well.
    let mut client = Http2::over(edge.server.client(), &Limits::INTERNET);
    let fields = fields(&[
        ("origin", "https://www.foo.com"),
        ("access-control-request-method", "GET"),
    ]);
    let stream = client.head("OPTIONS", "/", &fields, true);
    let got = client.wait(stream);
    assert_eq!(got.status, 204);
    assert_eq!(got.field("access-control-allow-methods"), Some("GET, OPTIONS"));
    assert_eq!(
        got.field("access-control-expose-headers"),
        Some("x-header-3, x-header-4")
    );
    edge.server.shut_down();
}

fn responses_name_the_allowed_origin(engine: Config) {
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
    // The response to another origin is delivered, and a browser does not expose it to that origin's scripts.
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
    policy.origins.extend(
        [
            "http://dev.example:3000",
            "http://localhost:*",
            "https://*:8443",
            "http://*.test:*",
            "http://[::1]:5173",
            "capacitor://localhost",
            "Chrome-Extension://*",
        ]
        .map(allowed),
    );
    let edge = edge(engine, with(to(&[origin.addr], |_, _| {}), policy));
    for (origin, allowed) in [
        ("https://shop.example", true),
        ("https://shop.example:443", true),
        ("https://SHOP.example", true),
        ("https://a.b.shop.example", true),
        ("http://dev.example:3000", true),
        ("http://shop.example", false),
        ("https://shop.example:8444", false),
        ("https://evilshop.example", false),
        ("https://shop.example.evil.example", false),
        ("https://shop.example/", false),
        ("https://evil.example#.shop.example", false),
        ("https://user@shop.example", false),
        ("http://dev.example", false),
        ("http://localhost", true),
        ("http://localhost:5173", true),
        ("https://localhost", false),
        ("https://other.example:8443", true),
        ("https://[2001:db8::1]:8443", true),
        ("https://other.example", false),
        ("https://other.example:443", false),
        ("http://a.test", true),
        ("http://a.b.test:8080", true),
        ("http://test:8080", false),
        ("http://[::1]:5173", true),
        ("http://[::1]", false),
        ("capacitor://localhost", true),
        ("capacitor://localhost:8080", false),
        ("ionic://localhost", false),
        ("chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb", true),
        ("chrome-extension://a/b", false),
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
    let config = with(to(&[refusing_addr()], |_, _| {}), any.clone());
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

/// With credentials browsers take `*` for the name of a header (Fetch, HTTP extensions of CORS).
fn all_headers_are_exposed_without_credentials(engine: Config) {
    let mut cors = Cors {
        exposed_headers: vec![header("*")],
        ..cors()
    };
    let config = with(to(&[refusing_addr()], |_, _| {}), cors.clone());
    let edge = edge(engine, config.clone());
    let exposed = |method: &str| {
        let answer = ask(
            &edge,
            method,
            &format!("Origin: https://shop.example\r\n{PREFLIGHT}"),
        );
        answer.field("access-control-expose-headers").map(str::to_owned)
    };
    for method in ["GET", "OPTIONS"] {
        assert_eq!(exposed(method).as_deref(), Some("*"), "{method}");
    }
    cors.credentials = true;
    let config = Arc::new(with(config, cors));
    assert_eq!(edge.gateway.replace(config, Duration::ZERO), []);
    for method in ["GET", "OPTIONS"] {
        assert_eq!(exposed(method), None, "{method}");
    }
    edge.server.shut_down();
}

fn answers_of_the_gateways_own(engine: Config) {
    let edge = edge(engine, with(to(&[refusing_addr()], |_, _| {}), cors()));
    let answer = ask(&edge, "GET", "Origin: https://shop.example\r\n");
    answer.expect(503, "upstream connection refused\n");
    assert_eq!(
        told(&answer),
        "vary: Origin\nac-allow-origin: https://shop.example\nac-expose-headers: X-Three"
    );
    edge.server.shut_down();
}
