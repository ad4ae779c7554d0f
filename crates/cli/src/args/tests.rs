//! Table tests of the command line: values, conflicts, and help.

use std::path::Path;

use ringmain_engine::features::FEATURES;

use super::http::AccessLogFormat;
use super::values::{Destination, Size};
use super::*;

fn read(args: &[&str]) -> Result<Cli, clap::Error> {
    Cli::parse_args(["ringmain"].iter().chain(args).map(OsString::from).collect())
}

/// The same with and without the word `run`.
fn parse(args: &[&str]) -> Box<Run> {
    let bare = read(args).unwrap_or_else(|error| panic!("{error}"));
    assert!(bare.command.is_none());
    let Command::Run(serve) = read(&[&["run"], args].concat())
        .unwrap_or_else(|error| panic!("{error}"))
        .command
        .expect("the command is there")
    else {
        panic!("expected the command run");
    };
    assert_eq!(serve.file, None);
    assert_eq!(format!("{:?}", serve.run), format!("{:?}", bare.run));
    serve.run
}

/// `ringmain run proxy.yaml` and these options.
fn with_file(args: &[&str]) -> Box<Serve> {
    match read(&[&["run", "proxy.yaml"], args].concat()).map(|cli| cli.command) {
        Ok(Some(Command::Run(serve))) => serve,
        other => panic!("expected the command run, found {other:?}"),
    }
}

#[test]
fn options_of_a_configuration_file_are_refused_beside_it() {
    let serve = with_file(&[
        "--workers",
        "2",
        "--per-address",
        "9",
        "--max-queue-delay",
        "1s",
        "--backlog",
        "5",
        "--ipv6-only",
        "--unix-mode",
        "600",
        "--stats",
        "1s",
    ]);
    assert_eq!(serve.file.as_deref(), Some(Path::new("proxy.yaml")));
    assert_eq!(serve.contradiction(), None);
    for (args, expect) in [
        (&["--echo"][..], "--echo cannot be used with a configuration FILE"),
        (&["--listen", ":80"], "--listen is the key `listeners` of"),
        (
            &["--max-connections", "9"],
            "--max-connections is the key `limits.connections` of",
        ),
        (&["--grace", "9s"], "--grace is the key `limits.drain` of"),
        (
            &["--body-limit", "9"],
            "--body-limit is for the built-in application",
        ),
        (
            &["--access-log", "-"],
            "--access-log is for the built-in application",
        ),
        (&["--tls-dev"], "--tls-dev is for the built-in application"),
        (
            &["--redirect-http", ":80"],
            "--redirect-http is for the built-in application",
        ),
        (&["--engine", "epoll", "--sqpoll"], "--sqpoll is for io_uring"),
    ] {
        let found = with_file(args).contradiction().expect("a contradiction");
        assert!(found.starts_with(expect), "{found}");
    }
}

#[test]
fn the_definition_is_valid() {
    Cli::command().debug_assert();
}

