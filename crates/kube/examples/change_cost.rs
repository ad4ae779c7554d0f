//! Measures a cluster of routes without an API server: the memory of its objects, and the time of a change of a route and of endpoints
//! from the store to the gateway and the statuses.
//!
//! `cargo run --release -p ringmain-kube --example change_cost [ROUTES] [CHANGES]`. Each route has a host, a Service and an EndpointSlice.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]
#![expect(clippy::disallowed_methods, reason = "measures real time")]

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Addr, Config};
use ringmain_kube::objects::{self, Kind, Object};
use ringmain_kube::status::{apply_problems, document};
use ringmain_kube::store::Store;
use ringmain_kube::translate::{
    Findings, Placement, Places, Settings, StatusAddress, Translation, Translator, Update,
};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ADDRESS: [u8; 4] = [127, 0, 0, 1];

/// One address for all Gateways.
struct OneAddress;

impl Places for OneAddress {
    fn place(&self, _: &objects::Gateway) -> Placement {
        Placement {
            addresses: vec![StatusAddress::ip(std::net::Ipv4Addr::from(ADDRESS))],
            problem: None,
        }
    }

    fn bind(&self, _: &objects::Gateway, port: u16) -> Vec<Addr> {
        vec![Addr::Inet((ADDRESS, port).into())]
    }
}

/// A cluster that is followed, as the loop of the crate does.
struct Followed {
    store: Store,
    translator: Translator,
    findings: Findings,
    /// The parts of the last translation, as the second source of a gateway holds them.
    parts: Config,
    gateway: Gateway,
    version: u64,
}

/// Times of the steps of changes.
#[derive(Default)]
struct Steps {
    translate: Vec<Duration>,
    replace: Vec<Duration>,
    status: Vec<Duration>,
    total: Vec<Duration>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| {
        let argument = arguments.next();
        argument.map_or(default, |text| text.parse().expect("a number"))
    };
    let (routes, changes) = (number(5_000), number(200));
    let empty = live_bytes();
    let mut store = Store::new();
    for (kind, object) in common_objects()
        .into_iter()
        .chain((0..routes).flat_map(objects_of))
    {
        put(&mut store, kind, &object, 1);
    }
    let filled = live_bytes();
    let started = Instant::now();
    let mut translator = Translator::new(Settings::default());
    store.take_changes();
    let translation = translator.translate(&store, &OneAddress);
    let translated = live_bytes();
    let Translation { parts, findings } = translation;
    let translate = started.elapsed();
    let gateway = Gateway::new(Arc::new(Config::default()), Duration::ZERO);
    let problems = gateway.replace(Arc::new(parts.clone()), Duration::ZERO);
    assert_eq!(problems, []);
    let compiled = live_bytes();
    println!(
        "{routes} routes: translated in {translate:?}, applied in {:?}",
        started.elapsed() - translate
    );
    let each = |bytes: usize| bytes / routes;
    println!(
        "bytes of a route with its Service and slice: objects {}, translation {}, gateway {}",
        each(filled - empty),
        each(translated - filled),
        each(compiled - translated)
    );
    let mut followed = Followed {
        store,
        translator,
        findings,
        parts,
        gateway,
        version: 1,
    };
    let mut steps = Steps::default();
    for change in 0..changes {
        followed.version += 1;
        let at = change * 7919 % routes;
        let route = route(at, &format!("/v{change}"), followed.version);
        put(&mut followed.store, Kind::HttpRoute, &route, followed.version);
        followed.turn(&mut steps);
    }
    steps.print("route");
    let mut steps = Steps::default();
    for change in 0..changes {
        followed.version += 1;
        let at = change * 7919 % routes;
        let slice = slice(at, 1000 + change as u64 % 60_000);
        put(&mut followed.store, Kind::EndpointSlice, &slice, followed.version);
        followed.turn(&mut steps);
    }
    steps.print("endpoints");
    println!(
        "bytes of a route after the changes: {}",
        each(live_bytes() - empty)
    );
}

