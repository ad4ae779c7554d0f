//! What requests must pass: what files say of it, and what becomes of rules where that is wrong.

use ringmain_gateway::model::{Action, Policy};

use super::{all_wrong, loaded, right};

/// The kinds of policies of a rule.
fn kinds(policies: &[Policy]) -> Vec<String> {
    let name = |policy: &Policy| {
        format!("{policy:?}")
            .split('(')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    policies.iter().map(name).collect()
}

#[test]
fn a_rule_has_its_routes_policies_and_its_own() {
    let config = right(
        "listen: :80\nroutes:\n  all:\n    policies: {addresses: {allow: 10.0.0.0/8}}\n    rules:\n      \
         - {match: /a, respond: 200}\n      \
         - {match: /b, respond: 200, policies: {addresses: false, client_certificate: true}}\n      \
         - {match: /c, respond: 200, policies: {addresses: {deny: [10.1.0.0/16, '::1']}}}\n",
    );
    let rules = &config.routes[0].rules;
    assert_eq!(kinds(&rules[0].policies), ["Addresses"]);
    assert_eq!(kinds(&rules[1].policies), ["ClientCertificate"]);
    let [Policy::Addresses(addresses)] = &rules[2].policies[..] else {
        panic!("{:?}", rules[2].policies);
    };
    assert_eq!((addresses.allow.len(), addresses.deny.len()), (0, 2));
}

#[test]
fn a_rule_whose_policies_are_wrong_answers_500() {
    for (route, rule, told) in [
        (
            "",
            ", policies: {addresses: {allow: 10.0.0.1/8}}",
            "a network whose other bits are zero",
        ),
        (
            "",
            ", policies: {addresses: {}}",
            "at least one network to `allow` or to `deny`, found none",
        ),
        ("", ", policies: {adresses: {allow: 10.0.0.0/8}}", "`adresses`"),
        (
            "policies: {addresses: {allow: here}}",
            "",
            "a network such as 10.0.0.0/8",
        ),
        (
            "policies: {addresses: true}",
            "",
            "at least one network to `allow` or to `deny`, found none",
        ),
        (
            "policies: {adresses: {allow: 10.0.0.0/8}}",
            ", strange: true",
            "`adresses`",
        ),
        ("policies: []", "", "expected"),
    ] {
        let text = format!(
            "listen: :80\nroutes:\n  all:\n    rules:\n      - {{respond: 200{rule}}}\n    {route}\n"
        );
        let wrong = all_wrong(&text);
        assert!(wrong.iter().any(|line| line.contains(told)), "{told}: {wrong:#?}");
        let config = loaded(&text).config.expect("it is served");
        let action = &config.routes[0].rules[0].action;
        assert!(matches!(action, Action::Broken { .. }), "{text}: {action:?}");
    }
}
