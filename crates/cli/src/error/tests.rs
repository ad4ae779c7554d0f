//! Messages of clap in one line.

use clap::Parser as _;

use super::*;

fn check(args: &[&str], expect: &str) {
    let error = Cli::try_parse_from([&["ringmain"], args].concat()).unwrap_err();
    let CliError::Usage(line) =
        CliError::from_clap(&error, &args.iter().map(OsString::from).collect::<Vec<_>>())
    else {
        panic!("expected a usage error");
    };
    assert_eq!(line, expect);
}

#[test]
fn an_invalid_value_lists_the_possible_ones() {
    check(
        &["run", "--echo", "--engine", "kqueue"],
        "invalid value 'kqueue' for '--engine <ENGINE>' [possible values: auto, uring, epoll]; \
         see `ringmain --help`",
    );
}

#[test]
fn an_invalid_number_time_or_size_reports_the_expected_form() {
    check(
        &["--workers", "two"],
        "invalid value 'two' for '--workers <N>': expected a whole number from 1 to 1024; see `ringmain --help`",
    );
    check(
        &["--grace", "7"],
        "invalid value '7' for '--grace <TIME>': expected a time from 0s to 24h with its unit, such as 500ms, 10s or \
         2m; write 7s for seconds; see `ringmain --help`",
    );
    check(
        &["--body-limit", "1MB"],
        "invalid value '1MB' for '--body-limit <SIZE>': expected bytes from 0 to 1024GiB, such as 4096, 64k or 1MiB \
         (a k is 1024); see `ringmain --help`",
    );
}

#[test]
fn a_misspelt_flag_suggests_a_similar_one() {
    check(
        &["run", "--echo", "--worker", "2"],
        "unexpected argument '--worker' found; tip: a similar argument exists: '--workers'; \
         see `ringmain --help`",
    );
}

#[test]
fn an_unknown_command_refers_to_the_help() {
    check(
        &["serve"],
        "unrecognized subcommand 'serve'; see `ringmain --help`",
    );
    check(
        &["--engine", "epoll", "serve"],
        "unexpected argument 'serve' found: expected options only; see `ringmain --help`",
    );
    check(
        &["--engine", "epoll", "run"],
        "expected options after the command: write `ringmain run`, then the options; see `ringmain --help`",
    );
}

#[test]
fn an_invalid_address_reports_the_expected_form() {
    check(
        &["run", "--echo", "--listen", "localhost:80"],
        "invalid value 'localhost:80' for '--listen <ADDR>': expected an IP address and port, such as \
         127.0.0.1:8080, [::1]:8080 or :8080, or a Unix socket, such as unix:/run/app.sock or unix:@name; found \
         `localhost:80`; write 127.0.0.1:80 or [::1]:80; see `ringmain --help`",
    );
}

#[test]
fn bench_has_its_own_commands_and_help() {
    check(
        &["bench", "-c", "0", "http://a/"],
        "invalid value '0' for '--connections <N>': expected a whole number from 1 to 1000000; \
         see `ringmain bench --help`",
    );
    check(
        &["bench", "-c", "5", "compare", "a=:1", "b=:2"],
        "expected options after the command: write `ringmain bench compare`, then the options; \
         see `ringmain bench --help`",
    );
    check(
        &["bench", "-b", "a", "--body-file", "b", "http://a/"],
        "the argument '--body <TEXT>' cannot be used with '--body-file <FILE>'; see `ringmain bench --help`",
    );
    check(
        &["bench", "--rat", "5", "http://a/"],
        "unexpected argument '--rat' found; tip: a similar argument exists: '--rate'; see `ringmain bench --help`",
    );
}
