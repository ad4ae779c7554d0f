//! Listeners of UDP, and the sessions of their streams.

use std::time::Duration;

use super::errors::check_errors;
use super::{all_errors_of, valid_config};

#[test]
fn udp_has_no_hosts_and_no_connections() {
    let check = |listener: &str, expected: &str| {
        let text = format!(
            "listeners: {{dns: {{address: ':53', protocol: udp{listener}}}}}\nstreams: {{dns: {{to: http://127.0.0.1:1}}}}\n"
        );
        let errors = all_errors_of(&text);
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "expected {expected}, found {errors:?}"
        );
    };
    check(
        ", hosts: dns.example",
        "no hosts: datagrams have no host to select by",
    );
    check(
        ", proxy_protocol: {from: 10.0.0.0/8}",
        "no PROXY protocol: it starts connections",
    );
    check_errors(
        "listeners: {dns: {address: ':53', protocol: udp}}\nstreams: {dns: {to: http://127.0.0.1:1, responses: 0}}\n",
        &["2:52: expected a whole number from 1 to 4294967295, found `0`"],
    );
}

#[test]
fn parts_that_only_connections_have_are_refused_at_their_stream() {
    let dns = "listeners: {dns: {address: ':53', protocol: udp}}\n";
    let upstream = |keys: &str| {
        format!(
            "{dns}streams: {{dns: {{to: u}}}}\nupstreams: {{u: {{endpoints: ['127.0.0.1:1'], {keys}}}}}\n"
        )
    };
    let checks = [
        (
            upstream("tls: {server_name: a.example}"),
            "without TLS, as datagrams are forwarded unchanged",
        ),
        (upstream("proxy_protocol: v2"), "without PROXY protocol"),
        (
            format!("{dns}streams: {{dns: {{to: 'unix:/run/x'}}}}\n"),
            "IP addresses and hosts for UDP",
        ),
        (
            format!("{dns}streams: {{dns: {{hosts: a.example, to: 'http://127.0.0.1:1'}}}}\n"),
            "no hosts: datagrams have no host",
        ),
        (
            "listeners: {t: {address: ':53', protocol: tcp}}\nstreams: {t: {to: 'http://127.0.0.1:1', responses: 1}}\n"
                .to_owned(),
            "a listener of UDP: connections end by themselves",
        ),
    ];
    for (text, expected) in checks {
        let errors = all_errors_of(&text);
        assert!(
            errors.len() == 1 && errors[0].starts_with("c.yaml:2:") && errors[0].contains(expected),
            "expected {expected}, found {errors:?}"
        );
    }
}

#[test]
fn udp_sessions_are_limited_in_all_and_by_address() {
    let of = |limits: &str| {
        let limits = valid_config(&format!("listen: :80\nto: http://a:1\nlimits: {limits}\n")).limits;
        (limits.datagram_sessions, limits.datagram_sessions_per_address)
    };
    assert_eq!(of("{}"), (16_384, Some(1024)));
    assert_eq!(
        of("{udp_sessions: 100, udp_sessions_per_address: 7}"),
        (100, Some(7))
    );
    assert_eq!(of("{udp_sessions_per_address: off}"), (16_384, None));
}

#[test]
fn udp_sessions_have_their_own_idle_time() {
    let of = |keys: &str| {
        let text = format!(
            "listeners: {{dns: {{address: ':53', protocol: udp}}}}\nstreams: {{dns: {{to: http://127.0.0.1:1{keys}}}}}\n"
        );
        let config = valid_config(&text);
        let stream = &config.streams[0];
        (stream.idle, stream.datagrams.idle, stream.datagrams.responses)
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(of(""), (seconds(3600), seconds(60), None));
    assert_eq!(of(", responses: 1"), (seconds(3600), seconds(5), Some(1)));
    assert_eq!(of(", responses: 1, idle: 2s"), (seconds(2), seconds(2), Some(1)));
    assert_eq!(of(", idle: off"), (None, None, None));
}
