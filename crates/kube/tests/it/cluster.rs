//! Clusters for tests: manifests in YAML, addresses out of a pool, and a rendering of translations.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use ringmain_gateway::model::Addr;
use ringmain_gateway::table::{ConfigPart, Problem};
use ringmain_kube::objects::{Gateway, Id, Kind, Object, Resource as _};
use ringmain_kube::store::Store;
use ringmain_kube::translate::{
    AddressProblem, Condition, ListenerFinding, Placement, Places, Settings, StatusAddress, Translation,
    translate,
};
use serde_json::Value;

/// Gives each Gateway an address of its own, and those out of 10.97.0.0/16 that it requests.
pub(crate) struct Pool(BTreeMap<Id, Ipv4Addr>);

impl Pool {
    pub(crate) fn new(store: &Store) -> Pool {
        let gateways = store.by_precedence::<Gateway>().into_iter();
        let numbered = (1..).zip(gateways);
        Pool(
            numbered
                .map(|(at, gateway)| (gateway.meta().id(), Ipv4Addr::new(10, 97, 1, at)))
                .collect(),
        )
    }

    fn addresses(&self, gateway: &Gateway) -> Vec<IpAddr> {
        let requested = gateway.spec.addresses.iter();
        let requested = requested.filter_map(|address| address.value.parse::<Ipv4Addr>().ok());
        let mut usable: Vec<IpAddr> = requested
            .filter(|address| address.octets()[..2] == [10, 97])
            .map(IpAddr::V4)
            .collect();
        if usable.is_empty() {
            usable.push(IpAddr::V4(self.0[&gateway.meta().id()]));
        }
        usable
    }
}

impl Places for Pool {
    fn place(&self, gateway: &Gateway) -> Placement {
        let mut problem = None;
        for address in &gateway.spec.addresses {
            let kind = address.kind.as_deref().unwrap_or("IPAddress");
            if kind != "IPAddress" {
                problem = Some(AddressProblem::Unsupported(format!(
                    "type {kind} is not supported"
                )));
            } else if !address.value.is_empty() && !address.value.starts_with("10.97.") {
                problem.get_or_insert(AddressProblem::NotUsable(format!(
                    "{} is not of the pool",
                    address.value
                )));
            }
        }
        Placement {
            addresses: self
                .addresses(gateway)
                .into_iter()
                .map(StatusAddress::ip)
                .collect(),
            problem,
        }
    }

    fn bind(&self, gateway: &Gateway, port: u16) -> Vec<Addr> {
        let addresses = self.addresses(gateway).into_iter();
        addresses
            .map(|address| Addr::Inet(SocketAddr::new(address, port)))
            .collect()
    }
}

/// Reads the documents of a YAML file.
pub(crate) fn manifests(yaml: &str) -> Vec<Value> {
    let documents = yaml
        .split("\n---")
        .map(|document| document.trim_start_matches(['-', '\n']));
    let read = |document: &str| {
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}\n{document}"))
    };
    let values = documents.map(read);
    values.filter(|value: &Value| !value.is_null()).collect()
}

/// Adds the objects of kinds that are read. Texts of `stringData` become data, as the API server has it.
pub(crate) fn apply(store: &mut Store, manifests: &[Value]) {
    for manifest in manifests {
        let mut manifest = manifest.clone();
        let Some(kind) = manifest["kind"].as_str().and_then(Kind::parse) else {
            continue;
        };
        if let Some(Value::Object(texts)) = manifest.get("stringData").cloned() {
            for (name, text) in texts {
                let text = text.as_str().unwrap_or_default();
                let text = base64::engine::general_purpose::STANDARD.encode(text);
                manifest["data"][name.as_str()] = text.into();
            }
        }
        let object = Object::from_value(kind, manifest).unwrap_or_else(|error| panic!("{error}"));
        store.apply(object).unwrap_or_else(|error| panic!("{error}"));
    }
}

