//! The pure parts of following a cluster. Tests with an API server are in the suite `kube`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::Network;
use serde_json::{Value, json};

use super::events::{Due, EventWrite, Finding, Ledger, Reason};
use super::feed::Topic;
use super::lease::{lease_name, micro_time};
use super::pool::Pool;
use super::queue::{Next, Queue, Write};
use super::services::{have_one_owner, service};
use crate::api::Error;
use crate::limits::{BACKOFF_LEAST, BACKOFF_MOST, EVENT_SERIES_EVERY, EVENTS};
use crate::objects::{Gateway, Key, Kind, Object};
use crate::translate::{AddressProblem, Places};

fn gateway(name: &str, spec: Value, status: Value) -> Arc<Gateway> {
    let object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")},
        "spec": spec,
        "status": status,
    });
    match Object::from_value(Kind::Gateway, object) {
        Ok(Object::Gateway(gateway)) => gateway,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_experimental_kind_without_rights_is_no_failure() {
    let refused = |status| Error::Refused {
        request: "GET /apis".into(),
        status,
        reason: "Forbidden".into(),
        message: "no".into(),
    };
    for (kind, status, is_absent) in [
        (Kind::XBackendTrafficPolicy, 403, true),
        (Kind::XBackendTrafficPolicy, 404, true),
        (Kind::XBackendTrafficPolicy, 401, false),
        (Kind::XBackendTrafficPolicy, 500, false),
        (Kind::HttpRoute, 403, false),
        (Kind::HttpRoute, 404, true),
    ] {
        let absence = kind.absence(&refused(status));
        assert_eq!(absence.is_some(), is_absent, "{kind:?} {status}: {absence:?}");
    }
}

fn plain(name: &str) -> Arc<Gateway> {
    gateway(name, json!({}), json!({}))
}

fn pool(network: &str, gateways: &[&Arc<Gateway>]) -> Pool {
    let mut pool = Pool::new(Network::parse(network).unwrap());
    pool.assign(gateways);
    pool
}

fn addresses(pool: &Pool, gateway: &Gateway) -> Vec<String> {
    let placement = pool.place(gateway);
    placement
        .addresses
        .into_iter()
        .map(|address| address.value)
        .collect()
}

#[test]
fn instants_are_rfc_3339() {
    let check = |seconds, expected: &str| assert_eq!(super::rfc3339(Duration::from_secs(seconds)), expected);
    check(0, "1970-01-01T00:00:00Z");
    check(951_782_399, "2000-02-28T23:59:59Z");
    check(951_782_400, "2000-02-29T00:00:00Z");
    check(1_709_251_200, "2024-03-01T00:00:00Z");
    check(1_767_225_599, "2025-12-31T23:59:59Z");
    let with_micros = micro_time(Duration::new(1_767_225_600, 42_000));
    assert_eq!(with_micros, "2026-01-01T00:00:00.000042Z");
}

#[test]
fn each_gateway_has_an_address_of_its_own() {
    let gateways: Vec<_> = (0..14)
        .map(|number| plain(&format!("gateway-{number}")))
        .collect();
    let all: Vec<_> = gateways.iter().collect();
    let pool = pool("10.0.0.0/28", &all);
    let mut found: Vec<_> = all.iter().flat_map(|gateway| addresses(&pool, gateway)).collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 14);
    let is_inner = |address: &String| !["10.0.0.0", "10.0.0.15"].contains(&&**address);
    assert!(found.iter().all(is_inner), "{found:?}");
}

#[test]
fn full_range_leaves_the_youngest_without() {
    let gateways: Vec<_> = (0..3).map(|number| plain(&format!("gateway-{number}"))).collect();
    let all: Vec<_> = gateways.iter().collect();
    let pool = pool("10.0.0.0/30", &all);
    let placement = pool.place(&gateways[2]);
    assert!(placement.addresses.is_empty());
    assert!(matches!(placement.problem, Some(AddressProblem::NotAssigned(_))));
}