impl Followed {
    fn turn(&mut self, steps: &mut Steps) {
        let begun = Instant::now();
        let changes = self.store.take_changes();
        let update = self.translator.update(&self.store, &OneAddress, &changes);
        let translated = Instant::now();
        let mut statuses = changes.statuses;
        let replaced = match update {
            Update::Unchanged => translated,
            Update::Endpoints(endpoints) => {
                for (name, endpoints) in endpoints {
                    self.gateway.set_endpoints(&name, endpoints);
                }
                Instant::now()
            }
            Update::Parts(update) => {
                let problems = self
                    .gateway
                    .replace(Arc::new(update.parts.clone()), Duration::ZERO);
                self.parts = update.parts;
                let replaced = Instant::now();
                self.findings.apply(&update.findings);
                let changed = update.findings.keys();
                statuses.extend(apply_problems(&mut self.findings, &problems, &changed));
                statuses.extend(changed);
                replaced
            }
        };
        let settings = Settings::default();
        let documents = statuses.iter().filter_map(|key| {
            document(
                &self.store,
                &settings,
                &self.findings,
                key,
                "2026-11-30T00:00:00Z",
            )
        });
        assert!(documents.count() <= statuses.len());
        steps.translate.push(translated - begun);
        steps.replace.push(replaced - translated);
        steps.status.push(replaced.elapsed());
        steps.total.push(begun.elapsed());
    }
}

impl Steps {
    fn print(&mut self, name: &str) {
        let [translate, replace, status] =
            [&mut self.translate, &mut self.replace, &mut self.status].map(|times| median(times));
        println!(
            "{name} changed: {:?} (translated {translate:?}, applied {replace:?}, statuses {status:?})",
            median(&mut self.total)
        );
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn live_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn put(store: &mut Store, kind: Kind, object: &Value, version: u64) {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    let object = Object::parse(kind, object.to_string().as_bytes()).expect("an object");
    store.apply(object).expect("fewer objects than the limit");
}

fn common_objects() -> Vec<(Kind, Value)> {
    let class = json!({
        "metadata": {"name": "ringmain", "generation": 1},
        "spec": {"controllerName": "ringmain.dev/gateway"},
    });
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
    let gateway = json!({
        "metadata": metadata("edge", 0, 1),
        "spec": {"gatewayClassName": "ringmain", "listeners": [listener]},
    });
    vec![(Kind::GatewayClass, class), (Kind::Gateway, gateway)]
}

fn objects_of(at: usize) -> [(Kind, Value); 3] {
    let port = json!({"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80});
    let service = json!({
        "metadata": metadata(&format!("s{at}"), at, 0),
        "spec": {
            "type": "ClusterIP", "ports": [port], "clusterIP": "10.96.0.1", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "internalTrafficPolicy": "Cluster",
        },
        "status": {"loadBalancer": {}},
    });
    [
        (Kind::Service, service),
        (Kind::EndpointSlice, slice(at, 1)),
        (Kind::HttpRoute, route(at, "/v0", 1)),
    ]
}

fn slice(at: usize, port: u64) -> Value {
    let mut metadata = metadata(&format!("e{at}"), at, 1);
    metadata["labels"] = json!({
        "kubernetes.io/service-name": format!("s{at}"),
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    let conditions = json!({"ready": true, "serving": true, "terminating": false});
    json!({
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{
            "addresses": [format!("10.{}.{}.1", at / 250, at % 250)],
            "conditions": conditions,
            "nodeName": "node-a",
            "zone": "zone-a",
            "targetRef": {"kind": "Pod", "name": format!("p{at}"), "namespace": "scale"},
        }],
    })
}

fn route(at: usize, path: &str, generation: u64) -> Value {
    let condition = |kind: &str, generation: u64| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2026-11-30T00:00:00Z",
        })
    };
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let backend = json!({"group": "", "kind": "Service", "name": format!("s{at}"), "port": 80, "weight": 1});
    json!({
        "metadata": metadata(&format!("r{at}"), at, generation),
        "spec": {
            "parentRefs": [parent],
            "hostnames": [format!("h{at}.example")],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": path}}],
                "backendRefs": [backend],
            }],
        },
        "status": {"parents": [{
            "parentRef": parent,
            "controllerName": "ringmain.dev/gateway",
            "conditions": [condition("Accepted", generation), condition("ResolvedRefs", generation)],
        }]},
    })
}

fn metadata(name: &str, at: usize, generation: u64) -> Value {
    let managed = json!({"manager": "bench", "operation": "Update", "fieldsV1": {"f:spec": {}}});
    json!({
        "namespace": "scale", "name": name, "generation": generation,
        "uid": format!("6f1f0b52-0000-4000-8000-{at:012}"),
        "creationTimestamp": format!("2026-11-29T{:02}:{:02}:{:02}Z", at / 3600, at / 60 % 60, at % 60),
        "managedFields": [managed],
    })
}
