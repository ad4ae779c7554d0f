//! HTTPRoutes and GRPCRoutes: rules with their backends, times and retries.

use std::time::Duration;

use ringmain_gateway::limits::RETRIES;
use ringmain_gateway::model::{
    Action, Forward, HeaderChanges, Match, Retry, RetryOn, Route, Rule, StatusRange, Target, WeightedBackend,
};

use super::backend::Usage;
use super::condition::Fault;
use super::filters::Filters;
use super::gateway::Attached;
use super::matches::{self, Faults};
use super::persistence::add_sessions;
use super::route::{RouteHead, RuleFaults};
use super::{Context, text};
use crate::objects::{self, Filter, GrpcRoute, HttpRoute, HttpRule, Kind, WeightedRef};

/// Translates an HTTPRoute.
pub(super) fn translate_http(
    context: &mut Context<'_>,
    attached: &Attached,
    route: &HttpRoute,
) -> Vec<Route> {
    let spec = &route.spec;
    let head = RouteHead::new(
        Kind::HttpRoute,
        &route.metadata,
        &spec.parent_refs,
        &spec.hostnames,
    );
    let owner = head.key().to_string();
    let no_rule = [HttpRule::default()];
    let rules = if spec.rules.is_empty() {
        &no_rule[..]
    } else {
        &spec.rules
    };
    translate(context, attached, &head, rules.len(), |context, usage, at| {
        let rule = &rules[at];
        let mut draft = Draft::new(rule.name.as_deref());
        draft.rule.matches = rule
            .matches
            .iter()
            .map(|found| matches::http(found, &mut draft.faults))
            .collect();
        draft.add_filters(context, usage, &rule.filters);
        let mut forward = draft.forward(context, usage, &rule.backend_refs);
        add_times(rule, &mut forward, &mut draft.faults);
        add_sessions(
            rule.session_persistence.as_ref(),
            &owner,
            &mut forward,
            &mut draft.faults,
        );
        draft.finish(forward)
    })
}

/// Translates a GRPCRoute.
pub(super) fn translate_grpc(
    context: &mut Context<'_>,
    attached: &Attached,
    route: &GrpcRoute,
) -> Vec<Route> {
    let spec = &route.spec;
    let head = RouteHead::new(
        Kind::GrpcRoute,
        &route.metadata,
        &spec.parent_refs,
        &spec.hostnames,
    );
    let owner = head.key().to_string();
    translate(
        context,
        attached,
        &head,
        spec.rules.len(),
        |context, usage, at| {
            let rule = &spec.rules[at];
            let mut draft = Draft::new(rule.name.as_deref());
            draft.rule.matches = rule
                .matches
                .iter()
                .map(|found| matches::grpc(found, &mut draft.faults))
                .collect();
            draft.add_filters(context, usage, &rule.filters);
            let mut forward = draft.forward(context, usage, &rule.backend_refs);
            // Streams of messages have no length that is known in advance.
            forward.body.request = None;
            add_sessions(
                rule.session_persistence.as_ref(),
                &owner,
                &mut forward,
                &mut draft.faults,
            );
            draft.finish(forward)
        },
    )
}

/// A translated rule with its faults.
struct Outcome {
    rule: Rule,
    unresolved: Option<Fault>,
    /// Of the rule, or of one of its backends alone.
    invalid: Option<Fault>,
    is_broken: bool,
}

fn translate(
    context: &mut Context<'_>,
    attached: &Attached,
    head: &RouteHead<'_>,
    count: usize,
    mut rule: impl FnMut(&mut Context<'_>, &Usage<'_>, usize) -> Outcome,
) -> Vec<Route> {
    let parts = head.translate(context, attached, |context, usage| {
        let mut faults = RuleFaults::default();
        let (mut rules, mut invalid) = (Vec::new(), 0);
        for at in 0..count {
            let outcome = rule(context, usage, at);
            invalid += usize::from(outcome.is_broken);
            faults.unresolved = faults.unresolved.or(outcome.unresolved);
            faults.invalid = faults.invalid.or(outcome.invalid);
            rules.push(outcome.rule);
        }
        faults.all_invalid = invalid == count && count > 0;
        (rules, faults)
    });
    let route = |(attachment, rules): (super::route::Attachment, Vec<Rule>)| Route {
        name: attachment.name,
        listeners: attachment.listeners,
        hostnames: attachment.hostnames,
        rules,
    };
    parts.into_iter().map(route).collect()
}

/// A rule while it is translated.
struct Draft {
    rule: Rule,
    filters: Filters,
    faults: Faults,
    unresolved: Option<Fault>,
    /// A filter of a backend that is not supported.
    invalid_backend: Option<Fault>,
}

impl Draft {
    fn new(name: Option<&str>) -> Draft {
        let mut rule = Rule::new(Action::Forward(Box::default()));
        rule.name = name.map(Into::into);
        Draft {
            rule,
            filters: Filters::default(),
            faults: Faults::default(),
            unresolved: None,
            invalid_backend: None,
        }
    }

