//! Checks of routes and their rules.

use super::listeners::is_redirect;
use super::services::{check_authz, check_processor, check_rate_service};
use super::{ListenersByName, NameSet, ProblemList};
use crate::limits;
use crate::model::{
    Action, Affinity, AffinityBy, DirectResponse, Forward, Fraction, HeaderChanges, HeaderName, Hostname,
    JwtKeys, Name, PathMatch, PathRewrite, Policy, RateKey, Rewrite, Route, Rule, StatusHeaders, StreamRoute,
    Target,
};
use crate::table::problem::{ConfigPart, Consequence};

/// Names that frame a message or belong to one connection: a change would break the framing of the message.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Checks that a route has a listener, and that every listener it names exists and is of HTTP.
pub(in crate::table) fn check_listeners(
    route: &Route,
    listeners: &ListenersByName<'_>,
    problems: &mut ProblemList,
) -> bool {
    let place = || ConfigPart::Route(route.name.clone(), None);
    check_listener_names(&route.listeners, listeners, true, place, problems)
}

/// Reports unknown listeners; a route that names listeners of which none exists is left out.
fn check_listener_names(
    names: &[Name],
    listeners: &ListenersByName<'_>,
    http: bool,
    place: impl Fn() -> ConfigPart,
    problems: &mut ProblemList,
) -> bool {
    let mut found = names.is_empty();
    for name in names {
        let listener = listeners.get(&**name);
        if listener.is_some_and(|listener| listener.protocol.is_http() == http) {
            found = true;
            continue;
        }
        let expected = if http {
            "a valid HTTP listener"
        } else {
            "a valid listener of another protocol than HTTP"
        };
        problems.report(
            place(),
            "listeners",
            expected,
            format!("`{name}`"),
            Consequence::Omitted,
        );
    }
    found
}

/// Checks that a route is within the limits of rules and matches.
pub(in crate::table) fn check_counts(route: &Route, problems: &mut ProblemList) -> bool {
    let matches = route
        .rules
        .iter()
        .map(|rule| rule.matches.len())
        .max()
        .unwrap_or(0);
    let mut is_valid = true;
    for (part, found, max) in [
        ("rules", route.rules.len(), limits::RULES),
        ("matches", matches, limits::MATCHES),
    ] {
        if found > max {
            let place = ConfigPart::Route(route.name.clone(), None);
            problems.report(
                place,
                part,
                format!("at most {max}"),
                found.to_string(),
                Consequence::Responds500,
            );
            is_valid = false;
        }
    }
    is_valid
}

/// Checks a stream route. Returns whether it can be served.
pub(super) fn check_stream(
    stream: &StreamRoute,
    listeners: &ListenersByName<'_>,
    upstreams: &NameSet,
    problems: &mut ProblemList,
) -> bool {
    let place = || ConfigPart::Stream(stream.name.clone());
    let attached = check_listener_names(&stream.listeners, listeners, false, place, problems);
    for backend in &stream.backends {
        if let Target::Upstream(name) = &backend.target
            && !upstreams.contains(name)
        {
            let expected = "an upstream of the configuration";
            problems.report(
                place(),
                "backends",
                expected,
                format!("`{name}`"),
                Consequence::ShareResponds500,
            );
        }
    }
    attached
}

/// Returns the upstreams that a route names and that do not exist.
pub(super) fn missing_upstreams(route: &Route, upstreams: &NameSet, problems: &mut ProblemList) -> Vec<Name> {
    let mut missing = Vec::new();
    for (number, part, name) in upstream_targets(route) {
        if !upstreams.contains(name) {
            let place = ConfigPart::Route(route.name.clone(), Some(number));
            let expected = "a valid upstream of the configuration";
            problems.report(
                place,
                part,
                expected,
                format!("`{name}`"),
                Consequence::ShareResponds500,
            );
            missing.push(name.clone());
        }
    }
    missing
}

/// Returns the upstreams that a route refers to, each with the number of its rule and the part there.
pub(in crate::table) fn upstream_targets(
    route: &Route,
) -> impl Iterator<Item = (usize, &'static str, &Name)> {
    let rules = route.rules.iter().enumerate();
    rules.flat_map(|(number, rule)| {
        let (mirrors, backends) = match &rule.action {
            Action::Forward(forward) => (&forward.mirrors[..], &forward.backends[..]),
            _ => (&[][..], &[][..]),
        };
        let mirrors = mirrors.iter().map(|mirror| ("mirrors", &mirror.target));
        let backends = backends.iter().map(|backend| ("backends", &backend.target));
        let policies = rule.policies.iter().flat_map(policy_targets);
        let all = backends.chain(mirrors).chain(policies);
        all.filter_map(move |(part, target)| match target {
            Target::Upstream(name) => Some((number, part, name)),
            Target::Broken { .. } => None,
        })
    })
}