#[test]
fn replicas_and_restarts_assign_alike() {
    let (first, second) = (plain("first"), plain("second"));
    let one = pool("10.0.0.0/24", &[&first, &second]);
    let other = pool("10.0.0.0/24", &[&first, &second]);
    assert_eq!(addresses(&one, &first), addresses(&other, &first));
    // An address of a status is kept, whatever the name would give.
    let known = gateway(
        "second",
        json!({}),
        json!({"addresses": [{"type": "IPAddress", "value": "10.0.0.77"}]}),
    );
    assert_eq!(addresses(&pool("10.0.0.0/24", &[&known]), &known), ["10.0.0.77"]);
    // One that is assigned stays when others are added and removed.
    let mut pool = one;
    let before = addresses(&pool, &second);
    pool.assign(&[&second]);
    assert_eq!(addresses(&pool, &second), before);
}

#[test]
fn published_addresses_replace_those_of_this_replica() {
    // Both begin at the same address of a small range: the first one that a replica sees has it.
    let names: Vec<_> = (0..8).map(|number| plain(&format!("gateway-{number}"))).collect();
    let alone = |gateway: &Arc<Gateway>| addresses(&pool("10.0.0.0/29", &[gateway]), gateway);
    let is_rival = |gateway: &&Arc<Gateway>| alone(gateway) == alone(&names[0]);
    let (one, other) = (&names[0], names[1..].iter().find(is_rival).unwrap());
    let mut ours = pool("10.0.0.0/29", &[one, other]);
    let theirs = pool("10.0.0.0/29", &[other, one]);
    assert_ne!(addresses(&ours, one), addresses(&theirs, one));
    let published = [one, other].map(|plain| {
        let values = addresses(&theirs, plain);
        let status = json!({"addresses": [{"type": "IPAddress", "value": values[0]}]});
        gateway(&plain.metadata.name, json!({}), status)
    });
    assert!(published.iter().all(|gateway| ours.differs_from_status(gateway)));
    ours.assign(&[&published[0], &published[1]]);
    for gateway in &published {
        assert_eq!(addresses(&ours, gateway), addresses(&theirs, gateway));
        assert!(!ours.differs_from_status(gateway));
    }
    // Nothing is published yet, or the Gateway is another controller's.
    assert!(!ours.differs_from_status(one));
    assert!(!Pool::new(Network::parse("10.0.0.0/29").unwrap()).differs_from_status(&published[0]));
}

#[test]
fn requested_addresses_must_be_usable_and_free() {
    let asks = |name, value| {
        gateway(
            name,
            json!({"addresses": [{"type": "IPAddress", "value": value}]}),
            json!({}),
        )
    };
    let (wants, same) = (asks("wants", "10.0.0.9"), asks("same", "10.0.0.9"));
    let outside = asks("outside", "192.0.2.1");
    let pool = pool("10.0.0.0/24", &[&wants, &same, &outside]);
    assert_eq!(addresses(&pool, &wants), ["10.0.0.9"]);
    for gateway in [&same, &outside] {
        let placement = pool.place(gateway);
        assert!(placement.addresses.is_empty(), "{placement:?}");
        assert!(
            matches!(placement.problem, Some(AddressProblem::NotUsable(_))),
            "{placement:?}"
        );
    }
    let named = gateway(
        "named",
        json!({"addresses": [{"type": "Hostname", "value": "a.example"}]}),
        json!({}),
    );
    assert!(matches!(
        pool.place(&named).problem,
        Some(AddressProblem::Unsupported(_))
    ));
    let any = gateway("any", json!({"addresses": [{"type": "IPAddress"}]}), json!({}));
    let mut pool = Pool::new(Network::parse("10.0.0.0/24").unwrap());
    pool.assign(&[&any]);
    assert_eq!(
        (addresses(&pool, &any).len(), pool.place(&any).problem),
        (1, None)
    );
    assert_eq!(pool.bind(&any, 80).len(), 1);
}

