//! Custom filters of a program: the parts that they see, change and hold, and the outcome of failing ones.

mod bodies;
mod failures;
mod heads;
mod lifetimes;
mod virtual_time;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::Gateway;
use ringmain_gateway::filter::{
    BodyAccess, Cx, ExchangeEnd, Filter, FilterUse, Filters, Flow, Options, Outcome, RequestBody,
    RequestHead, RequestInfo, ResponseBody, ResponseHead,
};
use ringmain_gateway::model::{self, Policy, Rule};

use crate::origin::{Edge, Origin, to};
use crate::support;

/// The action of a filter in each hook. The default is none.
#[derive(Clone)]
struct Script {
    request_head: fn(&mut RequestHead<'_>) -> Outcome<'static>,
    request_body: fn(&mut RequestBody<'_>) -> Outcome<'static>,
    response_head: fn(&mut ResponseHead<'_>) -> Outcome<'static>,
    response_body: fn(&mut ResponseBody<'_>) -> Outcome<'static>,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            request_head: |_| Ok(Flow::Continue),
            request_body: |_| Ok(Flow::Continue),
            response_head: |_| Ok(Flow::Continue),
            response_body: |_| Ok(Flow::Continue),
        }
    }
}

/// Events in order.
type Told = Arc<Mutex<Vec<String>>>;

fn told(told: &Told) -> Vec<String> {
    std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A filter that does what its script says, and notes that it was called.
struct Scripted {
    name: &'static str,
    script: Script,
    told: Told,
}

impl Scripted {
    fn tell(&self, what: &str) {
        let line = format!("{} {what}", self.name);
        self.told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.tell("gone");
    }
}

impl Filter for Scripted {
    type Exchange = ();

    fn begin(&self, _: &RequestInfo<'_>) {}

    fn request_head<'a>(&'a self, (): &'a mut (), head: &'a mut RequestHead<'_>) -> Outcome<'a> {
        self.tell("request head");
        (self.script.request_head)(head)
    }

    fn request_body<'a>(&'a self, (): &'a mut (), body: &'a mut RequestBody<'_>) -> Outcome<'a> {
        if body.is_end() {
            self.tell("request end");
        }
        (self.script.request_body)(body)
    }

    fn response_head<'a>(&'a self, (): &'a mut (), head: &'a mut ResponseHead<'_>) -> Outcome<'a> {
        self.tell(&format!("response head {}", head.status()));
        (self.script.response_head)(head)
    }

    fn response_body<'a>(&'a self, (): &'a mut (), body: &'a mut ResponseBody<'_>) -> Outcome<'a> {
        if body.is_end() {
            self.tell("response end");
        }
        (self.script.response_body)(body)
    }

    fn over(&self, (): (), end: &ExchangeEnd) {
        let how = if end.is_whole { "whole" } else { "cut" };
        self.tell(&format!("over {:?} {how}", end.status));
    }
}

/// Filters of these names, who tell what happens to them.
fn scripted(scripts: impl IntoIterator<Item = (&'static str, Script)>) -> (Filters, Told) {
    let told = Told::default();
    let mut filters = Filters::new();
    for (name, script) in scripts {
        let told = Arc::clone(&told);
        filters = filters.add(name, move |_: &Options| {
            let (script, told) = (script.clone(), Arc::clone(&told));
            Ok(move |_: &Cx| Scripted {
                name,
                script: script.clone(),
                told: Arc::clone(&told),
            })
        });
    }
    (filters, told)
}

/// Has a rule name them all.
fn name_all(rule: &mut Rule, filters: &Filters) {
    rule.policies.extend(filters.names().map(|name| {
        Policy::Filter(Arc::new(FilterUse {
            name: name.into(),
            options: Options::Nothing,
        }))
    }));
}

/// Starts a gateway with these filters, every one at its first rule in the order of their names.
fn edge(engine: Config, mut config: model::Config, filters: Filters) -> Edge {
    name_all(&mut Arc::make_mut(&mut config.routes[0]).rules[0], &filters);
    let gateway = Gateway::with_filters(Arc::new(config), filters, Duration::ZERO);
    assert_eq!(gateway.problems(), [], "a configuration without problems");
    let server = support::serve(engine, gateway.app());
    Edge { server, gateway }
}

/// One filter in front of one origin.
fn one(engine: Config, origin: &Origin, script: Script) -> (Edge, Told) {
    let (filters, told) = scripted([("a", script)]);
    (edge(engine, to(&[origin.addr], |_, _| {}), filters), told)
}

/// An answer in chunks of at most `size` bytes.
fn answering(body: &[u8], size: usize) -> Origin {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    Origin::answering([&head[..], &support::chunked(body, size)].concat())
}