/// Returns the targets of the requests that a policy sends.
pub(super) fn policy_targets(policy: &Policy) -> Vec<(&'static str, &Target)> {
    match policy {
        Policy::Jwt(jwt) => {
            let keys = jwt.providers.iter().map(|provider| &provider.keys);
            let remote = keys.filter_map(|keys| match keys {
                JwtKeys::Remote(remote) => Some(("policies.jwt", &remote.upstream)),
                JwtKeys::Set(_) => None,
            });
            remote.collect()
        }
        Policy::ExternalAuth(policy) => vec![("policies.authz", &policy.upstream)],
        Policy::RateLimit(limit) => {
            let redis = limit.redis.iter().map(|redis| &redis.upstream);
            redis.map(|upstream| ("policies.rate_limit", upstream)).collect()
        }
        Policy::RateService(policy) => vec![("policies.rate_limit_service", &policy.upstream)],
        Policy::Processor(policy) => vec![("policies.ext_proc", &policy.upstream)],
        _ => Vec::new(),
    }
}

/// Checks a rule. Returns the first error; every error is reported.
pub(super) fn check_rule(route: &Route, number: usize, problems: &mut ProblemList) -> Option<String> {
    let rule = &route.rules[number];
    let mut broken = None;
    let mut report = |part: &'static str, expected: &str, found: String| {
        broken.get_or_insert_with(|| format!("{part}: expected {expected}, found {found}"));
        let place = ConfigPart::Route(route.name.clone(), Some(number));
        problems.report(place, part, expected, found, Consequence::Responds500);
    };
    let rewrite = match &rule.action {
        Action::Forward(forward) => Some(&forward.rewrite),
        _ => None,
    };
    check_request_headers(&rule.request_headers, rewrite, &mut report);
    check_headers(&rule.response_headers, &mut report);
    check_status_headers(&rule.status_headers, &mut report);
    for page in &rule.error_pages {
        let range = page.statuses;
        if !(400..=599).contains(&range.first) || !(range.first..=599).contains(&range.last) {
            let found = format!("{} to {}", range.first, range.last);
            report("error_pages", "statuses from 400 to 599", found);
        }
        check_response(&page.response, &mut report);
    }
    check_claims(rule, &mut report);
    check_authz(rule, &mut report);
    check_rate_service(rule, &mut report);
    check_processor(rule, &mut report);
    check_satisfy_any(rule, &mut report);
    check_action(rule, &mut report);
    broken
}

