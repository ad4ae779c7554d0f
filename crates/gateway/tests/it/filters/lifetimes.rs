//! The lifetime of filters: one instance for each worker and place of the configuration, until the last request of a removed place.

use std::sync::mpsc;

use super::*;
use ringmain_testkit::wait::until;

on_every_backend! {
    one_for_each_worker_and_place,
    until_the_last_request_of_a_place_that_is_gone,
    over_when_a_client_leaves,
}

fn lines(told: &Told) -> Vec<String> {
    told.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn count(told: &Told, line: &str) -> usize {
    lines(told).iter().filter(|found| *found == line).count()
}

fn one_for_each_worker_and_place(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (filters, told) = scripted([("a", Script::default())]);
    let edge = edge(engine, to(&[origin.addr], |_, _| {}), filters);
    for _ in 0..10 {
        edge.server.get("/").expect(200, "ok");
    }
    edge.server.shut_down();
    assert_eq!(
        (count(&told, "a over Some(200) whole"), count(&told, "a gone")),
        (10, 1)
    );
}

/// An origin that responds when the test says so.
fn waiting() -> (Origin, mpsc::Sender<()>) {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let waited = gone.lock().expect("one at a time").recv();
            if waited.is_err() || !peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") {
                return;
            }
        }
    });
    (origin, go)
}

fn until_the_last_request_of_a_place_that_is_gone(engine: Config) {
    let (origin, go) = waiting();
    let (filters, told) = scripted([("a", Script::default())]);
    let plain = to(&[origin.addr], |_, _| {});
    let mut same = plain.clone();
    name_all(&mut Arc::make_mut(&mut same.routes[0]).rules[0], &filters);
    let edge = edge(engine, plain.clone(), filters);
    // A change elsewhere in the configuration does not replace a filter.
    assert_eq!(edge.gateway.replace(Arc::new(same), Duration::ZERO), []);
    let mut held = edge.server.client();
    held.send(support::get("/"));
    origin.seen();
    assert_eq!(edge.gateway.replace(Arc::new(plain), Duration::ZERO), []);
    let mut other = edge.server.client();
    other.send(support::get("/"));
    origin.seen();
    // The worker has followed, and the first request still has its filter.
    assert_eq!((count(&told, "a gone"), count(&told, "a request head")), (0, 1));
    for _ in 0..2 {
        go.send(()).expect("the origin waits");
    }
    held.answer().expect(200, "ok");
    other.answer().expect(200, "ok");
    until("it goes with its last request", || count(&told, "a gone") == 1);
    assert_eq!(
        lines(&told),
        [
            "a request head",
            "a response head 200",
            "a over Some(200) whole",
            "a gone"
        ]
    );
    edge.server.shut_down();
}

fn over_when_a_client_leaves(engine: Config) {
    let (origin, _go) = waiting();
    let (edge, told) = one(engine, &origin, Script::default());
    let mut client = edge.server.client();
    client.send(support::get("/"));
    origin.seen();
    client.reset();
    until("it is told", || count(&told, "a over None cut") == 1);
    edge.server.shut_down();
}
