//! No allocation per request once buffers are warm: counted by the allocator.

use ringmain_load::traffic::{
    Body, Capture, Check, Expect, FlowDraft, Request, Sequence, Source, Step, StepDraft, Test, Traffic,
    Values,
};
use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_response};
use stats_alloc::Region;

use crate::ALLOCATOR;

const REQUESTS: usize = 1000;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nX-Token: 0123456789abcdef\r\nContent-Length: 10\r\n\r\n";
const ANSWER_BODY: &[u8] = b"id=[12345]";

/// What a connection and its worker keep.
struct Warm {
    traffic: Traffic,
    values: Values,
    random: fastrand::Rng,
    sequence: Sequence,
    table: FieldTable,
    out: Vec<u8>,
}

pub(crate) fn main() {
    let limits = Limits::default();
    let mut warm = Warm {
        traffic: Traffic::mix(&[flow("a"), flow("b")]).expect("traffic"),
        values: Values::default(),
        random: fastrand::Rng::with_seed(1),
        sequence: Sequence::new(0, 1),
        table: FieldTable::new(&limits),
        // Lengths are random, so growing is not what a first run would do.
        out: Vec::with_capacity(4096),
    };
    check(&mut warm, "a flow", |warm| {
        assert_eq!(run(warm, ANSWER), 2, "both answers pass");
    });
    let other = ANSWER.escape_ascii().to_string().replace("200", "500");
    let other = other.replace("\\r\\n", "\r\n").into_bytes();
    check(&mut warm, "answers of another status", |warm| {
        assert_eq!(run(warm, &other), 0, "no answer passes");
    });
}

fn check(warm: &mut Warm, what: &str, run: impl Fn(&mut Warm)) {
    run(warm);
    let region = Region::new(ALLOCATOR);
    for _ in 0..REQUESTS {
        run(warm);
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(counts, (0, 0), "{what}: {REQUESTS} flows allocated: {change:?}");
}

/// One flow; how many of its answers passed.
fn run(warm: &mut Warm, answer: &[u8]) -> usize {
    let flow = warm.traffic.pick(&mut warm.random);
    warm.values.clear();
    let mut passed = 0;
    for step in &warm.traffic.flows()[flow].steps {
        warm.out.clear();
        step.write(&mut warm.out, &warm.values, &mut warm.random, &mut warm.sequence);
        assert!(!warm.out.is_empty());
        passed += usize::from(judge(step, answer, &mut warm.table, &mut warm.values));
    }
    passed
}

fn judge(step: &Step, answer: &[u8], table: &mut FieldTable, values: &mut Values) -> bool {
    let limits = Limits::default();
    match parse_response(answer, step.method(), &limits, &mut HeadScanner::new(), table) {
        Ok(Parsed::Complete { head, .. }) => {
            step.judge(head.status, &head.fields, ANSWER_BODY, values).is_ok()
        }
        other => panic!("{other:?}"),
    }
}

fn flow(name: &str) -> FlowDraft {
    let mut login = StepDraft {
        name: String::new(),
        request: Request::get("/login/{{seq}}", "host"),
        pause: None,
        captures: vec![
            Capture {
                name: "token".to_owned(),
                from: Source::Header("X-Token".to_owned()),
            },
            Capture {
                name: "id".to_owned(),
                from: Source::Between {
                    before: "[".to_owned(),
                    after: "]".to_owned(),
                },
            },
        ],
    };
    login.request.expect = Expect {
        statuses: Vec::new(),
        checks: vec![Check::Body(Test::Contains("id=".to_owned()))],
    };
    let act = StepDraft {
        name: String::new(),
        request: Request {
            method: "POST".to_owned(),
            headers: vec![("Authorization".to_owned(), "Bearer {{value:token}}".to_owned())],
            body: Body::Text("{{value:id}} {{uuid}} {{random-hex:40}} {{random:1..1000000}}".to_owned()),
            ..Request::get("/items/{{value:id}}", "host")
        },
        pause: None,
        captures: Vec::new(),
    };
    FlowDraft {
        name: name.to_owned(),
        weight: 1,
        steps: vec![login, act],
    }
}
