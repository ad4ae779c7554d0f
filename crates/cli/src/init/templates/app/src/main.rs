//! A JSON API: a counter for each name, in memory, shared by the workers.
//!
//! ```text
//! cargo run
//! curl http://127.0.0.1:8080/counters/visits
//! curl http://127.0.0.1:8080/counters/visits --json '{"add": 2}'
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ringmain::{App, Error, Exit, Reply, Request, Result};
use serde::{Deserialize, Serialize};

/// The state of the application: handlers find it by its type.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, u64>>);

/// The body of a POST. Anything else receives 400, with the position of the error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    add: u64,
}

#[derive(Serialize)]
struct Counter {
    name: String,
    value: u64,
}

fn show(req: &Request, reply: &mut Reply) -> Result {
    let name = req.param("name")?.into_owned();
    let counters = req.state::<Counters>()?;
    let counters = counters.0.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(&value) = counters.get(&name) else {
        return Err(Error::not_found(format!("there is no counter `{name}`")));
    };
    reply.json(&Counter { name, value })
}

fn add(req: &Request, reply: &mut Reply) -> Result {
    let name = req.param("name")?.into_owned();
    let change: Change = req.json()?;
    // A lock that is held this briefly does not block the worker. Databases belong into `async` handlers.
    let counters = req.state::<Counters>()?;
    let mut counters = counters.0.lock().unwrap_or_else(PoisonError::into_inner);
    let value = counters.entry(name.clone()).or_default();
    *value = value.saturating_add(change.add);
    reply.json(&Counter { name, value: *value })
}

fn app() -> App {
    App::new()
        .state(Counters::default())
        .get("/counters/{name}", show)
        .post("/counters/{name}", add)
        .health()
}

fn main() -> Exit {
    let addr = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".into());
    app().run(&addr)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ringmain::testing::TestClient;

    #[test]
    fn counters_add_up() {
        let mut client = TestClient::new(super::app()).unwrap();
        assert_eq!(client.get("/counters/visits").send().status(), 404);
        for expected in [
            "{\"name\":\"visits\",\"value\":2}",
            "{\"name\":\"visits\",\"value\":4}",
        ] {
            let change = BTreeMap::from([("add", 2)]);
            let reply = client.post("/counters/visits").json(&change).send();
            assert_eq!((reply.status(), reply.text()), (200, expected));
        }
        let reply = client.get("/counters/visits").send();
        assert_eq!(reply.text(), "{\"name\":\"visits\",\"value\":4}");
        client.finish().unwrap();
    }
}
