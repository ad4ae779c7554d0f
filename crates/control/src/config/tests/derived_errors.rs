//! Errors that only follow from another error are not reported.

use ringmain_gateway::table::{ConfigPart, Consequence, Problem};

use super::errors::check_errors;
use super::loaded;

#[test]
fn listeners_and_upstreams_without_their_certificates_are_no_errors_of_their_own() {
    check_errors(
        "\
certificates: {site: {chain: site.crt, key: lost}}
authorities: {staff: gone}
listeners:
  secure: {address: 127.0.0.1:1, tls: {certificates: site}}
  admitted: {address: 127.0.0.1:2, tls: {certificates: site, clients: {authorities: staff}}}
  plain: {address: 127.0.0.1:3}
upstreams: {app: {endpoints: 127.0.0.1:4, tls: {server_name: app.example, authorities: staff}}}
routes:
  shop: {listeners: [secure, admitted], to: app}
  other: {listeners: [plain, nowhere], to: app}
",
        &[
            "1:45: expected a file that can be read, found `lost`: entity not found",
            "2:15: expected a file that can be read, found `gone`: entity not found",
            "10:30: expected the name of a listener of this file, found `nowhere`",
        ],
    );
}

#[test]
fn unreadable_credentials_file_is_the_only_error_of_its_policy() {
    check_errors(
        "\
listen: 127.0.0.1:1
routes:
  r:
    rules:
      - {match: /b, respond: 204, policies: {basic: {file: lost}}}
      - {match: /c, respond: 204, policies: {api_keys: {file: gone}}}
      - {match: /d, respond: 204, policies: {basic: {realm: x}}}
",
        &[
            "5:60: expected a file that can be read, found `lost`: entity not found",
            "6:63: expected a file that can be read, found `gone`: entity not found",
            "7:53: expected at least one of the `users`, or of a `file`, found none",
        ],
    );
}

#[test]
fn certificate_errors_are_not_repeated_for_listeners() {
    let problem = |place, part, found: &str| Problem {
        part: place,
        field: part,
        expected: "a certificate".to_owned(),
        found: found.to_owned(),
        consequence: Consequence::Omitted,
    };
    let listener = |found| problem(ConfigPart::Listener("web".into()), "tls", found);
    let certificate = problem(
        ConfigPart::Certificate("c".into()),
        "chain",
        "chain of `c`: broken",
    );
    let locate_problems =
        |problems: &[Problem]| loaded("listen: 127.0.0.1:1\n").locate_problems(problems).len();
    assert_eq!(
        locate_problems(&[listener("chain of `c`: broken"), certificate.clone()]),
        1
    );
    assert_eq!(locate_problems(&[listener("no common version"), certificate]), 2);
}
