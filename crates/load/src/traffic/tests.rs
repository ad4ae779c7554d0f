//! Whole requests and answers: what is written parses to what was meant, whatever was captured.

use ringmain_wire::h1::{
    FieldTable, Framing, HeadScanner, Limits, Parsed, RequestHead, parse_request, parse_response,
};

use super::*;

const LIMITS: Limits = Limits {
    head_bytes: 1 << 20,
    start_line_bytes: 1 << 19,
    ..Limits::INTERNET
};

/// Parses one request that is all of `input`.
pub(super) fn parsed<R>(input: &[u8], read: impl FnOnce(&RequestHead<'_>, &[u8]) -> R) -> R {
    let mut table = FieldTable::new(&LIMITS);
    let parsed = parse_request(input, &LIMITS, &mut HeadScanner::new(), &mut table);
    match parsed.unwrap_or_else(|fault| panic!("{fault:?} in {}", input.escape_ascii())) {
        Parsed::Complete { head, bytes } => {
            let body = &input[bytes..];
            let declared = match head.framing {
                Framing::None => 0,
                Framing::Length(length) => length,
                other => panic!("{other:?}"),
            };
            assert_eq!(declared, body.len() as u64, "{}", input.escape_ascii());
            read(&head, body)
        }
        Parsed::Partial => panic!("not whole: {}", input.escape_ascii()),
    }
}

/// An answer to a step, as the client hands it over.
pub(super) fn judged(step: &Step, head: &str, body: &[u8], values: &mut Values) -> Result<(), String> {
    let mut table = FieldTable::new(&LIMITS);
    let mut scanner = HeadScanner::new();
    let input = format!("HTTP/1.1 {head}\r\n\r\n");
    match parse_response(input.as_bytes(), step.method(), &LIMITS, &mut scanner, &mut table) {
        Ok(Parsed::Complete { head, .. }) => step
            .judge(head.status, &head.fields, body, values)
            .map_err(|failed| failed.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A writer with all that it needs; the seed is fixed, since what is random is not what these tests are about.
pub(super) struct Writer {
    pub(super) values: Values,
    random: fastrand::Rng,
    sequence: Sequence,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer {
            values: Values::default(),
            random: fastrand::Rng::with_seed(7),
            sequence: Sequence::new(0, 1),
        }
    }

    pub(super) fn write(&mut self, step: &Step) -> Vec<u8> {
        let mut out = b"before".to_vec();
        step.write(&mut out, &self.values, &mut self.random, &mut self.sequence);
        out.split_off(b"before".len())
    }
}

pub(super) fn step(request: Request) -> StepDraft {
    StepDraft {
        name: String::new(),
        request,
        pause: None,
        captures: Vec::new(),
    }
}

pub(super) fn flow(name: &str, weight: u32, steps: Vec<StepDraft>) -> FlowDraft {
    FlowDraft {
        name: name.to_owned(),
        weight,
        steps,
    }
}

/// A step that captures `name` from the header `X-Value`.
pub(super) fn capturing(name: &str) -> StepDraft {
    let mut draft = step(Request::get("/login", "host"));
    draft.captures.push(Capture {
        name: name.to_owned(),
        from: Source::Header("X-Value".to_owned()),
    });
    draft
}

fn post(target: &str, body: Body) -> Request {
    Request {
        method: "POST".to_owned(),
        body,
        ..Request::get(target, "api.example:8080")
    }
}

#[test]
fn a_request_without_tokens_is_constant() {
    let mut request = Request::get("/hello?a=1", "localhost:8080");
    request.headers.push(("Accept".to_owned(), "*/*".to_owned()));
    let traffic = Traffic::single(request).unwrap();
    let step = &traffic.flows()[0].steps[0];
    let expected = "GET /hello?a=1 HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n";
    assert_eq!(step.constant().unwrap(), expected);
    assert_eq!(Writer::new().write(step), expected.as_bytes());
    assert_eq!((step.name(), step.method()), ("GET /hello?a=1", Method::Get));
    assert!(traffic.may_pipeline() && !step.needs_body() && step.pause().is_none());
}

#[test]
fn bodies_declare_their_length() {
    let cases = [
        (Body::None, "Content-Length: 0\r\n\r\n"),
        (Body::Text("a{b}".to_owned()), "Content-Length: 4\r\n\r\na{b}"),
        (
            Body::Bytes(Bytes::from_static(b"{{seq}}\r\n")),
            "Content-Length: 9\r\n\r\n{{seq}}\r\n",
        ),
    ];
    for (body, end) in cases {
        let traffic = Traffic::single(post("/", body)).unwrap();
        let constant = traffic.flows()[0].steps[0].constant().unwrap();
        assert!(constant.ends_with(end.as_bytes()), "{}", constant.escape_ascii());
    }
}

#[test]
fn a_host_header_overrides_the_authority() {
    let mut request = Request::get("/", "10.0.0.1:80");
    request.headers.push(("A".to_owned(), "1".to_owned()));
    request
        .headers
        .push(("host".to_owned(), "shop-{{random:5..5}}.example".to_owned()));
    request
        .headers
        .push(("B".to_owned(), "{{random:6..6}}".to_owned()));
    let traffic = Traffic::single(request).unwrap();
    let written = Writer::new().write(&traffic.flows()[0].steps[0]);
    let expected = "GET / HTTP/1.1\r\nHost: shop-5.example\r\nA: 1\r\nB: 6\r\n\r\n";
    assert_eq!(written, expected.as_bytes());
}

#[test]
fn ten_thousand_expansions_parse_and_have_the_right_length() {
    let mut request = post(
        "/users/{{seq}}/{{value:v}}?n={{random:0..100000}}",
        Body::Text(
            "{{value:v}}-{{random:1..18446744073709551615}}-{{uuid}}-{{random-hex:7}}-{{{{x}}".to_owned(),
        ),
    );
    request
        .headers
        .push(("X-Id".to_owned(), "{{uuid}} {{value:v}} {{seq}}".to_owned()));
    let flows = [flow("f", 1, vec![capturing("v"), step(request)])];
    let traffic = Traffic::mix(&flows).unwrap();
    let step = &traffic.flows()[0].steps[1];
    let mut writer = Writer::new();
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..10_000_u64 {
        let length = random.usize(..=if round % 100 == 0 { limits::VALUE_BYTES } else { 20 });
        let value: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        assert!(writer.values.set(0, &value));
        let written = writer.write(step);
        parsed(&written, |head, body| {
            assert_eq!(head.method, Method::Post);
            assert!(head.target_text.starts_with(&format!("/users/{}/", 2 * round)));
            assert_eq!(head.fields.len(), 3);
            assert!(body.starts_with(&value) && body.ends_with(b"-{{x}}"));
            let id = head.fields.get("X-Id").unwrap();
            assert!(id.ends_with(format!(" {}", 2 * round + 1).as_bytes()));
        });
    }
}

#[test]
fn a_flow_carries_what_it_captured() {
    let mut login = capturing("token");
    login.captures.push(Capture {
        name: "id".to_owned(),
        from: Source::Json("/user/id".to_owned()),
    });
    let mut act = step(Request::get("{{value:id}}", "host"));
    act.request
        .headers
        .push(("Authorization".to_owned(), "Bearer {{value:token}}".to_owned()));
    act.pause = Some(Duration::from_millis(5));
    let traffic = Traffic::mix(&[flow("f", 1, vec![login, act])]).unwrap();
    assert!(!traffic.may_pipeline());
    let [login, act] = traffic.flows()[0].steps.as_slice() else {
        panic!("two steps");
    };
    assert!(login.needs_body() && !act.needs_body());
    assert_eq!(act.pause(), Some(Duration::from_millis(5)));
    let mut writer = Writer::new();
    let body = br#"{"user":{"id":42,"name":"x"}}"#;
    judged(login, "200 OK\r\nX-Value: abc", body, &mut writer.values).unwrap();
    let expected = "GET /42 HTTP/1.1\r\nHost: host\r\nAuthorization: Bearer abc\r\n\r\n";
    assert_eq!(writer.write(act), expected.as_bytes());
    writer.values.clear();
    let expected = "GET / HTTP/1.1\r\nHost: host\r\nAuthorization: Bearer \r\n\r\n";
    assert_eq!(writer.write(act), expected.as_bytes());
}

#[test]
fn flows_are_picked_by_weight() {
    let one = |name: &str, weight| flow(name, weight, vec![step(Request::get("/", "host"))]);
    let traffic = Traffic::mix(&[one("a", 1), one("b", 7), one("c", 2)]).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut picked = [0; 3];
    for _ in 0..100_000 {
        picked[traffic.pick(&mut random)] += 1;
    }
    for (count, expected) in picked.into_iter().zip([10_000_i32, 70_000, 20_000]) {
        assert!((count - expected).abs() < 1_000, "{picked:?}");
    }
}

#[test]
fn one_flow_draws_no_random_number() {
    let traffic = Traffic::single(Request::get("/", "host")).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    assert_eq!(traffic.pick(&mut random), 0);
    assert_eq!(random, fastrand::Rng::with_seed(3));
}

#[test]
fn workers_share_the_sequence_without_talking() {
    let mut numbers = Vec::new();
    for worker in 0..3 {
        let mut sequence = Sequence::new(worker, 3);
        numbers.extend((0..4).map(|_| sequence.next()));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..12).collect::<Vec<_>>());
}

#[test]
fn a_bad_mix_says_where() {
    let good = || step(Request::get("/", "host"));
    let check = |flows: &[FlowDraft], flow: usize, step: usize, expected: &str| {
        let error = Traffic::mix(flows).unwrap_err();
        assert_eq!(
            (error.flow, error.step, error.to_string().as_str()),
            (flow, step, expected)
        );
    };
    check(&[], 0, 0, "flows: expected 1 to 256 flows, found 0");
    let zero =
        "weight: expected a weight of at least 1 (leave the flow out if it is not to be used), found 0";
    check(
        &[flow("a", 1, vec![good()]), flow("b", 0, vec![good()])],
        1,
        0,
        zero,
    );
    check(
        &[flow("a", 1, Vec::new())],
        0,
        0,
        "steps: expected 1 to 256 steps, found 0",
    );
    let early = step(Request::get("/{{value:token}}", "host"));
    let expected = "path: expected a value that an earlier step of the flow captures; none captures any, \
                    found `{{value:token}}`";
    check(
        &[flow("a", 1, vec![good(), early, capturing("token")])],
        0,
        1,
        expected,
    );
}

/// A request in its parts is the one that HTTP/1.1 sends, token by token.
#[track_caller]
fn check_parts(request: Request, captured: &[&str]) {
    let names = (0..captured.len()).map(|number| Capture {
        name: format!("v{number}"),
        from: Source::Header("x".to_owned()),
    });
    let mut before = step(Request::get("/", "host"));
    before.captures = names.collect();
    let traffic = Traffic::mix(&[flow("f", 1, vec![before, step(request)])]).expect("traffic");
    let step = &traffic.flows()[0].steps[1];
    let mut values = Values::default();
    for (slot, value) in captured.iter().enumerate() {
        assert!(values.set(slot, value.as_bytes()));
    }
    for seed in 0..20 {
        let (mut random, mut sequence) = (fastrand::Rng::with_seed(seed), Sequence::new(3, 4));
        let mut whole = Vec::new();
        step.write(&mut whole, &values, &mut random, &mut sequence);
        let (mut random, mut sequence) = (fastrand::Rng::with_seed(seed), Sequence::new(3, 4));
        let mut filling = Filling {
            values: &values,
            random: &mut random,
            sequence: &mut sequence,
        };
        let mut filled = Filled::default();
        let (asked, content) = step.parts().fill(&mut filled, &mut filling);
        parsed(&whole, |head, body| {
            assert_eq!(asked.path, head.target_text);
            assert_eq!(asked.authority, head.authority.expect("a host").as_str());
            assert_eq!(content.as_bytes(), body);
            let length = match head.framing {
                Framing::Length(length) => Some(length),
                _ => None,
            };
            assert_eq!(asked.length, length);
            let ours = asked.fields.iter().map(|(name, value)| (name.as_bytes(), value));
            let framing = |name: &[u8]| {
                let framing: [&[u8]; 2] = [b"host", b"content-length"];
                framing.iter().any(|other| name.eq_ignore_ascii_case(other))
            };
            let theirs = head.fields.iter().map(|field| (field.name, field.value));
            let theirs = theirs.filter(|(name, _)| !framing(name));
            assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
        });
    }
}

#[test]
fn the_parts_of_a_request_are_those_of_the_whole() {
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = Request::get("/a/{{seq}}?b={{uuid}}", "host:81");
        change(&mut request);
        request
    };
    check_parts(Request::get("/plain", "host"), &[]);
    check_parts(with(&|_| ()), &[]);
    check_parts(with(&|request| request.method = "POST".to_owned()), &[]);
    check_parts(
        with(&|request| {
            request.body = Body::Text("{{random:1..100000}} and {{value:v0}}".to_owned());
            request.headers = vec![
                ("A".to_owned(), "{{random-hex:5}} b {{value:v1}}".to_owned()),
                ("Host".to_owned(), "{{random-hex:3}}.example".to_owned()),
                ("B".to_owned(), "plain".to_owned()),
                ("C".to_owned(), String::new()),
            ];
        }),
        &["one", "two\r\nX: evil"],
    );
    check_parts(
        with(&|request| {
            request.target = "{{value:v0}}/more{{value:v1}}".to_owned();
            request.method = "PUT".to_owned();
            request.body = Body::Bytes(vec![0, 1, 2].into());
        }),
        &["http://elsewhere/path", "#?%\u{e4}"],
    );
    check_parts(
        with(&|request| {
            request.target = "{{value:v0}}".to_owned();
            request.body = Body::Json(r#"{"a":"{{value:v0}}"}"#.to_owned());
        }),
        &[""],
    );
}
