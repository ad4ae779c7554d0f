//! Observability of requests: protocol violations of upstreams, clients that left, counts by upstream and status.

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{self, JwtAlgorithm, Policy, RateKey, RateLimit};
use ringmain_web::AccessLog;
use ringmain_web::access_log::Format;
use serde_json::{Value, json};

use crate::identity_provider::{Signer, claims, inline, jwt, provider};
use crate::origin::{Edge, Origin, refusing_addr, to, upstream};
use crate::policies::with;
use crate::support::{self, PATIENCE, get, post};

on_every_backend! {
    broken_rules_are_named,
    broken_rules_of_tls_are_named,
    clients_that_left_are_logged_with_their_upstream,
    clients_beyond_their_limit_are_logged_with_their_identity,
    requests_are_counted_by_upstream_and_status,
}

/// An access log's lines.
pub(crate) struct Lines {
    lines: mpsc::Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

struct Sink(mpsc::Sender<Vec<u8>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // The test may be over.
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).expect("a JSON object");
            }
            let more = self.lines.recv_timeout(PATIENCE).expect("a line is written");
            self.rest.extend_from_slice(&more);
        }
    }
}

/// A gateway that serves, and its access log.
fn logged(engine: Config, config: model::Config) -> (Edge, Lines) {
    let gateway = Gateway::new(std::sync::Arc::new(config), Duration::ZERO);
    let (log, lines) = access_log();
    let server = support::serve(engine, gateway.app().access_log(log));
    (Edge { server, gateway }, lines)
}

/// An access log, and its lines.
pub(crate) fn access_log() -> (AccessLog, Lines) {
    let (sender, lines) = mpsc::channel();
    let log = AccessLog::to_writer(Sink(sender)).expect("a thread");
    let rest = Vec::new();
    (log.format(Format::Json), Lines { lines, rest })
}