pub(crate) fn translate_store(store: &Store) -> Translation {
    translate(store, &Settings::default(), &Pool::new(store))
}

/// Renders the parts, a line for each listener, rule, stream and upstream.
pub(crate) fn render_parts(translation: &Translation) -> Vec<String> {
    let mut lines = Vec::new();
    for listener in &translation.parts.listeners {
        lines.push(compact(&format!("{listener:?}")));
    }
    for route in &translation.parts.routes {
        let hosts: Vec<&str> = route.hostnames.iter().map(|host| host.as_str()).collect();
        let listeners = route.listeners.join(", ");
        for (at, rule) in route.rules.iter().enumerate() {
            let rule = compact(&format!("{rule:?}"));
            lines.push(format!(
                "{} #{at} hosts {hosts:?} at {listeners}: {rule}",
                route.name
            ));
        }
    }
    for stream in &translation.parts.streams {
        lines.push(compact(&format!("{stream:?}")));
    }
    for upstream in &translation.parts.upstreams {
        lines.push(compact(&format!("{upstream:?}")));
    }
    let certificates = translation
        .parts
        .certificates
        .iter()
        .map(|found| format!("certificate {}", found.name));
    let authorities = translation
        .parts
        .authorities
        .iter()
        .map(|found| format!("authorities {}", found.name));
    lines.extend(certificates.chain(authorities));
    lines
}

/// Removes fields with their defaults, so that a line shows the fields that matter.
fn compact(debug: &str) -> String {
    const DEFAULTS: &[&str] = &[
        ", proxy_protocol: None, redirect_to_https: None, client_address: ClientAddress { trusted: [], header: XForwardedFor, hops: None }, paths: Paths { merge_slashes: false, escaped_slashes: None }, limits: HttpLimits { head_bytes: 32768, headers: 100, head_timeout: 10s, keep_alive: 75s, requests_per_connection: None, rate_bytes: 240 }, policies: []",
        ", request_headers: HeaderChanges { remove: [], set: [], add: [] }",
        ", response_headers: HeaderChanges { remove: [], set: [], add: [] }",
        ", status_headers: []",
        ", error_pages: []",
        ", policies: []",
        ", rewrite: Rewrite { host: None, path: None }",
        ", mirrors: []",
        ", timeouts: Timeouts { request: None, per_try: None, idle: Some(60s), minimum_rate: 0 }",
        ", body: BodyLimits { request: Some(1048576), response: None }",
        ", retry: None",
        ", hedge: None",
        ", affinity: None",
        ", upgrades: [\"websocket\"]",
        ", grpc_web: false",
        ", replace_errors: false",
        ", body_bytes: 1048576",
        "name: None, ",
        ", method: None",
        ", headers: []",
        ", query: []",
        ", proxy_protocol: None",
        ", balance: LeastRequest",
        ", slow_start: None",
        ", health: Health { active: None, outliers: None, panic_percent: 0 }",
        ", zone: None",
        ", zones: None",
        ", distance: Elsewhere",
        ", draining: false",
        ", minimum: Tls12",
        ", idle: Some(3600s)",
        ", datagrams: DatagramSessions { idle: Some(60s), responses: None }",
        ", tls: None",
        ", certificate: None",
        ", clients: None",
        ", least_interval: 1s, interval: None",
    ];
    let mut text = debug.to_owned();
    // The sizes of pools are the gateway's.
    if let Some(start) = text.find(", pool: Pool {")
        && let Some(end) = text[start..].find('}')
    {
        text.replace_range(start..=start + end, "");
    }
    for default in DEFAULTS {
        text = text.replace(default, "");
    }
    text
}

