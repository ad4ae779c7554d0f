//! The schemas of both channels: every field of a specification is either read, which shows in the parsed object, or listed here
//! with the reason for which it is not. A new version of the API shows its new fields.

use std::collections::BTreeSet;

use ringmain_kube::objects::{Kind, Object};
use serde_json::{Value, json};

use crate::modules;

/// Fields that are not read: a suffix of their path, and the reason.
const IGNORED: &[(&str, &str)] = &[
    ("GatewayClass.description", "for people"),
    (
        "tls.options{}",
        "keys of implementations, of which none is defined here",
    ),
    (
        "BackendTLSPolicy.options{}",
        "keys of implementations, of which none is defined here",
    ),
    (
        "TLSRoute.rules[].name",
        "no condition and no metric names a rule of a stream",
    ),
    (
        "TCPRoute.rules[].name",
        "no condition and no metric names a rule of a stream",
    ),
    (
        "UDPRoute.rules[].name",
        "no condition and no metric names a rule of a stream",
    ),
];

/// The same of the experimental channel, beside those of the standard channel.
const IGNORED_EXPERIMENTAL: &[(&str, &str)] = &[
    (
        "Gateway.defaultScope",
        "there are no default Gateways: routes name those that they attach to",
    ),
    (
        ".useDefaultGateways",
        "there are no default Gateways: routes name those that they attach to",
    ),
    (
        "Gateway.addresses[].routability",
        "all addresses are of one range, whose routes are not known",
    ),
];

const FILES: &[(Kind, &str)] = &[
    (Kind::GatewayClass, "gatewayclasses"),
    (Kind::Gateway, "gateways"),
    (Kind::ListenerSet, "listenersets"),
    (Kind::HttpRoute, "httproutes"),
    (Kind::GrpcRoute, "grpcroutes"),
    (Kind::TlsRoute, "tlsroutes"),
    (Kind::TcpRoute, "tcproutes"),
    (Kind::UdpRoute, "udproutes"),
    (Kind::ReferenceGrant, "referencegrants"),
    (Kind::BackendTlsPolicy, "backendtlspolicies"),
];

#[test]
fn fields_are_read_or_listed() {
    check("standard", FILES, IGNORED);
}

#[test]
fn experimental_fields_are_read_or_listed() {
    let experimental = [(Kind::XBackendTrafficPolicy, "xbackendtrafficpolicies")];
    let ignored = [IGNORED, IGNORED_EXPERIMENTAL].concat();
    check("experimental", &[FILES, &experimental].concat(), &ignored);
}

fn check(channel: &str, files: &[(Kind, &str)], ignored: &[(&'static str, &str)]) {
    let Some(folder) = modules::folder("sigs.k8s.io/gateway-api") else {
        return;
    };
    let mut unread = BTreeSet::new();
    let mut used = BTreeSet::new();
    for (kind, plural) in files {
        let file = folder.join(format!("config/crd/{channel}/{}_{plural}.yaml", kind.group()));
        let text = std::fs::read_to_string(file).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        let versions = definition["spec"]["versions"].as_array().unwrap();
        let version = versions
            .iter()
            .find(|version| version["name"] == kind.version())
            .unwrap();
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut leaves = Vec::new();
        collect(spec, String::new(), &|value| value, &mut leaves);
        assert!(leaves.len() > 1, "{kind}: {} fields", leaves.len());
        for (path, spec) in leaves {
            let path = format!("{kind}{path}");
            if is_read(*kind, spec) {
                continue;
            }
            match ignored.iter().find(|(suffix, _)| path.ends_with(suffix)) {
                Some((suffix, _)) => used.insert(*suffix),
                None => unread.insert(path),
            };
        }
    }
    assert_eq!(unread, BTreeSet::new(), "fields that are neither read nor listed");
    let listed: BTreeSet<&str> = ignored.iter().map(|(suffix, _)| *suffix).collect();
    assert_eq!(listed, used, "fields that are listed and read, or do not exist");
}

/// Returns whether a specification with one field parses to another object than one without it.
fn is_read(kind: Kind, leaves: [Value; 2]) -> bool {
    let parse = |spec: &Value| {
        let object = json!({"metadata": {"name": "x"}, "spec": spec});
        format!(
            "{:?}",
            Object::from_value(kind, object).unwrap_or_else(|error| panic!("{error}: {spec}"))
        )
    };
    let [without, with] = leaves;
    parse(&without) != parse(&with)
}

/// Adds each leaf of a schema: its path, and a value of the whole without and with it.
fn collect(
    schema: &Value,
    path: String,
    wrap: &dyn Fn(Value) -> Value,
    leaves: &mut Vec<(String, [Value; 2])>,
) {
    let kind = schema["type"].as_str().unwrap_or_default();
    match (kind, &schema["properties"]) {
        ("object", Value::Object(properties)) => {
            for (name, schema) in properties {
                let wrap = |value: Value| {
                    wrap(if value.is_null() {
                        json!({})
                    } else {
                        json!({ name.as_str(): value })
                    })
                };
                collect(schema, format!("{path}.{name}"), &wrap, leaves);
            }
        }
        ("object", _) => leaves.push((
            format!("{path}{{}}"),
            [wrap(Value::Null), wrap(json!({"x": "x"}))],
        )),
        ("array", _) => {
            let wrap = |value: Value| {
                wrap(json!([if value.is_null() {
                    empty(&schema["items"])
                } else {
                    value
                }]))
            };
            collect(&schema["items"], format!("{path}[]"), &wrap, leaves);
        }
        _ => {
            let with = match kind {
                "integer" => json!(7),
                "boolean" => json!(true),
                _ => schema["enum"]
                    .as_array()
                    .map_or(json!("x"), |values| values[values.len() - 1].clone()),
            };
            // In a list the value itself is the field.
            leaves.push((path, [wrap(Value::Null), wrap(with)]));
        }
    }
}

/// A value of a schema without any field.
fn empty(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => json!({}),
        Some("integer") => json!(0),
        _ => json!(""),
    }
}