/// Checks that `satisfy: any` has more than one policy.
fn check_satisfy_any(rule: &Rule, report: &mut impl FnMut(&'static str, &str, String)) {
    let is_accepted = |policy: &&Policy| match policy {
        Policy::Addresses(addresses) => !addresses.allow.is_empty(),
        Policy::ClientCertificate(_) | Policy::Basic(_) | Policy::ApiKeys(_) | Policy::Jwt(_) => true,
        _ => false,
    };
    let found = rule.policies.iter().filter(is_accepted).count();
    if rule.policies.contains(&Policy::SatisfyAny) && found < 2 {
        let expected = "`any` only with at least two of `addresses` that has `allow`, `client_certificate`, `basic`, `api_keys` \
                        and `jwt`";
        report("policies.satisfy", expected, found.to_string());
    }
}

/// Checks that limits by claim have a policy that validates tokens.
fn check_claims(rule: &Rule, report: &mut impl FnMut(&'static str, &str, String)) {
    if rule
        .policies
        .iter()
        .any(|policy| matches!(policy, Policy::Jwt(_)))
    {
        return;
    }
    for policy in &rule.policies {
        let (part, by): (_, Vec<&RateKey>) = match policy {
            Policy::RateLimit(limit) => ("policies.rate_limit.by", limit.by.iter().collect()),
            Policy::RateService(service) => (
                "policies.rate_limit_service.descriptors",
                service.keys().collect(),
            ),
            Policy::Concurrency(cap) => ("policies.concurrency.by", cap.by.iter().collect()),
            _ => continue,
        };
        let claim = by.into_iter().find_map(|key| match key {
            RateKey::Claim(path) => Some(path),
            _ => None,
        });
        if let Some(path) = claim {
            let expected = "claims only together with the policy `jwt`";
            report(part, expected, format!("`{}` and no `jwt`", path.0));
        }
    }
}

fn check_action(rule: &Rule, report: &mut impl FnMut(&'static str, &str, String)) {
    match &rule.action {
        Action::Forward(forward) => self::check_forward(rule, forward, report),
        Action::Redirect(redirect) => {
            if !is_redirect(redirect.status) {
                report(
                    "redirect.status",
                    "301, 302, 303, 307 or 308",
                    redirect.status.to_string(),
                );
            }
            if let Some(host) = redirect
                .host
                .as_ref()
                .filter(|host| host.wildcard_suffix().is_some())
            {
                report("redirect.host", "one host", format!("`{host}`"));
            }
            check_path_rewrite(rule, redirect.path.as_ref(), "redirect.path", report);
        }
        Action::Respond(response) => self::check_response(response, report),
        Action::Files(files) => {
            if !files.root.is_absolute() {
                report(
                    "files.root",
                    "an absolute path",
                    format!("`{}`", files.root.display()),
                );
            }
            if let Some(name) = files
                .index
                .iter()
                .find(|name| name.is_empty() || name.contains('/'))
            {
                report("files.index", "names of files", format!("`{name}`"));
            }
        }
        Action::Push(_) => {
            let filters = rule.policies.iter().find_map(|policy| match policy {
                Policy::Filter(filter) => Some(("policies.filters", &*filter.name)),
                Policy::Processor(_) => Some(("policies.ext_proc", "ext_proc")),
                _ => None,
            });
            if let Some((part, name)) = filters {
                let expected = "no filters on a push rule: they do not process its messages";
                report(part, expected, format!("`{name}`"));
            }
        }
        Action::Broken { .. } => {}
    }
}

fn check_forward(rule: &Rule, forward: &Forward, report: &mut impl FnMut(&'static str, &str, String)) {
    check_rewrite(rule, &forward.rewrite, report);
    for backend in &forward.backends {
        check_rewrite(rule, &backend.rewrite, report);
        check_request_headers(&backend.request_headers, Some(&backend.rewrite), report);
        check_headers(&backend.response_headers, report);
        check_status_headers(&backend.status_headers, report);
        if backend.weight > limits::WEIGHT {
            let expected = format!("a weight of at most {}", limits::WEIGHT);
            report("backends.weight", &expected, backend.weight.to_string());
        }
    }
    for mirror in &forward.mirrors {
        let Fraction { part, of } = mirror.share;
        if part > of || of == 0 {
            report(
                "mirrors.share",
                "a fraction of at most 1",
                format!("{part} of {of}"),
            );
        }
        if mirror.body_bytes > limits::MIRROR_BODY_BYTES {
            let expected = format!("at most {} bytes", limits::MIRROR_BODY_BYTES);
            report("mirrors.body_bytes", &expected, mirror.body_bytes.to_string());
        }
    }
    if let Some(retry) = &forward.retry {
        if retry.attempts > limits::RETRIES {
            let expected = format!("at most {}", limits::RETRIES);
            report("retry.attempts", &expected, retry.attempts.to_string());
        }
        if retry.backoff_min > retry.backoff {
            let found = format!("at least {:?}, at most {:?}", retry.backoff_min, retry.backoff);
            report("retry.backoff_min", "at most `retry.backoff`", found);
        }
        if retry.backoff > retry.backoff_max {
            let found = format!("{:?}, then at most {:?}", retry.backoff, retry.backoff_max);
            report("retry.backoff", "at most the maximum backoff", found);
        }
    }
    let timeouts = &forward.timeouts;
    if let (Some(request), Some(per_try)) = (timeouts.request, timeouts.per_try)
        && per_try > request
    {
        let expected = format!("at most the request timeout, {request:?}");
        report("timeouts.per_try", &expected, format!("{per_try:?}"));
    }
    if [timeouts.request, timeouts.per_try, timeouts.idle].contains(&Some(std::time::Duration::ZERO)) {
        report("timeouts", "times above 0", "0".to_owned());
    }
    let own = forward.backends.iter().map(|backend| backend.affinity.as_deref());
    for affinity in own.chain([forward.affinity.as_deref()]).flatten() {
        check_affinity(affinity, report);
    }
}

fn check_affinity(affinity: &Affinity, report: &mut impl FnMut(&'static str, &str, String)) {
    if let AffinityBy::Cookie(cookie) = &affinity.by {
        if !cookie.has_valid_name() {
            report("affinity.cookie.name", "a token", format!("`{}`", cookie.name));
        }
        if !cookie.has_valid_path() {
            report(
                "affinity.cookie.path",
                "a path",
                format!("`{}`", cookie.path.escape_debug()),
            );
        }
    }
}

fn check_rewrite(rule: &Rule, rewrite: &Rewrite, report: &mut impl FnMut(&'static str, &str, String)) {
    if let Some(host) = rewrite
        .host
        .as_ref()
        .filter(|host| host.wildcard_suffix().is_some())
    {
        report("rewrite.host", "one host", format!("`{host}`"));
    }
    check_path_rewrite(rule, rewrite.path.as_ref(), "rewrite.path", report);
}

/// Checks that a prefix is only replaced where the match is a prefix.
fn check_path_rewrite(
    rule: &Rule,
    path: Option<&PathRewrite>,
    part: &'static str,
    report: &mut impl FnMut(&'static str, &str, String),
) {
    let prefixes = |path: &PathMatch| matches!(path, PathMatch::Prefix(_));
    if matches!(path, Some(PathRewrite::Prefix(_))) && !rule.matches.iter().all(|found| prefixes(&found.path))
    {
        let found = "a match of another kind".to_owned();
        report(part, "only prefix matches, since the prefix is replaced", found);
    }
}

fn check_response(response: &DirectResponse, report: &mut impl FnMut(&'static str, &str, String)) {
    if !(200..=599).contains(&response.status) {
        report(
            "answer.status",
            "a status from 200 to 599",
            response.status.to_string(),
        );
    }
    if response.body.0.len() > limits::ANSWER_BYTES {
        let expected = format!("at most {} bytes", limits::ANSWER_BYTES);
        report("answer.body", &expected, response.body.0.len().to_string());
    }
}

fn check_status_headers(all: &[StatusHeaders], report: &mut impl FnMut(&'static str, &str, String)) {
    for StatusHeaders { statuses, changes } in all {
        check_headers(changes, report);
        if statuses.is_empty() {
            report(
                "response_headers.by_status",
                "at least one status",
                "none".to_owned(),
            );
        }
        for range in statuses {
            if !(200..=599).contains(&range.first) || !(range.first..=599).contains(&range.last) {
                let found = format!("{} to {}", range.first, range.last);
                report("response_headers.by_status", "statuses from 200 to 599", found);
            }
        }
    }
}

fn check_headers(changes: &HeaderChanges, report: &mut impl FnMut(&'static str, &str, String)) {
    let written = changes.set.iter().chain(&changes.add).map(|(name, _)| name);
    for name in changes.remove.iter().chain(written) {
        if FRAMING
            .iter()
            .any(|framing| framing.eq_ignore_ascii_case(name.as_str()))
        {
            let expected = "no framing or hop-by-hop headers";
            report("headers", expected, format!("`{}`", name.as_str()));
        }
    }
}

fn is_host(name: &HeaderName) -> bool {
    name.as_str().eq_ignore_ascii_case("host")
}

/// Checks changes of request headers. `Host` may be set, which is what `rewrite.host` does, but neither added nor removed: a request has
/// exactly one (RFC 9112 §3.2).
fn check_request_headers(
    changes: &HeaderChanges,
    rewrite: Option<&Rewrite>,
    report: &mut impl FnMut(&'static str, &str, String),
) {
    check_headers(changes, report);
    let added = changes.add.iter().map(|(name, _)| name);
    if changes.remove.iter().chain(added).any(is_host) {
        let expected = "`Host` only in `set`: a request has exactly one";
        report(
            "request_headers",
            expected,
            "`Host` in `remove` or `add`".to_owned(),
        );
    }
    for (_, value) in changes.set.iter().filter(|(name, _)| is_host(name)) {
        if !is_authority(value.as_str()) {
            let expected = "a host with an optional port as the value of `Host`";
            report("request_headers", expected, "another value".to_owned());
        }
        if rewrite.is_some_and(|rewrite| rewrite.host.is_some()) {
            let expected = "the host either in `rewrite.host` or in `request_headers.set`";
            report("request_headers", expected, "both".to_owned());
        }
    }
}

/// Returns whether a text is `host [ ":" port ]` (RFC 3986 §3.2.2): a name, an IPv4 address, or an IPv6 address in brackets.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.parse::<u16>().is_ok_and(|_| !port.starts_with('+'));
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => Hostname::parse(host).is_ok_and(|name| name.wildcard_suffix().is_none()),
    };
    is_host && port.is_none_or(is_port)
}
