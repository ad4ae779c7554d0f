//! Kinds, metadata and values of objects as they are parsed.

use serde_json::{Value, json};

use super::{Kind, Object, ParseError};
use crate::limits;

#[test]
fn kinds_have_their_row() {
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, at);
        assert_eq!(Kind::parse(kind.name()), Some(kind));
    }
    assert_eq!(Kind::HttpRoute.plural(), "httproutes");
    assert_eq!(Kind::HttpRoute.api_version(), "gateway.networking.k8s.io/v1");
    assert_eq!(Kind::Service.api_version(), "v1");
    assert!(!Kind::GatewayClass.is_namespaced() && Kind::Secret.is_namespaced());
    assert!(Kind::BackendTlsPolicy.has_status() && !Kind::ReferenceGrant.has_status());
}

#[test]
fn metadata_is_trimmed_by_kind() {
    let metadata = json!({
        "name": "a", "namespace": "n", "generation": 3, "resourceVersion": "7", "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"x": "y"}, "annotations": {"p": "q"},
        "managedFields": [{"manager": "m"}],
    });
    let read = |kind| Object::from_value(kind, json!({"metadata": metadata.clone()})).unwrap();
    let route = read(Kind::HttpRoute);
    assert!(route.meta().labels.is_empty() && route.meta().annotations.is_empty());
    assert_eq!(route.meta().generation, 3);
    assert_eq!(route.key().to_string(), "HTTPRoute/n/a");
    assert_eq!(read(Kind::Namespace).meta().labels["x"], "y");
    assert_eq!(read(Kind::Service).meta().annotations["p"], "q");
}

#[test]
fn null_lists_are_empty() {
    let slice = json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": null, "ports": null});
    assert!(Object::from_value(Kind::EndpointSlice, slice).is_ok());
    let created = json!({"metadata": {"name": "s", "creationTimestamp": null}, "spec": {"ports": null}});
    assert!(Object::from_value(Kind::Service, created).is_ok());
}

#[test]
fn secrets_are_decoded_and_never_printed() {
    let secret = json!({"metadata": {"name": "s"}, "data": {"tls.crt": "Y2VydA==", "tls.key": "a2V5", "ca.crt": "!", "x": "eA=="}});
    let Object::Secret(secret) = Object::from_value(Kind::Secret, secret).unwrap() else {
        panic!("not a Secret");
    };
    assert_eq!(secret.data.chain.as_deref(), Some(&b"cert"[..]));
    assert_eq!(secret.data.key.as_ref().unwrap().expose(), b"key");
    assert_eq!(secret.data.authorities, None);
    assert!(
        !format!("{secret:?}").contains("[107"),
        "the key is in the debug output"
    );
}

#[test]
fn rejected_objects() {
    let parse = |json: &Value| Object::parse(Kind::Gateway, json.to_string().as_bytes());
    let unnamed = ParseError::Unnamed { kind: Kind::Gateway };
    assert_eq!(parse(&json!({})), Err(unnamed));
    let mistyped = parse(&json!({"metadata": {"name": "a"}, "spec": {"listeners": 3}})).unwrap_err();
    assert!(
        mistyped.to_string().starts_with("Gateway: invalid type"),
        "{mistyped}"
    );
    let large = vec![b' '; limits::OBJECT_BYTES + 1];
    let large = Object::parse(Kind::Gateway, &large).unwrap_err();
    assert!(matches!(large, ParseError::TooLarge { .. }));
}

#[test]
fn unreadable_objects_have_keys() {
    let json = br#"{"metadata":{"name":"r","namespace":"n","resourceVersion":"7"},"spec":{"rules":3}}"#;
    assert!(Object::parse(Kind::HttpRoute, json).is_err());
    let (key, version) = Object::identify(Kind::HttpRoute, json).unwrap();
    assert_eq!((key.to_string(), &*version), ("HTTPRoute/n/r".to_owned(), "7"));
    for wrong in [&b"{}"[..], b"{\"metadata\":{}}", b"["] {
        assert!(Object::identify(Kind::HttpRoute, wrong).is_err());
    }
}
