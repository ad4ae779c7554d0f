//! Translations that follow each other and a translation of everything give the same.
//!
//! Each seed is a cluster: those from `SIM_FIRST` up to `SIM_SEEDS`, or `SIM_SEED` alone.

use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use ringmain_gateway::model::Config;
use ringmain_kube::objects::{Kind, Object};
use ringmain_kube::store::Store;
use ringmain_kube::translate::{Settings, Translation, Translator, Update};
use serde_json::{Value, json};

use crate::cluster::{Pool, translate_store};
use crate::property::{corpus, mutate};

/// Changes of each cluster, each followed by a translation.
const STEPS: usize = 40;

fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => number("SIM_FIRST").unwrap_or(0)..number("SIM_SEEDS").unwrap_or(6),
    }
}

/// The number of times that each outcome was seen.
#[derive(Debug, Default)]
struct Seen {
    unchanged: usize,
    endpoints: usize,
    translations: usize,
}

#[test]
fn updates_give_what_a_whole_translation_gives() {
    let is_frequent = |kind: Kind| kind.is_route() || matches!(kind, Kind::Service | Kind::EndpointSlice);
    let seen = follow_changes(is_frequent);
    assert!(seen.unchanged > 0 && seen.endpoints > 0 && seen.translations > 0);
}

#[test]
fn updates_of_listeners_give_what_a_whole_translation_gives() {
    follow_changes(|kind| {
        matches!(
            kind,
            Kind::Gateway
                | Kind::ListenerSet
                | Kind::Secret
                | Kind::ConfigMap
                | Kind::Namespace
                | Kind::ReferenceGrant
        )
    });
}

/// Changes clusters at random, most often objects of frequent kinds.
fn follow_changes(is_frequent: fn(Kind) -> bool) -> Seen {
    let corpus = corpus().into_iter().filter_map(|mut manifest| {
        encode_texts(&mut manifest);
        Some((Kind::parse(manifest["kind"].as_str()?)?, manifest))
    });
    let corpus: Vec<(Kind, Value)> = corpus.collect();
    let mut seen = Seen::default();
    for seed in seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut store = Store::new();
        let mut version = 0;
        for (kind, manifest) in &corpus {
            apply(&mut store, *kind, manifest.clone(), &mut version);
        }
        store.take_changes();
        let mut translator = Translator::new(Settings::default());
        let mut last = translator.translate(&store, &Pool::new(&store));
        for step in 0..STEPS {
            for _ in 0..random.usize(1..4) {
                change(&mut store, &corpus, is_frequent, &mut random, &mut version);
            }
            let changes = store.take_changes();
            let update = translator.update(&store, &Pool::new(&store), &changes);
            follow(&mut last, update, &mut seen);
            let whole = translate_store(&store);
            assert!(
                last.parts == whole.parts,
                "parts: seed {seed}, step {step}: {changes:?}"
            );
            assert!(
                last.findings == whole.findings && *translator.findings() == whole.findings,
                "findings: seed {seed}, step {step}: {changes:?}"
            );
        }
    }
    seen
}

fn listener_named(name: &str) -> Value {
    json!({"name": "http", "port": 80, "protocol": "HTTP", "hostname": format!("{name}.test")})
}

fn listener_set(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"parentRef": {"name": "g"}, "listeners": [listener_named(name)]},
    })
}

fn route(name: &str, (kind, parent): (&str, &str), path: &str) -> Value {
    let backend = json!({"name": "s", "port": 80});
    json!({
        "metadata": {"name": name, "namespace": "n"},
        "spec": {
            "parentRefs": [{"name": parent, "kind": kind}],
            "rules": [{"matches": [{"path": {"value": path}}], "backendRefs": [backend]}],
        },
    })
}

/// Objects of a Gateway `g`, its ListenerSet `a`, and routes to both and to a ListenerSet `b` that does not exist.
fn gateway_with_a_set() -> [(Kind, Value); 7] {
    let class = json!({"metadata": {"name": "c"}, "spec": {"controllerName": "ringmain.dev/gateway"}});
    let allowed = json!({"namespaces": {"from": "All"}});
    let listeners = json!([listener_named("g")]);
    let spec = json!({"gatewayClassName": "c", "listeners": listeners, "allowedListeners": allowed});
    let gateway = json!({"metadata": {"name": "g", "namespace": "n"}, "spec": spec});
    let service = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 80}]}});
    [
        (Kind::GatewayClass, class),
        (Kind::Gateway, gateway),
        (Kind::Service, service),
        (Kind::ListenerSet, listener_set("a")),
        (Kind::HttpRoute, route("of-gateway", ("Gateway", "g"), "/")),
        (Kind::HttpRoute, route("of-a", ("ListenerSet", "a"), "/")),
        (Kind::HttpRoute, route("of-b", ("ListenerSet", "b"), "/")),
    ]
}

