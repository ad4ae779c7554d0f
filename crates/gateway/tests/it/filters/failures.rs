//! Filters that fail, panic, answer too late or make too much: one request feels it, and no other.

use ringmain_gateway::filter::FilterResponse;
use ringmain_gateway::limits::FILTER_GROWTH_BYTES;

use super::*;

on_every_backend! {
    errors_and_panics_are_one_requests,
    answers_from_everywhere,
    too_much_is_made_of_a_piece,
    panics_while_waiting,
    filters_that_are_not_there,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const FAILED: &str = "filter failed\n";

fn wanting(want: BodyAccess) -> Script {
    match want {
        BodyAccess::Buffer => Script {
            request_head: |head| {
                head.want_body(BodyAccess::Buffer);
                Ok(Flow::Continue)
            },
            response_head: |head| {
                head.want_body(BodyAccess::Buffer);
                Ok(Flow::Continue)
            },
            ..Script::default()
        },
        _ => Script {
            request_head: |head| {
                head.want_body(BodyAccess::Modify);
                Ok(Flow::Continue)
            },
            response_head: |head| {
                head.want_body(BodyAccess::Modify);
                Ok(Flow::Continue)
            },
            ..Script::default()
        },
    }
}

/// Returns whether a request selects the failure.
fn is_bad(about: &RequestInfo<'_>) -> bool {
    about.path() == "/bad"
}

/// Fails for a request that asks for trouble.
fn fail(about: &RequestInfo<'_>) -> Outcome<'static> {
    if is_bad(about) {
        Err("meant to".into())
    } else {
        Ok(Flow::Continue)
    }
}

/// The same by a panic.
fn panic(about: &RequestInfo<'_>) -> Outcome<'static> {
    assert!(!is_bad(about), "meant to");
    Ok(Flow::Continue)
}

fn errors_and_panics_are_one_requests(engine: Config) {
    let put = |script: &mut Script, hook: usize, panics: bool| match (hook, panics) {
        (0, false) => script.request_head = |head| fail(head.about()),
        (0, true) => script.request_head = |head| panic(head.about()),
        (1, false) => script.request_body = |body| fail(body.about()),
        (1, true) => script.request_body = |body| panic(body.about()),
        (2, false) => script.response_head = |head| fail(head.about()),
        (2, true) => script.response_head = |head| panic(head.about()),
        (_, false) => script.response_body = |body| fail(body.about()),
        (_, true) => script.response_body = |body| panic(body.about()),
    };
    for hook in 0..4 {
        for panics in [false, true] {
            let origin = Origin::answering(OK);
            let mut script = wanting(BodyAccess::Buffer);
            put(&mut script, hook, panics);
            let (edge, told) = one(engine.clone(), &origin, script);
            edge.server
                .ask(support::post("/bad", "text/plain", "word"))
                .expect(500, FAILED);
            edge.server
                .ask(support::post("/good", "text/plain", "word"))
                .expect(200, "ok");
            let faults = edge.gateway.fault_counts();
            let counted = faults.iter().find(|(fault, _)| fault.label() == "filter_failed");
            assert_eq!(counted.map(|(_, count)| *count), Some(1), "hook {hook}");
            edge.server.shut_down();
            let told = super::told(&told);
            let overs = told.iter().filter(|line| line.contains("over")).count();
            assert_eq!(overs, if panics { 1 } else { 2 }, "hook {hook}: {told:?}");
        }
    }
}

fn answers_from_everywhere(engine: Config) {
    fn no<'a>() -> Outcome<'a> {
        Ok(Flow::Respond(FilterResponse::text(409, "no")))
    }
    for hook in 0..3 {
        let origin = Origin::answering(OK);
        let mut script = wanting(BodyAccess::Buffer);
        match hook {
            0 => script.request_body = |_| no(),
            1 => script.response_head = |_| no(),
            _ => script.response_body = |_| no(),
        }
        let (edge, told) = one(engine.clone(), &origin, script);
        for _ in 0..2 {
            let answer = edge.server.ask(support::post("/", "text/plain", "word"));
            answer.expect(409, "no\n");
            assert_eq!(answer.field("x-old"), None);
        }
        edge.server.shut_down();
        assert!(super::told(&told).contains(&"a over Some(409) whole".to_owned()));
    }
    // Within a body that is forwarded to an upstream which has not responded.
    let origin = Origin::new(|mut peer| while peer.request().is_some() {});
    let script = Script {
        request_body: |body| if body.is_end() { no() } else { Ok(Flow::Continue) },
        ..wanting(BodyAccess::Modify)
    };
    let (edge, _) = one(engine.clone(), &origin, script);
    edge.server
        .ask(support::post("/", "text/plain", "word"))
        .expect(409, "no\n");
    edge.server.shut_down();
    // If the client has received the head already, the response can only be cut.
    let origin = Origin::answering(OK);
    let script = Script {
        response_body: |body| if body.is_end() { no() } else { Ok(Flow::Continue) },
        ..wanting(BodyAccess::Modify)
    };
    let (edge, told) = one(engine, &origin, script);
    let mut client = edge.server.client();
    client.send(support::get("/"));
    assert_eq!(client.head().status, 200);
    client.expect_end();
    edge.server.shut_down();
    assert!(super::told(&told).contains(&"a over Some(200) cut".to_owned()));
}

fn too_much_is_made_of_a_piece(engine: Config) {
    let origin = Origin::answering(OK);
    let script = Script {
        response_body: |body| {
            let count = if is_bad(body.about()) { 1 } else { 0 };
            let came = body.bytes().len();
            body.bytes_mut()?.resize(came + FILTER_GROWTH_BYTES + count, b'x');
            Ok(Flow::Continue)
        },
        ..wanting(BodyAccess::Buffer)
    };
    let (edge, _) = one(engine, &origin, script);
    edge.server.get("/bad").expect(500, FAILED);
    assert_eq!(edge.server.get("/good").body.len(), 2 + FILTER_GROWTH_BYTES);
    edge.server.shut_down();
}

/// A filter that waits, and then acts by the path.
struct Waits;

impl Filter for Waits {
    type Exchange = u32;

    fn begin(&self, _: &RequestInfo<'_>) -> u32 {
        0
    }

    fn request_head<'a>(&'a self, waited: &'a mut u32, head: &'a mut RequestHead<'_>) -> Outcome<'a> {
        let cx = head.about().cx().clone();
        Flow::wait(async move {
            let answer = cx.blocking(|| 42).await?;
            assert!(!is_bad(head.about()), "meant to");
            *waited += 1;
            head.set("X-Waited", answer.to_string())?;
            match head.about().path() {
                "/fail" => Err("meant to".into()),
                "/answer" => Ok(Flow::Respond(FilterResponse::new(299).body("here"))),
                _ => Ok(Flow::Continue),
            }
        })
    }

    fn response_head<'a>(&'a self, waited: &'a mut u32, head: &'a mut ResponseHead<'_>) -> Outcome<'a> {
        let cx = head.about().cx().clone();
        Flow::wait(async move {
            cx.sleep(Duration::from_millis(1)).await;
            *waited += 1;
            head.set("X-Waits", waited.to_string())?;
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        })
    }

    fn response_body<'a>(&'a self, waited: &'a mut u32, body: &'a mut ResponseBody<'_>) -> Outcome<'a> {
        let cx = body.about().cx().clone();
        Flow::wait(async move {
            cx.sleep(Duration::from_millis(1)).await;
            *waited += 1;
            body.bytes_mut()?.make_ascii_uppercase();
            Ok(Flow::Continue)
        })
    }
}

fn panics_while_waiting(engine: Config) {
    let origin = Origin::answering(OK);
    let filters = Filters::new().add("waits", |_: &Options| Ok(|_: &Cx| Waits));
    let edge = edge(engine, to(&[origin.addr], |_, _| {}), filters);
    for _ in 0..2 {
        let answer = edge.server.get("/");
        answer.expect(200, "OK");
        assert_eq!(answer.field("x-waits"), Some("2"));
        assert_eq!(origin.seen().field("x-waited").as_deref(), Some("42"));
        edge.server.get("/bad").expect(500, FAILED);
        edge.server.get("/fail").expect(500, FAILED);
        edge.server.get("/answer").expect(299, "here");
    }
    edge.server.shut_down();
}

fn filters_that_are_not_there(engine: Config) {
    let naming = |name: &str, options: Options| {
        let mut config = to(&[crate::origin::refusing_addr()], |_, _| {});
        let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
        let wanted = FilterUse {
            name: name.into(),
            options,
        };
        rule.policies.push(Policy::Filter(Arc::new(wanted)));
        config
    };
    let number = |options: &Options| {
        let _: u32 = options.read()?;
        Ok(|_: &Cx| Waits)
    };
    let some = || {
        let angry = |_: &Options| -> Result<fn(&Cx) -> Waits, _> { panic!("meant to") };
        Filters::new().add("number", number).add("angry", angry)
    };
    for (filters, name, words) in [
        (Filters::new(), "sign", ["`sign`", "no filters are registered"]),
        (some(), "sign", ["`sign`", "`angry`, `number`"]),
        (some(), "number", ["`number`", "invalid type: map, expected u32"]),
        (some(), "angry", ["`angry`", "panicked"]),
    ] {
        let config = naming(name, Options::Map(Vec::new()));
        let gateway = Gateway::with_filters(Arc::new(config), filters, Duration::ZERO);
        let problems: Vec<_> = gateway.problems().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 1);
        assert!(
            words.iter().all(|word| problems[0].contains(word)),
            "{}",
            problems[0]
        );
        let server = support::serve(engine.clone(), gateway.app());
        server.get("/").expect(500, "invalid route configuration\n");
        server.shut_down();
    }
}
