//! Requests whose responder is held before their task starts: answered from outside, left to the task, abandoned.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringmain_engine::{Config, Cx};
use ringmain_testkit::wait::until;
use ringmain_web::{AbortHandle, App, Framing, Request, Responder};
use ringmain_wire::h1::FieldBlock;

use crate::support::{End, get, post, serve};

on_every_backend! {
    the_holder_of_a_ticket_answers_its_request,
    answers_keep_the_order_of_their_requests,
    a_closing_response_closes_the_connection,
    a_disconnect_is_reported_to_the_holder,
    a_ticket_that_is_lost_cuts_its_connection,
}

/// Counters that a test checks.
#[derive(Default)]
struct Seen {
    held: AtomicU32,
    abandoned: AtomicU32,
}

impl Seen {
    fn abandoned(&self) -> u32 {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// Responders of a worker in order of arrival.
#[derive(Default)]
struct Desk {
    kept: RefCell<Vec<(String, Responder)>>,
}

struct Keeper {
    desk: Rc<Desk>,
    seen: Arc<Seen>,
}

impl AbortHandle for Keeper {
    fn abandon(&self) {
        self.desk.kept.take();
        self.seen.abandoned.fetch_add(1, Ordering::Relaxed);
    }
}

/// `/keep…` is held and answered by a separate task a turn later, `/run` is held and left to its task, `/hold` is held permanently,
/// `/lose` is dropped; every other request reaches its task directly.
fn app(seen: &Arc<Seen>) -> App {
    let seen = Arc::clone(seen);
    App::new()
        .per_worker(|_: &Cx| Rc::new(Desk::default()))
        .fast_path(move |req, responder| look(req, responder, &seen))
        .fallback_streamed(async |req, reply| {
            let body = req.chunk().await?.map_or(0, |bytes| bytes.len());
            reply.text(format!("task {} {body}\n", req.path()))
        })
}

fn look(req: &Request<'_>, responder: Responder, seen: &Arc<Seen>) -> Result<Rc<dyn AbortHandle>, Responder> {
    let desk = Rc::clone(req.local::<Rc<Desk>>().expect("each worker has one"));
    let keeper = Rc::new(Keeper {
        desk: Rc::clone(&desk),
        seen: Arc::clone(seen),
    });
    let path = req.path().to_owned();
    assert_eq!(responder.connection(), req.connection());
    match &path[..] {
        "/hold" => {
            desk.kept.borrow_mut().push((path, responder));
            seen.held.fetch_add(1, Ordering::Relaxed);
        }
        "/lose" => drop(responder),
        "/run" => assert!(responder.start_task(), "there is room for a task"),
        "/odd" => {
            // An invalid response leaves everything unchanged.
            let fields = FieldBlock::new();
            let responder = responder.forward(101, &fields, Framing::None, b"", |_| {});
            assert!(
                responder.expect_err("no final answer").start_task(),
                "there is room for a task"
            );
        }
        _ if path.starts_with("/keep") => {
            desk.kept.borrow_mut().push((path, responder));
            let cx = req.cx().clone();
            let answering = async move {
                let (path, responder) = desk.kept.borrow_mut().remove(0);
                let mut fields = FieldBlock::new();
                fields.push("X-Who", b"kept").expect("a field");
                let framing = Framing::Length(path.len() as u64);
                let told = responder.forward(200, &fields, framing, path.as_bytes(), |_| {});
                told.expect("an answer");
            };
            cx.spawn(answering).expect("room for a task");
        }
        _ => return Err(responder),
    }
    Ok(keeper)
}

fn the_holder_of_a_ticket_answers_its_request(engine: Config) {
    let seen: Arc<Seen> = Arc::default();
    let server = serve(engine, app(&seen));
    let mut client = server.client();
    for round in 0..3 {
        for (path, body) in [
            ("/keep", "/keep"),
            ("/run", "task /run 0\n"),
            ("/other", "task /other 0\n"),
            ("/odd", "task /odd 0\n"),
        ] {
            client.send(get(path));
            let answer = client.answer();
            answer.expect(200, body);
            let kept = answer.field("x-who").is_some();
            assert_eq!(kept, path == "/keep", "{path}, round {round}");
        }
        // Requests with a body are not offered.
        client.send(post("/keep", "text/plain", "four"));
        client.answer().expect(200, "task /keep 4\n");
    }
    server.shut_down();
    assert_eq!(seen.abandoned(), 0);
}

fn answers_keep_the_order_of_their_requests(engine: Config) {
    let seen = Arc::default();
    let server = serve(engine, app(&seen));
    let mut client = server.client();
    let paths: Vec<String> = (0..40)
        .map(|n| {
            if n % 3 == 0 {
                format!("/other{n}")
            } else {
                format!("/keep{n}")
            }
        })
        .collect();
    let all: String = paths.iter().map(|path| get(path)).collect();
    client.send(all);
    for path in &paths {
        let kept = path.starts_with("/keep");
        let body = if kept {
            path.clone()
        } else {
            format!("task {path} 0\n")
        };
        client.answer().expect(200, &body);
    }
    let mut client = server.client();
    client.send("HEAD /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to("HEAD");
    assert_eq!(
        (answer.field("content-length"), answer.body.len()),
        (Some("5"), 0)
    );
    client.send(get("/keep"));
    client.answer().expect(200, "/keep");
    server.shut_down();
}

fn a_closing_response_closes_the_connection(engine: Config) {
    let seen = Arc::default();
    let server = serve(engine, app(&seen));
    for request in [
        "GET /keep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /keep HTTP/1.0\r\n\r\n",
    ] {
        let mut client = server.client();
        client.send(request);
        client.answer().expect(200, "/keep");
        assert_eq!(client.rest().1, End::Orderly);
    }
    // The end of a client's side is not the end of its last request.
    let mut client = server.client();
    client.send(get("/keep"));
    client.finish();
    client.answer().expect(200, "/keep");
    assert_eq!(client.rest().1, End::Orderly);
    server.shut_down();
}

fn a_disconnect_is_reported_to_the_holder(engine: Config) {
    let seen: Arc<Seen> = Arc::default();
    let server = serve(engine, app(&seen));
    let mut client = server.client();
    client.send(get("/other"));
    client.answer().expect(200, "task /other 0\n");
    client.send(get("/hold"));
    until("another thread", || seen.held.load(Ordering::Relaxed) == 1);
    client.reset();
    until("another thread", || seen.abandoned() == 1);
    // Its place is used again.
    server.get("/keep").expect(200, "/keep");
    server.get("/run").expect(200, "task /run 0\n");
    assert_eq!(server.app.stats().totals().classes[4], 1, "noted as 499");
    server.shut_down();
}

fn a_ticket_that_is_lost_cuts_its_connection(engine: Config) {
    let seen = Arc::default();
    let server = serve(engine, app(&seen));
    let mut client = server.client();
    client.send(get("/lose"));
    assert_eq!(client.rest().1, End::Reset);
    server.get("/keep").expect(200, "/keep");
    server.shut_down();
}
