//! Checks of the policies that query external services.

use crate::limits;
use crate::model::{Action, AuthzRequest, Policy, RateEntryValue, Rule, StatusRange};

pub(super) fn check_authz(rule: &Rule, report: &mut impl FnMut(&'static str, &str, String)) {
    let policies = rule.policies.iter().filter_map(|policy| match policy {
        Policy::ExternalAuth(policy) => Some(policy),
        _ => None,
    });
    for policy in policies {
        let StatusRange { first, last } = policy.allowed;
        if first < 200 || last > 299 || first > last {
            let found = format!("{first} to {last}");
            report("policies.authz.allowed", "statuses from 200 to 299", found);
        }
        if let Some(status) = policy
            .failure_status
            .filter(|status| !(400..=599).contains(status))
        {
            report(
                "policies.authz.failure_status",
                "a status from 400 to 599",
                status.to_string(),
            );
        }
        if policy.body == 0 {
            continue;
        }
        if policy.body > limits::AUTHZ_REQUEST_BYTES {
            let expected = format!("at most {} bytes", limits::AUTHZ_REQUEST_BYTES);
            report("policies.authz.body", &expected, policy.body.to_string());
        }
        let is_filter = |policy: &Policy| matches!(policy, Policy::Filter(_) | Policy::Processor(_));
        let conflict = match &rule.action {
            _ if matches!(policy.ask, AuthzRequest::Path(_)) => "a fixed `path`, which is queried with GET",
            Action::Push(_) => "push",
            Action::Forward(forward) if forward.grpc_web => "`grpc_web`",
            _ if rule.policies.iter().any(is_filter) => "filters or `ext_proc`",
            _ => continue,
        };
        let expected = format!("no body for the service beside {conflict}");
        report("policies.authz.body", &expected, policy.body.to_string());
    }
}

pub(super) fn check_rate_service(rule: &Rule, report: &mut impl FnMut(&'static str, &str, String)) {
    let max = limits::RATE_DESCRIPTORS;
    let policies = rule.policies.iter().filter_map(|policy| match policy {
        Policy::RateService(policy) => Some(policy),
        _ => None,
    });
    for policy in policies {
        if policy.domain.is_empty() {
            let expected = "a name of 1 character or more";
            report("policies.rate_limit_service.domain", expected, "none".to_owned());
        }
        if !(400..=599).contains(&policy.status) {
            let found = policy.status.to_string();
            report(
                "policies.rate_limit_service.status",
                "a status from 400 to 599",
                found,
            );
        }
        let part = "policies.rate_limit_service.descriptors";
        if !(1..=max).contains(&policy.descriptors.len()) {
            let found = policy.descriptors.len().to_string();
            report(part, &format!("from 1 to {max} descriptors"), found);
        }
        for descriptor in &policy.descriptors {
            if !(1..=max).contains(&descriptor.entries.len()) {
                let found = descriptor.entries.len().to_string();
                report(part, &format!("from 1 to {max} entries"), found);
            }
            for entry in &descriptor.entries {
                let is_empty = match &entry.value {
                    RateEntryValue::Constant(text) | RateEntryValue::Match { text, .. } => text.is_empty(),
                    RateEntryValue::Request(_) | RateEntryValue::Route => false,
                };
                if is_empty || entry.key.is_empty() {
                    report(
                        part,
                        "keys and values of 1 character or more",
                        "an empty one".to_owned(),
                    );
                }
            }
        }
    }
}

pub(super) fn check_processor(rule: &Rule, report: &mut impl FnMut(&'static str, &str, String)) {
    let processors = rule.policies.iter().filter_map(|policy| match policy {
        Policy::Processor(policy) => Some(policy),
        _ => None,
    });
    for policy in processors {
        let most = limits::PROCESSOR_TIMEOUT_MOST;
        for (part, time) in [
            ("policies.ext_proc.message_timeout", Some(policy.message_timeout)),
            (
                "policies.ext_proc.max_message_timeout",
                policy.max_message_timeout,
            ),
        ] {
            if let Some(time) = time.filter(|time| *time > most) {
                report(part, &format!("at most {most:?}"), format!("{time:?}"));
            }
        }
    }
}
