//! Problems of the data plane in the statuses of a turn, while they last.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_gateway::model::{Config, Endpoint, Name, Network};
use ringmain_gateway::table::{ConfigPart, Consequence, Problem};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Turn;
use crate::live::DataPlane;
use crate::live::pool::Pool;
use crate::live::writer::Wanted;
use crate::objects::{Kind, Object};
use crate::store::Store;
use crate::translate::{CONTROLLER_NAME, Location};

/// Reports the problems that a test has set.
#[derive(Clone, Default)]
struct Plane(Arc<Mutex<Vec<Problem>>>);

impl DataPlane for Plane {
    fn replace(&mut self, _: Config) -> Vec<Problem> {
        self.0.lock().unwrap().clone()
    }

    fn put_endpoints(&mut self, _: Vec<(Name, Vec<Endpoint>)>) {}
}

fn put(store: &mut Store, kind: Kind, object: Value) {
    store.apply(Object::from_value(kind, object).unwrap()).unwrap();
}

fn route(name: &str, generation: u64) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "generation": generation},
        "spec": {"parentRefs": [{"name": "g"}], "rules": [{}]},
    })
}

/// The types of the conditions of an object's wanted status that are false, or that only problems add.
fn faults(wanted: &watch::Receiver<Arc<Wanted>>, object: &str) -> Vec<String> {
    let wanted = Arc::clone(&wanted.borrow());
    let mut statuses = wanted.statuses.iter();
    let found = statuses.find(|(key, _)| key.to_string() == object);
    let status = &found.unwrap().1["status"];
    let lists = [&status["listeners"], &status["parents"]].map(|list| list.as_array().cloned());
    let entries = lists.into_iter().flatten().flatten();
    let conditions = entries.chain([status.clone()]).flat_map(|entry| {
        let conditions = entry["conditions"].as_array().cloned();
        conditions.unwrap_or_default()
    });
    let is_fault = |condition: &Value| match condition["type"].as_str() {
        Some("Conflicted") => false,
        Some("PartiallyInvalid") => true,
        _ => condition["status"] == "False",
    };
    let faults = conditions.filter(is_fault);
    faults
        .map(|condition| condition["type"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn problems_of_the_data_plane_are_reported_while_they_last() {
    let mut store = Store::new();
    let class = json!({"metadata": {"name": "c"}, "spec": {"controllerName": CONTROLLER_NAME}});
    put(&mut store, Kind::GatewayClass, class);
    let listener = json!({"name": "l", "port": 80, "protocol": "HTTP"});
    let gateway = json!({
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"gatewayClassName": "c", "listeners": [listener]},
    });
    put(&mut store, Kind::Gateway, gateway);
    for name in ["a", "b"] {
        put(&mut store, Kind::HttpRoute, route(name, 1));
    }
    let plane = Plane::default();
    let (sender, wanted) = watch::channel(Arc::new(Wanted::default()));
    let mut turn = Turn::new(
        CONTROLLER_NAME,
        Location::default(),
        Box::new(plane.clone()),
        sender,
    );
    let mut pool = Pool::new(Network::parse("10.0.0.0/24").unwrap());
    pool.assign(&turn.gateways(&store));
    store.take_changes();
    let none: [Vec<String>; 3] = Default::default();
    let changed = turn.translate(&store, &pool);
    turn.publish(&store, &changed, Duration::ZERO);
    let all = |wanted| ["Gateway/n/g", "HTTPRoute/n/a", "HTTPRoute/n/b"].map(|object| faults(wanted, object));
    assert_eq!(all(&wanted), none);

    // Problems with parts of objects that do not change.
    let problem = |part, consequence| Problem {
        part,
        field: "a field",
        expected: String::new(),
        found: String::new(),
        consequence,
    };
    *plane.0.lock().unwrap() = vec![
        problem(ConfigPart::Listener("Gateway/n/g/l".into()), Consequence::Omitted),
        problem(
            ConfigPart::Route("HTTPRoute/n/a".into(), Some(0)),
            Consequence::Responds500,
        ),
    ];
    let mut generation = 1;
    let mut turn_again = |store: &mut Store| {
        generation += 1;
        put(store, Kind::HttpRoute, route("b", generation));
        let changes = store.take_changes();
        let (changed, is_applied) = turn.update(store, &pool, &changes);
        assert!(is_applied);
        turn.publish(store, &changed, Duration::ZERO);
    };
    for _ in 0..2 {
        turn_again(&mut store);
        let expected = [vec!["Programmed", "Programmed"], vec!["PartiallyInvalid"], vec![]];
        assert_eq!(
            all(&wanted),
            expected.map(|types| types.into_iter().map(str::to_owned).collect::<Vec<_>>())
        );
    }
    plane.0.lock().unwrap().clear();
    turn_again(&mut store);
    assert_eq!(all(&wanted), none);
}
