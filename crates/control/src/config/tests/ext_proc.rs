//! An external processor: its keys, and errors.

use std::time::Duration;

use ringmain_gateway::model::{
    Action, BodyMode, ExternalProcessor, HeaderName, Policy, ProcessingMode, Target,
};

use super::{all_errors_of, loaded, valid_config};

fn document(policies: &str) -> String {
    format!("listen: :80\nroutes:\n  shop:\n    rules:\n      - respond: 200\n        policies: {policies}\n")
}

fn processor(keys: &str) -> ExternalProcessor {
    let text = document(&format!("{{ext_proc: {{to: 'h2c://127.0.0.1:9292', {keys}}}}}"));
    let config = valid_config(&text);
    match &config.routes[0].rules[0].policies[..] {
        [Policy::Processor(policy)] => (**policy).clone(),
        found => panic!("{found:?}"),
    }
}

#[test]
fn every_key() {
    let policy = processor(
        "host: p.example, request_headers: false, response_headers: false, request_body: buffered, response_body: streamed, \
         allow_mode_override: true, upstream_headers: x-user, message_timeout: 20ms, max_message_timeout: 2s, on_failure: allow",
    );
    let expect = ExternalProcessor {
        host: policy.host.clone(),
        mode: ProcessingMode {
            request_headers: false,
            response_headers: false,
            request_body: BodyMode::Buffered,
            response_body: BodyMode::Streamed,
        },
        allow_mode_override: true,
        upstream_headers: vec![HeaderName::parse("x-user").expect("a name")],
        message_timeout: Duration::from_millis(20),
        max_message_timeout: Some(Duration::from_secs(2)),
        fail_open: true,
        ..ExternalProcessor::new(Target::Upstream("h2c://127.0.0.1:9292".into()))
    };
    assert_eq!(policy, expect);
    assert_eq!(policy.host.as_ref().map(|host| host.as_str()), Some("p.example"));
}

#[test]
fn defaults() {
    let policy = processor("request_body: none");
    let upstream = Target::Upstream("h2c://127.0.0.1:9292".into());
    assert_eq!(policy, ExternalProcessor::new(upstream));
}

const WRONG: &[(&str, &str)] = &[
    ("{ext_proc: {}}", "the key `to`"),
    (
        "{ext_proc: {to: 'http://a'}}",
        "an upstream with HTTP/2, which gRPC requires",
    ),
    (
        "{ext_proc: {to: 'h2c://a', request_headers: false, response_headers: false}}",
        "at least one part that the service receives",
    ),
    (
        "{ext_proc: {to: 'h2c://a', message_timeout: 11s}}",
        "`message_timeout` of at most 10s",
    ),
    (
        "{ext_proc: {to: 'h2c://a', max_message_timeout: 0s}}",
        "`max_message_timeout` of at most 10s",
    ),
    (
        "{ext_proc: {to: 'h2c://a', request_body: full_duplex_streamed}}",
        "buffered",
    ),
    (
        "{ext_proc: {to: 'h2c://a', request_trailers: true}}",
        "request_trailers",
    ),
];

#[test]
fn errors_break_the_rule() {
    for (policies, expected) in WRONG {
        let text = document(policies);
        let found = all_errors_of(&text);
        assert!(
            found.iter().any(|line| line.contains(expected)),
            "{expected}: {found:#?}"
        );
        let config = loaded(&text).config.expect("it is served");
        let action = &config.routes[0].rules[0].action;
        assert!(matches!(action, Action::Broken { .. }), "{text}: {action:?}");
    }
}

#[test]
fn one_service_receives_the_body() {
    let text = document("{ext_proc: {to: 'h2c://a'}, authz: {to: 'http://a', body: 1KiB}}");
    let found = all_errors_of(&text);
    let expected = "no body for the service beside filters or `ext_proc`";
    assert!(found.iter().any(|line| line.contains(expected)), "{found:#?}");
}
