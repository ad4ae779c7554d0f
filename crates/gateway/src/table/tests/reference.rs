//! The table against a naive twin that looks at every match of every route, on routes and requests drawn by chance.

use std::sync::Arc;

use super::{compile, config, facts, found, rule, told};
use crate::model::{Hostname, Match, PathMatch, Route};
use crate::table::request_facts::matches_all;
use crate::table::{Headers, ListenerId, RequestFacts, Table};

const HOSTS: [&str; 7] = ["a", "*.a", "b.a", "*.b.a", "c.b.a", "*.c.b.a", "x"];
const REQUEST_HOSTS: [&str; 8] = ["a", "b.a", "c.b.a", "d.c.b.a", "x.a", "x", ".a", ""];
const SEGMENTS: [&str; 4] = ["p", "q", "pq", ""];

/// The rules of the table's documentation, written out naively.
fn twin(routes: &[Arc<Route>], facts: &RequestFacts<'_>) -> String {
    let every = Match::default();
    let mut best = None;
    for (number, route) in routes.iter().enumerate() {
        let Some(host) = host_rank(&route.hostnames, facts.host) else {
            continue;
        };
        for (rule_number, rule) in route.rules.iter().enumerate() {
            let matches = if rule.matches.is_empty() {
                std::slice::from_ref(&every)
            } else {
                &rule.matches
            };
            for (matching, found) in matches
                .iter()
                .enumerate()
                .filter(|(_, found)| matches_all(found, facts))
            {
                let path = match &found.path {
                    PathMatch::Exact(_) => (2, 0),
                    PathMatch::Pattern(_) => (1, 0),
                    PathMatch::Prefix(path) => (0, path.as_str().trim_end_matches('/').len()),
                };
                let order = std::cmp::Reverse((number, rule_number, matching));
                let rank = (
                    host,
                    path,
                    found.method.is_some(),
                    found.headers.len(),
                    found.query.len(),
                    order,
                );
                if best.as_ref().is_none_or(|best| rank > *best) {
                    best = Some(rank);
                }
            }
        }
    }
    best.map_or_else(
        || "404".to_owned(),
        |(.., std::cmp::Reverse((route, rule, matching)))| {
            format!("{} {rule} {matching}", routes[route].name)
        },
    )
}

/// Ranks exact hosts highest, then the longest wildcard, then no host.
fn host_rank(hostnames: &[Hostname], host: &str) -> Option<usize> {
    if hostnames.is_empty() {
        return Some(0);
    }
    let matching = hostnames.iter().filter(|name| name.matches(host));
    let rank = |name: &Hostname| name.wildcard_suffix().map_or(usize::MAX, str::len);
    matching.map(rank).max()
}

fn path(random: &mut fastrand::Rng) -> String {
    let segments = random.usize(1..5);
    let segments = (0..segments)
        .map(|_| SEGMENTS[random.usize(..4)])
        .collect::<Vec<_>>();
    let mut scratch = String::new();
    let raw = format!("/{}", segments.join("/"));
    ringmain_web::path::normalise(&raw, &mut scratch)
        .unwrap()
        .to_owned()
}

fn match_text(random: &mut fastrand::Rng) -> String {
    let mut text = match random.u8(..8) {
        0 => "~/p.*".to_owned(),
        1 => "~.*q/?".to_owned(),
        2 | 3 => format!("={}", path(random)),
        _ => path(random),
    };
    for (chance, word) in [
        (3, " GET"),
        (3, " h:x=1"),
        (5, " h:y"),
        (4, " q:k=v"),
        (6, " q:l~[0-9]"),
    ] {
        if random.u8(..chance) == 0 {
            text += word;
        }
    }
    text
}

fn routes(random: &mut fastrand::Rng) -> Vec<Route> {
    let route = |number| {
        let hosts = (0..random.usize(..3)).map(|_| Hostname::parse(HOSTS[random.usize(..7)]).unwrap());
        let hostnames = hosts.collect();
        let rules = (0..random.usize(1..4)).map(|_| {
            let mut rule = rule(&[]);
            rule.matches = (0..random.usize(..3))
                .map(|_| found(&match_text(random)))
                .collect();
            rule
        });
        Route {
            name: format!("r{number}").into(),
            listeners: Vec::new(),
            hostnames,
            rules: rules.collect(),
        }
    };
    (0..12).map(route).collect()
}

#[track_caller]
fn agree(table: &Table<()>, random: &mut fastrand::Rng) {
    let headers: [(&str, &[u8]); 3] = [("X", b"1"), ("y", b"2"), ("x", b"3")];
    for _ in 0..40 {
        let start = random.usize(..4);
        let url = path(random);
        let query = ["", "k=v", "l=5&k=v", "l=x", "k=%76"][random.usize(..5)];
        let facts = RequestFacts {
            host: REQUEST_HOSTS[random.usize(..8)],
            query,
            headers: Headers::List(&headers[start.min(3)..]),
            ..facts(["GET", "PUT"][random.usize(..2)], &url)
        };
        let matched = table.find(ListenerId(0), &facts);
        let own = match matched {
            Some(matched) => format!("{} {}", told(Some(matched)), matched.match_number()),
            None => told(None),
        };
        let twin = twin(&table.config().routes, &facts);
        assert_eq!(
            own, twin,
            "{} {} {} {query}",
            facts.method, facts.host, facts.path
        );
        let (id, ..) = table.addresses().iter().next().unwrap();
        let explained = table.explain(id, &facts);
        assert_eq!(explained.selected.is_some(), matched.is_some());
    }
}

#[test]
fn the_table_and_its_twin_agree() {
    for seed in 0..400 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let table = compile(config(routes(&mut random)));
        agree(&table, &mut random);
        // The next table, with some routes replaced, shares the unchanged parts.
        let mut next = (**table.config()).clone();
        for (route, other) in next.routes.iter_mut().zip(routes(&mut random)) {
            if random.u8(..3) == 0 {
                *route = Arc::new(other);
            }
        }
        if random.bool() {
            next.routes.truncate(random.usize(..12));
        }
        let next = Table::compile(Arc::new(next), Some(&table), &mut |_, _| Ok(()));
        agree(&next, &mut random);
    }
}
