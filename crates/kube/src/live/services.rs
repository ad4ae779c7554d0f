//! The Service of each Gateway. It has no selector and no endpoints: it carries the labels and annotations that the Gateway asks for. Pure.

use serde_json::{Map, Value, json};

use crate::objects::{Gateway, Id, Key, Kind};

/// The label by which tools of the Gateway API find the objects of a Gateway.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

/// Characters of a name of a Service, and of the value of a label.
const LABEL_CHARS: usize = 63;

/// Ports of a Service, as many as are shown; the API server refuses more than some hundreds in one object.
const PORTS: usize = 100;

/// The name of a Service for a Gateway, and the Service.
pub(super) fn service(gateway: &Gateway) -> (String, Value) {
    let meta = &gateway.metadata;
    let name = short(&format!("ringmain-{}", meta.name));
    let infrastructure = gateway.spec.infrastructure.clone().unwrap_or_default();
    let mut labels: Map<String, Value> = to_map(infrastructure.labels);
    labels.insert(GATEWAY_NAME.to_owned(), short(&meta.name).into());
    let listeners = gateway.spec.listeners.iter();
    let mut ports: Vec<(u16, bool)> = listeners
        .map(|listener| (listener.port, listener.protocol == "UDP"))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(PORTS);
    let ports: Vec<Value> = ports
        .iter()
        .map(|(port, is_udp)| {
            let (name, protocol) = if *is_udp {
                (format!("udp-port-{port}"), "UDP")
            } else {
                (format!("port-{port}"), "TCP")
            };
            json!({"name": name, "port": port, "protocol": protocol})
        })
        .collect();
    let service = json!({
        "apiVersion": Kind::Service.api_version(),
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": to_map(infrastructure.annotations),
            "ownerReferences": [{
                "apiVersion": Kind::Gateway.api_version(),
                "kind": Kind::Gateway.name(),
                "name": meta.name,
                "uid": meta.uid,
                "controller": true,
            }],
        },
        "spec": {"type": "ClusterIP", "ports": ports},
    });
    (name, service)
}

/// Returns whether two versions of a Service have the same Gateway as their owner. One without it is another author's.
pub(super) fn have_one_owner(present: &Value, wanted: &Value) -> bool {
    let owner = &wanted["metadata"]["ownerReferences"][0]["uid"];
    let owners = present["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| owners.iter().any(|present| present["uid"] == *owner))
}

/// The Gateway that a Service is for, and its uid.
pub(super) fn owner(id: &Id, service: &Value) -> (Key, String) {
    let owner = &service["metadata"]["ownerReferences"][0];
    let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    (Key::new(Kind::Gateway, &*id.namespace, text("name")), text("uid"))
}

fn to_map(texts: std::collections::BTreeMap<String, String>) -> Map<String, Value> {
    texts
        .into_iter()
        .map(|(key, value)| (key, Value::from(value)))
        .collect()
}

/// A name that is not longer than a label may be: of a longer one the beginning and a hash.
fn short(name: &str) -> String {
    let is_safe = |char: char| char.is_ascii_alphanumeric() || char == '-';
    let flat: String = name
        .chars()
        .map(|char| if is_safe(char) { char } else { '-' })
        .collect();
    if flat == name && name.len() <= LABEL_CHARS {
        return flat;
    }
    let hash = crate::hash::hash(name) as u32;
    let beginning: String = flat.chars().take(LABEL_CHARS - 9).collect();
    format!("{}-{hash:08x}", beginning.trim_end_matches('-'))
}
