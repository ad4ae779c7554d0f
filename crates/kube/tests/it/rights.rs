//! The rights in deploy/manifests and tests/kube/rights.yaml permit to list and watch every kind that is read, and to write every
//! status. tests/kube/chart.py also compares the requests beside these.

use std::collections::BTreeSet;

use ringmain_kube::objects::{GATEWAY_GROUP, Kind};
use serde::Deserialize;

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// A right: group, resource and verb.
type Right = (String, String, String);

/// Returns the rights that the Roles of a file grant.
fn granted_rights(path: &str) -> BTreeSet<Right> {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut rights = BTreeSet::new();
    // Whatever precedes the first document is a comment.
    let documents = text
        .split("\n---\n")
        .filter(|document| document.contains("rules:"));
    for document in documents {
        let object: Object =
            serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{path}: {error}"));
        for rule in object.rules {
            for group in &rule.api_groups {
                for resource in &rule.resources {
                    let right = |verb: String| (group.clone(), resource.clone(), verb);
                    rights.extend(rule.verbs.iter().cloned().map(right));
                }
            }
        }
    }
    rights
}

/// Returns the rights that following a cluster needs for these kinds.
fn needed_rights(kinds: impl Iterator<Item = Kind>) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for kind in kinds {
        let right =
            |resource: &str, verb: &str| (kind.group().to_owned(), resource.to_owned(), verb.to_owned());
        rights.extend(["list", "watch"].map(|verb| right(kind.plural(), verb)));
        if kind.has_status() {
            rights.insert(right(&format!("{}/status", kind.plural()), "update"));
        }
    }
    rights
}

/// Checks that a file grants the needed rights, and none for a kind of the Gateway API that is not read.
fn check(path: &str, kinds: impl Iterator<Item = Kind>) {
    let granted = granted_rights(path);
    let missing: Vec<_> = needed_rights(kinds).difference(&granted).cloned().collect();
    assert!(
        missing.is_empty(),
        "{path} does not grant {missing:?}; see deploy/helm/ringmain/templates/_rights.tpl"
    );
    let is_read = |resource: &str| {
        let plural = resource.split('/').next().unwrap_or_default();
        Kind::ALL.iter().any(|kind| kind.plural() == plural)
    };
    let needless: Vec<_> = granted
        .iter()
        .filter(|(group, resource, _)| group == GATEWAY_GROUP && !is_read(resource))
        .collect();
    assert!(
        needless.is_empty(),
        "{path} grants {needless:?} for kinds that are not read"
    );
}

fn standard_kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| !kind.is_experimental())
}

#[test]
fn the_rights_of_tests_permit_every_kind() {
    check("tests/kube/rights.yaml", Kind::ALL.into_iter());
}

#[test]
fn the_manifest_of_nodes_permits_every_kind_and_all_secrets() {
    let kinds = standard_kinds().filter(|kind| *kind != Kind::ConfigMap);
    check("deploy/manifests/daemonset.yaml", kinds);
}

#[test]
fn the_default_manifest_permits_no_secret_of_the_whole_cluster() {
    let is_reference = |kind: &Kind| matches!(kind, Kind::Secret | Kind::ConfigMap);
    check(
        "deploy/manifests/deployment.yaml",
        standard_kinds().filter(|kind| !is_reference(kind)),
    );
    let text = include_str!("../../../../deploy/manifests/deployment.yaml");
    let cluster_role = text
        .split("\n---\n")
        .find(|document| document.contains("\nkind: ClusterRole\n"));
    assert!(!cluster_role.expect("a ClusterRole").contains("secrets"));
}