#[test]
fn unchanged_parts_are_the_same_objects() {
    let mut store = Store::new();
    let mut version = 0;
    for (kind, object) in gateway_with_a_set() {
        apply(&mut store, kind, object, &mut version);
    }
    store.take_changes();
    let mut translator = Translator::new(Settings::default());
    let first = translator.translate(&store, &Pool::new(&store)).parts;
    assert_eq!((first.listeners.len(), first.routes.len()), (2, 2));

    // A listener more, which its route attaches to.
    apply(&mut store, Kind::ListenerSet, listener_set("b"), &mut version);
    let changes = store.take_changes();
    let Update::Parts(update) = translator.update(&store, &Pool::new(&store), &changes) else {
        panic!("parts");
    };
    let second = update.parts;
    assert_eq!((second.listeners.len(), second.routes.len()), (3, 3));
    let is_kept = |name: &str| {
        let find = |parts: &Config| {
            parts
                .routes
                .iter()
                .find(|route| route.name.ends_with(name))
                .cloned()
        };
        Arc::ptr_eq(&find(&first).unwrap(), &find(&second).unwrap())
    };
    assert!(is_kept("of-gateway") && is_kept("of-a"));
    assert!(
        first
            .listeners
            .iter()
            .all(|last| second.listeners.iter().any(|next| Arc::ptr_eq(last, next)))
    );
    let changed: Vec<String> = update.findings.keys().iter().map(ToString::to_string).collect();
    assert_eq!(changed, ["Gateway/n/g", "ListenerSet/n/b", "HTTPRoute/n/of-b"]);

    // A route that changes is one part, and of everything else nothing is another object.
    let changed = route("of-a", ("ListenerSet", "a"), "/other");
    apply(&mut store, Kind::HttpRoute, changed, &mut version);
    let changes = store.take_changes();
    let Update::Parts(update) = translator.update(&store, &Pool::new(&store), &changes) else {
        panic!("parts");
    };
    let third = update.parts;
    let mut pairs = second.routes.iter().zip(&third.routes);
    assert_eq!(pairs.by_ref().filter(|(a, b)| !Arc::ptr_eq(a, b)).count(), 1);
    assert!(
        second
            .upstreams
            .iter()
            .zip(&third.upstreams)
            .all(|(a, b)| Arc::ptr_eq(a, b))
    );
    assert!(
        second
            .listeners
            .iter()
            .zip(&third.listeners)
            .all(|(a, b)| Arc::ptr_eq(a, b))
    );
    assert_eq!(update.findings.keys().len(), 0);
}

fn follow(last: &mut Translation, update: Update, seen: &mut Seen) {
    match update {
        Update::Unchanged => seen.unchanged += 1,
        Update::Endpoints(changed) => {
            seen.endpoints += 1;
            for (name, endpoints) in changed {
                let mut upstreams = last.parts.upstreams.iter_mut();
                let upstream = upstreams.find(|upstream| upstream.name == name).unwrap();
                Arc::make_mut(upstream).endpoints = endpoints;
            }
        }
        Update::Parts(update) => {
            seen.translations += 1;
            last.parts = update.parts;
            last.findings.apply(&update.findings);
        }
    }
}

/// Adds, changes or removes an object. Those of frequent kinds are chosen more often.
fn change(
    store: &mut Store,
    corpus: &[(Kind, Value)],
    is_frequent: fn(Kind) -> bool,
    random: &mut fastrand::Rng,
    version: &mut u64,
) {
    let (kind, manifest) = loop {
        let (kind, manifest) = &corpus[random.usize(..corpus.len())];
        if is_frequent(*kind) || random.u8(..8) == 0 {
            break (*kind, manifest);
        }
    };
    let mut manifest = manifest.clone();
    match random.u8(..8) {
        0 => {
            let object = Object::from_value(kind, manifest).unwrap();
            store.remove(&object.key());
            return;
        }
        1..5 => {
            let labels = manifest["metadata"]["labels"].take();
            mutate(&mut manifest["spec"], random);
            mutate(&mut manifest["endpoints"], random);
            mutate(&mut manifest["data"], random);
            let labels = match (kind, random.u8(..8)) {
                (Kind::Namespace, 0..4) => {
                    let team = ["infra", "apps", "other"][random.usize(..3)];
                    json!({ "team": team })
                }
                // Most slices stay with their Service.
                (_, 0) => json!({"kubernetes.io/service-name": "other"}),
                _ => labels,
            };
            manifest["metadata"]["labels"] = labels;
        }
        _ => {}
    }
    apply(store, kind, manifest, version);
}

/// Moves texts of a Secret to its data, as the API server has it.
fn encode_texts(manifest: &mut Value) {
    let texts = manifest.get("stringData").and_then(Value::as_object).cloned();
    for (name, text) in texts.into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        manifest["data"][name] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

/// Applies a new version of an object, unless it cannot be read.
fn apply(store: &mut Store, kind: Kind, mut manifest: Value, version: &mut u64) {
    *version += 1;
    manifest["metadata"]["generation"] = json!(*version);
    manifest["metadata"]["resourceVersion"] = json!(version.to_string());
    if let Ok(object) = Object::parse(kind, manifest.to_string().as_bytes()) {
        store.apply(object).unwrap();
    }
}
