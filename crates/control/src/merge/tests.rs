//! A file and objects beside each other on one gateway.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Config, Endpoint, EndpointLocation, Upstream};

use super::ConfigMerger;
use crate::config::{self, ConfigEnvironment};

const NOW: Duration = Duration::ZERO;

fn config(text: &str) -> Config {
    let sources = ConfigEnvironment {
        variable: &|_| None,
        file: &|_| Err(std::io::ErrorKind::NotFound.into()),
        is_public: &|_| false,
        folder: Path::new("/"),
    };
    let loaded = config::load("test.yaml", text, &sources);
    assert_eq!(loaded.errors, []);
    loaded.config.unwrap()
}

fn file(host: &str) -> Arc<Config> {
    let text = format!(
        "listeners: {{web: {{address: \"127.0.0.1:0\"}}}}\n\
         routes: {{r: {{hosts: {host}, rules: [{{to: u}}]}}}}\n\
         upstreams: {{u: \"http://127.0.0.1:1\"}}\n"
    );
    Arc::new(config(&text))
}

fn objects() -> Config {
    let text = "listeners: {cluster: {address: \"127.0.0.2:0\"}}\n\
         routes: {object: {listeners: cluster, rules: [{to: service}]}}\n\
         upstreams: {service: \"http://127.0.0.1:2\"}\n";
    config(text)
}

fn merger(has_objects: bool) -> ConfigMerger {
    let file = file("a.example");
    ConfigMerger::new(Gateway::new(Arc::clone(&file), NOW), file, has_objects)
}

fn routes(merger: &ConfigMerger) -> Vec<String> {
    let table = merger.gateway().table();
    let routes = table.config().routes.iter();
    routes
        .map(|route| format!("{}: {}", route.name, route.hostnames.len()))
        .collect()
}

#[test]
fn parts_of_both_are_served_the_files_first() {
    let merger = merger(true);
    assert_eq!(merger.replace_objects(objects(), NOW), []);
    assert_eq!(routes(&merger), ["r: 1", "object: 0"]);
    // A later file keeps the parts of objects.
    merger.replace_file(file("[a.example, b.example]"), NOW).unwrap();
    assert_eq!(routes(&merger), ["r: 2", "object: 0"]);
    // Removed objects keep the parts of the file.
    merger.replace_objects(Config::default(), NOW);
    assert_eq!(routes(&merger), ["r: 2"]);
}

#[test]
fn invalid_files_are_rejected_and_invalid_objects_in_part() {
    let merger = merger(true);
    let mut wrong = objects();
    wrong.upstreams.clear();
    // The rule whose upstream does not exist stays.
    let problems = merger.replace_objects(wrong, NOW);
    assert!(
        problems
            .iter()
            .any(|problem| problem.to_string().contains("service")),
        "{problems:?}"
    );
    assert_eq!(routes(&merger), ["r: 1", "object: 0"]);
    // It does not prevent a file from being applied either.
    merger.replace_file(file("c.example"), NOW).unwrap();
    let mut wrong = (*file("[c.example, d.example]")).clone();
    wrong.upstreams.clear();
    assert!(merger.replace_file(Arc::new(wrong), NOW).is_err());
    assert_eq!(routes(&merger), ["r: 1", "object: 0"]);
}

#[test]
fn of_two_parts_with_one_name_the_files_counts() {
    let merger = merger(true);
    let mut objects = objects();
    objects.upstreams.push(Arc::new(Upstream::new("u", Vec::new())));
    assert_eq!(merger.replace_objects(objects, NOW).len(), 1);
    let upstreams = merger.gateway().upstreams();
    let endpoints = upstreams.iter().find(|upstream| *upstream.name == *"u");
    assert_eq!(endpoints.unwrap().endpoints.len(), 1);
}

#[test]
fn without_objects_a_file_is_applied_as_a_whole() {
    let merger = merger(false);
    let served = merger.replace_file(file("b.example"), NOW).unwrap();
    assert!(Arc::ptr_eq(&served, merger.gateway().table().config()));
}

#[test]
fn endpoints_of_objects_alone_change_neither_the_table_nor_the_file() {
    let merger = merger(true);
    assert_eq!(merger.replace_objects(objects(), NOW), []);
    let table = merger.gateway().table();
    let to = |port: u16| {
        vec![Endpoint::new(EndpointLocation::Address(
            ([127, 0, 0, 1], port).into(),
        ))]
    };
    let put = |name: &str, port| merger.put_endpoints(vec![(name.into(), to(port))]);
    put("service", 3);
    // Upstreams of the file are not of the objects.
    put("u", 4);
    assert_eq!(addresses(&merger), ["service 127.0.0.1:3", "u 127.0.0.1:1"]);
    assert!(Arc::ptr_eq(&table, &merger.gateway().table()));
    // A later file has the endpoints as they are now.
    merger.replace_file(file("b.example"), NOW).unwrap();
    assert_eq!(addresses(&merger), ["service 127.0.0.1:3", "u 127.0.0.1:1"]);
    let mut same_name = Config::clone(&file("b.example"));
    same_name
        .upstreams
        .push(Arc::new(Upstream::new("service", to(5))));
    merger.replace_file(Arc::new(same_name), NOW).unwrap();
    put("service", 6);
    assert_eq!(
        addresses(&merger),
        ["service 127.0.0.1:5", "u 127.0.0.1:1"],
        "the file's counts"
    );
    merger.replace_file(file("b.example"), NOW).unwrap();
    assert_eq!(addresses(&merger), ["service 127.0.0.1:6", "u 127.0.0.1:1"]);
}

fn addresses(merger: &ConfigMerger) -> Vec<String> {
    let upstreams = merger.gateway().upstreams().into_iter();
    let lines = upstreams.flat_map(|upstream| {
        let name = upstream.name;
        let endpoints = upstream.endpoints.into_iter();
        endpoints.map(move |endpoint| format!("{name} {}", endpoint.addr))
    });
    lines.collect()
}
