//! Rules for the code of tests: no sleeps, no loops that yield, no chosen ports, no clocks that measure elapsed time. `crates/testkit` has
//! the replacements.
//!
//! Works on tokens; knows nothing of the file system.

use proc_macro2::{Delimiter, Group, TokenTree};

use super::Finding;

/// The crate that waits for all of them.
const TESTKIT: &str = "crates/testkit/";

/// Returns whether a file is code of tests alone, which must wait as tests do.
pub(crate) fn is_test_code(path: &str) -> bool {
    let in_folder = path.starts_with("tests/") || path.contains("/tests/");
    let is_file = path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    (in_folder || is_file) && !path.starts_with(TESTKIT)
}

/// Returns whether a test may read a clock: it tests the clock itself, or it is a benchmark, which prints its figures.
fn may_measure(path: &str) -> bool {
    path.starts_with("crates/sys/") || path.ends_with("/bench.rs")
}

/// Checks the code that begins at the first of these tokens, which are those of one group or file.
pub(crate) fn inspect(path: &str, trees: &[TokenTree]) -> Option<Finding> {
    let TokenTree::Ident(word) = trees.first()? else {
        return None;
    };
    let line = word.span().start().line;
    if word == "thread" && has_path(trees) {
        return match waiting(trees.get(3)?)? {
            "sleep" => Some(Finding::new(
                path,
                line,
                "`thread::sleep` in a test",
                "a wait that ends with the event: a channel, a read, `ringmain_testkit::wait::until`",
                "wait for the event; a peer that is slow on purpose uses `ringmain_testkit::wait::pause`",
            )),
            _ => Some(Finding::new(
                path,
                line,
                "`yield_now` in a test",
                "a wait with an end: `ringmain_testkit::wait::until`",
                "wait for the state; a retry while a queue is full uses `ringmain_testkit::wait::give_way`",
            )),
        };
    }
    if reads_clock(trees) && !may_measure(path) {
        return Some(Finding::new(
            path,
            line,
            format!("a test measures elapsed time: `{word}`"),
            "virtual time, a count, an order of events: a bound on elapsed time fails on a busy machine",
            "use a simulated world; a wait uses `ringmain_testkit::wait::{until, find, Patience}`, a lower bound of a real clock \
             `wait::at_least`",
        ));
    }
    let chooses = (word == "bind" && names_port(trees.get(1)?)) || (word == "process" && counts_on_id(trees));
    chooses.then(|| {
        Finding::new(
            path,
            line,
            "a test chooses its port",
            "a port of the kernel's choice: bind port 0",
            "bind port 0 and read the address; a port that is known before uses `ringmain_testkit::port::Reserved`",
        )
    })
}

/// Returns whether it is `Instant::now` or `clock::monotonic`.
fn reads_clock(trees: &[TokenTree]) -> bool {
    let is = |index: usize, expected: &str| matches!(trees.get(index), Some(TokenTree::Ident(word)) if word == expected);
    let names = |clock, function| is(0, clock) && has_path(trees) && is(3, function);
    names("Instant", "now") || names("clock", "monotonic")
}

/// Returns whether the word is followed by `::`.
fn has_path(trees: &[TokenTree]) -> bool {
    let is_colon =
        |index: usize| matches!(trees.get(index), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    is_colon(1) && is_colon(2)
}

/// Returns the forbidden way of waiting at this place, or in a list of imports.
fn waiting(tree: &TokenTree) -> Option<&'static str> {
    const WORDS: [&str; 2] = ["sleep", "yield_now"];
    match tree {
        TokenTree::Ident(word) => WORDS.into_iter().find(|waiting| word == waiting),
        TokenTree::Group(list) if list.delimiter() == Delimiter::Brace => {
            list.stream().into_iter().find_map(|tree| waiting(&tree))
        }
        _ => None,
    }
}

/// Returns whether the arguments of a `bind` end with a port other than 0: `("127.0.0.1:8080")`, `((host, 8080))`.
fn names_port(arguments: &TokenTree) -> bool {
    let TokenTree::Group(arguments) = arguments else {
        return false;
    };
    match last(arguments) {
        Some(TokenTree::Literal(text)) => {
            let text = text.to_string();
            let port = text.trim_matches('"').rsplit_once(':').map(|(_, port)| port);
            port.and_then(|port| port.parse::<u16>().ok())
                .is_some_and(|port| port > 0)
        }
        Some(TokenTree::Group(pair)) if pair.delimiter() == Delimiter::Parenthesis => match last(&pair) {
            Some(TokenTree::Literal(port)) => port.to_string().parse::<u16>().is_ok_and(|port| port > 0),
            _ => false,
        },
        _ => false,
    }
}

fn last(group: &Group) -> Option<TokenTree> {
    group.stream().into_iter().last()
}

/// Returns whether it is `process::id() % …`: a port, or a range of ports, derived from the process identifier.
fn counts_on_id(trees: &[TokenTree]) -> bool {
    let is_id = matches!(trees.get(3), Some(TokenTree::Ident(word)) if word == "id");
    let is_rest = matches!(trees.get(5), Some(TokenTree::Punct(mark)) if mark.as_char() == '%');
    has_path(trees) && is_id && is_rest
}
