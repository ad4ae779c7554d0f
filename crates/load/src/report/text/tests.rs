//! The whole text of made-up runs, compared with the files in `golden/`, and its promises: width, no surprises.
//!
//! After a wanted change run the tests with `UPDATE_GOLDEN=1` in the environment and read the difference.

use std::sync::Arc;
use std::time::Duration;

use ringmain_tls::{ClientSettings, Trust};

use super::*;
use crate::plan::{Extent, Grpc, Messages, Pace, Protocol, Tls};
use crate::report::fixture;

fn check(text: &str, file: &str, golden: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= table::WIDTH, "{file}: too wide: {line}");
        assert_eq!(line.trim_end(), line, "{file}: ends in blanks");
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/text/golden");
        std::fs::write(format!("{folder}/{file}"), text).unwrap();
        return;
    }
    assert!(text == golden, "{file} differs; the text is now:\n{text}");
}

macro_rules! check {
    ($text:expr, $file:literal) => {
        check(&$text, $file, include_str!(concat!("golden/", $file)))
    };
}

#[test]
fn an_open_loop_shows_both_latencies() {
    let run = fixture::run("http://127.0.0.1:8080/plaintext", Pace::Constant(4_000.0), 3, 1.0);
    check!(super::run(&run, &fixture::remarks(), Style::Plain), "open.txt");
}

#[test]
fn a_closed_loop_of_one_round_has_no_spread_and_says_what_it_hides() {
    let mut run = fixture::run("local", Pace::Closed, 1, 1.0);
    run.plan.pipeline = 16;
    run.plan.reconnect_after = Some(10);
    run.plan.extent = Extent::Count(40_000);
    run.rounds[0].server = None;
    check!(super::run(&run, &[], Style::Plain), "closed.txt");
}

#[test]
fn echoes_have_no_statuses() {
    let mut run = fixture::run("echo", Pace::Poisson(4_000.0), 2, 1.0);
    run.plan.protocol = Protocol::Echo { bytes: 64 };
    for round in &mut run.rounds {
        round.figures.counts.statuses.clear();
        round.figures.counts.broken.clear();
    }
    check!(super::run(&run, &[], Style::Plain), "echo.txt");
}

#[test]
fn websockets_say_what_opening_them_took_and_what_was_refused() {
    let mut run = fixture::run("ws://127.0.0.1:8080/ws", Pace::Closed, 2, 1.0);
    run.plan.protocol = Protocol::WebSocket(Messages {
        text: true,
        bytes: 512,
        deflate: true,
    });
    for round in &mut run.rounds {
        let figures = &mut round.figures;
        figures.counts.statuses.clear();
        figures.counts.unexpected = 7;
        figures.counts.deflated = 259;
        for span in 100..359 {
            figures.connect.record(span * 1_000);
            figures.opening.record(span * 3_000);
        }
        let what = "WebSocket: answered 503";
        figures.counts.connect_errors.insert(what, 3);
        let said = "the server returned 503 Service Unavailable";
        figures.counts.first_errors.insert(what, said.into());
    }
    check!(super::run(&run, &[], Style::Plain), "websocket.txt");
}

#[test]
fn tls_is_told_of() {
    let mut run = fixture::run("https://127.0.0.1:8443/", Pace::Closed, 1, 1.0);
    let mut settings = ClientSettings::new(Trust::AnybodyInsecure);
    settings.resume = false;
    let mut says = |settings: &ClientSettings, resumed, expect: &str| {
        run.plan.tls = Some(Tls {
            settings: Arc::new(settings.clone()),
            name: "127.0.0.1".into(),
        });
        let figures = &mut run.rounds[0].figures;
        figures.counts.tls_versions = [("TLSv1.3", 200)].into();
        figures.counts.tls_suites = [("TLS_AES_128_GCM_SHA256", 150), ("TLS_AES_256_GCM_SHA384", 50)].into();
        figures.counts.tls_resumed = resumed;
        figures.handshake.record(300_000);
        let text = super::run(&run, &[], Style::Plain);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(expect), "expected `{expect}` in: {text}");
        assert!(text.contains("p50 TLS"), "{text}");
    };
    let suites = "TLS TLSv1.3, TLS_AES_128_GCM_SHA256 and TLS_AES_256_GCM_SHA384; 200 handshakes, ";
    says(
        &settings,
        0,
        &format!("{suites}each in full; certificates not verified client"),
    );
    settings.resume = true;
    settings.trust = Trust::Roots(Vec::new());
    says(&settings, 50, &format!("{suites}25.0 % resumed client"));
}

