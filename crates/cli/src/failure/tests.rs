//! Clap's paragraphs in one line.

use clap::Parser;

use super::*;
use crate::args::Cli;

fn check(args: &[&str], expect: &str) {
    let error = Cli::try_parse_from([&["ringmain"], args].concat()).unwrap_err();
    let Failure::Usage(line) = Failure::from_clap(&error) else {
        panic!("expected a usage error");
    };
    assert_eq!(line, expect);
}

#[test]
fn a_wrong_value_names_the_possible_ones() {
    check(
        &["run", "--echo", "--engine", "kqueue"],
        "invalid value 'kqueue' for '--engine <ENGINE>' [possible values: auto, uring, epoll]; \
         see `ringmain run --help`",
    );
}

#[test]
fn a_misspelt_flag_names_the_right_one() {
    check(
        &["run", "--echo", "--worker", "2"],
        "unexpected argument '--worker' found; tip: a similar argument exists: '--workers'; \
         see `ringmain run --help`",
    );
}

#[test]
fn what_is_no_command_leads_to_the_commands() {
    check(
        &["serve"],
        "unrecognized subcommand 'serve'; see `ringmain --help`",
    );
    check(
        &[],
        "expected a command, such as: ringmain run --echo; see `ringmain --help`",
    );
}

#[test]
fn a_wrong_address_says_what_is_right() {
    check(
        &["run", "--echo", "--listen", "localhost:80"],
        "invalid value 'localhost:80' for '--listen <ADDR>': expected an IP address and port, such as \
         127.0.0.1:8080, [::1]:8080 or :8080, or a Unix socket, such as unix:/run/app.sock or unix:@name; found \
         `localhost:80`; write 127.0.0.1:80 or [::1]:80; see `ringmain run --help`",
    );
}
