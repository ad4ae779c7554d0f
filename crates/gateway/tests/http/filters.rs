//! Filters that a program brings along: what they see, change and hold up, and what becomes of those that fail.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::Gateway;
use ringmain_gateway::filter::{About, Cx, Filter, FilterUse, Filters, Flow, Options, Outcome, RequestHead};
use ringmain_gateway::model::{self, Policy};

use crate::origin::{Edge, Origin, to};
use crate::support;

on_every_backend! {
    a_header_is_set,
}

/// A gateway that has these filters, all of them at its one rule.
fn edge(engine: Config, mut config: model::Config, filters: Filters) -> Edge {
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.policies.extend(filters.names().map(|name| {
        Policy::Filter(Arc::new(FilterUse {
            name: name.into(),
            options: Options::Nothing,
        }))
    }));
    let gateway = Gateway::with_filters(Arc::new(config), filters, Duration::ZERO);
    assert_eq!(gateway.problems(), [], "a configuration without problems");
    let server = support::serve(engine, gateway.app());
    Edge { server, gateway }
}

struct Stamp(&'static str);

impl Filter for Stamp {
    type Exchange = ();

    fn begin(&self, _: &About<'_>) {}

    fn request_head<'a>(&'a self, _: &'a mut (), head: &'a mut RequestHead<'_>) -> Outcome<'a> {
        head.set("X-Stamp", self.0)?;
        Ok(Flow::Continue)
    }
}

fn a_header_is_set(engine: Config) {
    let origin = Origin::echo();
    let filters = Filters::new().add("stamp", |_: &Options| Ok(|_: &Cx| Stamp("yes")));
    let edge = edge(engine, to(&[origin.addr], |_, _| {}), filters);
    for _ in 0..3 {
        let answer = edge
            .server
            .ask("GET / HTTP/1.1\r\nHost: a\r\nX-Stamp: no\r\nX_Stamp: no\r\n\r\n");
        assert_eq!(answer.status, 200);
        let seen = origin.seen();
        assert_eq!(seen.field("x-stamp").as_deref(), Some("yes"));
        assert_eq!(seen.field("x_stamp"), None);
    }
    edge.server.shut_down();
}