    fn add_filters(&mut self, context: &mut Context<'_>, usage: &Usage<'_>, filters: &[Filter]) {
        let mut filters = Filters::new(context, usage, filters);
        self.unresolved = self.unresolved.take().or(filters.unresolved.take());
        self.faults.0 = self.faults.0.take().or(filters.faults.0.take());
        self.filters = filters;
    }

    fn forward(&mut self, context: &mut Context<'_>, usage: &Usage<'_>, backends: &[WeightedRef]) -> Forward {
        let mut forward = Forward {
            rewrite: std::mem::take(&mut self.filters.rewrite),
            mirrors: std::mem::take(&mut self.filters.mirrors),
            upgrades: vec!["websocket".into()],
            ..Forward::default()
        };
        for reference in backends {
            let backend = context.backend(usage, &reference.backend);
            let mut weighted = WeightedBackend::new("");
            weighted.target = backend.target;
            weighted.affinity = backend.affinity.map(Box::new);
            weighted.weight = reference.weight.unwrap_or(1);
            let mut filters = Filters::new(context, usage, &reference.filters);
            filters.check_backend();
            if let Some(fault) = filters.faults.0.take() {
                // The share of this backend alone: no request passes without its filter.
                let reason = fault.message.as_str().into();
                weighted.target = Target::Broken { reason };
                self.invalid_backend.get_or_insert(fault);
            }
            weighted.request_headers = filters.request_headers;
            weighted.response_headers = filters.response_headers;
            weighted.rewrite = filters.rewrite;
            self.unresolved = self.unresolved.take().or(filters.unresolved).or(backend.fault);
            forward.backends.push(weighted);
        }
        forward
    }

    fn finish(mut self, forward: Forward) -> Outcome {
        self.rule.response_headers = std::mem::take(&mut self.filters.response_headers);
        self.rule.policies = std::mem::take(&mut self.filters.policies);
        let replaces_prefix = |rewrite: Option<&ringmain_gateway::model::PathRewrite>| {
            matches!(rewrite, Some(ringmain_gateway::model::PathRewrite::Prefix(_)))
        };
        let redirect = self.filters.redirect.take();
        let rewrites = [
            forward.rewrite.path.as_ref(),
            redirect.as_ref().and_then(|redirect| redirect.path.as_ref()),
        ];
        let is_prefix = |found: &Match| matches!(found.path, ringmain_gateway::model::PathMatch::Prefix(_));
        if rewrites.into_iter().any(replaces_prefix) && !self.rule.matches.iter().all(is_prefix) {
            self.faults
                .add("ReplacePrefixMatch needs matches of type PathPrefix");
        }
        self.rule.action = match (&self.faults.0, redirect) {
            (Some(fault), _) => {
                self.rule.response_headers = HeaderChanges::default();
                self.rule.policies.clear();
                let reason = fault.message.as_str().into();
                Action::Broken { reason }
            }
            (None, Some(redirect)) => Action::Redirect(redirect),
            (None, None) => {
                self.rule.request_headers = std::mem::take(&mut self.filters.request_headers);
                Action::Forward(Box::new(forward))
            }
        };
        Outcome {
            rule: self.rule,
            unresolved: self.unresolved,
            is_broken: self.faults.0.is_some(),
            invalid: self.faults.0.or(self.invalid_backend),
        }
    }
}

fn add_times(rule: &HttpRule, forward: &mut Forward, faults: &mut Faults) {
    let mut read = |text: Option<&String>| -> Option<Duration> {
        let text = text?;
        let found = text::duration(text);
        if found.is_none() {
            faults.add(format!("`{text}` is not a duration"));
        }
        // Zero: no limit.
        found.filter(|found| !found.is_zero())
    };
    if let Some(timeouts) = &rule.timeouts {
        forward.timeouts.request = read(timeouts.request.as_ref());
        forward.timeouts.per_try = read(timeouts.backend_request.as_ref());
    }
    let Some(retry) = &rule.retry else { return };
    let backoff = read(retry.backoff.as_ref());
    forward.retry = translate_retry(retry, backoff, forward.timeouts.per_try.is_some());
}

/// The longest pause before a retry, in base intervals.
const BACKOFF_GROWTH: u32 = 10;

/// Connection errors are always retried, and attempts that exceed their time if there is one.
fn translate_retry(spec: &objects::Retry, backoff: Option<Duration>, has_timeout: bool) -> Option<Retry> {
    let attempts = spec.attempts.unwrap_or(1).min(u32::from(RETRIES));
    let attempts = u8::try_from(attempts).unwrap_or(RETRIES);
    if attempts == 0 {
        return None;
    }
    let mut retry = Retry {
        attempts,
        on: RetryOn {
            connect: true,
            reset: true,
            timeout: has_timeout,
            statuses: spec.codes.iter().map(|code| StatusRange::one(*code)).collect(),
        },
        ..Retry::default()
    };
    if let Some(backoff) = backoff {
        retry.backoff_min = backoff;
        retry.backoff = backoff.saturating_mul(2);
        retry.backoff_max = backoff.saturating_mul(BACKOFF_GROWTH);
    }
    Some(retry)
}