#[test]
fn calls_have_statuses_and_messages_of_their_own() {
    let mut run = fixture::run("grpc", Pace::Closed, 2, 1.0);
    run.plan.protocol = Protocol::Grpc(Grpc::ServerStreaming);
    run.plan.pipeline = 100;
    for round in &mut run.rounds {
        let figures = &mut round.figures;
        figures.opening.record(90_000);
        figures.counts.statuses = [(200, figures.counts.answered)].into();
        figures.counts.codes = [("OK", figures.counts.answered - 30), ("UNAVAILABLE", 30)].into();
        figures.counts.messages = 5 * figures.counts.answered;
        figures.counts.broken = [
            ("GOAWAY: ENHANCE_YOUR_CALM", 3),
            ("RST_STREAM: REFUSED_STREAM", 2),
        ]
        .into();
        let streamed = figures.streamed.get_or_insert_default();
        for _ in 0..1_000 {
            streamed.first.record(150_000);
            streamed.between.record(20_000);
        }
    }
    check!(super::run(&run, &[], Style::Plain), "grpc.txt");
}

#[test]
fn a_run_without_a_round_says_only_what_was_asked_for() {
    let run = fixture::run("x", Pace::Closed, 0, 1.0);
    let text = super::run(&run, &[], Style::Plain);
    assert!(text.contains("0 rounds of 10 s"), "{text}");
    assert!(!text.contains("requests/s"), "{text}");
}

#[test]
fn time_without_connections_is_rounded() {
    let mut run = fixture::run("local", Pace::Closed, 1, 1.0);
    run.rounds[0].figures.counts.unconnected = Duration::from_nanos(25_278_645_931);
    let text = super::run(&run, &[], Style::Plain);
    assert!(
        text.contains("Connections could not be established for 25.3 s, summed over"),
        "{text}"
    );
}

#[test]
fn many_statuses_have_their_own_line() {
    let mut run = fixture::run("local", Pace::Closed, 1, 1.0);
    for status in 400..430 {
        run.rounds[0].figures.counts.statuses.insert(status, 1_000_000);
    }
    let text = super::run(&run, &[], Style::Plain);
    assert!(text.contains("400: 1,000,000  and 29 more"), "{text}");
    assert!(text.contains("429: 1,000,000"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= table::WIDTH),
        "{text}"
    );
}

#[test]
fn huge_figures_stay_within_the_width() {
    let mut run = fixture::run(&"long ".repeat(40), Pace::Constant(1e9), 3, 1.0);
    run.engine = "feature, ".repeat(40);
    run.plan.cpus = (0..64).collect();
    for round in &mut run.rounds {
        let counts = &mut round.figures.counts;
        (counts.answered, counts.sent) = (1 << 50, 1 << 50);
        (counts.bytes_received, counts.late) = (1 << 58, 1 << 45);
        round.figures.response.record(3_599_999_999_999);
        round.figures.service.record(3_599_999_999_999);
    }
    let text = super::run(&run, &[], Style::Plain);
    let tables = text.lines().skip(1);
    for line in tables {
        assert!(line.chars().count() <= table::WIDTH, "{line}");
    }
}

#[test]
fn targets_are_compared_with_the_first() {
    let remarks = fixture::remarks();
    check!(
        comparison(
            &fixture::comparison(),
            &[fixture::run("ringmain", Pace::Closed, 10, 1.0)],
            &remarks[2..],
            Style::Plain
        ),
        "compared.txt"
    );
}

#[test]
fn records_are_shown_side_by_side() {
    let run = fixture::run("x", Pace::Constant(4_000.0), 1, 1.0);
    let figures = &run.rounds[0].figures;
    let latencies = [("service", &figures.service), ("response", &figures.response)];
    let sources = ["one.hdr".to_owned(), "two\x1b[2J.hdr".to_owned()];
    check!(merged(&sources, &latencies, Style::Plain), "merged.txt");
}

#[test]
fn a_terminals_dress_changes_no_letter() {
    let run = fixture::run("local", Pace::Constant(4_000.0), 3, 1.0);
    let dressed = super::run(&run, &fixture::remarks(), Style::Terminal);
    let mut undressed = String::new();
    let mut rest = dressed.as_str();
    while let Some(at) = rest.find('\x1b') {
        undressed.push_str(&rest[..at]);
        let end = rest[at..].find('m').expect("an escape sequence ends in m");
        rest = &rest[at + end + 1..];
    }
    undressed.push_str(rest);
    assert_ne!(dressed, undressed);
    assert_eq!(undressed, super::run(&run, &fixture::remarks(), Style::Plain));
}

#[test]
fn names_cannot_steer_the_terminal() {
    let mut run = fixture::run("evil\x1b[2J\u{9b}2Jname\r\nx", Pace::Closed, 1, 1.0);
    run.engine = "\x07".into();
    let remark = Remark {
        severity: Severity::Note,
        message: "a\x1b]0;title\x07b".into(),
    };
    let text = super::run(&run, &[remark], Style::Plain);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn words_are_wrapped_and_too_long_ones_cut() {
    assert_eq!(table::wrap("", 5), Vec::<String>::new());
    assert_eq!(table::wrap("ab cd ef", 5), ["ab cd", "ef"]);
    assert_eq!(table::wrap("abcdefgh ij", 5), ["abcde", "fgh", "ij"]);
    assert_eq!(table::wrap("ab cdefghi", 5), ["ab", "cdefg", "hi"]);
    assert_eq!(table::wrap("ßßßßßß", 5), ["ßßßßß", "ß"]);
}
