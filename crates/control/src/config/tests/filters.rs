//! Custom filters: their names in files, and errors.

use std::sync::Arc;

use ringmain_gateway::filter::Filters;
use ringmain_gateway::model::{Config, FilterUse, Options, Policy};
use ringmain_gateway::table::{Table, describe_steps};

use super::{all_errors_of, loaded, valid_config};

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
fn filters_of_a_rule_replace_those_of_its_route() {
    let config = valid_config(
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
    let steps = describe_steps(&config.routes[0].rules[3]);
    assert_eq!(steps[1], "filter `four`", "behind what may refuse: {steps:?}");
}

#[test]
fn filter_options_keep_their_types() {
    let config = valid_config(
        "listen: :80\nroutes:\n  all:\n    rules:\n      - respond: 200\n        policies:\n          filters:\n            \
         name: one\n            options:\n              text: '7'\n              number: 1.10\n              on: true\n              \
         nothing: ~\n              secret: ${env:NAME}\n              list: [1, {a: b}]\n",
    );
    let Options::Map(options) = &filters(&config)[0][0].options else {
        panic!("a map");
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
fn invalid_filters_are_reported() {
    for (filters, words) in [
        ("true", "from 1 to 16 filters, by their names"),
        ("[]", "expected at least one element"),
        ("{options: {a: b}}", "the `name` of a filter"),
        ("''", "the `name` of a filter"),
        ("{nam: one}", "`name`"),
        ("{name: one, options: 7}", "a map"),
        ("[[one]]", "a map with the keys `name`, `options`"),
    ] {
        let wrong = all_errors_of(&format!(
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

/// Returns all errors for a program without filters.
fn wrong_here(text: &str) -> Vec<String> {
    let loaded = loaded(text);
    let filters = Filters::new();
    let config = Arc::new(loaded.config.clone().expect("parts of it can be served"));
    let table = Table::compile(config, None, &mut |rule, _| filters.check(rule));
    let wrong = loaded.all_errors(table.problems());
    wrong.iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_filters_are_reported_with_other_errors() {
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
        ("c.yaml:12:", "route `all`, rule 3: policies.filters", "`three`"),
        ("c.yaml:13:", "", ""),
    ];
    assert_eq!(wrong.len(), begins.len(), "{wrong:#?}");
    for (error, (place, part, found)) in wrong.iter().zip(begins) {
        let told = error.starts_with(place) && error.contains(part) && error.contains(found);
        assert!(told, "{place} {part} {found}: {error}");
    }
}

#[test]
fn the_example_is_valid() {
    // The value of its key is taken from the environment.
    let text = include_str!("../../../../../examples/edge/edge.yaml").replace("SIGNING_KEY", "NAME");
    let config = valid_config(&text);
    assert_eq!(filters(&config).iter().map(Vec::len).collect::<Vec<_>>(), [2, 0]);
}
