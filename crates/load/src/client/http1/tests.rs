//! Answers of every kind, cut at every place: what is heard of them never depends on the cut.

use super::{Http1, Reading};
use crate::client::{Answer, Told};
use crate::limits;
use crate::traffic::{
    Capture, Check, FlowDraft, Request, Sequence, Source, Step, StepDraft, Test, Traffic, Values,
};

fn single(method: &str, checks: Vec<Check>) -> Traffic {
    let mut request = Request::get("/", "test");
    request.method = method.to_owned();
    request.expect.checks = checks;
    Traffic::single(request).expect("a request that can be sent")
}

fn step(traffic: &Traffic) -> &Step {
    &traffic.flows()[0].steps[0]
}

/// What comes of the pieces, which are followed by the end of data if the server says so: each answer, and how many
/// bytes were taken. As the engine does, it offers again what was not taken.
fn hear(traffic: &Traffic, pieces: &[&[u8]], ends: bool, values: &mut Values) -> (Vec<Told>, usize) {
    let step = step(traffic);
    let (mut http1, mut reading) = (Http1::new(), Reading::default());
    let (mut all, mut consumed, mut kept) = (Vec::new(), 0, Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        while !kept.is_empty() {
            let (taken, heard) = http1.read(&mut reading, step, values, &kept);
            kept.drain(..taken);
            consumed += taken;
            match heard {
                Told::More => break,
                Told::Answer(answer) => {
                    all.push(heard);
                    if answer.last {
                        return (all, consumed);
                    }
                }
                Told::Broken(_) | Told::Said | Told::Closing(_) => {
                    all.push(heard);
                    return (all, consumed);
                }
            }
        }
    }
    if ends {
        all.push(http1.end(&mut reading, step, values));
    }
    (all, consumed)
}

/// In one piece, byte by byte, and cut once at each place.
#[track_caller]
fn check_with(traffic: &Traffic, input: &[u8], ends: bool, expected: &[Told]) -> usize {
    let values = &mut Values::default();
    let whole = hear(traffic, &[input], ends, values);
    assert_eq!(whole.0, expected, "in one piece");
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(hear(traffic, &bytes, ends, values), whole, "byte by byte");
    for at in 0..=input.len() {
        let (first, second) = input.split_at(at);
        assert_eq!(
            hear(traffic, &[first, second], ends, values),
            whole,
            "cut at {at}"
        );
    }
    whole.1
}

/// An answer to GET without checks, all of whose bytes belong to it.
#[track_caller]
fn check(input: &str, expected: &[Told]) {
    let consumed = check_with(&single("GET", Vec::new()), input.as_bytes(), false, expected);
    assert_eq!(consumed, input.len());
}

/// The same, and the server ends behind it.
#[track_caller]
fn check_ended(input: &str, expected: &[Told]) {
    check_with(&single("GET", Vec::new()), input.as_bytes(), true, expected);
}

fn answer(status: u16) -> Told {
    Told::Answer(Answer {
        status,
        right: status < 400,
        last: false,
        code: None,
    })
}

fn last(status: u16) -> Told {
    Told::Answer(Answer {
        status,
        right: status < 400,
        last: true,
        code: None,
    })
}

fn wrong(status: u16) -> Told {
    Told::Answer(Answer {
        status,
        right: false,
        last: false,
        code: None,
    })
}

const GARBAGE: Told = Told::Broken("not HTTP/1.1");

#[test]
fn content_length() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        &[answer(200)],
    );
    check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &[answer(200)]);
    check(
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        &[wrong(404)],
    );
}

#[test]
fn chunks_and_trailers() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(&format!("{head}0\r\n\r\n"), &[answer(200)]);
    check(
        &format!("{head}5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"),
        &[answer(200)],
    );
    check(
        &format!("{head}5;name=value\r\nhello\r\n0\r\nSum: 1\r\nOther: 2\r\n\r\n"),
        &[answer(200)],
    );
}

#[test]
fn no_body_whatever_the_head_says() {
    for (method, input) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n"),
    ] {
        let status = input[9..12].parse().expect("a status");
        let twice = input.repeat(2);
        let expected = [answer(status), answer(status)];
        let consumed = check_with(&single(method, Vec::new()), twice.as_bytes(), false, &expected);
        assert_eq!(consumed, twice.len(), "{method}: {input}");
    }
}

#[test]
fn interim_answers_are_none() {
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        &[answer(200)],
    );
    check_ended(
        "HTTP/1.1 100 Continue\r\n\r\n",
        &[Told::Broken("closed without a response")],
    );
}

#[test]
fn the_last_answer_of_a_connection() {
    check(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        &[last(200)],
    );
    check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", &[last(200)]);
    check(
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        &[answer(200)],
    );
}

#[test]
fn what_follows_the_last_answer_is_not_taken() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let consumed = check_with(
        &single("GET", Vec::new()),
        format!("{head}more").as_bytes(),
        false,
        &[last(200)],
    );
    assert_eq!(consumed, head.len());
}

#[test]
fn until_the_server_closes() {
    check_ended("HTTP/1.1 200 OK\r\n\r\nas long as it lasts", &[last(200)]);
    check_ended("HTTP/1.0 200 OK\r\n\r\n", &[last(200)]);
    // Not before it has.
    check("HTTP/1.1 200 OK\r\n\r\nas long as it lasts", &[]);
}

