//! The number and order of requests on a connection, and the side that ends it.

use ringmain_web::{App, Limits};

use crate::support::{Answer, Server, Setting, get, serve};

in_every_way!(
    requests_follow_each_other,
    sixteen_at_once_are_answered_in_order,
    plain_and_waiting_handlers_answer_in_order,
    large_answers_to_many_at_once,
    http_1_0_closes_unless_asked_not_to,
    connection_close_is_kept,
    requests_after_the_last_one_get_no_response,
    a_connection_serves_so_many_requests_and_no_more,
    a_client_that_ends_its_side_is_answered,
    every_cut_of_two_requests,
    empty_lines_before_a_request_are_skipped,
);

fn app() -> App {
    App::new()
        .get("/n/{n}", |req, reply| reply.text(req.param("n")?))
        .get_async("/wait/{n}", async |req, reply| {
            req.cx().sleep(std::time::Duration::from_millis(1)).await;
            reply.text(req.param("n")?)
        })
        .get("/large/{n}", |req, reply| {
            let letter = req.param("n")?;
            reply.text(letter.repeat(100_000))
        })
}

fn server(config: Setting) -> Server {
    serve(config, app())
}

fn requests_follow_each_other(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    for n in 0..100 {
        client.send(get(&format!("/n/{n}")));
        let answer = client.answer();
        answer.expect(200, &n.to_string());
        assert_eq!(answer.field("connection"), None);
        assert!(answer.field("date").is_some_and(|date| date.ends_with(" GMT")));
        assert_eq!(answer.field("server"), Some("ringmain"));
    }
    assert_eq!(server.running.report().workers[0].accepted, 1);
}

fn sixteen_at_once_are_answered_in_order(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    for round in 0..20 {
        let all: String = (0..16).map(|n| get(&format!("/n/{}", 16 * round + n))).collect();
        client.send(all);
        for n in 0..16 {
            client.answer().expect(200, &(16 * round + n).to_string());
        }
    }
}

fn plain_and_waiting_handlers_answer_in_order(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    let target = |n: usize| format!("/{}/{n}", if n.is_multiple_of(3) { "wait" } else { "n" });
    let all: String = (0..64).map(|n| get(&target(n))).collect();
    client.send(all);
    for n in 0..64 {
        client.answer().expect(200, &n.to_string());
    }
    client.finish();
    client.expect_end();
}

fn large_answers_to_many_at_once(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    let all: String = (0..64).map(|n| get(&format!("/large/{}", n % 10))).collect();
    client.send(all);
    client.finish();
    for n in 0..64 {
        let answer = client.answer();
        assert!(
            answer.text() == (n % 10).to_string().repeat(100_000),
            "answer {n}"
        );
    }
    client.expect_end();
}

fn http_1_0_closes_unless_asked_not_to(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    client.send("GET /n/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer();
    answer.expect(200, "1");
    assert_eq!(answer.field("connection"), Some("keep-alive"));
    client.send("GET /wait/2 HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    let answer = client.answer();
    answer.expect(200, "2");
    assert_eq!(answer.field("connection"), Some("keep-alive"));
    client.send("GET /n/3 HTTP/1.0\r\n\r\n");
    client.answer().expect(200, "3");
    client.expect_end();
    let mut client = server.client();
    client.send("GET /wait/4 HTTP/1.0\r\n\r\n");
    client.answer().expect(200, "4");
    client.expect_end();
}

fn connection_close_is_kept(config: Setting) {
    let server = server(config);
    for target in ["/n/1", "/wait/1", "/large/1", "/nothing"] {
        let mut client = server.client();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        let answer = client.answer();
        assert!(answer.closes(), "{target}: {answer:?}");
        client.expect_end();
    }
}

fn requests_after_the_last_one_get_no_response(config: Setting) {
    let server = server(config);
    for target in ["/n/1", "/wait/1", "/large/1"] {
        let mut client = server.client();
        let last = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.send(last + &get("/n/2"));
        assert!(client.answer().closes(), "{target}");
        client.expect_end();
    }
    assert_eq!(server.app.stats().totals().requests(), 3);
}

fn a_connection_serves_so_many_requests_and_no_more(config: Setting) {
    let limits = Limits {
        requests_per_connection: Some(3),
        ..Limits::default()
    };
    let server = serve(config, app().limits(limits));
    for target in ["/n/1", "/wait/1"] {
        let mut client = server.client();
        client.send(get(target).repeat(5));
        let closes: Vec<bool> = (0..3)
            .map(|_| client.answer())
            .map(|answer| answer.closes())
            .collect();
        assert_eq!(closes, [false, false, true], "{target}");
        client.expect_end();
    }
}

fn a_client_that_ends_its_side_is_answered(config: Setting) {
    let server = server(config);
    for target in ["/n/1", "/wait/1", "/large/1"] {
        let mut client = server.client();
        client.send(get(target).repeat(2));
        client.finish();
        assert_eq!(client.answer().status, 200, "{target}");
        assert_eq!(client.answer().status, 200, "{target}");
        client.expect_end();
    }
    let mut client = server.client();
    client.send("GET /n/1 HTTP/1.1\r\nHo");
    client.finish();
    client.expect_end();
}

/// Each cut is a connection of its own whose second part is sent when the server has had the first: another
/// connection was answered meanwhile.
fn every_cut_of_two_requests(config: Setting) {
    let server = server(config);
    let mut other = server.client();
    let both = get("/n/1") + &get("/wait/2");
    for cut in 1..both.len() {
        let mut client = server.client();
        client.send(&both[..cut]);
        other.expect_alive("/n/0");
        client.send(&both[cut..]);
        let answers: Vec<Answer> = (0..2).map(|_| client.answer()).collect();
        assert_eq!((answers[0].text(), answers[1].text()), ("1", "2"), "cut at {cut}");
    }
}

fn empty_lines_before_a_request_are_skipped(config: Setting) {
    let server = server(config);
    let mut client = server.client();
    client.send(format!("\r\n{}\r\n{}", get("/n/1"), get("/n/2")));
    client.answer().expect(200, "1");
    client.answer().expect(200, "2");
}
