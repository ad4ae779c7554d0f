//! The merge of statuses, and problems of the data plane.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ringmain_gateway::model::Addr;
use ringmain_gateway::table::{ConfigPart, Consequence, Problem};
use serde_json::{Value, json};

use super::{apply_problems, documents};
use crate::objects::{Gateway, Key, Kind, Object};
use crate::store::Store;
use crate::translate::{Findings, Placement, Places, Settings, StatusAddress, translate};

struct OnePlace;

impl Places for OnePlace {
    fn place(&self, _: &Gateway) -> Placement {
        Placement {
            addresses: vec![StatusAddress::ip("10.0.0.1")],
            problem: None,
        }
    }

    fn bind(&self, _: &Gateway, port: u16) -> Vec<Addr> {
        vec![Addr::Inet(SocketAddr::from(([10, 0, 0, 1], port)))]
    }
}

fn store(route_status: &Value) -> Store {
    let mut store = Store::new();
    let mut add = |kind, object| {
        store.apply(Object::from_value(kind, object).unwrap()).unwrap();
    };
    let class = json!({"metadata": {"name": "c"}, "spec": {"controllerName": "ringmain.dev/gateway"}});
    add(Kind::GatewayClass, class);
    let listener = json!({"name": "l", "port": 80, "protocol": "HTTP"});
    let gateway = json!({
        "metadata": {"name": "g", "namespace": "n", "generation": 4, "resourceVersion": "9"},
        "spec": {"gatewayClassName": "c", "listeners": [listener]},
        "status": {"conditions": [{"type": "example.com/Foreign", "status": "True"}]},
    });
    add(Kind::Gateway, gateway);
    let route = json!({
        "metadata": {"name": "r", "namespace": "n", "generation": 7, "resourceVersion": "3"},
        "spec": {"parentRefs": [{"name": "g"}], "rules": [{}]},
        "status": route_status,
    });
    add(Kind::HttpRoute, route);
    store
}

fn findings(store: &Store) -> Findings {
    translate(store, &Settings::default(), &OnePlace).findings
}

/// Adds problems to results of a translation.
fn add_problems(findings: &mut Findings, problems: &[Problem]) -> BTreeSet<Key> {
    let changed = findings.keys().into_iter().collect();
    apply_problems(findings, problems, &changed)
}

fn status_of(store: &Store, findings: &Findings, kind: Kind, now: &str) -> Option<Value> {
    let all = documents(store, &Settings::default(), findings, now);
    let found = all.into_iter().find(|document| document.key.kind == kind);
    found.map(|document| document.status)
}

fn condition<'a>(conditions: &'a Value, kind: &str) -> &'a Value {
    let mut all = conditions.as_array().unwrap().iter();
    all.find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

#[test]
fn written_statuses_are_stable() {
    let mut store = store(&Value::Null);
    let first = documents(
        &store,
        &Settings::default(),
        &findings(&store),
        "2026-01-01T00:00:00Z",
    );
    let kinds: Vec<_> = first.iter().map(|document| document.key.kind).collect();
    assert_eq!(kinds, [Kind::GatewayClass, Kind::Gateway, Kind::HttpRoute]);
    assert_eq!(first[1].resource_version, "9");
    let gateway = &first[1].status;
    assert_eq!(
        condition(&gateway["conditions"], "example.com/Foreign")["status"],
        "True"
    );
    assert_eq!(
        condition(&gateway["conditions"], "Programmed")["observedGeneration"],
        4
    );
    assert_eq!(
        gateway["addresses"],
        json!([{"type": "IPAddress", "value": "10.0.0.1"}])
    );
    assert_eq!(gateway["listeners"][0]["attachedRoutes"], 1);
    // Written back, nothing is left to write.
    for document in first {
        let mut object =
            json!({"metadata": {"name": &*document.key.name, "namespace": &*document.key.namespace}});
        let old = store.object(&document.key).unwrap();
        object["metadata"]["generation"] = old.meta().generation.into();
        object["status"] = document.status;
        object["spec"] = match document.key.kind {
            Kind::GatewayClass => json!({"controllerName": "ringmain.dev/gateway"}),
            Kind::Gateway => {
                json!({"gatewayClassName": "c", "listeners": [{"name": "l", "port": 80, "protocol": "HTTP"}]})
            }
            _ => json!({"parentRefs": [{"name": "g"}], "rules": [{}]}),
        };
        store
            .apply(Object::from_value(document.key.kind, object).unwrap())
            .unwrap();
    }
    assert_eq!(
        documents(
            &store,
            &Settings::default(),
            &findings(&store),
            "2026-02-02T00:00:00Z"
        ),
        []
    );
}