#[test]
fn without_options_the_engine_has_its_defaults() {
    let run = parse(&[]);
    assert_eq!(
        format!("{:?}", run.engine_config()),
        format!("{:?}", Config::default())
    );
    assert_eq!(run.listen_options(), ListenOptions::default());
    assert!(run.listen.listen.is_empty());
    assert_eq!(run.output.log_level(), log::LevelFilter::Info);
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
        "7s",
        "--stall",
        "20ms",
        "--no-pin",
        "--uring-without",
        "message-ring,busy-poll",
        "--sqpoll=50ms",
        "--busy-poll",
        "40us",
        "--zero-copy",
        "16k",
        "--receive-buffers",
        "256",
    ]);
    let config = run.engine_config();
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
    let config = parse(&["--sqpoll", "--echo"]).engine_config();
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
fn options_without_effect_are_refused() {
    check_contradiction(&["--echo", "--body-limit", "1k"], "--body-limit is for HTTP");
    check_contradiction(
        &["--access-log-format", "json"],
        "--access-log-format needs a log",
    );
    check_contradiction(
        &["--access-log-format", "json", "--access-log", "off"],
        "--access-log-format needs a log",
    );
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
fn options_of_http_are_parsed() {
    let http = parse(&[
        "--per-address",
        "100",
        "--header-timeout",
        "500ms",
        "--idle-timeout",
        "2m",
        "--max-queue-delay",
        "1h",
        "--body-limit",
        "1MiB",
        "--access-log",
        "/tmp/log",
        "--access-log-format",
        "json",
    ])
    .http;
    assert_eq!(http.per_address, Some(100));
    assert_eq!(http.header_timeout, Some(Time(Duration::from_millis(500))));
    assert_eq!(http.idle_timeout, Some(Time(Duration::from_secs(120))));
    assert_eq!(http.queue_delay_limit(), Some(Duration::from_secs(3600)));
    assert_eq!(http.body_limit, Some(Size(1 << 20)));
    assert_eq!(
        http.access_log,
        Some(Destination::File(Path::new("/tmp/log").into()))
    );
    assert_eq!(http.access_log_format, Some(AccessLogFormat::Json));
    assert_eq!(http.given_options().len(), 7);
}

#[test]
fn patience_is_a_deprecated_alias_of_max_queue_delay() {
    for (option, is_deprecated) in [("--max-queue-delay", false), ("--patience", true)] {
        let http = parse(&[option, "2s"]).http;
        assert_eq!(http.queue_delay_limit(), Some(Duration::from_secs(2)), "{option}");
        assert_eq!(http.given_options(), [option]);
        assert_eq!(http.deprecations().is_empty(), !is_deprecated, "{option}");
        assert_eq!(with_file(&[option, "2s"]).contradiction(), None);
        let found = parse(&["--echo", option, "2s"])
            .contradiction()
            .expect("a contradiction");
        assert_eq!(found, format!("{option} is for HTTP: drop it, or drop --echo"));
    }
    assert!(!help(100, "--help").contains("--patience"), "it is hidden");
    let both = read(&["--max-queue-delay", "2s", "--patience", "2s"]);
    assert_eq!(both.expect_err("a conflict").exit_code(), 2);
}

#[test]
fn values_out_of_range_are_refused() {
    for args in [
        ["--workers", "0"],
        ["--workers", "1025"],
        ["--max-connections", "0"],
        ["--backlog", "0"],
        ["--backlog", "2147483648"],
        ["--grace", "25h"],
        ["--grace", "7"],
        ["--stall", "0s"],
        ["--unix-mode", "888"],
        ["--unix-mode", "1777"],
        ["--unix-owner", "no-such-user"],
        ["--receive-buffers", "1000"],
        ["--receive-buffers", "65536"],
        ["--sqpoll=0s", "-v"],
        ["--sqpoll", "1s"],
        ["--busy-poll", "0us"],
        ["--zero-copy", "0"],
        ["--zero-copy", "4g"],
        ["--stats", "0s"],
        ["--uring-without", "teleport"],
        ["--listen", "example.org:80"],
        ["--per-address", "0"],
        ["--header-timeout", "0s"],
        ["--idle-timeout", "10"],
        ["--body-limit", "1MB"],
        ["--access-log", ""],
        ["--access-log-format", "xml"],
    ] {
        let error = read(&args).expect_err(&args.join(" "));
        assert_eq!(error.exit_code(), 2, "{args:?}");
    }
}

/// Returns the help for a terminal of this width.
fn help(width: usize, arg: &str) -> String {
    let command = Cli::command().term_width(width);
    command
        .try_get_matches_from(["ringmain", arg])
        .expect_err("help")
        .to_string()
}

#[test]
fn the_help_lists_every_feature_and_fits_a_terminal() {
    let long = help(80, "--help");
    for (_, name) in FEATURES {
        assert!(long.contains(name), "{name} is missing");
    }
    for line in long.lines().chain(help(80, "-h").lines()) {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
}

#[test]
fn no_help_is_wider_than_100_columns() {
    fn check(command: &mut clap::Command) {
        let texts = [command.render_help(), command.render_long_help()];
        for line in texts
            .iter()
            .flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
        }
        command.get_subcommands_mut().for_each(check);
    }
    let mut command = Cli::command();
    command.build();
    check(&mut command);
}

#[test]
fn defaults_in_the_help_are_those_of_the_library() {
    let limits = ringmain_web::Limits::default();
    let expect = [
        ("per_address", limits.connections_per_address.unwrap().to_string()),
        ("header_timeout", Time(limits.header_timeout).to_string()),
        ("idle_timeout", Time(limits.idle_timeout).to_string()),
        (
            "max_queue_delay",
            Time(limits.max_queue_delay.unwrap()).to_string(),
        ),
        ("body_limit", Size(limits.body_bytes).to_string()),
        ("grace", Time(Config::default().grace).to_string()),
    ];
    for (id, value) in expect {
        let command = Cli::command();
        let option = command
            .get_arguments()
            .find(|option| option.get_id() == id)
            .unwrap();
        let help = option.get_help().unwrap().to_string();
        assert!(
            help.ends_with(&format!(" [default: {value}]")),
            "expected {value}: {help}"
        );
    }
}

#[test]
fn texts_after_the_options_are_not_wrapped() {
    // At 80 columns it reads as at any width.
    let wide = help(200, "--help");
    let after = &wide[wide.find("Paths served:").expect("the first section")..];
    assert!(help(80, "--help").ends_with(after));
}

#[test]
fn the_short_help_fits_a_screen_and_the_long_help_is_complete() {
    assert!(help(100, "-h").lines().count() <= 50, "{}", help(100, "-h"));
    let long = help(100, "--help");
    let command = Cli::command();
    for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
        let name = option.get_long().expect("every option has a long name");
        assert!(long.contains(&format!("--{name}")), "--{name} is missing");
        assert!(option.get_help().is_some(), "--{name} has no help");
        assert!(option.get_help_heading().is_some(), "--{name} has no heading");
    }
}

