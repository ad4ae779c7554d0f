//! The command line as a table: what it means, what is refused.

use clap::CommandFactory;
use ringmain_engine::features::FEATURES;

use super::*;

fn parse(args: &[&str]) -> Box<Run> {
    let Command::Run(run) = Cli::try_parse_from([&["ringmain", "run"], args].concat())
        .unwrap_or_else(|error| panic!("{error}"))
        .command;
    run
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn without_options_everything_is_the_engines_default() {
    let run = parse(&["--echo"]);
    assert_eq!(format!("{:?}", run.config()), format!("{:?}", Config::default()));
    assert_eq!(run.listen_options(), ListenOptions::default());
    assert!(run.listen.listen.is_empty());
    assert_eq!(run.output.level(), log::LevelFilter::Info);
    assert_eq!(run.contradiction(), None);
}

#[test]
fn options_reach_the_engine() {
    let run = parse(&[
        "--echo",
        "--engine",
        "uring",
        "--workers",
        "3",
        "--max-connections",
        "80000",
        "--grace",
        "7",
        "--stall",
        "20",
        "--no-pin",
        "--uring-without",
        "message-ring,busy-poll",
        "--sqpoll",
        "50",
        "--busy-poll",
        "40",
        "--zero-copy",
        "16384",
        "--receive-buffers",
        "256",
    ]);
    let config = run.config();
    assert_eq!(config.engine, Choice::Uring);
    assert_eq!((config.workers, config.max_connections), (Some(3), Some(80_000)));
    assert_eq!(
        (config.grace, config.stall),
        (Duration::from_secs(7), Duration::from_millis(20))
    );
    assert!(!config.pin);
    assert_eq!(config.without.to_string(), "message-ring,busy-poll");
    assert_eq!(config.sqpoll, Some(Duration::from_millis(50)));
    assert_eq!(config.busy_poll, Some(Duration::from_micros(40)));
    assert_eq!((config.zero_copy, config.receive_buffers), (Some(16_384), 256));
}

#[test]
fn sqpoll_needs_no_value() {
    let config = parse(&["--sqpoll", "--echo"]).config();
    assert_eq!(config.sqpoll, Some(Duration::from_secs(1)));
}

#[test]
fn listening_options_reach_the_listeners() {
    let run = parse(&[
        "--echo",
        "--listen",
        "[::1]:80",
        "--listen",
        "unix:/run/x",
        "--backlog",
        "9",
        "--ipv6-only",
        "--unix-mode",
        "660",
        "--unix-owner",
        "1:2",
    ]);
    let options = run.listen_options();
    assert_eq!((options.backlog, options.v6_only), (9, true));
    assert_eq!(options.unix_mode, Some(0o660));
    assert_eq!(options.unix_owner, Some((Some(1), Some(2))));
    assert_eq!(run.listen.listen.len(), 2);
    assert_eq!(run.contradiction(), None);
}

fn check_contradiction(args: &[&str], expect: &str) {
    let found = parse(args).contradiction().expect("a contradiction");
    assert!(found.starts_with(expect), "{found}");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    check_contradiction(&[], "expected --echo: ");
    check_contradiction(
        &["--echo", "--engine", "epoll", "--sqpoll"],
        "--sqpoll is for io_uring",
    );
    check_contradiction(
        &["--echo", "--unix-mode", "600"],
        "--unix-mode needs a Unix socket",
    );
    check_contradiction(
        &["--echo", "--unix-owner", "0"],
        "--unix-owner needs a Unix socket",
    );
    check_contradiction(&["--echo", "--ipv6-only"], "--ipv6-only needs an IPv6 address");
}

#[test]
fn values_out_of_range_are_refused() {
    for args in [
        ["--workers", "0"],
        ["--workers", "1025"],
        ["--max-connections", "0"],
        ["--backlog", "0"],
        ["--grace", "86401"],
        ["--stall", "0"],
        ["--unix-mode", "888"],
        ["--unix-mode", "1777"],
        ["--unix-owner", "no-such-user"],
        ["--receive-buffers", "1000"],
        ["--receive-buffers", "65536"],
        ["--sqpoll", "0"],
        ["--busy-poll", "0"],
        ["--zero-copy", "0"],
        ["--stats", "0"],
        ["--uring-without", "teleport"],
        ["--listen", "example.org:80"],
    ] {
        let all = [&["ringmain", "run", "--echo"], &args[..]].concat();
        let error = Cli::try_parse_from(all).expect_err(&args.join(" "));
        assert_eq!(error.exit_code(), 2, "{args:?}");
    }
}

#[test]
fn the_help_names_every_feature_and_fits_a_terminal() {
    let mut command = Cli::command();
    let run = command.find_subcommand_mut("run").expect("the command is there");
    let help = run.render_long_help().to_string();
    for (_, name) in FEATURES {
        assert!(help.contains(name), "{name} is missing");
    }
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
    }
}
