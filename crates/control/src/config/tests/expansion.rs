//! Texts with variables and files, and the errors where these do not exist.

use super::all_errors_of;

/// The error names the variable, and not the value that its name would have in its place: wherever a text is allowed.
#[test]
fn a_missing_variable_is_the_only_error_of_its_string() {
    let text = "\
listen: '127.0.0.1:${env:NO_PORT}'
limits: {body: '${env:NO_SIZE}', drain: '${env:NO_TIME}'}
push:
  tokens: {secret: '${env:NO_SECRET}', algorithms: HS256}
  api_key: '${env:NO_KEY}'
upstreams:
  app: {endpoints: '${env:NO_ENDPOINT}', balance: '${env:NO_BALANCE}'}
routes:
  shop:
    hosts: '${env:NO_HOST}'
    rules:
      - {match: '${env:NO_PATH}', to: app}
      - {match: /live, push: true}
      - {match: /a, to: '${env:NO_UPSTREAM}'}
      - {match: /b, to: app, policies: {addresses: {allow: '${env:NO_NETWORK}'}}}
      - {match: /c, respond: {status: '${env:NO_STATUS}', body: '${file:/no/such/file}'}}
";
    let wrong = all_errors_of(text);
    let names = [
        "PORT", "SIZE", "TIME", "SECRET", "KEY", "ENDPOINT", "BALANCE", "HOST", "PATH", "UPSTREAM",
        "NETWORK", "STATUS",
    ];
    for name in names {
        let expected =
            format!("expected the variable `NO_{name}` in the environment, found none of that name");
        assert_eq!(
            wrong.iter().filter(|line| line.contains(&expected)).count(),
            1,
            "{name}: {wrong:#?}"
        );
    }
    assert_eq!(wrong.len(), names.len() + 1, "{wrong:#?}");
    assert!(
        wrong.iter().any(|line| line.contains("found `/no/such/file`")),
        "{wrong:#?}"
    );
}

/// The value of a variable may be invalid, too: then the error quotes the text with its name.
#[test]
fn short_secrets_are_reported_with_their_length() {
    let push = |secret: &str| {
        format!(
            "listen: 127.0.0.1:1\npush: {{tokens: {{secret: '{secret}', algorithms: HS256}}}}\nroutes: {{r: {{rules: [{{push: true}}]}}}}\n"
        )
    };
    let expected =
        "c.yaml:2:25: expected a secret of at least 32 bytes, since a shorter one can be guessed, found";
    for (secret, found) in [
        ("short", "5 bytes"),
        ("${env:SECRET}", "the value of `${env:SECRET}`"),
    ] {
        assert_eq!(all_errors_of(&push(secret)), [format!("{expected} {found}")]);
    }
}
