//! Filters that a program brings along: how files name them, and what is told of wrong ones.

use std::sync::Arc;

use ringmain_gateway::filter::Filters;
use ringmain_gateway::model::{Config, FilterUse, Options, Policy};
use ringmain_gateway::table::{Table, steps};

use super::{all_wrong, loaded, right};

/// The filters of each rule of the first route.
fn filters(config: &Config) -> Vec<Vec<&FilterUse>> {
    fn of(policy: &Policy) -> Option<&FilterUse> {
        match policy {
            Policy::Filter(wanted) => Some(wanted),
            _ => None,
        }
    }
    let rules = config.routes[0].rules.iter();
    rules
        .map(|rule| rule.policies.iter().filter_map(of).collect())
        .collect()
}

#[test]
fn a_rule_has_its_own_or_its_routes_filters() {
    let config = right(
        "listen: :80\nroutes:\n  all:\n    policies: {filters: [one, {name: two, options: {a: b}}]}\n    rules:\n      \
         - {match: /a, respond: 200}\n      \
         - {match: /b, respond: 200, policies: {filters: three}}\n      \
         - {match: /c, respond: 200, policies: {filters: false}}\n      \
         - {match: /d, respond: 200, policies: {addresses: {allow: 10.0.0.0/8}, filters: {name: four}}}\n",
    );
    let names: Vec<Vec<&str>> = filters(&config)
        .into_iter()
        .map(|filters| filters.into_iter().map(|wanted| &*wanted.name).collect())
        .collect();
    assert_eq!(names, [vec!["one", "two"], vec!["three"], vec![], vec!["four"]]);
    let steps = steps(&config.routes[0].rules[3]);
    assert_eq!(
        steps[1], "pass the filter `four`",
        "behind what may refuse: {steps:?}"
    );
}

#[test]
fn options_come_as_they_are_written() {
    let config = right(
        "listen: :80\nroutes:\n  all:\n    rules:\n      - respond: 200\n        policies:\n          filters:\n            \
         name: one\n            options:\n              text: '7'\n              number: 1.10\n              on: true\n              \
         nothing: ~\n              secret: ${env:NAME}\n              list: [1, {a: b}]\n",
    );
    let Options::Map(options) = &filters(&config)[0][0].options else {
        panic!("keys with values");
    };
    let expected = [
        ("text", Options::Text("7".into())),
        ("number", Options::Number("1.10".into())),
        ("on", Options::Bool(true)),
        ("nothing", Options::Nothing),
        ("secret", Options::Text("the-value".into())),
        (
            "list",
            Options::List(vec![
                Options::Number("1".into()),
                Options::Map(vec![("a".into(), Options::Text("b".into()))]),
            ]),
        ),
    ];
    assert_eq!(options.len(), expected.len());
    for ((name, found), (expected_name, value)) in options.iter().zip(expected) {
        assert_eq!(&**name, expected_name);
        // They do not show themselves.
        assert!(*found == value, "{name}");
    }
}

#[test]
fn wrong_ones_are_told() {
    for (filters, words) in [
        ("true", "from 1 to 16 filters, by their names"),
        ("[]", "expected at least one element"),
        ("{options: {a: b}}", "the `name` of a filter"),
        ("''", "the `name` of a filter"),
        ("{nam: one}", "`name`"),
        ("{name: one, options: 7}", "keys with values"),
        ("[[one]]", "a map with the keys `name`, `options`"),
    ] {
        let wrong = all_wrong(&format!(
            "listen: :80\nroutes:\n  all:\n    rules:\n      - {{match: /, respond: 200, policies: {{filters: {filters}}}}}\n"
        ));
        assert!(
            wrong
                .iter()
                .any(|error| error.contains(words) && error.starts_with("c.yaml:5:")),
            "{filters}: {wrong:#?}"
        );
    }
}

/// All that is wrong for a program without filters.
fn wrong_here(text: &str) -> Vec<String> {
    let loaded = loaded(text);
    let filters = Filters::new();
    let config = Arc::new(loaded.config.clone().expect("parts of it can be served"));
    let table = Table::compile(config, None, &mut |rule, _| filters.check(rule));
    let wrong = loaded.all_errors(table.problems());
    wrong.iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_ones_are_told_where_they_stand_whatever_else_is_wrong() {
    let wrong = wrong_here(
        "listen: :80\nroutes:\n  all:\n    policies:\n      filters: [one, two]\n    rules:\n      \
         - {match: /a, respond: 200}\n      \
         - {match: /b, respond: 99}\n      \
         - match: /c\n        respond: 200\n        policies:\n          filters: three\n          concurrency: {requests: 0}\n",
    );
    let begins = [
        ("c.yaml:5:", "route `all`: policies.filters", "`one`"),
        ("c.yaml:5:", "route `all`: policies.filters", "`two`"),
        ("c.yaml:8:", "", "99"),
        ("c.yaml:12:", "route `all`, rule 2: policies.filters", "`three`"),
        ("c.yaml:13:", "", ""),
    ];
    assert_eq!(wrong.len(), begins.len(), "{wrong:#?}");
    for (error, (place, part, found)) in wrong.iter().zip(begins) {
        let told = error.starts_with(place) && error.contains(part) && error.contains(found);
        assert!(told, "{place} {part} {found}: {error}");
    }
}

#[test]
fn the_example_is_right() {
    // Its key is the environment's to say.
    let text = include_str!("../../../../../examples/edge/edge.yaml").replace("SIGNING_KEY", "NAME");
    let config = right(&text);
    assert_eq!(filters(&config).iter().map(Vec::len).collect::<Vec<_>>(), [2, 0]);
}
