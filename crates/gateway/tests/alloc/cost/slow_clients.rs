//! Clients that are slow on purpose: each is ended when the documentation says so, and holds little until then. So is none that is
//! only slow.

use std::time::Duration;

use crate::cost::attacker::{Reads, Script, Stand, statuses};
use crate::cost::{OK, again, forward, nothing_left, report, rules};

const SECOND: Duration = Duration::from_secs(1);

/// The most bytes held for a connection below the minimum rate, including the network's share.
const HELD: usize = 24 * 1024;

/// The most bytes held for a client that does not read: the part of the response that is handed to the engine, the bytes read from the
/// origin meanwhile, and four queues of the network.
const UNREAD: usize = 1024 * 1024;

/// Bytes of a body or of requests that may wait on their way, in the network and here; more are not taken.
const QUEUE: usize = 64 * 1024;

struct Case {
    name: &'static str,
    script: Script,
    /// Bytes of the origin's answers.
    answer: usize,
    /// The statuses that the attacker receives.
    statuses: &'static str,
    /// From when to when its connection ends, in seconds.
    ends: (u64, u64),
    held: usize,
}

fn case(name: &'static str, script: Script, statuses: &'static str, ends: (u64, u64)) -> Case {
    Case {
        name,
        script,
        answer: 2,
        statuses,
        ends,
        held: HELD,
    }
}

const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
const CHUNKED: &str = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

/// Slow heads: `head_timeout`, 10 s from the first byte, whatever arrives meanwhile.
fn heads() -> Vec<Case> {
    let head = "GET /x HTTP/1.1\r\nHost: a\r\n";
    let in_name = format!("{head}X");
    let behind = format!("{GET}G");
    vec![
        case("nothing at all", Script::drip("", "", SECOND), "", (10, 11)),
        case(
            "a line, a byte a second",
            Script::drip("G", "E", SECOND),
            "408",
            (10, 11),
        ),
        case(
            "empty lines",
            Script::drip("\r\n", "\r\n", SECOND),
            "400",
            (0, 11),
        ),
        case(
            "a name, a byte a second",
            Script::drip(&in_name, "X", SECOND),
            "408",
            (10, 11),
        ),
        case(
            "a field every nine seconds",
            Script::drip(head, "X: y\r\n", 9 * SECOND),
            "408",
            (10, 11),
        ),
        case(
            "the second request, a byte a second",
            Script::drip(&behind, "E", SECOND),
            "200 408",
            (10, 11),
        ),
        case(
            "nothing behind an answer",
            Script::drip(GET, "", SECOND),
            "200",
            (75, 76),
        ),
    ]
}

/// Slow bodies: 240 bytes a second behind 5 s of grace for those with an announced length. One in chunks is a live stream, which only
/// silence ends; its chunk sizes have a limit of digits.
fn bodies() -> Vec<Case> {
    let long = format!("{POST}{}", "x".repeat(60_000));
    let size = format!("{CHUNKED}5");
    let expect = "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
    vec![
        case(
            "a body that never comes",
            Script::drip(POST, "", SECOND),
            "408",
            (5, 12),
        ),
        case(
            "a body, a byte a second",
            Script::drip(POST, "x", SECOND),
            "408",
            (5, 12),
        ),
        case(
            "a chunk's size, a digit a second",
            Script::drip(&size, "0", SECOND),
            "408",
            (10, 12),
        ),
        case(
            "leave to send that nobody uses",
            Script::drip(expect, "", SECOND),
            "100 408",
            (5, 12),
        ),
        case(
            "a fast beginning and a pause",
            Script {
                drip: Some((Vec::new(), SECOND, usize::MAX)),
                ..Script::drip(&long, "", SECOND)
            },
            "408",
            (5, 26),
        ),
    ]
}

/// Clients that do not read their responses.
fn readers() -> Vec<Case> {
    let unread = |name, first: String, answer, reads, ends| Case {
        answer,
        held: UNREAD,
        script: Script {
            reads,
            ..Script::drip(&first, "", SECOND)
        },
        ..case(name, Script::all(""), "", ends)
    };
    vec![
        unread(
            "an answer that nobody reads",
            GET.into(),
            8 << 20,
            Reads::Nothing,
            (5, 26),
        ),
        unread(
            "an answer, a byte a second",
            GET.into(),
            8 << 20,
            Reads::Byte(SECOND),
            (5, 26),
        ),
        // The queue as a whole is checked when the connection would exceed its idle timeout.
        unread(
            "answers to many requests that nobody reads",
            GET.repeat(20_000),
            10_000,
            Reads::Nothing,
            (75, 100),
        ),
    ]
}

/// Slow, and as fast as they must be.
fn honest() -> Vec<Case> {
    let fast_enough =
        |length: usize| format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let rest = |piece: usize, times: usize| Script {
        drip: Some((vec![b'x'; piece], SECOND, times)),
        ends: true,
        ..Script::drip(&fast_enough(piece * times), "", SECOND)
    };
    vec![
        case("a slow body", rest(300, 40), "200", (40, 42)),
        case("a body within the grace", rest(1, 4), "200", (4, 6)),
    ]
}

pub(crate) fn all() {
    for case in [heads(), bodies(), readers(), honest()].into_iter().flatten() {
        let answer = [
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", case.answer).as_bytes(),
            &vec![b'o'; case.answer],
        ]
        .concat();
        let (cost, answers) = again(rules(vec![forward()]), &answer, false, &case.script);
        report(case.name, &cost);
        if case.script.reads == Reads::All {
            assert_eq!(statuses(&answers), case.statuses, "{}: {cost:?}", case.name);
        }
        let (from, to) = case.ends;
        assert!(
            (from..to).contains(&cost.took.as_secs()),
            "{}: expected its end after {from} to {to} s: {cost:?}",
            case.name
        );
        assert!(
            cost.held <= case.held + 8 * cost.sent.min(QUEUE),
            "{}: expected at most {} bytes held: {cost:?}",
            case.name,
            case.held
        );
        nothing_left(case.name, &cost);
        // Its connection is looked at each second, not more often.
        let drops = cost.took.as_secs() as usize;
        assert!(
            cost.turns <= 64 + 4 * drops + cost.sent / 64 + cost.answered / 1024,
            "{}: {cost:?}",
            case.name
        );
    }
    many();
}

/// Many slow clients: the bytes held for each. One with half a head has its connection and that; one with a body also has a task and a
/// connection to the origin.
fn many() {
    const CROWD: usize = 500;
    let head = Script::drip("GET /x HTTP/1.1\r\nX: ", "x", SECOND);
    let body = Script::drip(POST, "x", SECOND);
    for (name, script, each) in [
        ("a crowd of slow heads", head, 8 * 1024),
        ("a crowd of slow bodies", body, HELD),
    ] {
        let mut stand = Stand::new(rules(vec![forward()]), OK, false);
        stand.attacked(&Script::all(GET), 1);
        let (cost, answers) = stand.attacked(&script, CROWD);
        report(name, &cost);
        assert_eq!(statuses(&answers), "408", "{name}: {cost:?}");
        assert!(cost.held <= CROWD * each, "{name}: {cost:?}");
    }
}
