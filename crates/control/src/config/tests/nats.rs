//! The keys of consumers of NATS.

use ringmain_gateway::model::{NatsLogin, NatsServer, Secret, Subject};

use super::{all_errors_of, valid_config};

fn with(nats: &str) -> String {
    format!(
        "listen: :80\nto: http://127.0.0.1:1\nauthorities: {{own: own.pem}}\ncertificates: {{me: {{chain: a.crt, key: a.key}}}}\npush:\n  nats:\n{nats}  namespaces: {{prices: {{}}, a: {{}}}}\n"
    )
}

#[test]
fn consumers_are_read_with_their_defaults() {
    let config = valid_config(&with(
        "    plain: {servers: 'nats://queue', subjects: news}
    full:
      servers: ['nats://10.0.0.1:4223', 'tls://queue.internal/', 'nats://[::1]:4222']
      subjects: [prices.>, 'eu.*']
      channel: 'prices:{2..}'
      user: ada
      password: '${env:SECRET}'
      tls: {server_name: queue.example, authorities: own, certificate: me}
    token: {servers: 'nats://a', subjects: b, token: t0ken, channel: all}
",
    ));
    let nats = &config.push.as_deref().expect("push").nats;
    let server = |host: &str, port, tls| NatsServer {
        host: host.into(),
        port,
        tls,
    };
    let plain = &nats["plain"];
    assert_eq!(plain.access.servers, [server("queue", 4222, false)]);
    assert_eq!(
        (&plain.access.login, &plain.access.tls),
        (&NatsLogin::Anonymous, &None)
    );
    assert_eq!(
        plain.channel.channel_of(&Subject("news")).as_deref(),
        Some("news")
    );
    let full = &nats["full"];
    assert_eq!(
        full.access.servers,
        [
            server("10.0.0.1", 4223, false),
            server("queue.internal", 4222, true),
            server("::1", 4222, false)
        ]
    );
    assert_eq!(
        full.subjects,
        ["prices.>", "eu.*"].map(std::sync::Arc::<str>::from)
    );
    assert_eq!(
        full.channel.channel_of(&Subject("prices.eu.acme")).as_deref(),
        Some("prices:eu.acme")
    );
    let login = NatsLogin::User {
        user: "ada".into(),
        password: Secret::new(b"hun ter:2\n".as_slice()),
    };
    assert_eq!(full.access.login, login);
    let tls = full.access.tls.as_ref().expect("TLS");
    assert_eq!(tls.server_name.as_deref(), Some("queue.example"));
    assert_eq!(
        tls.authorities.as_deref(),
        Some(&b"-----BEGIN CERTIFICATE-----\n"[..])
    );
    assert!(tls.certificate.is_some());
    let token = &nats["token"];
    assert_eq!(
        token.access.login,
        NatsLogin::Token(Secret::new(b"t0ken".as_slice()))
    );
    assert_eq!(
        token.channel.channel_of(&Subject("whatever")).as_deref(),
        Some("all")
    );
}

/// Invalid consumers, each with a part of its error.
const WRONG: &[(&str, &str)] = &[
    (
        "{}",
        "7:5: expected the key `servers` with at least one, found none",
    ),
    (
        "{servers: 'nats://a'}",
        "7:5: expected the key `subjects` with at least one, found none",
    ),
    (
        "{servers: 'a:4222', subjects: a}",
        "7:18: expected nats://HOST:PORT, or tls://HOST:PORT for TLS, found `a:4222`",
    ),
    (
        "{servers: 'nats://ada:pass@a', subjects: a}",
        "7:18: expected nats://HOST:PORT, or tls://HOST:PORT for TLS, found a URL with a user in it (there are the keys \
         `user`, `password` and `token`)",
    ),
    ("{servers: 'nats://a:0', subjects: a}", "found `nats://a:0`"),
    ("{servers: 'nats://', subjects: a}", "found `nats://`"),
    ("{servers: 'nats://*.a', subjects: a}", "found `nats://*.a`"),
    (
        "{servers: 'nats://a', subjects: [a, 'b c']}",
        "`>` at the end for any words, found `b c`",
    ),
    ("{servers: 'nats://a', subjects: a.>.b}", "found `a.>.b`"),
    (
        "{servers: 'nats://a', subjects: a, channel: '{0}'}",
        "expected a channel's name with `{key}`, `{subject}`, `{2}`, `{2..}` or `{header:NAME}` in it, found `{0}`",
    ),
    (
        "{servers: 'nats://a', subjects: a, channel: '{name}'}",
        "found `{name}`",
    ),
    (
        "{servers: 'nats://a', subjects: a, channel: 'a:{key}'}",
        "7:52: expected a channel's name with parts of the subject alone: core NATS has no keys, and headers are not read",
    ),
    (
        "{servers: 'nats://a', subjects: a, channel: '{header:room}'}",
        "expected a channel's name with parts of the subject alone",
    ),
    (
        "{servers: 'nats://a', subjects: a, channel: 'a{1'}",
        "found `a{1`",
    ),
    ("{servers: 'nats://a', subjects: a, channel: 'a}'}", "found `a}`"),
    ("{servers: 'nats://a', subjects: a, channel: ''}", "found ``"),
    (
        "{servers: 'nats://a', subjects: a, user: ada}",
        "expected either `user` and `password`, or `token`, or `credentials`",
    ),
    (
        "{servers: 'nats://a', subjects: a, token: x, credentials: y}",
        "expected either `user` and `password`",
    ),
    (
        "{servers: 'nats://a', subjects: a, credentials: missing}",
        "missing",
    ),
    (
        "{servers: 'nats://a', subjects: a, credentials: token}",
        "expected a credentials file with a `USER NKEY SEED` of a user, found none",
    ),
    (
        "{servers: 'nats://a', subjects: a, tls: {authorities: owm}}",
        "did you mean `own`?",
    ),
    (
        "{servers: 'nats://a', subjects: a, tls: {certificate: you}}",
        "expected the name of a certificate of this file",
    ),
    ("{servers: 'nats://a', subject: a}", "subject"),
];

#[test]
fn invalid_consumers_are_reported() {
    for (nats, expect) in WRONG {
        let wrong = all_errors_of(&with(&format!("    a: {nats}\n")));
        let first = wrong
            .first()
            .unwrap_or_else(|| panic!("nothing is wrong: {nats}"));
        assert!(first.contains(expect), "{nats}: {first}");
    }
    let many: String = (0..65)
        .map(|number| format!("    a{number}: {{servers: 'nats://a', subjects: a}}\n"))
        .collect();
    let wrong = all_errors_of(&with(&many));
    assert!(
        wrong.len() == 1 && wrong[0].contains("expected at most 64 consumers, found 65"),
        "{wrong:?}"
    );
}

#[test]
fn the_example_is_valid() {
    let config = valid_config(include_str!("../../../../../examples/push-nats.yaml"));
    let nats = &config.push.as_deref().expect("push").nats;
    assert_eq!(
        nats["market"]
            .channel
            .channel_of(&Subject("market.ARDN"))
            .as_deref(),
        Some("market:ARDN")
    );
}