#[test]
fn many_answers_in_one_piece() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na\
         HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n\
         HTTP/1.1 204 No Content\r\n\r\n\
         HTTP/1.1 500 Oh\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        &[answer(200), wrong(404), answer(204), last(500)],
    );
}

#[test]
fn cut_off_by_the_end_of_data() {
    let without = [Told::Broken("closed without a response")];
    let within = [Told::Broken("closed within a response")];
    check_ended("", &without);
    for input in [
        "H",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    ] {
        check_ended(input, &within);
    }
    check_ended(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        &[answer(200), without[0]],
    );
}

#[test]
fn garbage() {
    let broken = |input: &str, expected: &[Told]| {
        check_with(&single("GET", Vec::new()), input.as_bytes(), false, expected)
    };
    broken("SSH-2.0-OpenSSH_9.9\r\n\r\n", &[GARBAGE]);
    broken("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", &[GARBAGE]);
    broken(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
        &[GARBAGE],
    );
    broken(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHello\r\n\r\n",
        &[answer(200), GARBAGE],
    );
    broken(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        &[Told::Broken("switched protocols")],
    );
}

/// What is checked lies in pieces that are gone when the answer is whole.
#[test]
fn checks_of_head_and_body_at_every_cut() {
    let checks = || {
        vec![
            Check::Header {
                name: "x-kind".into(),
                test: Test::Equals("right".into()),
            },
            Check::Body(Test::Contains("needle".into())),
        ]
    };
    let traffic = single("GET", checks());
    let chunked = "HTTP/1.1 200 OK\r\nX-Kind: right\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (input, expected) in [
        (
            "HTTP/1.1 200 OK\r\nX-Kind: right\r\nContent-Length: 10\r\n\r\na needle !".to_owned(),
            answer(200),
        ),
        (
            "HTTP/1.1 200 OK\r\nX-Kind: right\r\nContent-Length: 10\r\n\r\na noodle !".to_owned(),
            wrong(200),
        ),
        (
            "HTTP/1.1 200 OK\r\nX-Kind: wrong\r\nContent-Length: 10\r\n\r\na needle !".to_owned(),
            wrong(200),
        ),
        (format!("{chunked}3\r\nnee\r\n3\r\ndle\r\n0\r\n\r\n"), answer(200)),
        (format!("{chunked}3\r\nnoo\r\n3\r\ndle\r\n0\r\n\r\n"), wrong(200)),
    ] {
        check_with(&traffic, input.as_bytes(), false, &[expected]);
    }
    check_with(
        &traffic,
        b"HTTP/1.1 200 OK\r\nX-Kind: right\r\n\r\na needle",
        true,
        &[last(200)],
    );
}

/// As the next request shows.
#[test]
fn captures_at_every_cut() {
    let capture = |name: &str, from| Capture {
        name: name.to_owned(),
        from,
    };
    let asked = |target: &str, captures| StepDraft {
        name: String::new(),
        request: Request::get(target, "test"),
        pause: None,
        captures,
    };
    let captures = vec![
        capture("tag", Source::Header("ETag".into())),
        capture("id", Source::Json("/id".into())),
    ];
    let traffic = Traffic::mix(&[FlowDraft {
        name: String::new(),
        weight: 1,
        steps: vec![
            asked("/", captures),
            asked("/{{value:tag}}/{{value:id}}", Vec::new()),
        ],
    }]);
    let traffic = traffic.expect("requests that can be sent");
    let input = b"HTTP/1.1 200 OK\r\nETag: t1\r\nContent-Length: 10\r\n\r\n{\"id\":\"x\"}";
    for at in 0..=input.len() {
        let values = &mut Values::default();
        let (first, second) = input.split_at(at);
        let heard = hear(&traffic, &[first, second], false, values);
        assert_eq!(heard, (vec![answer(200)], input.len()), "cut at {at}");
        let mut next = Vec::new();
        let mut sequence = Sequence::new(0, 1);
        traffic.flows()[0].steps[1].write(&mut next, values, &mut fastrand::Rng::with_seed(1), &mut sequence);
        assert!(
            next.starts_with(b"GET /t1/x HTTP/1.1\r\n"),
            "cut at {at}: {}",
            next.escape_ascii()
        );
    }
}

/// A body that is too long to be kept fails its checks whether or not it came in one piece, and what follows is read on.
#[test]
fn a_body_too_long_to_check() {
    let traffic = single("GET", vec![Check::Body(Test::Contains("a".into()))]);
    for (over, expected) in [(0, answer(200)), (1, wrong(200))] {
        let length = limits::CHECKED_BODY_BYTES + over;
        let mut input = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        let head = input.len();
        input.resize(head + length, b'a');
        input.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
        let values = &mut Values::default();
        for cut in [
            0,
            1,
            head,
            head + 1,
            head + length - 1,
            head + length,
            input.len(),
        ] {
            let (first, second) = input.split_at(cut);
            let heard = hear(&traffic, &[first, second], false, values);
            assert_eq!(
                heard,
                (vec![expected, answer(200)], input.len()),
                "{over} over, cut at {cut}"
            );
        }
    }
}