fn broken_rules_are_named(engine: Config) {
    let interim = "HTTP/1.1 103 x\r\n\r\n".repeat(100);
    let ok = "HTTP/1.1 200 OK\r\n";
    for (answer, fault, rule) in [
        (
            format!("{ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "garbage_head",
            "TransferEncoding",
        ),
        (
            format!("{ok}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
            "garbage_head",
            "ContentLengthRepeated",
        ),
        (
            format!("{ok}Content-Length : 1\r\n\r\n"),
            "garbage_head",
            "FieldName",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n".to_owned(), "garbage_head", "Version"),
        (
            format!("{ok}A: {}\r\n\r\n", "x".repeat(300_000)),
            "head_too_large",
            "HeadTooLarge",
        ),
        (interim, "garbage_head", "InterimResponses"),
        (
            format!("{ok}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "garbage_body",
            "ChunkSize",
        ),
    ] {
        let origin = Origin::answering(answer);
        let (edge, mut lines) = logged(engine.clone(), to(&[origin.addr], |_, _| {}));
        let mut client = edge.server.client();
        client.send(get("/"));
        let line = lines.next();
        assert_eq!(
            (&line["fault"], &line["fault_rule"]),
            (&fault.into(), &rule.into()),
            "{line}"
        );
        drop(client);
        edge.server.shut_down();
    }
}

fn broken_rules_of_tls_are_named(engine: Config) {
    let origin = Origin::new(|mut peer| {
        if peer.some().is_some() {
            peer.send("HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let config = to(&[origin.addr], |_, upstream| {
        upstream.tls = Some(model::UpstreamTls {
            server_name: Some(model::Hostname::parse("a.example").expect("a host")),
            ..model::UpstreamTls::default()
        });
    });
    let (edge, mut lines) = logged(engine, config);
    assert_eq!(edge.server.get("/").status, 502);
    let line = lines.next();
    assert_eq!(line["fault"], "tls_failed", "{line}");
    assert!(line["fault_rule"].is_string(), "{line}");
    let status = edge.gateway.upstreams();
    let tls = status[0]
        .faults
        .iter()
        .find(|(fault, _)| fault.label() == "tls_failed");
    assert!(tls.is_some_and(|(_, count)| *count > 0), "{status:?}");
    edge.server.shut_down();
}

fn clients_that_left_are_logged_with_their_upstream(engine: Config) {
    let (came, arrived) = mpsc::channel::<()>();
    let origin = Origin::new(move |mut peer| {
        while peer.head().is_some() {
            came.send(()).expect("the test waits");
            // Until the gateway gives up.
            while peer.some().is_some() {}
        }
    });
    let (edge, mut lines) = logged(engine, to(&[origin.addr], |_, _| {}));
    // The first has no pooled connection and continues in a task; the second needs none; the last has a body.
    for request in [get("/slow"), post("/slow", "text/plain", "a body")] {
        let mut client = edge.server.client();
        client.send(request);
        arrived.recv_timeout(PATIENCE).expect("it is sent on");
        client.reset();
        let line = lines.next();
        assert_eq!(line["status"], 499, "{line}");
        assert_eq!(
            (&line["route"], &line["rule"]),
            (&"all".into(), &1.into()),
            "{line}"
        );
        let found = (&line["upstream"], &line["endpoint"]);
        assert_eq!(
            found,
            (&"origin".into(), &origin.addr.to_string().into()),
            "{line}"
        );
    }
    let series = edge.gateway.series_reports();
    let found: Vec<_> = series
        .iter()
        .map(|it| (&*it.route, &*it.upstream, &it.codes[..]))
        .collect();
    assert_eq!(found, [("all", "origin", &[(499, 2)][..])]);
    edge.server.shut_down();
}

fn clients_beyond_their_limit_are_logged_with_their_identity(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let tokens = jwt(provider(inline(&[&signer]), &[signer.algorithm]));
    let limit = |name, requests| RateLimit {
        by: vec![RateKey::Identity],
        ..RateLimit::new(name, requests, Duration::from_secs(36_000))
    };
    let soft = RateLimit {
        log_only: true,
        ..limit("soft", 1)
    };
    let policies = vec![
        Policy::RateLimit(soft.into()),
        Policy::RateLimit(limit("clients", 3).into()),
        Policy::Jwt(tokens.into()),
    ];
    let (edge, mut lines) = logged(engine, with(to(&[origin.addr], |_, _| {}), policies));
    let token = signer.sign(&claims(json!({ "sub": "ada" })));
    let fields = format!("Host: a\r\nAuthorization: Bearer {token}\r\n");
    // Without a task, and with one.
    let bodiless = format!("GET / HTTP/1.1\r\n{fields}\r\n");
    let with_body = format!("POST / HTTP/1.1\r\n{fields}Content-Length: 2\r\n\r\nok");
    for (request, status, over_limit) in [
        (&bodiless, 200, Value::Null),
        (&bodiless, 200, "soft".into()),
        (&with_body, 200, "soft".into()),
        (&bodiless, 429, "soft".into()),
        (&with_body, 429, "soft".into()),
    ] {
        assert_eq!(edge.server.ask(request).status, status);
        let line = lines.next();
        assert_eq!(
            (&line["status"], &line["identity"], &line["over_limit"]),
            (&status.into(), &"ada".into(), &over_limit),
            "{line}"
        );
    }
    edge.server.shut_down();
}

fn requests_are_counted_by_upstream_and_status(engine: Config) {
    let canary = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let status = &seen.line()[5..8];
            peer.send(format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let mut config = to(&[canary.addr], |_, upstream| upstream.name = "canary".into());
    let route = std::sync::Arc::make_mut(&mut config.routes[0]);
    let mut forward = model::Forward::to("canary");
    forward.backends[0].weight = 1;
    route.rules[0].action = model::Action::Forward(Box::new(forward));
    let mut down = model::Rule::new(model::Action::Forward(Box::new(model::Forward::to("down"))));
    down.matches = vec![model::Match {
        path: model::PathMatch::Prefix(model::Path::parse("/down").expect("a path")),
        ..model::Match::default()
    }];
    route.rules.push(down);
    let down = refusing_addr();
    config
        .upstreams
        .push(std::sync::Arc::new(upstream("down", &[down])));
    let (edge, _lines) = logged(engine, config);
    for target in ["/200", "/200", "/404", "/503"] {
        edge.server.get(target);
    }
    edge.server
        .get("/down")
        .expect(503, "upstream connection refused\n");
    let series = edge.gateway.series_reports();
    let find = |upstream: &str| {
        series
            .iter()
            .find(|it| &*it.upstream == upstream)
            .expect(upstream)
    };
    assert_eq!(find("canary").codes, [(200, 2), (404, 1), (503, 1)]);
    assert_eq!(find("down").codes, [(503, 1)]);
    assert_eq!(find("canary").durations[1].buckets.iter().sum::<u64>(), 2);
    let routes = edge.gateway.route_reports();
    assert_eq!(routes[0].classes, [0, 2, 0, 1, 2]);
    let upstreams = edge.gateway.upstreams();
    let endpoint = |name: &str| {
        let found = upstreams.iter().find(|it| &*it.name == name).expect(name);
        (found.endpoints[0].failures, found)
    };
    let (failures, canary) = endpoint("canary");
    assert_eq!((failures, &canary.faults), (1, &vec![]));
    assert_eq!((canary.attempts, canary.responses), (4, [0, 2, 0, 1, 1]));
    let (failures, down) = endpoint("down");
    let faults = &down.faults;
    assert_eq!((down.attempts, down.responses), (failures, [0; 5]));
    assert!(
        failures > 0 && faults[0].0.label() == "connect_refused",
        "{failures} {faults:?}"
    );
    edge.server.shut_down();
}
