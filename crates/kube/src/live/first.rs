//! Interim translation.
use super::pool::Pool;
use crate::objects::*;
use crate::store::Store;
use ringmain_gateway::model::{self, *};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn translate(store: &Store, pool: &Pool, gateways: &[&Arc<Gateway>]) -> Config {
    let mut config = Config::default();
    for gateway in gateways {
        let id = gateway.metadata.id();
        for spec in &gateway.spec.listeners {
            if spec.protocol != "HTTP" {
                continue;
            }
            let addresses = pool.addresses(&id).iter();
            let addresses: Vec<Addr> = addresses.map(|ip| Addr::Inet((*ip, spec.port).into())).collect();
            if addresses.is_empty() {
                continue;
            }
            config.listeners.push(Arc::new(Listener {
                name: format!("Gateway/{id}/{}", spec.name).into(),
                addresses,
                protocol: model::Protocol::Http,
                hostnames: vec![],
                tls: None,
                proxy_protocol: None,
                redirect_to_https: None,
                client_address: ClientAddress::default(),
                paths: Paths::default(),
                limits: HttpLimits::default(),
                policies: vec![],
            }));
        }
    }
    let mut ups = std::collections::BTreeMap::new();
    for route in store.by_precedence::<crate::objects::HttpRoute>() {
        let ns = &route.metadata.namespace;
        let listeners: Vec<Name> = config
            .listeners
            .iter()
            .filter(|l| {
                route.spec.parent_refs.iter().any(|p| {
                    l.name.starts_with(&format!(
                        "Gateway/{}/{}/",
                        p.namespace.as_deref().unwrap_or(ns),
                        p.name
                    ))
                })
            })
            .map(|l| l.name.clone())
            .collect();
        if listeners.is_empty() {
            continue;
        }
        let rules = route.spec.rules.iter().map(|rule| {
            let backends = rule.backend_refs.iter().map(|b| {
                let v = &b.backend;
                let service = Id::new(Arc::clone(ns), &*v.name);
                let port = v.port.unwrap_or(0);
                let name: Name = format!("Service/{service}:{port}").into();
                let endpoints = store
                    .slices_of(&service)
                    .flat_map(|s| s.endpoints.iter().map(move |e| (s, e)))
                    .filter(|(_, e)| e.conditions.ready != Some(false))
                    .filter_map(|(s, e)| {
                        let port = s.ports.first()?.port?;
                        let ip = e.addresses.first()?.parse::<std::net::IpAddr>().ok()?;
                        Some(Endpoint::new(Where::Address((ip, port).into())))
                    })
                    .collect();
                ups.insert(name.clone(), Arc::new(Upstream::new(name.clone(), endpoints)));
                WeightedBackend::new(name)
            });
            let forward = Forward {
                backends: backends.collect(),
                ..Forward::default()
            };
            Rule::new(Action::Forward(Box::new(forward)))
        });
        config.routes.push(Arc::new(model::Route {
            name: format!("HTTPRoute/{}", route.metadata.id()).into(),
            listeners,
            hostnames: vec![],
            rules: rules.collect(),
        }));
    }
    config.upstreams = ups.into_values().collect();
    config
}

pub(super) fn statuses(
    store: &Store,
    pool: &Pool,
    controller: &str,
    gateways: &[&Arc<Gateway>],
    now: &str,
) -> Vec<(Key, Arc<Value>)> {
    let mut all = vec![];
    let cond = |kind: &str, generation: i64| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
        "observedGeneration": generation, "lastTransitionTime": now})
    };
    let mut put = |key: Key, meta: &Meta, old: &Value, status: Value| {
        let plain = |v: &Value| {
            let mut t = v.to_string();
            for c in [v] {
                for c in c["conditions"].as_array().into_iter().flatten() {
                    if let Some(time) = c["lastTransitionTime"].as_str() {
                        t = t.replace(time, "");
                    }
                }
            }
            t
        };
        if plain(&json!({"conditions": old["conditions"], "a": old["addresses"]}))
            != plain(&json!({"conditions": status["conditions"], "a": status["addresses"]}))
        {
            let object = json!({"apiVersion": key.kind.api_version(), "kind": key.kind.name(),
                "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version}, "status": status});
            all.push((key, Arc::new(object)));
        }
    };
    for class in store.all::<GatewayClass>() {
        if *class.spec.controller_name == *controller {
            let m = &class.metadata;
            put(
                Key::new(Kind::GatewayClass, "", &*m.name),
                m,
                &class.status,
                json!({"conditions": [cond("Accepted", m.generation)]}),
            );
        }
    }
    for g in gateways {
        let m = &g.metadata;
        let a: Vec<_> = pool.addresses(&m.id()).iter().map(|a| json!({"type": "IPAddress", "value": a.to_string()})).collect();
        put(
            Key::new(Kind::Gateway, &*m.namespace, &*m.name),
            m,
            &g.status,
            json!({"conditions": [cond("Accepted", m.generation), cond("Programmed", m.generation)], "addresses": a}),
        );
    }
    all
}
