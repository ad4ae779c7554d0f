//! Changes, order, grants and references of the store.

use serde_json::{Value, json};

use super::{Change, References, Referrer, Store};
use crate::objects::{HttpRoute, Id, Key, Kind, Object, Resource as _};

fn apply(store: &mut Store, kind: Kind, object: Value) -> Change {
    store.apply(Object::from_value(kind, object).unwrap()).unwrap()
}

fn named(namespace: &str, name: &str) -> Value {
    json!({"namespace": namespace, "name": name})
}

#[test]
fn changes_of_the_status_alone_are_no_changes() {
    let mut store = Store::new();
    let route = |generation: u64, version: &str| {
        let metadata =
            json!({"name": "r", "namespace": "n", "generation": generation, "resourceVersion": version});
        json!({"metadata": metadata, "status": {"v": version}})
    };
    assert_eq!(apply(&mut store, Kind::HttpRoute, route(1, "1")), Change::Added);
    assert_eq!(
        apply(&mut store, Kind::HttpRoute, route(1, "2")),
        Change::Unchanged
    );
    let found = store.get::<HttpRoute>("n", "r").unwrap();
    assert_eq!(
        found.status().unwrap().fields()["v"],
        "2",
        "the newest status is retained"
    );
    assert_eq!(apply(&mut store, Kind::HttpRoute, route(2, "3")), Change::Updated);
    let key = Key::new(Kind::HttpRoute, "n", "r");
    assert!(store.remove(&key).is_some() && store.remove(&key).is_none());
    assert_eq!(store.count(Kind::HttpRoute), 0);
}

#[test]
fn older_objects_precede() {
    let mut store = Store::new();
    for (name, created) in [
        ("a", "2026-01-02T00:00:00Z"),
        ("c", "2026-01-01T00:00:00Z"),
        ("b", "2026-01-01T00:00:00Z"),
    ] {
        let metadata = json!({"name": name, "namespace": "n", "creationTimestamp": created});
        apply(&mut store, Kind::HttpRoute, json!({"metadata": metadata}));
    }
    let names: Vec<_> = store
        .by_precedence::<HttpRoute>()
        .iter()
        .map(|route| route.meta().name.to_string())
        .collect();
    assert_eq!(names, ["b", "c", "a"]);
}

#[test]
fn slices_follow_their_label() {
    let mut store = Store::new();
    let slice = |service: &str| {
        let labels = json!({"kubernetes.io/service-name": service});
        json!({"metadata": {"name": "x", "namespace": "n", "labels": labels}, "addressType": "IPv4"})
    };
    let count = |store: &Store, service: &str| store.slices_of(&Id::new("n", service)).count();
    apply(&mut store, Kind::EndpointSlice, slice("a"));
    assert_eq!((count(&store, "a"), count(&store, "b")), (1, 0));
    apply(&mut store, Kind::EndpointSlice, slice("b"));
    assert_eq!((count(&store, "a"), count(&store, "b")), (0, 1));
    store.remove(&Key::new(Kind::EndpointSlice, "n", "x"));
    assert_eq!(count(&store, "b"), 0);
    assert!(store.slices_of.is_empty());
}

#[test]
fn grants() {
    let mut store = Store::new();
    let gateway_group = "gateway.networking.k8s.io";
    let spec = json!({
        "from": [{"group": gateway_group, "kind": "HTTPRoute", "namespace": "apps"}],
        "to": [{"group": "", "kind": "Service", "name": "web"}],
    });
    apply(
        &mut store,
        Kind::ReferenceGrant,
        json!({"metadata": named("backends", "g"), "spec": spec}),
    );
    let permits =
        |kind, namespace, to, name| store.permits(Referrer { kind, namespace }, to, "backends", name);
    assert!(permits(Kind::HttpRoute, "apps", Kind::Service, "web"));
    assert!(!permits(Kind::HttpRoute, "apps", Kind::Service, "other"));
    assert!(!permits(Kind::HttpRoute, "apps", Kind::Secret, "web"));
    assert!(!permits(Kind::GrpcRoute, "apps", Kind::Service, "web"));
    assert!(!permits(Kind::HttpRoute, "others", Kind::Service, "web"));
    assert!(
        permits(Kind::GrpcRoute, "backends", Kind::Secret, "any"),
        "its own namespace"
    );
}

#[test]
fn references_of_our_classes() {
    let mut store = Store::new();
    for (class, controller) in [("ours", "us"), ("theirs", "them")] {
        apply(
            &mut store,
            Kind::GatewayClass,
            json!({"metadata": {"name": class}, "spec": {"controllerName": controller}}),
        );
        let secret = json!([{"name": class}, {"name": "elsewhere", "namespace": "other"}]);
        let listener =
            json!({"name": "l", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": secret}});
        let authority = json!([{"kind": "ConfigMap", "group": "", "name": "ca"}, {"kind": "Foo", "group": "", "name": "x"}]);
        let tls = json!({"frontend": {"default": {"validation": {"caCertificateRefs": authority}}}});
        let spec = json!({"gatewayClassName": class, "listeners": [listener], "tls": tls});
        apply(
            &mut store,
            Kind::Gateway,
            json!({"metadata": named("n", class), "spec": spec}),
        );
    }
    let references = store.references("us");
    let expected = References {
        secrets: [Id::new("n", "ours")].into(),
        config_maps: [Id::new("n", "ca")].into(),
    };
    assert_eq!(
        references, expected,
        "without the reference that no grant permits"
    );
}
