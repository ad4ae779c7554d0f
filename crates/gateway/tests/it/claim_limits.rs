//! Limits that are counted by a claim of the admitted token: without a task and with one.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    self, ClaimPath, Concurrency, JwtAlgorithm, Policy, RateHeaders, RateKey, RateLimit,
};
use serde_json::{Value, json};

use crate::identity_provider::{Signer, claims, inline, jwt, provider};
use crate::origin::{Edge, Origin, edge, to};
use crate::policies::with;
use crate::support::{Answer, PATIENCE};

on_every_backend! {
    claims_have_rates_of_their_own,
    claims_have_requests_at_once_of_their_own,
    a_claim_without_tokens_is_a_problem,
}

fn by(path: &str) -> Vec<RateKey> {
    vec![RateKey::Claim(ClaimPath(path.into()))]
}

fn rate(path: &str) -> Policy {
    Policy::RateLimit(Arc::new(RateLimit {
        by: by(path),
        headers: RateHeaders::None,
        ..RateLimit::new("tenants", 2, Duration::from_secs(36_000))
    }))
}

fn guarded(engine: Config, origin: &Origin, signer: &Signer, policy: Policy) -> Edge {
    let tokens = jwt(provider(inline(&[signer]), &[signer.algorithm]));
    // The order of the file does not matter: what counts by a claim is behind what checks whose it is.
    let policies = vec![policy, Policy::Jwt(Arc::new(tokens))];
    edge(engine, with(to(&[origin.addr], |_, _| {}), policies))
}

/// Without a body a request needs no task, with one it does.
fn request(token: &str, body: bool) -> String {
    let fields = format!("Host: a\r\nAuthorization: Bearer {token}\r\n");
    if body {
        format!("POST / HTTP/1.1\r\n{fields}Content-Length: 2\r\n\r\nok")
    } else {
        format!("GET / HTTP/1.1\r\n{fields}\r\n")
    }
}

fn claims_have_rates_of_their_own(engine: Config) {
    for body in [false, true] {
        let origin = Origin::echo();
        let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
        let edge = guarded(engine.clone(), &origin, &signer, rate("org.tenant"));
        let asked = |changes: Value| -> Answer {
            let token = signer.sign(&claims(changes));
            edge.server.ask(request(&token, body))
        };
        let statuses = |changes: Value, count: usize| -> Vec<u16> {
            (0..count).map(|_| asked(changes.clone()).status).collect()
        };
        let tenant = |tenant: Value, subject: &str| json!({ "org": { "tenant": tenant }, "sub": subject });
        // Whoever of a tenant asks.
        assert_eq!(statuses(tenant(json!("a"), "ada"), 1), [200]);
        assert_eq!(statuses(tenant(json!("a"), "eva"), 2), [200, 429]);
        assert_eq!(statuses(tenant(json!("b"), "ada"), 3), [200, 200, 429]);
        // A number counts by its decimal form, an array by its elements with commas.
        assert_eq!(statuses(tenant(json!(7), "ada"), 2), [200, 200]);
        assert_eq!(statuses(tenant(json!("7"), "ada"), 1), [429]);
        assert_eq!(statuses(tenant(json!(["x", "y"]), "ada"), 2), [200, 200]);
        assert_eq!(statuses(tenant(json!("x,y"), "ada"), 1), [429]);
        // All who do not have it are one, also those who have what no header could be.
        assert_eq!(statuses(json!({ "sub": "ada" }), 1), [200]);
        assert_eq!(statuses(tenant(json!({ "id": 1 }), "eva"), 2), [200, 429]);
        // A client without a valid token is not counted.
        let refused = edge.server.ask(request("a.b.c", body));
        assert_eq!(refused.status, 401);
        edge.server.shut_down();
    }
}

fn claims_have_requests_at_once_of_their_own(engine: Config) {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        while let Some(seen) = peer.request() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            let held = seen.field("x-held").is_some();
            if held
                && gone
                    .lock()
                    .expect("one at a time")
                    .recv_timeout(PATIENCE)
                    .is_err()
            {
                return;
            }
            if !peer.send("ok") {
                return;
            }
        }
    });
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let cap = Policy::Concurrency(Arc::new(Concurrency {
        name: "each".into(),
        requests: 1,
        by: by("sub"),
    }));
    let edge = guarded(engine, &origin, &signer, cap);
    let token = |subject: &str| signer.sign(&claims(json!({ "sub": subject })));
    let (ada, eva) = (token("ada"), token("eva"));
    for body in [false, true] {
        let mut holder = edge.server.client();
        let held = request(&ada, body).replacen("Host: a\r\n", "Host: a\r\nX-Held: 1\r\n", 1);
        holder.send(held);
        while origin.seen().field("x-held").is_none() {}
        for other in [false, true] {
            let refused = edge.server.ask(request(&ada, other));
            refused.expect(503, "concurrency limit reached\n");
            assert_eq!(edge.server.ask(request(&eva, other)).status, 200);
        }
        go.send(()).expect("the origin waits");
        holder.answer().expect(200, "ok");
        // Behind its last byte on its own connection there is room again.
        holder.send(request(&ada, body));
        holder.answer().expect(200, "ok");
    }
    let faults = edge.gateway.fault_counts();
    let full = faults.iter().find(|(fault, _)| *fault == Fault::ConcurrencyFull);
    assert_eq!(full.map(|(_, count)| *count), Some(4));
    edge.server.shut_down();
}

fn a_claim_without_tokens_is_a_problem(_: Config) {
    let origin = Origin::echo();
    for (policy, part) in [
        (rate("sub"), "policies.rate_limit.by"),
        (
            Policy::Concurrency(Arc::new(Concurrency {
                name: "each".into(),
                requests: 1,
                by: by("sub"),
            })),
            "policies.concurrency.by",
        ),
    ] {
        let config: model::Config = with(to(&[origin.addr], |_, _| {}), vec![policy]);
        let gateway = ringmain_gateway::Gateway::new(Arc::new(config), Duration::ZERO);
        let problems: Vec<String> = gateway.problems().iter().map(ToString::to_string).collect();
        let [problem] = &problems[..] else {
            panic!("{problems:?}");
        };
        let expected =
            format!("{part}: expected claims only together with the policy `jwt`, found `sub` and no `jwt`");
        assert!(problem.contains(&expected), "{problem}");
    }
}
