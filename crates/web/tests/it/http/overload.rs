//! An overloaded worker refuses what has waited too long, and nothing else; one that is held by a long computation or by a burst
//! refuses nothing.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_web::{App, Limits, Request, Result};

use crate::support::{get, serve};

on_every_backend!(
    what_has_waited_too_long_in_an_overloaded_worker_is_refused,
    what_waited_behind_one_long_computation_is_answered,
);

/// By the worker's own clock.
const WORK: Duration = Duration::from_millis(4);

const PATIENCE: Duration = Duration::from_millis(60);

fn spin(req: &Request<'_>, span: Duration) {
    let began = req.cx().clock();
    while req.cx().clock().since(began) < span {
        std::hint::spin_loop();
    }
}

/// An application whose `/gate` holds its worker until the test opens it.
struct Held {
    app: App,
    has_entered: Receiver<()>,
    open: std::sync::mpsc::Sender<()>,
}

fn held() -> Held {
    let (entered, has_entered) = channel();
    let (open, gate) = channel::<()>();
    let gate: Mutex<Receiver<()>> = Mutex::new(gate);
    let app = App::new()
        .limits(Limits {
            patience: Some(PATIENCE),
            ..Limits::default()
        })
        .health()
        .get("/", |_, reply| reply.text("ok"))
        .get("/gate", move |_, reply| -> Result {
            entered.send(())?;
            gate.lock().unwrap_or_else(PoisonError::into_inner).recv()?;
            reply.text("open")
        })
        .get("/long", |req, reply| {
            spin(req, 10 * PATIENCE);
            reply.text("computed")
        })
        .get("/work", |req, reply| {
            spin(req, WORK);
            reply.text("done")
        });
    Held {
        app,
        has_entered,
        open,
    }
}

fn what_has_waited_too_long_in_an_overloaded_worker_is_refused(config: Config) {
    let held = held();
    let server = serve(config, held.app);
    let mut first = server.client();
    first.send(get("/gate"));
    held.has_entered.recv().expect("the handler runs");
    // While the worker is held, all these arrive: many times what it can answer in its patience.
    let mut workers: Vec<_> = (0..100).map(|_| server.client()).collect();
    workers.iter_mut().for_each(|client| client.send(get("/work")));
    let mut probe = server.client();
    probe.send(get("/healthz"));
    held.open.send(()).expect("the handler waits");
    first.answer().expect(200, "open");
    let answers: Vec<_> = workers.iter_mut().map(|client| client.answer()).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert!(!refused.is_empty(), "all were answered, however late");
    for answer in &refused {
        assert_eq!(answer.field("retry-after"), Some("1"));
        assert!(!answer.closes());
    }
    let done = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(done > 0, "what came first has not waited");
    assert_eq!(done + refused.len(), answers.len());
    probe.answer().expect(200, "ok\n");
    // A worker that has caught up answers as ever.
    workers[0].expect_alive("/");
}

fn what_waited_behind_one_long_computation_is_answered(config: Config) {
    let held = held();
    let server = serve(config, held.app);
    let mut first = server.client();
    first.send(get("/gate"));
    held.has_entered.recv().expect("the handler runs");
    // Between quick ones, three that compute for ten times what patience allows.
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.extend((0..10).map(|_| (server.client(), "/", "ok")));
        clients.push((server.client(), "/long", "computed"));
    }
    clients.extend((0..10).map(|_| (server.client(), "/", "ok")));
    clients
        .iter_mut()
        .for_each(|(client, path, _)| client.send(get(path)));
    held.open.send(()).expect("the handler waits");
    first.answer().expect(200, "open");
    for (client, _, body) in &mut clients {
        client.answer().expect(200, body);
    }
}