#[test]
fn the_examples_of_the_help_are_valid() {
    let titles: Vec<&str> = run_sections().iter().map(|section| section.title).collect();
    assert_eq!(
        titles,
        ["Paths served", "Signals", "Environment", "Exit codes", "Examples"]
    );
    for section in run_sections() {
        if let Lines::Commands(lines) = section.lines {
            for (line, _) in lines {
                // The part before a pipe is a command line of this program.
                let words = line.split(" | ").next().expect("one part").split(' ');
                read(&words.skip(1).collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }
}

/// Calls `each` with every command, hidden ones too.
fn for_each_command(command: &clap::Command, each: &mut impl FnMut(&clap::Command)) {
    each(command);
    command
        .get_subcommands()
        .for_each(|inner| for_each_command(inner, each));
}

#[test]
fn no_line_of_help_is_longer_than_100_columns() {
    let mut definition = Cli::command().term_width(100);
    definition.build();
    let (mut commands, mut long) = (0, Vec::new());
    for_each_command(&definition, &mut |command| {
        commands += 1;
        let mut command = command.clone();
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            long.extend(
                help.lines()
                    .filter(|line| line.chars().count() > 100)
                    .map(str::to_owned),
            );
        }
    });
    assert!(commands > 25, "only {commands} commands");
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn help_is_a_command() {
    let help = |args: &[&str]| match read(args).map(|cli| cli.command) {
        Ok(Some(Command::Help { command })) => command,
        other => panic!("expected the command help, found {other:?}"),
    };
    assert!(help(&["help"]).is_empty());
    assert_eq!(help(&["help", "bench", "push"]), ["bench", "push"]);
}