#[test]
fn request_does_not_take_over_the_address_of_another_gateway() {
    let request = json!({"addresses": [{"type": "IPAddress", "value": "10.0.0.9"}]});
    let status = json!({"addresses": [{"type": "IPAddress", "value": "10.0.0.9"}]});
    let thief = gateway("thief", request.clone(), json!({}));
    // By the status, also for an older Gateway that asks later.
    let holds = gateway("holds", json!({}), status.clone());
    let mut known = pool("10.0.0.0/24", &[&thief, &holds]);
    assert_eq!(addresses(&known, &holds), ["10.0.0.9"]);
    assert!(matches!(
        known.place(&thief).problem,
        Some(AddressProblem::NotUsable(_))
    ));
    // By the last assignment, before a status is written.
    let plain = plain("holds");
    known.assign(&[&thief, &plain]);
    assert_eq!(addresses(&known, &plain), ["10.0.0.9"]);
    // It is free once the holder is gone, or asks for another one.
    let moves = gateway("holds", json!({"addresses": [{"value": "10.0.0.10"}]}), status);
    known.assign(&[&thief, &moves]);
    assert_eq!(addresses(&known, &moves), ["10.0.0.10"]);
    assert_eq!(addresses(&known, &thief), ["10.0.0.9"]);
}

#[test]
fn ranges_of_ipv6_and_single_addresses_serve() {
    let only = plain("only");
    assert_eq!(addresses(&pool("10.0.0.5", &[&only]), &only), ["10.0.0.5"]);
    let address = addresses(&pool("fd00::/64", &[&only]), &only);
    let address: IpAddr = address[0].parse().unwrap();
    assert!(Network::parse("fd00::/64").unwrap().contains(address));
}

