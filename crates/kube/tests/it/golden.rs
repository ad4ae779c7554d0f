//! A golden file for each manifest of `golden/cases`: the parts and conditions that it adds to those of `golden/base.yaml`.

use ringmain_kube::store::Store;

use crate::cluster::{
    apply, check_golden, manifests, render_findings, render_parts, render_problems, translate_store,
};

const BASE: &str = include_str!("golden/base.yaml");

fn check(name: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden");
    let manifest = std::fs::read_to_string(format!("{folder}/cases/{name}.yaml")).unwrap();
    let mut store = Store::new();
    apply(&mut store, &manifests(BASE));
    let base = translate_store(&store);
    let known: Vec<String> = [render_parts(&base), render_findings(&base)].concat();
    apply(&mut store, &manifests(&manifest));
    let found = translate_store(&store);
    let lines = [
        render_parts(&found),
        vec!["---".to_owned()],
        render_findings(&found),
        render_problems(&found),
    ]
    .concat();
    let new: Vec<String> = lines.into_iter().filter(|line| !known.contains(line)).collect();
    check_golden(&format!("cases/{name}.golden"), &(new.join("\n") + "\n"));
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

cases! {
    matches, filters, backends, policies, times, grpc, streams, datagrams, listeners, listener_sets, frontend, addresses,
    parents, broken_rules, sessions, traffic, external_auth,
}

#[test]
fn base() {
    let mut store = Store::new();
    apply(&mut store, &manifests(BASE));
    let found = translate_store(&store);
    let lines = [
        render_parts(&found),
        vec!["---".to_owned()],
        render_findings(&found),
    ]
    .concat();
    check_golden("base.golden", &(lines.join("\n") + "\n"));
}
