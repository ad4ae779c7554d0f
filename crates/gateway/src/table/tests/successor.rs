//! Tables compiled from their predecessor alone: they serve as those that are compiled as a whole, and compile only changed routes.

use std::sync::Arc;

use super::succession::agree;
use super::{compile, listener, route};
use crate::model::{Action, Config, Endpoint, EndpointLocation, Forward, Route, Upstream};
use crate::table::Table;

const SEEDS: u64 = 10;
const STEPS: usize = 60;
const HOSTS: usize = 6;
const LISTENERS: usize = 4;

/// Random valid configurations that follow each other.
struct Configs {
    random: fastrand::Rng,
    config: Config,
    /// Names are never used again.
    names: usize,
}

impl Configs {
    fn new(seed: u64) -> Configs {
        let mut configs = Configs {
            random: fastrand::Rng::with_seed(seed),
            config: Config::default(),
            names: 0,
        };
        for number in 0..LISTENERS {
            let found = listener(&format!("web{number}"), 80, &[&format!("h{number}.test")]);
            configs.config.listeners.push(Arc::new(found));
        }
        for _ in 0..3 {
            configs.add_upstream();
        }
        configs
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn upstream(&mut self, name: &str) -> Arc<Upstream> {
        let address = EndpointLocation::Address(([127, 0, 0, 1], self.random.u16(1..)).into());
        Arc::new(Upstream::new(name, vec![Endpoint::new(address)]))
    }

    fn add_upstream(&mut self) {
        let name = self.name("up");
        let upstream = self.upstream(&name);
        let at = self.random.usize(..=self.config.upstreams.len());
        self.config.upstreams.insert(at, upstream);
    }

    fn route(&mut self, name: &str) -> Arc<Route> {
        let hosts = [
            "*.test".to_owned(),
            format!("h{}.test", self.random.usize(..HOSTS)),
        ];
        let hosts: Vec<&str> = hosts[self.random.usize(..=2)..]
            .iter()
            .map(String::as_str)
            .collect();
        let path = ["/", "/a", "=/b"][self.random.usize(..3)];
        let mut found = route(name, &hosts, &[path]);
        let upstream = self.random.usize(..self.config.upstreams.len());
        let upstream = Arc::clone(&self.config.upstreams[upstream].name);
        match self.random.u8(..4) {
            // It guards a part of the paths.
            0 => {
                if let Action::Respond(response) = &mut found.rules[0].action {
                    response.status = 403;
                }
            }
            _ => found.rules[0].action = Action::Forward(Box::new(Forward::to(&*upstream))),
        }
        for _ in 0..self.random.usize(..3) {
            let listener = format!("web{}", self.random.usize(..LISTENERS));
            if !found.listeners.iter().any(|name| **name == *listener) {
                found.listeners.push(listener.into());
            }
        }
        Arc::new(found)
    }

    fn change(&mut self) {
        let (routes, upstreams) = (self.config.routes.len(), self.config.upstreams.len());
        match self.random.u8(..8) {
            0 => self.add_upstream(),
            1 => {
                let at = self.random.usize(..upstreams);
                let name = Arc::clone(&self.config.upstreams[at].name);
                self.config.upstreams[at] = self.upstream(&name);
            }
            2 if upstreams > 1 => self.remove_upstream(),
            3 | 4 => {
                let name = self.name("route");
                let added = self.route(&name);
                let at = self.random.usize(..=routes);
                self.config.routes.insert(at, added);
            }
            5 if routes > 0 => drop(self.config.routes.remove(self.random.usize(..routes))),
            _ if routes > 0 => {
                let at = self.random.usize(..routes);
                let name = Arc::clone(&self.config.routes[at].name);
                self.config.routes[at] = self.route(&name);
            }
            _ => {}
        }
    }

    /// Removes an upstream, and the routes that lead to it.
    fn remove_upstream(&mut self) {
        let at = self.random.usize(..self.config.upstreams.len());
        let removed = self.config.upstreams.remove(at);
        let leads_there = |route: &Arc<Route>| match &route.rules[0].action {
            Action::Forward(forward) => **forward == Forward::to(&*removed.name),
            _ => false,
        };
        self.config.routes.retain(|route| !leads_there(route));
    }
}

#[test]
fn changed_routes_alone_are_compiled() {
    let (mut compiled, mut all) = (0, 0);
    for seed in 0..SEEDS {
        let mut configs = Configs::new(seed);
        let mut last = compile(configs.config.clone());
        for step in 0..STEPS {
            for _ in 0..configs.random.usize(1..4) {
                configs.change();
            }
            let config = Arc::new(configs.config.clone());
            let place = format!("seed {seed}, step {step}");
            let table = Table::compile(Arc::clone(&config), Some(&last), &mut |_, _| Ok(()));
            assert_eq!(table.problems(), [], "{place}");
            agree(&table, &config, &place);
            let alone = compile(configs.config.clone());
            for (id, _) in alone.listeners() {
                assert_eq!(table.guards_paths(id), alone.guards_paths(id), "{place}");
            }
            let names = |table: &Table<()>| -> Vec<_> {
                table
                    .routes()
                    .map(|route| Arc::clone(&route.route().name))
                    .collect()
            };
            assert_eq!(names(&table), names(&alone), "{place}");
            compiled += table.compiled_routes().count();
            all += table.routes().len();
            last = table;
        }
    }
    assert!(compiled * 2 < all, "{compiled} of {all} routes");
}

#[test]
fn a_route_that_names_a_removed_upstream_is_compiled_again() {
    let mut configs = Configs::new(1);
    let name = Arc::clone(&configs.config.upstreams[0].name);
    let mut found = route("leads there", &[], &["/"]);
    found.rules[0].action = Action::Forward(Box::new(Forward::to(&*name)));
    configs.config.routes.push(Arc::new(found));
    let last = compile(configs.config.clone());
    assert_eq!(last.problems(), []);
    configs.config.upstreams.remove(0);
    let config = Arc::new(configs.config.clone());
    let table = Table::compile(config, Some(&last), &mut |_, _| Ok(()));
    assert_eq!(table.problems(), compile(configs.config).problems());
    assert_eq!(table.problems().len(), 1);
}

#[test]
fn an_added_name_that_an_unchanged_part_has_is_a_problem() {
    let mut configs = Configs::new(2);
    let first = configs.route("twice");
    configs.config.routes.push(first);
    let last = compile(configs.config.clone());
    let second = configs.route("twice");
    configs.config.routes.push(second);
    let config = Arc::new(configs.config.clone());
    let table = Table::compile(config, Some(&last), &mut |_, _| Ok(()));
    assert_eq!(table.problems(), compile(configs.config.clone()).problems());
    assert_eq!(table.problems().len(), 1);

    configs.config.routes.pop();
    let name = Arc::clone(&configs.config.upstreams[0].name);
    let again = configs.upstream(&name);
    configs.config.upstreams.push(again);
    let config = Arc::new(configs.config.clone());
    let table = Table::compile(config, Some(&last), &mut |_, _| Ok(()));
    assert_eq!(table.problems(), compile(configs.config).problems());
    assert_eq!(table.problems().len(), 1);
}
