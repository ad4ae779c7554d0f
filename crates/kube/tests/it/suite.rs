//! The manifests of the conformance suite: each translates, with the conditions and counts of `golden/suite.golden`. And the
//! list of features against that of the API.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use ringmain_kube::objects::Kind;
use ringmain_kube::store::Store;
use ringmain_kube::translate::{FEATURES, Translation};
use serde_json::{Value, json};

use crate::cluster::{apply, check_golden, manifests, render_findings, render_problems, translate_store};
use crate::modules;

/// Features of the API that have no test and no support, each with its reason.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("ClusterTrustBundle", "experimental, no test"),
    ("GatewayAddressRoutability", "experimental, no test"),
    ("GatewayAddressRoutabilityCluster", "experimental, no test"),
    ("GatewayListenerFilters", "experimental, no test"),
];

#[test]
fn features_are_those_of_the_gateway_profiles() {
    let Some(folder) = modules::folder("sigs.k8s.io/gateway-api") else {
        return;
    };
    let mut names = BTreeSet::new();
    for file in std::fs::read_dir(folder.join("pkg/features")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains("mesh") || name.contains("_test") || !name.ends_with(".go") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let constants = text
            .lines()
            .filter(|line| line.trim_start().starts_with("Support"));
        let quoted = constants.filter_map(|line| line.split_once("= \"")?.1.split('"').next());
        names.extend(quoted.map(str::to_owned));
    }
    let known = FEATURES
        .iter()
        .copied()
        .chain(UNSUPPORTED.iter().map(|(name, _)| *name));
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    assert_eq!(names, known);
    assert!(FEATURES.is_sorted());
}

#[test]
fn manifests_of_the_suite() {
    let Some(folder) = modules::folder("sigs.k8s.io/gateway-api/conformance") else {
        return;
    };
    let base = read(&folder.join("base/manifests.yaml"));
    let mut files: Vec<_> = std::fs::read_dir(folder.join("tests"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() > 100, "{} manifests", files.len());
    let mut text = String::new();
    let with_base = suite_store(&base, &[]);
    let known: BTreeSet<String> = render_findings(&translate_store(&with_base))
        .into_iter()
        .collect();
    writeln!(text, "base {}", counts(&translate_store(&with_base))).unwrap();
    for line in &known {
        writeln!(text, "  {line}").unwrap();
    }
    for file in files {
        let translation = translate_store(&suite_store(&base, &read(&file)));
        let name = file.file_name().unwrap().to_string_lossy();
        writeln!(text, "{name} {}", counts(&translation)).unwrap();
        let lines = [render_findings(&translation), render_problems(&translation)].concat();
        for line in lines {
            if !known.contains(&line) {
                writeln!(text, "  {line}").unwrap();
            }
        }
    }
    check_golden("suite.golden", &text);
}

fn counts(translation: &Translation) -> String {
    format!(
        "listeners {} routes {} streams {} upstreams {}",
        translation.parts.listeners.len(),
        translation.parts.routes.len(),
        translation.parts.streams.len(),
        translation.parts.upstreams.len()
    )
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    manifests(&text.replace("{GATEWAY_CLASS_NAME}", "gateway-conformance"))
}

/// The objects of the suite with those that it creates while it runs: the class, certificates and authorities.
fn suite_store(base: &[Value], test: &[Value]) -> Store {
    let mut store = Store::new();
    let class = json!({
        "kind": "GatewayClass", "metadata": {"name": "gateway-conformance"},
        "spec": {"controllerName": "ringmain.dev/gateway"},
    });
    let mut all = vec![class];
    let pem = |label: &str| format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n");
    let infra = "gateway-conformance-infra";
    let secrets = [
        ("gateway-conformance-web-backend", "certificate"),
        (infra, "tls-validity-checks-certificate"),
        (infra, "tls-validity-checks-client-certificate"),
        (infra, "tls-validity-checks-per-port-client-certificate"),
        (infra, "tls-checks-certificate"),
        (infra, "tls-checks-client-certificate"),
        (infra, "tls-passthrough-checks-certificate"),
        (infra, "tls-terminate-checks-certificate"),
    ];
    for (namespace, name) in secrets {
        all.push(json!({
            "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "stringData": {"tls.crt": pem("CERTIFICATE"), "tls.key": pem("PRIVATE KEY")},
        }));
    }
    let authorities = [
        ("gateway-conformance-web-backend", "web-backend-cm"),
        (infra, "tls-validity-checks-ca-certificate"),
        (infra, "tls-validity-checks-per-port-ca-certificate"),
        (infra, "tls-checks-ca-certificate"),
        (infra, "mismatch-ca-certificate"),
    ];
    for (namespace, name) in authorities {
        all.push(json!({
            "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
            "data": {"ca.crt": pem("CERTIFICATE")},
        }));
    }
    let read = |manifest: &&Value| manifest["kind"].as_str().and_then(Kind::parse).is_some();
    all.extend(base.iter().filter(read).cloned());
    let base_count = all.len();
    all.extend(test.iter().filter(read).cloned());
    for (at, manifest) in all.iter_mut().enumerate() {
        // The base is older, so that its Gateways keep their addresses.
        let day = if at < base_count { 1 } else { 2 };
        manifest["metadata"]["creationTimestamp"] = format!("2026-01-0{day}T00:00:00Z").into();
        manifest["metadata"]["generation"] = 1.into();
        if manifest["kind"] == "Namespace" {
            // As the API server labels them.
            let name = manifest["metadata"]["name"].clone();
            manifest["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
    }
    apply(&mut store, &all);
    store
}
