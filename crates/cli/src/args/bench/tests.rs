//! Table tests of the command line of `bench`: values and conflicts.

use ringmain_load::scenario::Settings;

use super::*;
use crate::args::{Cli, Command};

fn read(args: &[&str]) -> Bench {
    let words = ["ringmain", "bench"].iter().chain(args).map(Into::into).collect();
    let cli = Cli::parse_args(words).unwrap_or_else(|error| panic!("{error}"));
    let Some(Command::Bench(bench)) = cli.command else {
        panic!("expected the command bench");
    };
    *bench
}

fn compare(args: &[&str]) -> Compare {
    let Some(BenchCommand::Compare(compare)) = read(&[&["compare"], args].concat()).command else {
        panic!("expected the command compare");
    };
    *compare
}

#[test]
fn only_the_target_is_required() {
    let bench = read(&[":8080/json"]);
    assert_eq!(bench.target.as_deref(), Some(":8080/json"));
    assert!(bench.command.is_none());
    assert_eq!(bench.contradiction(), None);
    assert_eq!(bench.load.rate, None);
}

#[test]
fn short_options_match_those_of_other_tools() {
    let bench = read(&[
        "-c",
        "10",
        "-t",
        "2",
        "-d",
        "30s",
        "-w",
        "1s",
        "-r",
        "1.5k",
        "-X",
        "PUT",
        "-H",
        "A: b",
        "-H",
        "C: d",
        "-b",
        "x",
        "-p",
        "4",
        "-q",
        "http://a/",
    ]);
    let load = &bench.load;
    assert_eq!(
        (load.connections, bench.client.threads, load.pipeline),
        (Some(10), Some(2), Some(4))
    );
    assert_eq!(load.duration, Some(Time(Duration::from_secs(30))));
    assert_eq!(load.warmup, Some(Time(Duration::from_secs(1))));
    assert_eq!(load.rate, Some(1500.0));
    assert_eq!(bench.request.method.as_deref(), Some("PUT"));
    assert_eq!(bench.request.header.len(), 2);
    assert!(bench.results.quiet);
    assert_eq!(read(&["-n", "7", "http://a/"]).load.requests, Some(7));
}

#[test]
fn json_takes_its_value_only_after_an_equals_sign() {
    let bench = read(&["--json", "http://a/"]);
    assert_eq!(bench.target.as_deref(), Some("http://a/"));
    assert_eq!(bench.results.json, Some(File::StandardOutput));
    let bench = read(&["--json=x.json", "http://a/"]);
    assert_eq!(bench.results.json, Some(File::Path("x.json".into())));
}

fn check_contradiction(args: &[&str], expect: &str) {
    let found = read(&[args, &["http://a/"]].concat()).contradiction();
    let found = found.unwrap_or_else(|| panic!("{args:?} is taken"));
    assert!(found.contains(expect), "expected `{expect}` in: {found}");
    assert!(!found.contains('\n'), "{found}");
}

#[test]
fn conflicting_options_are_refused() {
    check_contradiction(&["--poisson"], "--poisson needs a rate: add --rate RATE");
    check_contradiction(&["--slo", "p99<5ms"], "--slo is the objective of --find-max");
    check_contradiction(&["--find-max"], "add --slo, such as --slo 'p99<5ms'");
    let search = ["--find-max", "--slo", "p99<5ms"];
    check_contradiction(
        &[&search[..], &["-r", "5"]].concat(),
        "--rate has no meaning with --find-max",
    );
    check_contradiction(
        &[&search[..], &["-n", "5"]].concat(),
        "--requests has no meaning with --find-max",
    );
    check_contradiction(
        &[&search[..], &["--threshold", "errors<1%"]].concat(),
        "--threshold has no meaning with --find-max",
    );
    check_contradiction(
        &["-t", "3", "-c", "2"],
        "--threads 3 is more than the 2 connections",
    );
    check_contradiction(&["-t", "65"], "--threads 65 is more than the 64 connections");
    check_contradiction(
        &["--server-cpus", "0"],
        "--server-cpus needs a server that is started",
    );
    check_contradiction(
        &["--server-cpus", "0", "--server-pid", "1"],
        "--server-cpus needs a server that is started",
    );
    check_contradiction(
        &["--json", "--hlog", "-"],
        "--json and --hlog both write to standard output",
    );
}

#[test]
fn compatible_options_are_accepted() {
    for args in [
        &["--find-max", "--slo", "p99<5ms", "--poisson"][..],
        &["-r", "5", "--poisson", "-n", "100"],
        &["-t", "2", "-c", "2"],
        &["--server", "x", "--server-cpus", "0"],
        &["--json", "--hlog", "x"],
    ] {
        let found = read(&[args, &["http://a/"]].concat()).contradiction();
        assert_eq!(found, None, "{args:?}");
    }
}

fn check_names(args: &[&str], expect: &str) {
    let found = compare(args).contradiction();
    let found = found.unwrap_or_else(|| panic!("{args:?} is taken"));
    assert!(found.contains(expect), "expected `{expect}` in: {found}");
}

#[test]
fn compared_targets_have_unique_names_and_at_most_one_server() {
    let two = ["a=:1", "b=:2"];
    assert_eq!(compare(&two).contradiction(), None);
    assert_eq!(
        compare(&[&two[..], &["--server", "a=x", "--server-pid", "b=1"]].concat()).contradiction(),
        None
    );
    check_names(&["a=:1", "a=:2"], "two targets have the name `a`");
    check_names(
        &[&two[..], &["--server", "c=x"]].concat(),
        "one of a, b; found `c`",
    );
    check_names(
        &[&two[..], &["--server", "b=x", "--server-pid", "b=1"]].concat(),
        "`b` has two servers",
    );
    check_names(
        &[&two[..], &["--server-cpus", "0"]].concat(),
        "--server-cpus needs a server",
    );
    check_names(&[&two[..], &["--poisson"]].concat(), "--poisson needs a rate");
    check_names(
        &[&two[..], &["--scenario", "a.yaml", "-X", "PUT"]].concat(),
        "--method describes a single request",
    );
}

#[test]
fn options_override_the_scenario() {
    let settings = Settings {
        connections: Some(5),
        rate: Some(100.0),
        poisson: Some(true),
        requests: Some(1000),
        timeout: Some(Duration::from_secs(1)),
        seed: Some(3),
        threads: Some(1),
        ..Settings::default()
    };
    let mut bench = read(&["-c", "9", "-d", "2s", "a.yaml"]);
    bench.load.apply_scenario(&settings);
    bench.client.apply_scenario(&settings);
    assert_eq!(bench.load.connections, Some(9));
    // A time takes the place of a count.
    assert_eq!(
        (bench.load.duration, bench.load.requests),
        (Some(Time(Duration::from_secs(2))), None)
    );
    assert_eq!((bench.load.rate, bench.load.poisson), (Some(100.0), true));
    assert_eq!(bench.load.timeout, Some(Time(Duration::from_secs(1))));
    assert_eq!((bench.client.seed, bench.client.threads), (Some(3), Some(1)));
    assert_eq!(bench.contradiction(), None);

    let mut bench = read(&["a.yaml"]);
    bench.load.apply_scenario(&settings);
    assert_eq!(
        (bench.load.connections, bench.load.requests),
        (Some(5), Some(1000))
    );
}