/// Renders the conditions, a line for each object and parent.
pub(crate) fn render_findings(translation: &Translation) -> Vec<String> {
    let findings = &translation.findings;
    let mut lines = Vec::new();
    for (id, conditions) in &findings.classes {
        lines.push(format!("GatewayClass/{id}: {}", render(conditions)));
    }
    for (id, gateway) in &findings.gateways {
        let addresses: Vec<_> = gateway.addresses.iter().map(|address| &*address.value).collect();
        let sets = gateway
            .attached_listener_sets
            .map(|sets| format!(" sets {sets}"))
            .unwrap_or_default();
        lines.push(format!(
            "Gateway/{id} {addresses:?}{sets}: {}",
            render(&gateway.conditions)
        ));
        lines.extend(gateway.listeners.iter().map(render_listener));
    }
    for (id, set) in &findings.listener_sets {
        lines.push(format!("ListenerSet/{id}: {}", render(&set.conditions)));
        lines.extend(set.listeners.iter().map(render_listener));
    }
    for (key, parents) in &findings.routes {
        for parent in parents.iter() {
            let reference = &parent.parent_ref;
            let section = reference
                .section_name
                .as_ref()
                .map(|name| format!("#{name}"))
                .unwrap_or_default();
            let port = reference.port.map(|port| format!(":{port}")).unwrap_or_default();
            lines.push(format!(
                "{key} at {}{section}{port}: {}",
                reference.name,
                render(&parent.conditions)
            ));
        }
    }
    let tls = findings.policies.iter().map(|found| ("BackendTLSPolicy", found));
    let traffic = findings.traffic_policies.iter();
    let traffic = traffic.map(|found| ("XBackendTrafficPolicy", found));
    for (kind, (id, ancestors)) in tls.chain(traffic) {
        for ancestor in ancestors {
            let conditions = render(&ancestor.conditions);
            lines.push(format!("{kind}/{id} at {}: {conditions}", ancestor.gateway));
        }
    }
    lines
}

fn render_listener(listener: &ListenerFinding) -> String {
    let kinds: Vec<_> = listener.kinds.iter().map(|kind| kind.name()).collect();
    let conditions = render(&listener.conditions);
    format!(
        "{} {kinds:?} routes {}: {conditions}",
        listener.part, listener.attached_routes
    )
}

/// Renders the problems that the data plane has with the parts: their places, and the fields that are wrong. Certificates of
/// tests are not real, so that problems with their contents are left out, and those of listeners and upstreams that follow.
pub(crate) fn render_problems(translation: &Translation) -> Vec<String> {
    let problems =
        ringmain_gateway::Gateway::new(Arc::new(translation.parts.clone()), Duration::from_hours(500_000))
            .problems();
    let is_real = |problem: &&Problem| {
        let is_material = matches!(
            problem.part,
            ConfigPart::Certificate(_) | ConfigPart::Authorities(_)
        );
        !is_material && problem.field != "tls"
    };
    let render = |problem: &Problem| {
        let Problem {
            part: place,
            field: part,
            consequence: outcome,
            ..
        } = problem;
        format!("problem: {place}: {part}; {outcome}")
    };
    problems.iter().filter(is_real).map(render).collect()
}

/// `Accepted`, or `!Accepted=Reason`; the reason follows a true condition only if it is another word.
fn render(conditions: &[Condition]) -> String {
    let one = |condition: &Condition| {
        let sign = if condition.is_true { "" } else { "!" };
        if condition.reason == condition.kind {
            format!("{sign}{}", condition.kind)
        } else {
            format!("{sign}{}={}", condition.kind, condition.reason)
        }
    };
    let all: Vec<String> = conditions.iter().map(one).collect();
    all.join(" ")
}

/// Compares with a golden file, or writes it with `UPDATE_GOLDEN=1`.
pub(crate) fn check_golden(name: &str, actual: &str) {
    let path = format!("{}/tests/it/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (expected, actual) in expected.lines().zip(actual.lines()) {
        assert_eq!(expected, actual, "{name}; UPDATE_GOLDEN=1 writes the actual text");
    }
    assert_eq!(expected.lines().count(), actual.lines().count(), "{name}: lines");
}
