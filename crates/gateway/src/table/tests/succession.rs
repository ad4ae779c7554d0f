//! Tables that follow each other: one that shares parts with its predecessor has the problems, rules and listeners of one that is
//! compiled alone.

use std::sync::Arc;

use super::{compile, facts, listener, route, rule, told};
use crate::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, Hostname, Listener, Protocol, Route, Upstream,
};
use crate::table::{AddressId, Table, host_specificity};

const SEEDS: u64 = 20;
const STEPS: usize = 40;
const NAMES: usize = 6;

fn name(kind: &str, random: &mut fastrand::Rng) -> String {
    format!("{kind}{}", random.usize(..NAMES))
}

fn forward(random: &mut fastrand::Rng) -> Route {
    let hosts = [format!("{}.test", name("h", random)), "*.test".to_owned()];
    let hosts: Vec<&str> = hosts[..random.usize(1..=2)].iter().map(String::as_str).collect();
    let mut found = route(&name("route", random), &hosts, &[]);
    let mut forward = Forward::to(&*name("up", random));
    if random.u8(..8) == 0 {
        // More attempts than the limit: the rule is invalid.
        forward.retry = Some(crate::model::Retry {
            attempts: 200,
            ..Default::default()
        });
    }
    found.rules = vec![crate::model::Rule {
        action: Action::Forward(Box::new(forward)),
        ..rule(&[["/", "/a", "=/b"][random.usize(..3)]])
    }];
    if random.bool() {
        found.listeners = vec![name("web", random).into()];
    }
    found
}

fn upstream(random: &mut fastrand::Rng) -> Upstream {
    let port = random.u16(..3);
    let address = EndpointLocation::Address(([127, 0, 0, 1], port).into());
    Upstream::new(name("up", random), vec![Endpoint::new(address)])
}

fn site(random: &mut fastrand::Rng) -> Listener {
    let mut found = listener(&name("web", random), 80 + random.u16(..2), &[]);
    if random.u8(..3) > 0 {
        found.hostnames = vec![Hostname::parse(&format!("{}.test", name("h", random))).unwrap()];
    }
    if random.u8(..8) == 0 {
        found.protocol = Protocol::Tcp;
    }
    found
}

/// Adds, replaces or removes a part.
fn change<T>(parts: &mut Vec<Arc<T>>, part: T, random: &mut fastrand::Rng) {
    match random.usize(..3) {
        0 => parts.push(Arc::new(part)),
        1 if !parts.is_empty() => {
            let at = random.usize(..parts.len());
            parts[at] = Arc::new(part);
        }
        _ if !parts.is_empty() => drop(parts.remove(random.usize(..parts.len()))),
        _ => {}
    }
}

#[track_caller]
pub(super) fn agree(table: &Table<()>, config: &Config, place: &str) {
    let alone = compile(config.clone());
    assert_eq!(table.problems(), alone.problems(), "{place}");
    let count = alone.listeners().count();
    assert_eq!(table.listeners().count(), count, "{place}");
    for (id, _) in alone.listeners() {
        for host in 0..NAMES {
            for path in ["/", "/a/b", "/b"] {
                let url = format!("h{host}.test{path}");
                let facts = facts("GET", &url);
                assert_eq!(
                    told(table.find(id, &facts)),
                    told(alone.find(id, &facts)),
                    "{url}, {place}"
                );
            }
        }
    }
}

/// Checks the selection of a listener by its host against the specificity of each.
#[track_caller]
fn selects(table: &Table<()>, place: &str) {
    let addresses: Vec<AddressId> = table.addresses().iter().map(|(id, ..)| id).collect();
    for id in addresses {
        for host in ["", "h0.test", "h3.test", "x.h3.test", "other"] {
            let all = table.addresses().listeners(id);
            let ranked = all.filter_map(|(id, found)| Some((host_specificity(&found.hostnames, host)?, id)));
            let best = ranked.max_by_key(|(rank, id)| (*rank, std::cmp::Reverse(*id)));
            let found = table.addresses().select_listener(id, host);
            // A host of a listener that is left out has none.
            assert!(
                found.is_none() || found == best.map(|(_, id)| id),
                "{host}, {place}"
            );
            let refuses = table
                .problems()
                .iter()
                .any(|problem| problem.to_string().contains("listener"));
            assert!(found.is_some() || best.is_none() || refuses, "{host}, {place}");
        }
    }
}

#[test]
fn tables_that_share_parts_are_as_those_compiled_alone() {
    let mut with_problems = 0;
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut config = Config::default();
        let mut last: Option<Table<()>> = None;
        for step in 0..STEPS {
            match random.u8(..6) {
                0 => change(&mut config.listeners, site(&mut random), &mut random),
                1 | 2 => change(&mut config.upstreams, upstream(&mut random), &mut random),
                _ => change(&mut config.routes, forward(&mut random), &mut random),
            }
            let place = format!("seed {seed}, step {step}");
            let table = Table::compile(Arc::new(config.clone()), last.as_ref(), &mut |_, _| Ok(()));
            agree(&table, &config, &place);
            selects(&table, &place);
            with_problems += usize::from(!table.problems().is_empty());
            last = Some(table);
        }
    }
    assert!(with_problems > 0);
}
