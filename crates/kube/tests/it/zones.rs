//! The distance of endpoints: hints of EndpointSlices, `trafficDistribution` of Services, and the location of the process.

use ringmain_gateway::model::{Distance, ZonePreference};
use ringmain_kube::store::Store;
use ringmain_kube::translate::{Location, Settings, Translator, Update};
use serde_json::{Value, json};

use crate::cluster::{Pool, apply};

const NODE: &str = "node-1";
const ZONE: &str = "zone-a";

fn settings(node: Option<&str>, zone: Option<&str>) -> Settings {
    Settings {
        location: Location {
            node: node.map(Into::into),
            zone: zone.map(Into::into),
        },
        ..Settings::default()
    }
}

/// An endpoint of a zone, with its node and hints.
fn endpoint(number: u8, zone: &str, node: &str, hints: Value) -> Value {
    json!({
        "addresses": [format!("10.0.0.{number}")],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "zone": zone, "nodeName": node, "hints": hints,
    })
}

fn slice(endpoints: &[Value]) -> Value {
    json!({
        "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "app-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "app"},
            "resourceVersion": json!(endpoints).to_string(),
        },
        "ports": [{"name": "", "port": 8080}], "endpoints": endpoints,
    })
}

fn cluster(distribution: Option<&str>, endpoints: &[Value]) -> Store {
    let mut service = json!({
        "kind": "Service", "metadata": {"name": "app", "namespace": "shop"},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
    });
    if let Some(distribution) = distribution {
        service["spec"]["trafficDistribution"] = json!(distribution);
    }
    let mut store = Store::new();
    apply(
        &mut store,
        &[
            json!({
                "kind": "GatewayClass", "metadata": {"name": "ringmain"},
                "spec": {"controllerName": "ringmain.dev/gateway"},
            }),
            json!({
                "kind": "Gateway", "metadata": {"name": "edge", "namespace": "shop"},
                "spec": {
                    "gatewayClassName": "ringmain",
                    "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
                },
            }),
            json!({
                "kind": "HTTPRoute", "metadata": {"name": "app", "namespace": "shop"},
                "spec": {
                    "parentRefs": [{"name": "edge"}],
                    "rules": [{"backendRefs": [{"name": "app", "port": 80}]}],
                },
            }),
            service,
            slice(endpoints),
        ],
    );
    store
}

#[track_caller]
fn check(settings: &Settings, distribution: Option<&str>, endpoints: &[Value], expected: &[Distance]) {
    let store = cluster(distribution, endpoints);
    let mut translator = Translator::new(settings.clone());
    let translation = translator.translate(&store, &Pool::new(&store));
    let [upstream] = &translation.parts.upstreams[..] else {
        panic!("{:?}", translation.parts.upstreams);
    };
    let found: Vec<Distance> = upstream.endpoints.iter().map(|found| found.distance).collect();
    assert_eq!(found, expected, "{distribution:?} {endpoints:?}");
    let has_location = settings.location != Location::default();
    assert_eq!(upstream.zones, has_location.then_some(ZonePreference::Prefer));
}

fn for_zones(zones: &[&str]) -> Value {
    let zones: Vec<Value> = zones.iter().map(|zone| json!({ "name": zone })).collect();
    json!({ "forZones": zones })
}

fn both(zone: &str, node: &str) -> Value {
    json!({"forZones": [{"name": zone}], "forNodes": [{"name": node}]})
}

#[test]
fn a_service_may_prefer_the_zone_or_the_node() {
    use Distance::{Elsewhere, Node, Zone};
    let own = settings(Some(NODE), Some(ZONE));
    let endpoints = [
        endpoint(1, ZONE, NODE, Value::Null),
        endpoint(2, ZONE, "node-2", Value::Null),
        endpoint(3, "zone-b", "node-3", Value::Null),
    ];
    check(&own, None, &endpoints, &[Elsewhere; 3]);
    check(&own, Some("PreferSameZone"), &endpoints, &[Zone, Zone, Elsewhere]);
    check(&own, Some("PreferClose"), &endpoints, &[Zone, Zone, Elsewhere]);
    check(&own, Some("PreferSameNode"), &endpoints, &[Node, Zone, Elsewhere]);
    check(&own, Some("PreferTomorrow"), &endpoints, &[Elsewhere; 3]);
    let zone = settings(None, Some(ZONE));
    check(
        &zone,
        Some("PreferSameNode"),
        &endpoints,
        &[Zone, Zone, Elsewhere],
    );
    check(
        &settings(None, None),
        Some("PreferSameNode"),
        &endpoints,
        &[Elsewhere; 3],
    );
}

#[test]
fn hints_count_if_every_ready_endpoint_has_them() {
    use Distance::{Elsewhere, Node, Zone};
    let own = settings(Some(NODE), Some(ZONE));
    let hinted = [
        endpoint(1, ZONE, "node-2", for_zones(&["zone-b"])),
        endpoint(2, "zone-b", "node-3", for_zones(&[ZONE, "zone-b"])),
    ];
    // Hints take precedence over the zone of the endpoint, with and without a preference of the Service.
    check(&own, None, &hinted, &[Elsewhere, Zone]);
    check(&own, Some("PreferSameZone"), &hinted, &[Elsewhere, Zone]);
    let mut partly = hinted.clone();
    partly[1]["hints"] = Value::Null;
    check(&own, None, &partly, &[Elsewhere; 2]);
    check(&own, Some("PreferSameZone"), &partly, &[Zone, Elsewhere]);
    // One that is not ready any more needs no hint.
    partly[1]["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    check(&own, None, &partly, &[Elsewhere; 2]);
    partly[0]["hints"] = for_zones(&[ZONE]);
    check(&own, None, &partly, &[Zone, Elsewhere]);
    let nodes = [
        endpoint(1, ZONE, "node-2", both(ZONE, NODE)),
        endpoint(2, ZONE, NODE, both(ZONE, "node-2")),
        endpoint(3, "zone-b", "node-3", both("zone-b", "node-3")),
    ];
    check(&own, None, &nodes, &[Node, Zone, Elsewhere]);
    check(
        &settings(Some(NODE), None),
        None,
        &nodes,
        &[Node, Elsewhere, Elsewhere],
    );
}

#[test]
fn changed_hints_change_endpoints_alone() {
    let endpoints = [
        endpoint(1, ZONE, NODE, for_zones(&[ZONE])),
        endpoint(2, "zone-b", "node-3", for_zones(&["zone-b"])),
    ];
    let mut store = cluster(None, &endpoints);
    let mut translator = Translator::new(settings(None, Some(ZONE)));
    let _ = translator.translate(&store, &Pool::new(&store));
    store.take_changes();
    let mut changed = endpoints.clone();
    changed[1]["hints"] = Value::Null;
    apply(&mut store, &[slice(&changed)]);
    let changes = store.take_changes();
    match translator.update(&store, &Pool::new(&store), &changes) {
        Update::Endpoints(all) => {
            let distances = all[0].1.iter().map(|found| found.distance);
            assert!(distances.eq([Distance::Elsewhere; 2]), "{all:?}");
        }
        other => panic!("{other:?}"),
    }
}
