//! An overloaded worker refuses requests that have waited too long, and no others. That bursts and long computations alone refuse nothing is
//! shown in virtual time (`burst.rs`).

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_web::stats::Rejection;
use ringmain_web::{App, Limits, Request, Result};

use crate::support::{get, serve};

on_every_backend!(late_requests_in_an_overloaded_worker_are_refused);

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
            max_queue_delay: Some(PATIENCE),
            ..Limits::default()
        })
        .health()
        .get("/", |_, reply| reply.text("ok"))
        .get("/gate", move |_, reply| -> Result {
            entered.send(())?;
            gate.lock().unwrap_or_else(PoisonError::into_inner).recv()?;
            reply.text("open")
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

fn late_requests_in_an_overloaded_worker_are_refused(config: Config) {
    let held = held();
    let server = serve(config, held.app);
    let mut first = server.client();
    first.send(get("/gate"));
    held.has_entered.recv().expect("the handler runs");
    // While the worker is held, many times the number of requests that it can answer in time arrive.
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
    let rejected = server.app.stats().totals().rejected;
    assert_eq!(rejected[0], (Rejection::QueueDelay, refused.len() as u64));
    // A worker that has caught up answers as ever.
    workers[0].expect_alive("/");
}
