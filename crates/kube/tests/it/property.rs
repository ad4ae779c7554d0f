//! Arbitrary objects: parsing, translating and deriving statuses never panics, and no part becomes wider than its object.

use ringmain_kube::objects::{Key, Kind, Object};
use ringmain_kube::status::documents;
use ringmain_kube::store::Store;
use ringmain_kube::translate::Settings;
use serde_json::{Value, json};

use crate::cluster::{manifests, translate_store};

const SEED: u64 = 30;
const ROUNDS: usize = 400;

pub(crate) fn corpus() -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut all = manifests(include_str!("golden/base.yaml"));
    all.extend(
        files
            .iter()
            .flat_map(|file| manifests(&std::fs::read_to_string(file).unwrap())),
    );
    all
}

/// Changes one value somewhere.
pub(crate) fn mutate(value: &mut Value, random: &mut fastrand::Rng) {
    match value {
        Value::Object(fields) if !fields.is_empty() && random.u8(..) > 20 => {
            let at = random.usize(..fields.len());
            let name = fields.keys().nth(at).unwrap().clone();
            match random.u8(..16) {
                0 => drop(fields.remove(&name)),
                _ => mutate(&mut fields[&name], random),
            }
        }
        Value::Array(items) if !items.is_empty() && random.u8(..) > 20 => {
            let at = random.usize(..items.len());
            match random.u8(..16) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => mutate(&mut items[at], random),
            }
        }
        _ => *value = scalar(random),
    }
}

fn scalar(random: &mut fastrand::Rng) -> Value {
    const TEXTS: &[&str] = &[
        "",
        "/",
        "*",
        "(",
        "*.",
        "a..b",
        "g",
        "http",
        "infra",
        "RegularExpression",
        "Exact",
        "9999999999999999999h",
        "Passthrough",
        "TLS",
        "\u{0}",
        "/%zz",
        "Selector",
        "100.100.100.100",
        "[::1]",
        "é",
        "//",
        "/a|b",
        "^/x*",
    ];
    match random.u8(..8) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(random.u16(..)),
        4 => json!(-1),
        5 => json!(u64::MAX),
        _ => json!(TEXTS[random.usize(..TEXTS.len())]),
    }
}

#[test]
fn arbitrary_objects() {
    println!("seed {SEED}");
    let mut random = fastrand::Rng::with_seed(SEED);
    let corpus = corpus();
    let (mut read, mut rejected) = (0, 0);
    for _ in 0..ROUNDS {
        let mut store = Store::new();
        for manifest in &corpus {
            let Some(kind) = manifest["kind"].as_str().and_then(Kind::parse) else {
                continue;
            };
            let mut object = manifest.clone();
            for _ in 0..random.usize(..3) {
                mutate(&mut object, &mut random);
            }
            match Object::parse(kind, object.to_string().as_bytes()) {
                Ok(object) => {
                    read += 1;
                    store.apply(object).unwrap();
                }
                Err(_) => rejected += 1,
            }
        }
        check(&store);
    }
    assert!(
        read > rejected && rejected > 0,
        "{read} read, {rejected} rejected"
    );
}

fn check(store: &Store) {
    let found = translate_store(store);
    let listeners: Vec<_> = found
        .parts
        .listeners
        .iter()
        .map(|listener| &listener.name)
        .collect();
    let is_known = |name| listeners.contains(&name);
    for route in &found.parts.routes {
        assert!(
            !route.listeners.is_empty() && route.listeners.iter().all(is_known),
            "{route:?}"
        );
        let object = owner(store, &route.name);
        let has_hosts = match &object {
            Object::HttpRoute(route) => !route.spec.hostnames.is_empty(),
            Object::GrpcRoute(route) => !route.spec.hostnames.is_empty(),
            other => panic!("{other:?}"),
        };
        assert_eq!(has_hosts, !route.hostnames.is_empty(), "{}", route.name);
    }
    for stream in &found.parts.streams {
        assert!(
            !stream.listeners.is_empty() && stream.listeners.iter().all(is_known),
            "{stream:?}"
        );
    }
    let written = documents(
        store,
        &Settings::default(),
        &found.findings,
        "2026-01-01T00:00:00Z",
    );
    assert!(written.iter().all(|document| document.status.is_object()));
}

/// The object of a part, whose name is the object's key: names of Gateways and suffixes follow a `+`. Keys are compared, not parsed: a
/// mutated name may have slashes.
fn owner(store: &Store, part: &str) -> Object {
    let kinds = [Kind::HttpRoute, Kind::GrpcRoute];
    let mut keys = kinds.iter().flat_map(|kind| store.keys(*kind));
    let is_owner = |key: &Key| {
        let rest = part.strip_prefix(&*key.to_string());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
    };
    store.object(&keys.find(is_owner).unwrap()).unwrap()
}