#[test]
fn entries_of_other_controllers_stay() {
    let foreign =
        json!({"controllerName": "example.com/other", "parentRef": {"name": "x"}, "conditions": []});
    let old = json!({
        "controllerName": "ringmain.dev/gateway",
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"},
        "conditions": [
            {"type": "Accepted", "status": "True", "reason": "Old", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            {"type": "ResolvedRefs", "status": "False", "lastTransitionTime": "2025-01-01T00:00:00Z"},
            {"type": "PartiallyInvalid", "status": "True"},
            {"type": "example.com/Foreign", "status": "True"},
        ],
    });
    let stale =
        json!({"controllerName": "ringmain.dev/gateway", "parentRef": {"name": "gone"}, "conditions": []});
    let store = store(&json!({"parents": [stale, foreign, old]}));
    let now = "2026-01-01T00:00:00Z";
    let status = status_of(&store, &findings(&store), Kind::HttpRoute, now).unwrap();
    let parents = status["parents"].as_array().unwrap();
    assert_eq!(parents.len(), 2, "the stale entry is removed");
    assert_eq!(parents[0], foreign);
    let conditions = &parents[1]["conditions"];
    let accepted = condition(conditions, "Accepted");
    assert_eq!(
        accepted["lastTransitionTime"], "2025-01-01T00:00:00Z",
        "its status has not changed"
    );
    assert_eq!(
        (&accepted["reason"], &accepted["observedGeneration"]),
        (&json!("Accepted"), &json!(7))
    );
    assert_eq!(condition(conditions, "ResolvedRefs")["lastTransitionTime"], now);
    assert_eq!(*condition(conditions, "PartiallyInvalid"), Value::Null);
    assert_eq!(condition(conditions, "example.com/Foreign")["status"], "True");
}

#[test]
fn problems_become_conditions() {
    let store = store(&Value::Null);
    let problem = |place, part, outcome| Problem {
        part: place,
        field: part,
        expected: "x".to_owned(),
        found: "y".to_owned(),
        consequence: outcome,
    };
    let now = "2026-01-01T00:00:00Z";
    let mut of_rule = findings(&store);
    let place = ConfigPart::Route("HTTPRoute/n/r".into(), Some(0));
    add_problems(
        &mut of_rule,
        &[problem(place, "rewrite", Consequence::Responds500)],
    );
    let status = status_of(&store, &of_rule, Kind::HttpRoute, now).unwrap();
    let conditions = &status["parents"][0]["conditions"];
    assert_eq!(condition(conditions, "Accepted")["status"], "True");
    assert_eq!(
        condition(conditions, "PartiallyInvalid")["reason"],
        "UnsupportedValue"
    );

    let mut of_listener = findings(&store);
    let place = ConfigPart::Listener("Gateway/n/g/l".into());
    add_problems(
        &mut of_listener,
        &[problem(place, "addresses", Consequence::Omitted)],
    );
    let status = status_of(&store, &of_listener, Kind::Gateway, now).unwrap();
    assert_eq!(
        condition(&status["listeners"][0]["conditions"], "Programmed")["status"],
        "False"
    );
    assert_eq!(
        condition(&status["conditions"], "Programmed")["reason"],
        "Invalid"
    );

    let mut shares = findings(&store);
    let place = ConfigPart::Route("HTTPRoute/n/r".into(), Some(0));
    add_problems(
        &mut shares,
        &[problem(place, "backends", Consequence::ShareResponds500)],
    );
    assert_eq!(shares, findings(&store));
}
