//! The examples of the repository, and the meaning of their keys.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use ringmain_gateway::model::{
    Action, AffinityBy, Balance, HashKey, HealthCheck, PathMatch, PathRewrite, Target,
};

use super::{loaded, valid_config};

const PROXY: &str = include_str!("../../../../../examples/proxy.yaml");
const SHOP: &str = include_str!("../../../../../examples/shop.yaml");
const GOLDEN: &str = include_str!("shop.golden");

#[test]
fn five_lines_are_a_reverse_proxy() {
    let written = PROXY.lines().filter(|line| !line.starts_with('#'));
    assert!(written.count() <= 5);
    let config = valid_config(PROXY);
    assert_eq!(config.listeners[0].addresses[0].to_string(), "0.0.0.0:8080");
    assert_eq!(
        config.upstreams[0].endpoints[0].address,
        ringmain_gateway::model::EndpointLocation::Address("127.0.0.1:3000".parse().unwrap())
    );
    let two = valid_config("listen: 0.0.0.0:8080\nto: http://127.0.0.1:3000\n");
    assert_eq!(two.routes, config.routes);
}

/// Returns the whole model of the shop in its debug form.
fn golden() -> String {
    let config = valid_config(SHOP);
    let mut text = String::new();
    let _ = writeln!(text, "{config:#?}");
    text
}

#[test]
fn the_shop_matches_its_golden_file() {
    let advice =
        "look at the difference; if it is meant: cargo test -p ringmain-control write_the -- --ignored";
    assert!(golden() == GOLDEN, "{advice}");
}

#[test]
#[ignore = "writes crates/control/src/config/tests/shop.golden"]
fn write_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/tests/shop.golden");
    std::fs::write(path, golden()).unwrap();
}

#[test]
fn keys_reach_the_model() {
    let config = valid_config(SHOP);
    let upstream = |name: &str| {
        config
            .upstreams
            .iter()
            .find(|upstream| &*upstream.name == name)
            .unwrap()
    };
    assert_eq!(
        upstream("cart").balance,
        Balance::RingHash(HashKey::Cookie("cart".into()))
    );
    assert_eq!(upstream("search").balance, Balance::Maglev(HashKey::Path));
    let active = upstream("catalogue").health.active.as_ref().unwrap();
    assert!(matches!(&active.check, HealthCheck::Http { target, .. } if &**target == "/healthz"));
    assert_eq!((active.healthy_after, active.unhealthy_after), (2, 3));
    assert_eq!(
        upstream("search").health.active.as_ref().unwrap().check,
        HealthCheck::Connect
    );
    let shop = config.routes.iter().find(|route| &*route.name == "shop").unwrap();
    let rule = |name: &str| {
        shop.rules
            .iter()
            .find(|rule| rule.name.as_deref() == Some(name))
            .unwrap()
    };
    let Action::Forward(catalogue) = &rule("catalogue").action else {
        panic!("it forwards");
    };
    assert!(
        matches!(&catalogue.rewrite.path, Some(PathRewrite::Prefix(path)) if path.as_str() == "/v1/items")
    );
    assert_eq!(catalogue.timeouts.per_try, Some(Duration::from_secs(3)));
    assert_eq!(catalogue.retry.as_ref().unwrap().on.statuses[0].first, 503);
    assert_eq!(rule("catalogue").request_headers.set[0].1.as_str(), "corner");
    let Action::Forward(bulk) = &rule("bulk").action else {
        panic!("it forwards");
    };
    assert_eq!(
        (bulk.timeouts.request, bulk.body.request),
        (None, Some(512 << 20))
    );
    let Action::Forward(cart) = &rule("cart").action else {
        panic!("it forwards");
    };
    assert!(
        matches!(&cart.affinity.as_ref().unwrap().by, AffinityBy::Cookie(cookie) if &*cookie.name == "cart")
    );
    assert!(matches!(
        rule("product pages").matches[0].path,
        PathMatch::Pattern(_)
    ));
    let Action::Files(files) = &rule("assets").action else {
        panic!("it serves files");
    };
    assert_eq!(files.root, PathBuf::from("/etc/ringmain/shop/assets"));
}

#[test]
fn texts_are_as_they_are_written() {
    let rule = |headers: &str| {
        let text = format!(
            "listen: :80\nroutes:\n  r: {{rules: [{{to: http://a:1, request_headers: {{set: {headers}}}}}]}}\n"
        );
        let config = valid_config(&text);
        config.routes[0].rules[0].request_headers.set[0]
            .1
            .as_str()
            .to_owned()
    };
    assert_eq!(rule("{a: 1.10}"), "1.10");
    assert_eq!(rule("{a: 0x1F}"), "0x1F");
    assert_eq!(rule("{a: true}"), "true");
    assert_eq!(rule("{a: yes}"), "yes");
    assert_eq!(rule("{a: '${env:NAME}/$${x}'}"), "the-value/${x}");
    assert_eq!(rule("{a: '${file:token}'}"), "from-a-file");
}

#[test]
fn anchors_and_merge_keys_are_resolved() {
    let text = "\
listen: :80
upstreams:
  a: &base {endpoints: 127.0.0.1:1, pool: {idle: 9s}}
  b: {<<: *base, endpoints: 127.0.0.1:2}
routes:
  r: {to: [{to: a, weight: 3}, b]}
";
    let config = valid_config(text);
    assert_eq!(config.upstreams[1].pool.idle, Duration::from_secs(9));
    let Action::Forward(forward) = &config.routes[0].rules[0].action else {
        panic!("it forwards");
    };
    assert_eq!(forward.backends[0].weight, 3);
    assert_eq!(forward.backends[1].target, Target::Upstream("b".into()));
}

#[test]
fn an_empty_file_is_an_error() {
    let loaded = loaded("");
    assert_eq!(
        loaded.errors[0].to_string(),
        "c.yaml:1:1: expected a map, found nothing"
    );
}

#[test]
fn headers_of_responses_by_status() {
    let config = valid_config(
        "listen: 127.0.0.1:8080\nroutes:\n  all:\n    rules:\n      - respond: 200\n        response_headers:\n          remove: server\n          \
         by_status:\n            - {status: [2xx, 304], set: {cache-control: immutable}}\n            - {status: 404, remove: etag}\n",
    );
    let rule = &config.routes[0].rules[0];
    assert_eq!(rule.response_headers.remove.len(), 1);
    let ranges: Vec<Vec<(u16, u16)>> = rule
        .status_headers
        .iter()
        .map(|it| {
            it.statuses
                .iter()
                .map(|range| (range.first, range.last))
                .collect()
        })
        .collect();
    assert_eq!(ranges, [vec![(200, 299), (304, 304)], vec![(404, 404)]]);
    assert_eq!(rule.status_headers[0].changes.set.len(), 1);
    assert_eq!(rule.status_headers[1].changes.remove.len(), 1);
}

/// Editors find the schema without a network: each example names the file of this repository.
#[test]
fn every_example_names_its_schema() {
    let examples = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let folders = [examples.clone(), examples.join("edge")];
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let mut count = 0;
    for file in files.map(|file| file.expect("a file").path()) {
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a file");
        let modeline = text
            .lines()
            .find_map(|line| line.strip_prefix("# yaml-language-server: $schema="));
        let schema = modeline.unwrap_or_else(|| panic!("{} names no schema", file.display()));
        assert!(
            file.with_file_name("").join(schema).is_file(),
            "{}: {schema}",
            file.display()
        );
        count += 1;
    }
    assert!(count >= 9, "{count} examples");
}