#[test]
fn service_carries_what_the_gateway_asks_for() {
    let gateway = gateway(
        "edge",
        json!({
            "listeners": [{"name": "a", "port": 80}, {"name": "b", "port": 443}, {"name": "c", "port": 80}],
            "infrastructure": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
        }),
        json!({}),
    );
    let (name, service) = service(&gateway);
    assert_eq!(name, "ringmain-edge");
    let metadata = &service["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"team": "x", "gateway.networking.k8s.io/gateway-name": "edge"})
    );
    assert_eq!(metadata["annotations"], json!({"note": "y"}));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-of-edge");
    let ports = service["spec"]["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 2);
    assert_eq!(service["spec"].get("selector"), None);
    assert!(have_one_owner(&service, &service));
    for other in [
        json!({"metadata": {"name": "ringmain-edge"}}),
        json!({"metadata": {"ownerReferences": [{"uid": "another"}]}}),
    ] {
        assert!(!have_one_owner(&other, &service), "{other}");
    }
}

#[test]
fn long_names_are_cut_and_stay_apart() {
    let (one, other) = ("a".repeat(200) + "1", "a".repeat(200) + "2");
    let names = [&one, &other].map(|name| service(&plain(name)));
    assert_ne!(names[0].0, names[1].0);
    for (name, service) in names {
        let label = service["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"].as_str();
        assert!(name.len() <= 63 && label.unwrap().len() <= 63);
    }
    let (name, _) = service(&plain("with.dots"));
    assert!(!name.contains('.'), "{name}");
}

#[test]
fn paths_and_names_are_those_of_the_api() {
    assert_eq!(
        super::path(Kind::GatewayClass, None),
        "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
    );
    assert_eq!(
        super::path(Kind::Secret, Some("shop")),
        "/api/v1/namespaces/shop/secrets"
    );
    assert_eq!(lease_name("ringmain.dev/gateway"), "ringmain.dev-gateway");
    let topic = Topic::one(&Key::new(Kind::Secret, "shop", "tls"));
    assert_eq!(topic.to_string(), "Secret shop/tls");
    assert_eq!(Topic::all(Kind::HttpRoute).to_string(), "httproutes");
}

#[test]
fn failing_object_does_not_delay_others() {
    let status = |name: &str, text: &str| {
        Write::Status(Key::new(Kind::HttpRoute, "shop", name), Arc::new(json!(text)))
    };
    let (bad, good) = (status("bad", "1"), status("good", "1"));
    let mut queue = Queue::default();
    let mut now = Duration::ZERO;
    for attempt in 0..12 {
        queue.replace([bad.clone(), good.clone()].into_iter());
        if attempt == 0 {
            assert_eq!(queue.next(now), Next::Ready(bad.clone()));
            assert!(queue.fail(&bad, now), "the first failure");
        }
        // A new list of documents does not end the pause.
        assert_eq!(queue.next(now), Next::Ready(good.clone()));
        queue.done(&good);
        let Next::At(due) = queue.next(now) else {
            panic!("{:?}", queue.next(now));
        };
        assert!(due > now && due - now <= BACKOFF_MOST);
        now = due;
        assert_eq!(queue.next(now), Next::Ready(bad.clone()));
        assert!(!queue.fail(&bad, now), "a further failure");
        let Next::At(due) = queue.next(now) else {
            panic!("{:?}", queue.next(now));
        };
        let pause = due - now;
        let least = (BACKOFF_LEAST * 2_u32.pow(attempt + 1)).min(BACKOFF_MOST) / 2;
        assert!(pause >= least, "attempt {attempt}: {pause:?} grows");
    }
    // Success, the object's end and another holder each end the pauses.
    queue.done(&bad);
    assert_eq!(queue.next(now), Next::Empty);
    queue.replace([bad.clone()].into_iter());
    assert!(queue.fail(&bad, now));
    queue.replace([good.clone()].into_iter());
    queue.replace([bad.clone()].into_iter());
    assert_eq!(queue.next(now), Next::Ready(bad.clone()));
    assert!(queue.fail(&bad, now));
    queue.forget_failures();
    assert_eq!(queue.next(now), Next::Ready(bad));
}

fn finding(name: &str, reason: Reason) -> Finding {
    Finding {
        key: Key::new(Kind::HttpRoute, "shop", name),
        uid: format!("uid-of-{name}"),
        reason,
        note: format!("note of {name}"),
    }
}

/// A ledger, and the seconds since its start at which it is called.
struct Events {
    ledger: Ledger,
    now: Duration,
}

impl Events {
    fn new() -> Events {
        Events {
            ledger: Ledger::new("ringmain.dev/gateway", "pod_1"),
            now: Duration::ZERO,
        }
    }

    fn find(&mut self, name: &str, leads: bool) {
        self.now += Duration::from_secs(1);
        let since_1970 = Duration::from_secs(1_767_225_600) + self.now;
        self.ledger
            .record(finding(name, Reason::Unreadable), self.now, since_1970, leads);
    }

    fn due(&self) -> Option<Due> {
        self.ledger.next().filter(|due| due.at <= self.now)
    }

    /// The write that is due, which succeeds.
    fn write(&mut self) -> Option<EventWrite> {
        let due = self.due()?;
        self.ledger.written(&due, self.now);
        Some(due.write)
    }

    fn write_series(&mut self) -> u64 {
        match self.write() {
            Some(EventWrite::Series(fields)) => fields["series"]["count"].as_u64().unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn event_is_about_its_object() {
    let mut events = Events::new();
    events.find("one", true);
    let due = events.due().unwrap();
    assert_eq!(due.path, "/apis/events.k8s.io/v1/namespaces/shop/events");
    let Some(EventWrite::Create(event)) = events.write() else {
        panic!("{due:?}");
    };
    let name = due.name.as_str();
    assert!(
        name.starts_with("one.") && name.len() == "one.".len() + 16,
        "{name}"
    );
    let regarding = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "namespace": "shop", "name": "one", "uid": "uid-of-one",
    });
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "shop"},
            "eventTime": "2026-01-01T00:00:01.000000Z",
            "type": "Warning",
            "reason": "Unreadable",
            "action": "Read",
            "note": "note of one",
            "regarding": regarding,
            "reportingController": "ringmain.dev/gateway",
            "reportingInstance": "pod_1",
        })
    );
    // Objects without a namespace, and long texts.
    let class = Finding {
        key: Key::new(Kind::GatewayClass, "", "c".repeat(250)),
        uid: String::new(),
        reason: Reason::NotWritten,
        note: "é".repeat(1000),
    };
    events.ledger.record(class, events.now, events.now, true);
    let due = events.due().unwrap();
    assert_eq!(due.path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert!(due.name.len() <= 253);
    let EventWrite::Create(event) = due.write else {
        panic!("{due:?}")
    };
    assert_eq!(event["note"].as_str().unwrap().len(), 1024);
    assert_eq!(event["regarding"].get("namespace"), None);
    assert_eq!(event["regarding"].get("uid"), None);
}

