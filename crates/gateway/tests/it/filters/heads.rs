//! Heads: the fields that filters see and change, their order, and responses by filters.

use ringmain_gateway::filter::FilterResponse;
use ringmain_gateway::model::{Action, HeaderName, HeaderValue, Rule};

use super::*;
use crate::origin::{refusing_addr, rules, upstream};
use crate::policies::with;

on_every_backend! {
    requests_are_changed_last,
    answers_are_changed,
    there_in_order_and_back_the_other_way,
    a_filters_response_passes_earlier_filters,
    answers_of_the_gateways_own,
    a_refused_request_reaches_no_filter,
    without_a_body,
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Old: 1\r\nETag: \"a\"\r\n\r\nok";

/// Changes of a head that no filter may make.
fn refused(head: &mut RequestHead<'_>) {
    for (name, value) in [
        ("Host", "x"),
        ("Content-Length", "1"),
        ("TE", "x"),
        ("a b", "x"),
        ("X-Ok", "a\r\nb"),
    ] {
        assert!(head.set(name, value).is_err(), "{name}");
    }
    assert!(head.set_target("/a b").is_err() && head.set_target("a").is_err());
    assert!(head.set_host("a b").is_err());
}

fn requests_are_changed_last(engine: Config) {
    let origin = Origin::answering(OK);
    let mut config = to(&[origin.addr], |_, _| {});
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    for name in ["X-Rule", "X-Both"] {
        let value = HeaderValue::parse("rule").expect("a value");
        let name = HeaderName::parse(name).expect("a name");
        rule.request_headers.set.push((name, value));
    }
    let script = Script {
        request_head: |head| {
            let about = head.about();
            assert_eq!(
                (about.method(), about.path(), about.target()),
                ("GET", "/a", "/%61?b")
            );
            assert_eq!(
                (about.host(), about.route(), about.is_secure()),
                (Some("shop"), "all", false)
            );
            assert_eq!(head.get("x-one"), Some(&b"1"[..]));
            assert_eq!(
                head.fields()
                    .filter(|(name, _)| name.eq_ignore_ascii_case("x-two"))
                    .count(),
                2
            );
            head.set("X-One", "filter")?;
            head.add("X-One", "again")?;
            head.remove("X-Two");
            head.set("X-Both", "filter")?;
            assert_eq!(head.get("X-ONE"), Some(&b"filter"[..]));
            assert_eq!(head.get("X-Two"), None);
            refused(head);
            head.set_target("/other?c=d")?;
            head.set_host("inside:8080")?;
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let (filters, told) = scripted([("a", script)]);
    let edge = edge(engine, config, filters);
    let request = "GET /%61?b HTTP/1.1\r\nHost: shop\r\nX-One: 1\r\nX_One: 1\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n";
    edge.server.ask(request).expect(200, "ok");
    let seen = origin.seen();
    assert_eq!(seen.line(), "GET /other?c=d HTTP/1.1");
    assert_eq!(seen.field("host").as_deref(), Some("inside:8080"));
    assert_eq!(seen.field("x-one").as_deref(), Some("filter | again"));
    assert_eq!((seen.field("x_one"), seen.field("x-two")), (None, None));
    assert_eq!(seen.field("x-rule").as_deref(), Some("rule"));
    assert_eq!(seen.field("x-both").as_deref(), Some("filter"));
    edge.server.shut_down();
    assert_eq!(
        super::told(&told),
        [
            "a request head",
            "a response head 200",
            "a over Some(200) whole",
            "a gone"
        ]
    );
}

fn answers_are_changed(engine: Config) {
    let origin = Origin::answering(OK);
    let script = Script {
        response_head: |head| {
            assert!(!head.is_own());
            assert_eq!(head.get("x-old"), Some(&b"1"[..]));
            head.remove("X-Old");
            head.set("X-New", "1")?;
            head.add("X-New", "2")?;
            assert!(head.set_status(204).is_err() && head.set_status(101).is_err());
            assert!(head.set("Content-Length", "7").is_err());
            head.set_status(201)?;
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let (edge, _) = one(engine, &origin, script);
    let mut client = edge.server.client();
    for _ in 0..3 {
        client.send(support::get("/"));
        let answer = client.answer();
        answer.expect(201, "ok");
        // The request is a HEAD: its Content-Length remains.
        assert_eq!(answer.field("content-length"), Some("2"));
        assert_eq!(answer.field("x-old"), None);
        let new: Vec<_> = answer.fields.iter().filter(|(name, _)| name == "x-new").collect();
        assert_eq!(new.len(), 2);
    }
    edge.server.shut_down();
}

fn there_in_order_and_back_the_other_way(engine: Config) {
    let origin = Origin::answering(OK);
    let script = || Script {
        request_head: |head| {
            let so_far = head.get("X-Way").unwrap_or_default().to_vec();
            head.set("X-Way", [&so_far[..], b"."].concat())?;
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let (filters, told) = scripted([("a", script()), ("b", script()), ("c", script())]);
    let edge = edge(engine, to(&[origin.addr], |_, _| {}), filters);
    edge.server.get("/").expect(200, "ok");
    assert_eq!(origin.seen().field("x-way").as_deref(), Some("..."));
    edge.server.shut_down();
    let told = super::told(&told);
    let (order, end) = told.split_at(6);
    assert_eq!(
        order,
        [
            "a request head",
            "b request head",
            "c request head",
            "c response head 200",
            "b response head 200",
            "a response head 200",
        ]
    );
    assert_eq!(
        end.iter()
            .filter(|line| line.ends_with("over Some(200) whole"))
            .count(),
        3
    );
}

fn a_filters_response_passes_earlier_filters(engine: Config) {
    let answers = Script {
        request_head: |_| {
            let answer = FilterResponse::text(418, "no coffee").header("X-From", "b")?;
            Ok(Flow::Respond(answer))
        },
        ..Script::default()
    };
    let front = Script {
        response_head: |head| {
            assert!(head.is_own());
            head.set("X-Front", "1")?;
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        response_body: |body| {
            body.bytes_mut()?.make_ascii_uppercase();
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let (filters, told) = scripted([("a", front), ("b", answers), ("c", Script::default())]);
    let edge = edge(engine, to(&[refusing_addr()], |_, _| {}), filters);
    let answer = edge.server.get("/");
    answer.expect(418, "NO COFFEE\n");
    assert_eq!(
        (answer.field("x-from"), answer.field("x-front")),
        (Some("b"), Some("1"))
    );
    assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    edge.server.shut_down();
    let told = super::told(&told);
    assert_eq!(
        told[..4],
        [
            "a request head",
            "b request head",
            "a response head 418",
            "a response end"
        ]
    );
    assert!(told.contains(&"c over Some(418) whole".to_owned()), "{told:?}");
}

fn answers_of_the_gateways_own(engine: Config) {
    let answer = Action::Respond(model::DirectResponse {
        status: 203,
        content_type: None,
        body: model::StaticBody(b"own".as_slice().into()),
    });
    let forward = Action::Forward(Box::new(model::Forward::to("origin")));
    for (action, status, body) in [
        (answer, 203, "OWN"),
        (forward, 503, "UPSTREAM CONNECTION REFUSED\n"),
    ] {
        let script = Script {
            response_head: |head| {
                assert!(head.is_own());
                head.set("X-Seen", "1")?;
                head.want_body(BodyAccess::Buffer);
                Ok(Flow::Continue)
            },
            response_body: |body| {
                assert!(body.is_end() && body.head().is_some());
                body.bytes_mut()?.make_ascii_uppercase();
                Ok(Flow::Continue)
            },
            ..Script::default()
        };
        let (filters, _) = scripted([("a", script)]);
        let config = rules(
            vec![Rule::new(action)],
            vec![upstream("origin", &[refusing_addr()])],
        );
        let edge = edge(engine.clone(), config, filters);
        let answer = edge.server.get("/");
        answer.expect(status, body);
        assert_eq!(answer.field("x-seen"), Some("1"));
        edge.server.shut_down();
    }
}

fn a_refused_request_reaches_no_filter(engine: Config) {
    let refusing = Policy::ClientCertificate(Arc::new(model::ClientCertificate {
        required: true,
        ..model::ClientCertificate::default()
    }));
    let (filters, told) = scripted([("a", Script::default())]);
    let edge = edge(
        engine,
        with(to(&[refusing_addr()], |_, _| {}), vec![refusing]),
        filters,
    );
    assert_eq!(edge.server.get("/").status, 403);
    edge.server.shut_down();
    assert_eq!(super::told(&told), Vec::<String>::new());
}

fn without_a_body(engine: Config) {
    // Fields about a body that is not sent cannot be right for a body that would be changed.
    let script = || Script {
        response_head: |head| {
            head.want_body(BodyAccess::Buffer);
            Ok(Flow::Continue)
        },
        response_body: |_| Err("there is none".into()),
        ..Script::default()
    };
    for (method, origin, status) in [
        (
            "HEAD",
            Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            200,
        ),
        ("GET", Origin::answering("HTTP/1.1 204 No\r\n\r\n"), 204),
        (
            "GET",
            Origin::answering("HTTP/1.1 304 No\r\nETag: \"a\"\r\n\r\n"),
            304,
        ),
    ] {
        let (edge, _) = one(engine.clone(), &origin, script());
        let mut client = edge.server.client();
        for _ in 0..2 {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
            let answer = client.answer_to(method);
            assert_eq!((answer.status, answer.field("content-length")), (status, None));
        }
        edge.server.shut_down();
    }
}
