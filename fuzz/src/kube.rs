//! Kubernetes objects: whatever is parsed can be stored, translated, compiled and reported.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ringmain_gateway::model::{Addr, Name};
use ringmain_gateway::table::Table;
use ringmain_kube::objects::{Gateway, Kind, Object};
use ringmain_kube::status::{apply_problems, documents};
use ringmain_kube::store::Store;
use ringmain_kube::translate::{Placement, Places, Settings, StatusAddress, translate};
use serde::Deserialize;

/// Longer inputs only repeat the contents of shorter ones, and take longer.
const LONGEST: usize = 16 * 1024;

/// The field that selects the type of an object.
#[derive(Deserialize)]
struct Header<'a> {
    kind: &'a str,
}

/// One address for all Gateways.
struct OneAddress;

impl Places for OneAddress {
    fn place(&self, _: &Gateway) -> Placement {
        Placement {
            addresses: vec![StatusAddress::ip(Ipv4Addr::LOCALHOST)],
            problem: None,
        }
    }

    fn bind(&self, _: &Gateway, port: u16) -> Vec<Addr> {
        vec![Addr::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))]
    }
}

/// Objects, one on each line.
///
/// Laws: no panic; a route is attached to listeners of the translation only, to at least one; the table compiles; and the
/// statuses are objects.
pub fn run(input: &[u8]) {
    let mut store = Store::new();
    for line in input[..input.len().min(LONGEST)].split(|byte| *byte == b'\n') {
        let Ok(header) = serde_json::from_slice::<Header<'_>>(line) else {
            continue;
        };
        let Some(kind) = Kind::parse(header.kind) else {
            continue;
        };
        if let Ok(object) = Object::parse(kind, line) {
            let key = object.key();
            store.apply(object).expect("the input is below all limits");
            assert!(store.object(&key).is_some());
        }
    }
    let settings = Settings::default();
    let mut found = translate(&store, &settings, &OneAddress);
    let is_known = |name: &Name| {
        found
            .parts
            .listeners
            .iter()
            .any(|listener| listener.name == *name)
    };
    for route in &found.parts.routes {
        assert!(!route.listeners.is_empty() && route.listeners.iter().all(is_known));
    }
    for stream in &found.parts.streams {
        assert!(!stream.listeners.is_empty() && stream.listeners.iter().all(is_known));
    }
    let table: Table<()> = Table::compile(Arc::new(found.parts), None, &mut |_, _| Ok(()));
    let changed = found.findings.keys().into_iter().collect();
    apply_problems(&mut found.findings, table.problems(), &changed);
    let written = documents(&store, &settings, &found.findings, "2026-01-01T00:00:00Z");
    assert!(written.iter().all(|document| document.status.is_object()));
}
