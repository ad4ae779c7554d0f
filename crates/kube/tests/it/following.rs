//! Translations that follow each other and a translation of everything give the same.
//!
//! Each seed is a cluster: those from `SIM_FIRST` up to `SIM_SEEDS`, or `SIM_SEED` alone.

use std::ops::Range;
use std::sync::Arc;

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
    let corpus: Vec<(Kind, Value)> = corpus()
        .into_iter()
        .filter_map(|manifest| Some((Kind::parse(manifest["kind"].as_str()?)?, manifest)))
        .collect();
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
        for _ in 0..STEPS {
            for _ in 0..random.usize(1..4) {
                change(&mut store, &corpus, &mut random, &mut version);
            }
            let changes = store.take_changes();
            let update = translator.update(&store, &Pool::new(&store), &changes);
            follow(&mut last, update, &mut seen);
            assert!(last == translate_store(&store), "seed {seed}: {changes:?}");
        }
    }
    println!("{seen:?}");
    assert!(seen.unchanged > 0 && seen.endpoints > 0 && seen.translations > 0);
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
        Update::Translation(translation) => {
            seen.translations += 1;
            *last = *translation;
        }
    }
}

/// Adds, changes or removes an object. Those that a translation follows closely are chosen more often.
fn change(store: &mut Store, corpus: &[(Kind, Value)], random: &mut fastrand::Rng, version: &mut u64) {
    let is_frequent = |kind: Kind| kind.is_route() || matches!(kind, Kind::Service | Kind::EndpointSlice);
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
            // Most slices stay with their Service.
            manifest["metadata"]["labels"] = match random.u8(..8) {
                0 => json!({"kubernetes.io/service-name": "other"}),
                _ => labels,
            };
        }
        _ => {}
    }
    apply(store, kind, manifest, version);
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
