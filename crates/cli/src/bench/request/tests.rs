//! Table tests from options to workloads and plans.

use std::time::Duration;

use ringmain_load::plan as kinds;
use ringmain_load::plan::Messages;
use ringmain_tls::{Trust, Version};

use super::*;
use crate::args::bench::Bench;
use crate::args::{Cli, Command};

fn read(args: &[&str]) -> Bench {
    let words = ["ringmain", "bench"].iter().chain(args).map(Into::into).collect();
    let Some(Command::Bench(bench)) = Cli::parse_args(words).unwrap().command else {
        panic!("expected the command bench");
    };
    *bench
}

fn workload(args: &[&str]) -> Result<Workload, String> {
    let bench = read(args);
    let target = bench.target.as_deref().unwrap();
    Workload::read(target, None, &bench.load, &bench.request, &bench.tls).map_err(|failure| match failure {
        CliError::Usage(line) => line,
        CliError::Other(line) => panic!("not the command line's fault: {line}"),
    })
}

/// Returns the encoded request.
fn request(args: &[&str]) -> String {
    let workload = workload(args).unwrap();
    let bytes = workload.traffic.flows()[0].steps[0]
        .constant()
        .expect("it has no tokens");
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn options_set_the_request() {
    let sent = request(&["http://a:8080/x?y"]);
    assert!(sent.starts_with("GET /x?y HTTP/1.1\r\n"), "{sent}");
    assert!(sent.to_lowercase().contains("\r\nhost: a:8080\r\n"), "{sent}");
    let sent = request(&["http://a/", "-H", "Accept: x", "--host", "b"]);
    assert!(
        sent.contains("\r\nAccept: x\r\n") && sent.to_lowercase().contains("\r\nhost: b\r\n"),
        "{sent}"
    );
    let sent = request(&["http://a/", "-b", "hello"]);
    assert!(
        sent.starts_with("POST / ") && sent.ends_with("\r\n\r\nhello"),
        "{sent}"
    );
    assert!(request(&["http://a/", "-b", "x", "-X", "PUT"]).starts_with("PUT / "));
}

fn check_refused(args: &[&str], expect: &str) {
    let found = workload(args).unwrap_err();
    assert!(found.contains(expect), "expected `{expect}` in: {found}");
}

#[test]
fn options_that_do_not_fit_the_target_are_refused() {
    check_refused(
        &["--echo", "5", "http://a/"],
        "--echo is for tcp:// and ws:// targets",
    );
    check_refused(&["--deflate", "http://a/"], "--deflate is for ws:// targets");
    check_refused(&["--deflate", "tcp://a:1"], "--deflate is for ws:// targets");
    check_refused(&["-X", "PUT", "tcp://a:1"], "--method is for HTTP");
    check_refused(
        &["--expect-status", "200", "tcp://a:1"],
        "--expect-status is for HTTP",
    );
    check_refused(
        &["--body-file", "/nonexistent/x", "http://a/"],
        "--body-file: cannot read /nonexistent/x",
    );
    check_refused(
        &["--ca", "/nonexistent/x", "https://a/"],
        "--ca: /nonexistent/x: expected a file that can be read",
    );
    check_refused(&["-X", "GET IT", "http://a/"], "GET IT");
    check_refused(&["-H", "a b: c", "http://a/"], "a b");
}

fn messages(args: &[&str]) -> Messages {
    match workload(args).unwrap().protocol {
        Protocol::WebSocket(messages) => messages,
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_set_the_messages() {
    let expect = |text, bytes, deflate| Messages { text, bytes, deflate };
    assert_eq!(messages(&["ws://a/x"]), expect(false, 64, false));
    assert_eq!(
        messages(&["ws://a/x", "--echo", "1k"]),
        expect(false, 1024, false)
    );
    assert_eq!(
        messages(&["ws://a/x", "-b", "hello", "--deflate"]),
        expect(true, 5, true)
    );
    assert_eq!(
        messages(&["ws://a/x", "-b", "{{random-hex:512}}"]),
        expect(true, 512, false)
    );
    assert_eq!(
        messages(&["ws://a/x", "-H", "Cookie: a", "--host", "b"]),
        expect(false, 64, false)
    );
    check_refused(
        &["ws://a/", "-X", "PUT"],
        "--method is for HTTP, and the target is a WebSocket",
    );
    check_refused(
        &["ws://a/", "--expect-status", "200"],
        "--expect-status is for HTTP",
    );
    check_refused(&["ws://a/", "--expect-body", "a"], "--expect-body is for HTTP");
    check_refused(
        &["ws://a/", "--echo", "5", "-b", "a"],
        "--echo and --body both set",
    );
    check_refused(&["ws://a/", "-H", "Sec-WebSocket-Key: a"], "header 1: expected");
}

fn secured(args: &[&str]) -> Tls {
    workload(args).unwrap().tls.expect("it is over TLS")
}

#[test]
fn options_set_tls() {
    let tls = secured(&["--insecure", "https://a.example:8443/x"]);
    assert_eq!(
        (tls.name.as_str(), &tls.settings.trust),
        ("a.example", &Trust::AnybodyInsecure)
    );
    assert!(tls.settings.resume && tls.settings.certificate.is_none());
    assert_eq!(tls.settings.alpn, [b"http/1.1"]);
    let tls = secured(&[
        "--insecure",
        "--no-resume",
        "--sni",
        "b",
        "--tls",
        "1.3",
        "wss://:8443/",
    ]);
    assert_eq!((tls.name.as_str(), tls.settings.resume), ("b", false));
    assert_eq!(tls.settings.minimum_version, Version::Tls13);
    let tls = secured(&["--insecure", "--tls", "1.2", "https://a/"]);
    assert_eq!(tls.settings.minimum_version, Version::Tls12);
    assert!(tls.settings.suites.iter().all(|suite| suite.contains("_ECDHE_")));
    assert!(!tls.settings.suites.is_empty());
    check_refused(
        &["--insecure", "--sni", "a b", "https://a/"],
        "--sni: expected a host name",
    );
    let key = "/nonexistent/key";
    check_refused(
        &["--insecure", "--cert", key, "https://a/"],
        "--cert: /nonexistent/key: expected",
    );
    // The use of TLS options is checked when every target is known.
    assert!(workload(&["--insecure", "http://a/"]).unwrap().tls.is_none());
}

fn threads_of(args: &[&str], allowed: &[usize]) -> Result<Threads, CliError> {
    let bench = read(&[args, &["http://a/"]].concat());
    client_threads(&bench.load, &bench.client, &bench.server.started, allowed)
}

fn check_threads(args: &[&str], count: usize, cpus: &[usize]) {
    let expect = Threads {
        count,
        cpus: cpus.to_vec(),
    };
    assert_eq!(threads_of(args, &[0, 1, 2, 3, 6]).unwrap(), expect, "{args:?}");
}

#[test]
fn the_client_uses_the_cpus_without_the_server() {
    check_threads(&[], 5, &[]);
    check_threads(&["-c", "3"], 3, &[]);
    check_threads(&["-t", "2"], 2, &[]);
    check_threads(&["--cpus", "2,6"], 2, &[2, 6]);
    check_threads(&["--cpus", "2,6", "-t", "4"], 4, &[2, 6]);
    check_threads(&["--server", "x", "--server-cpus", "0-1"], 3, &[2, 3, 6]);
    check_threads(&["--server", "x", "--server-cpus", "0-1", "--cpus", "1"], 1, &[1]);
    // Without a free CPU both share.
    check_threads(&["--server", "x", "--server-cpus", "0-3,6"], 5, &[]);
    for option in ["--cpus", "--server-cpus"] {
        let Err(CliError::Usage(line)) = threads_of(&[option, "4"], &[0, 1, 2, 6]) else {
            panic!("expected a usage error");
        };
        assert_eq!(
            line,
            format!("{option}: CPU 4 is not available to this process, which may use 0-2,6")
        );
    }
}

fn plan_of(args: &[&str]) -> Result<Plan, CliError> {
    let bench = read(&[args, &["http://a/"]].concat());
    let workload = Workload::read(
        "http://127.0.0.1:80/",
        None,
        &bench.load,
        &bench.request,
        &bench.tls,
    )
    .unwrap();
    let threads = client_threads(&bench.load, &bench.client, &bench.server.started, &[0]).unwrap();
    let addr = vec!["127.0.0.1:80".parse().unwrap()];
    build_plan(
        &workload,
        addr,
        &threads,
        &bench.load,
        &bench.client,
        bench.results.interval.0,
    )
}

#[test]
fn options_reach_the_plan() {
    let plan = plan_of(&[]).unwrap();
    assert_eq!(
        (plan.connections, plan.pipeline, plan.rounds, plan.threads),
        (64, 1, 3, 1)
    );
    assert_eq!(
        (plan.pace, plan.extent),
        (Pace::Closed, Extent::Time(Duration::from_secs(10)))
    );
    assert_eq!(
        (plan.warmup, plan.timeout),
        (Duration::from_secs(2), Duration::from_secs(5))
    );
    assert_eq!(
        (plan.interval, plan.engine),
        (Duration::from_secs(1), Choice::Auto)
    );

    let plan = plan_of(&[
        "-c",
        "7",
        "-p",
        "3",
        "--rounds",
        "2",
        "-n",
        "50",
        "-r",
        "9",
        "--poisson",
        "-w",
        "0s",
        "--timeout",
        "1s",
        "--seed",
        "4",
        "--reconnect-every",
        "10",
        "--interval",
        "100ms",
        "--engine",
        "epoll",
        "--source",
        "127.0.0.2-127.0.0.3",
        "--connect-timeout",
        "3s",
    ])
    .unwrap();
    assert_eq!((plan.connections, plan.pipeline, plan.rounds), (7, 3, 2));
    assert_eq!((plan.pace, plan.extent), (Pace::Poisson(9.0), Extent::Count(50)));
    assert_eq!(
        (plan.warmup, plan.timeout),
        (Duration::ZERO, Duration::from_secs(1))
    );
    assert_eq!(
        (plan.seed, plan.reconnect_after, plan.sources.len()),
        (4, Some(10), 2)
    );
    assert_eq!(
        (plan.interval, plan.engine),
        (Duration::from_millis(100), Choice::Epoll)
    );
    assert_eq!(plan.connect_timeout, Duration::from_secs(3));
    assert_eq!(plan_of(&["-r", "9"]).unwrap().pace, Pace::Constant(9.0));
}

#[test]
fn a_source_of_another_family_is_refused() {
    let Err(CliError::Usage(line)) = plan_of(&["--source", "::1"]) else {
        panic!("expected a usage error");
    };
    assert_eq!(
        line,
        "--source: cannot connect from ::1 to 127.0.0.1:80: expected an address of the same family"
    );
}

#[test]
fn http2_is_used_if_requested() {
    let plan = plan_of(&["--http2", "--streams", "20"]).unwrap();
    assert_eq!((plan.protocol, plan.pipeline), (Protocol::Http2, 20));
    assert_eq!(plan_of(&["--http2"]).unwrap().pipeline, 1);
    for (args, alpn) in [
        (&["https://a/", "--insecure"][..], "http/1.1"),
        (&["wss://a/", "--insecure"], "http/1.1"),
        (&["https://a/", "--insecure", "--http2"], "h2"),
        (&["https://a/b.C/D", "--insecure", "--grpc"], "h2"),
    ] {
        let tls = workload(args).unwrap().tls.expect("TLS");
        assert_eq!(tls.settings.alpn, [alpn.as_bytes()], "{args:?}");
    }
    check_refused(
        &["--http2", "ws://a/"],
        "--http2 is for http:// and https:// targets",
    );
    check_refused(&["--http2", "tcp://a:1"], "--http2 is for http://");
}

#[test]
fn calls_are_requests_with_a_message() {
    let (target, own) = (
        "http://a/pkg.Service/Method",
        "Content-Type: application/grpc+proto",
    );
    let file = std::env::temp_dir().join(format!("ringmain-message-{}", std::process::id()));
    std::fs::write(&file, [1, 2, 3]).unwrap();
    let file = file.to_str().unwrap();
    for (args, message, header) in [
        (&[][..], &[][..], "content-type: application/grpc\r\n"),
        (&["--data-hex", "0a05"], &[10, 5], "te: trailers\r\n"),
        (&["--data-base64", "CgU="], &[10, 5], "te: trailers\r\n"),
        (&["--data-file", file], &[1, 2, 3], "te: trailers\r\n"),
        (&["--deadline", "250ms"], &[], "grpc-timeout: 250000u\r\n"),
        (&["-H", own], &[], "Content-Type: application/grpc+proto\r\n"),
    ] {
        let args = [&["--grpc", target], args].concat();
        let sent = workload(&args).unwrap();
        assert_eq!(sent.protocol, Protocol::Grpc(kinds::Grpc::Unary));
        let bytes = sent.traffic.flows()[0].steps[0].constant().unwrap().clone();
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let text = str::from_utf8(&bytes[..head]).unwrap();
        assert!(text.starts_with("POST /pkg.Service/Method "), "{text}");
        assert!(text.contains(header), "{text}");
        assert_eq!(text.to_lowercase().matches("content-type").count(), 1);
        let framed = [&[0, 0, 0, 0, message.len() as u8], message].concat();
        assert_eq!(bytes[head..], framed);
    }
    std::fs::remove_file(file).unwrap();
    let streaming = workload(&["--grpc", "--server-streaming", target]).unwrap();
    assert_eq!(streaming.protocol, Protocol::Grpc(kinds::Grpc::ServerStreaming));
}

#[test]
fn invalid_calls_are_refused() {
    for url in [
        "http://a/",
        "http://a/x",
        "http://a/x/",
        "http://a//x",
        "http://a/x/y/z",
    ] {
        check_refused(&["--grpc", url], "expected the path of a method");
    }
    let url = "http://a/b.C/D";
    check_refused(&["--grpc", "ws://a/b.C/D"], "--grpc is for http:// and https://");
    check_refused(
        &["--grpc", "-X", "PUT", url],
        "--method has no meaning with --grpc",
    );
    check_refused(&["--grpc", "-b", "x", url], "--body has no meaning with --grpc");
    check_refused(
        &["--grpc", "--expect-status", "200", url],
        "--expect-status has no",
    );
    check_refused(
        &["--grpc", "--data-file", "/nonexistent/x", url],
        "--data-file: cannot read",
    );
}
