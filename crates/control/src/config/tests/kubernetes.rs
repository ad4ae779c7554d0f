//! The key `kubernetes`, with and without the feature.

use super::super::Loaded;
use super::{load, test_environment};

fn read(text: &str) -> Loaded {
    load("edge.yaml", text, &test_environment())
}

fn errors(text: &str) -> Vec<String> {
    read(text).errors.iter().map(ToString::to_string).collect()
}

#[cfg(feature = "kubernetes")]
#[test]
fn cluster_is_enough_of_a_file() {
    let loaded = read("kubernetes: {addresses: {pool: 10.97.0.0/16}}\n");
    assert_eq!(loaded.errors, []);
    let kubernetes = loaded.kubernetes.unwrap();
    assert_eq!(&*kubernetes.controller, "ringmain.dev/gateway");
    assert_eq!(kubernetes.pool.to_string(), "10.97.0.0/16");
    let other = read("kubernetes: {controller: a.example/edge, addresses: {pool: 'fd00::/64'}}\n");
    assert_eq!(&*other.kubernetes.unwrap().controller, "a.example/edge");
}

#[cfg(feature = "kubernetes")]
#[test]
fn invalid_values_are_reported() {
    let found = errors("kubernetes: {controller: edge}\n").join("\n");
    assert!(found.contains("such as `ringmain.dev/gateway`"), "{found}");
    assert!(found.contains("`addresses.pool`"), "{found}");
    let found = errors("kubernetes: {addresses: {pool: 10.97.0.1/16}}\n").join("\n");
    assert!(found.contains("a network whose other bits are zero"), "{found}");
}

#[cfg(not(feature = "kubernetes"))]
#[test]
fn build_without_the_feature_names_the_one_with_it() {
    let found = errors("kubernetes: {addresses: {pool: 10.97.0.0/16}}\n").join("\n");
    assert!(found.contains("cargo build --features kubernetes"), "{found}");
    assert_eq!(read("listen: ':80'\nto: http://127.0.0.1:1\n").errors, []);
}
