//! Requests that cost more the longer they are: twice the bytes cost at most twice as much, and a request that is too long is
//! refused cheaply. And regular expressions on which backtracking would take exponential time.

use ringmain_gateway::model::{
    Config, HeaderMatch, HeaderName, Match, PathMatch, Pattern, QueryMatch, Rule, ValueMatch,
};

use crate::cost::attacker::{Cost, Script, statuses};
use crate::cost::{OK, again, bounded, forward, rules};

/// A family of requests that repeat a piece a given number of times.
struct Family {
    name: &'static str,
    make: fn(usize) -> String,
    /// So often it is served.
    fits: usize,
    /// So often it is refused, and with what.
    too_many: Option<(usize, &'static str)>,
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n";

fn chunked(chunk: &str, times: usize) -> String {
    let chunks = chunk.repeat(times);
    format!("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

fn family(
    name: &'static str,
    make: fn(usize) -> String,
    fits: usize,
    too_many: impl Into<Option<(usize, &'static str)>>,
) -> Family {
    Family {
        name,
        make,
        fits,
        too_many: too_many.into(),
    }
}

/// Whose heads grow.
fn heads() -> Vec<Family> {
    vec![
        family(
            "fields",
            |n| format!("{GET}{}\r\n", "X: y\r\n".repeat(n)),
            64,
            (200, "431"),
        ),
        family(
            "empty fields",
            |n| format!("{GET}{}\r\n", "X:\r\n".repeat(n)),
            64,
            (200, "431"),
        ),
        family(
            "a long field",
            |n| format!("{GET}X: {}\r\n\r\n", "y".repeat(n)),
            16_000,
            (64_000, "431"),
        ),
        family(
            "a long name",
            |n| format!("{GET}{}: y\r\n\r\n", "X".repeat(n)),
            16_000,
            (64_000, "431"),
        ),
        family(
            "names in `Connection`",
            |n| format!("{GET}Connection: x{}\r\n\r\n", ", a".repeat(n)),
            15,
            (60, "400"),
        ),
        family(
            "empty names in `Connection`",
            |n| format!("{GET}Connection: {}\r\n\r\n", ",".repeat(n)),
            4000,
            None,
        ),
    ]
}

/// Whose targets do, and lists in fields.
fn targets() -> Vec<Family> {
    vec![
        family(
            "a long path",
            |n| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(n)),
            4000,
            (9000, "414"),
        ),
        family(
            "segments",
            |n| format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", "/a".repeat(n)),
            2000,
            (9000, "414"),
        ),
        family(
            "dots",
            |n| format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", "/a/..".repeat(n)),
            800,
            None,
        ),
        family(
            "escapes",
            |n| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "%41".repeat(n)),
            1300,
            None,
        ),
        family(
            "parameters",
            |n| format!("GET /x?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a&".repeat(n)),
            2000,
            None,
        ),
        family(
            "cookies",
            |n| format!("{GET}Cookie: {}\r\n\r\n", "a=b; ".repeat(n)),
            3000,
            None,
        ),
        family(
            "forwarded addresses",
            |n| format!("{GET}X-Forwarded-For: {}\r\n\r\n", "1.1.1.1, ".repeat(n)),
            1500,
            None,
        ),
    ]
}

/// Families whose bodies grow, and families of consecutive requests.
fn others() -> Vec<Family> {
    vec![
        family("chunks", |n| chunked("1\r\nx\r\n", n), 4000, None),
        family(
            "chunks with extensions",
            |n| chunked("1;a\r\nx\r\n", n),
            1000,
            (9000, "400"),
        ),
        family(
            "empty lines",
            |n| format!("{}{GET}\r\n", "\r\n".repeat(n)),
            1,
            (100, "400"),
        ),
        family("requests", |n| format!("{GET}\r\n").repeat(n), 200, None),
        family(
            "requests that are refused",
            |n| format!("{GET}Connection: {}\r\n\r\n", "a,".repeat(60)).repeat(n),
            100,
            None,
        ),
    ]
}

/// The most that twice the length may cost beyond twice as much: memory grows by doubling.
const SLACK: usize = 32;

fn grows(family: &Family) {
    let cost = |times| {
        again(
            rules(vec![forward()]),
            OK,
            false,
            &Script::all((family.make)(times)),
        )
    };
    let ((half, _), (whole, answers)) = (cost(family.fits / 2 + 1), cost(family.fits));
    bounded(family.name, &whole);
    assert!(!statuses(&answers).is_empty(), "{}: {whole:?}", family.name);
    assert!(
        whole.allocations <= 2 * half.allocations + SLACK && whole.turns <= 2 * half.turns + SLACK,
        "{}: expected twice as much to cost at most twice as much: {half:?} and {whole:?}",
        family.name
    );
    if let Some((times, status)) = family.too_many {
        let (cost, answers) = cost(times);
        bounded(family.name, &cost);
        assert_eq!(statuses(&answers), status, "{}: {cost:?}", family.name);
        // Chunks are forwarded as they arrive, until the fault.
        let streams = family.name.starts_with("chunks");
        assert!(streams || cost.passed == 0, "{}: {cost:?}", family.name);
    }
}

/// Regular expressions on which a backtracking matcher takes exponential time.
const EXPRESSIONS: [&str; 5] = ["(a+)+", "(a|aa)+", "(.*a){25}", "([a-z]+)*", "(a*)*b"];

/// Builds rules with such an expression at each possible place, and one for requests that do not match.
fn by_expression(text: &str) -> Config {
    let pattern = |text: &str| Pattern::parse(text).expect("it compiles to little enough");
    let value = || ValueMatch::Pattern(pattern(text));
    let guarded = |matching: Match| {
        let mut rule = forward();
        rule.matches = vec![matching];
        rule
    };
    let path = Match {
        path: PathMatch::Pattern(pattern(&format!("/{text}"))),
        ..Match::default()
    };
    let header = Match {
        headers: vec![HeaderMatch {
            name: HeaderName::parse("X-Long").expect("a name"),
            value: value(),
        }],
        ..Match::default()
    };
    let query = Match {
        query: vec![QueryMatch {
            name: "q".into(),
            value: value(),
        }],
        ..Match::default()
    };
    let mut all: Vec<Rule> = [path, header, query].map(guarded).into();
    all.push(forward());
    rules(all)
}

/// The cost of one request by that expression in each place, without an end that would match.
fn expression(text: &str, long: usize) -> Cost {
    let (path, header, query) = ("a".repeat(long), "a".repeat(4 * long), "a".repeat(long / 4));
    let request = format!("GET /{path}!?q={query}! HTTP/1.1\r\nHost: a\r\nX-Long: {header}!\r\n\r\n");
    let (cost, answers) = again(by_expression(text), OK, false, &Script::all(request));
    assert_eq!(statuses(&answers), "200", "{text}: {cost:?}");
    bounded(text, &cost);
    cost
}

pub(crate) fn all() {
    [heads(), targets(), others()].iter().flatten().for_each(grows);
    let field = format!("X-Long: {}!", "a".repeat(16_000));
    for text in EXPRESSIONS {
        // Matching allocates no memory that grows with the text, and does not make the worker repeat an operation.
        let (short, long) = (expression(text, 1000), expression(text, 4000));
        assert!(
            long.allocations <= short.allocations + 8,
            "{text}: {short:?} and {long:?}"
        );
        let path = format!("/{}!", "a".repeat(4000));
        let same = Script::all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"));
        let (plain, _) = again(rules(vec![forward()]), OK, false, &same);
        assert!(
            long.turns <= plain.turns + 4 && long.held <= plain.held + 16 * 1024,
            "{text}: {long:?} and without it {plain:?}"
        );
    }
}