#[test]
fn repeated_finding_updates_a_series_once_a_minute() {
    let mut events = Events::new();
    events.find("one", true);
    assert!(matches!(events.write(), Some(EventWrite::Create(_))));
    for _ in 0..10 {
        events.find("one", true);
        assert_eq!(events.write(), None);
    }
    events.now += EVENT_SERIES_EVERY;
    assert_eq!(events.write_series(), 11);
    // Without a further repetition nothing is written.
    events.now += EVENT_SERIES_EVERY;
    assert_eq!(events.write(), None);
    // The Event has expired: a new one.
    events.find("one", true);
    let due = events.due().unwrap();
    events.ledger.expired(&due);
    assert!(matches!(events.write(), Some(EventWrite::Create(event)) if event.get("series").is_none()));
    // An object that was created again is another one.
    let mut again = finding("one", Reason::Unreadable);
    again.uid = "another".to_owned();
    events.ledger.record(again, events.now, events.now, true);
    let other = events.due().unwrap();
    assert!(matches!(&other.write, EventWrite::Create(event) if event["regarding"]["uid"] == "another"));
    assert_ne!(other.name, due.name);
}

#[test]
fn next_leader_continues_the_series_of_the_last_one() {
    let mut events = Events::new();
    for _ in 0..5 {
        events.find("one", false);
    }
    let due = events.due().unwrap();
    assert!(matches!(&due.write, EventWrite::Create(event) if event.get("series").is_none()));
    events.ledger.resume(&due, 7, events.now);
    assert_eq!(events.write(), None);
    events.now += EVENT_SERIES_EVERY;
    assert_eq!(events.write_series(), 8);
    // Failures are retried with the interval of a series, not at once.
    events.find("one", true);
    events.now += EVENT_SERIES_EVERY;
    let due = events.due().unwrap();
    events.ledger.retry_later(&due, events.now);
    assert_eq!(events.write(), None);
    events.now += EVENT_SERIES_EVERY;
    assert_eq!(events.write_series(), 9);
    // One that can never be written is not retried.
    events.find("one", true);
    events.now += EVENT_SERIES_EVERY;
    events.ledger.forget(&events.due().unwrap());
    assert_eq!(events.due(), None);
}

#[test]
fn full_ledger_forgets_the_oldest_finding() {
    let mut events = Events::new();
    for number in 0..EVENTS {
        events.find(&format!("route-{number}"), true);
        assert!(events.write().is_some());
    }
    events.find("route-0", true);
    events.find("further", true);
    assert_eq!(events.write_series(), 2, "the first route was found again");
    assert!(matches!(events.write(), Some(EventWrite::Create(_))));
    assert_eq!(events.write(), None);
    events.find("route-1", true);
    assert!(
        matches!(events.write(), Some(EventWrite::Create(_))),
        "the second one was forgotten"
    );
}
