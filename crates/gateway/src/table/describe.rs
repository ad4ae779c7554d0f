//! Describes the steps of a rule in words, in the order in which they apply.

use std::fmt;
use std::sync::Arc;

use crate::model::{
    Action, Affinity, AffinityBy, BodyMode, ExternalAuth, ExternalProcessor, FaultInjection, Forward,
    Fraction, HeaderChanges, PathRewrite, Policy, ProcessingMode, RateKey, RateLimit, RateService, Redirect,
    Rewrite, Rule, StatusHeaders, Target, Upstream, UpstreamProtocol, WeightedBackend,
};
use crate::policy;

/// A size in the largest unit in which it is a whole number, as in configuration files.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let is_whole = |shift: u32| self.0 > 0 && self.0.trailing_zeros() >= shift;
        match units.into_iter().find(|(shift, _)| is_whole(*shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None if self.0 == 1 => f.write_str("1 byte"),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Returns the steps of a rule in words, in order. Header values are omitted: they may be secrets.
#[must_use]
pub fn describe_steps(rule: &Rule) -> Vec<String> {
    let mut steps = Vec::new();
    describe_policies(&mut steps, rule);
    match &rule.action {
        Action::Forward(forward) => {
            describe_headers(&mut steps, "request", &rule.request_headers);
            self::describe_forward(&mut steps, forward);
        }
        Action::Redirect(redirect) => steps.push(self::describe_redirect(redirect)),
        Action::Respond(response) => steps.push(format!(
            "respond {} with {}",
            response.status,
            Size(response.body.0.len() as u64)
        )),
        Action::Files(files) => steps.push(format!("serve files from {}", files.root.display())),
        Action::Push(at) => steps.push(match &at.below {
            Some(path) => format!("push, below {}", path.as_str()),
            None => "push".to_owned(),
        }),
        Action::Broken { reason } => steps.push(format!("respond 500: {reason}")),
    }
    describe_headers(&mut steps, "response", &rule.response_headers);
    describe_status_headers(&mut steps, "response", &rule.status_headers);
    for page in &rule.error_pages {
        let (first, last) = (page.statuses.first, page.statuses.last);
        let range_text = if first == last {
            first.to_string()
        } else {
            format!("{first} to {last}")
        };
        steps.push(format!(
            "error page for {range_text}: {}",
            Size(page.response.body.0.len() as u64)
        ));
    }
    steps
}

fn describe_policies(steps: &mut Vec<String>, rule: &Rule) {
    let any = rule.policies.contains(&Policy::SatisfyAny);
    let mut allowed = None;
    for policy in policy::in_order(&rule.policies) {
        let phase = policy::Phase::of(policy);
        match policy {
            Policy::Addresses(addresses) if any => {
                allowed = Some(addresses.allow.len()).filter(|count| *count > 0);
                if !addresses.deny.is_empty() {
                    steps.push(format!("deny {} networks", addresses.deny.len()));
                }
            }
            Policy::SatisfyAny => {
                steps.push(self::describe_policy(policy));
                steps.extend(allowed.map(|count| format!("- allow {count} networks")));
            }
            Policy::ClientCertificate(_) if any => {
                steps.push("- require a client certificate and forward it".to_owned());
            }
            _ if any && phase == policy::Phase::Authentication => {
                steps.push(format!("- {}", self::describe_policy(policy)));
            }
            _ => steps.push(self::describe_policy(policy)),
        }
    }
}

fn describe_policy(policy: &Policy) -> String {
    match policy {
        Policy::Addresses(addresses) => {
            let (allow, deny) = (addresses.allow.len(), addresses.deny.len());
            let allowed = match allow {
                0 => "all addresses".to_owned(),
                _ => format!("{allow} networks"),
            };
            match deny {
                0 => format!("allow {allowed}"),
                _ => format!("allow {allowed} except {deny} networks"),
            }
        }
        Policy::ClientCertificate(policy) if policy.required => {
            "require a client certificate and forward it".to_owned()
        }
        Policy::ClientCertificate(_) => "forward the client certificate".to_owned(),
        Policy::Basic(policy) => format!(
            "basic auth: {} users, realm `{}`",
            policy.users.len(),
            policy.realm
        ),
        Policy::ApiKeys(policy) => format!("API key: one of {}", policy.keys.len()),
        Policy::Jwt(policy) => {
            let names: Vec<_> = policy.providers.iter().map(|provider| &*provider.name).collect();
            let mut step = format!("JWT from `{}`", names.join("` or `"));
            if !policy.scopes.is_empty() {
                step += &format!(" with scopes `{}`", policy.scopes.join(" "));
            }
            for rule in &policy.claims {
                step += &format!(", claim `{}` checked", rule.claim.0);
            }
            step
        }
        Policy::ExternalAuth(policy) => describe_authz(policy),
        Policy::Cors(_) => "CORS".to_owned(),
        Policy::RateLimit(policy) => {
            let RateLimit {
                requests, per, burst, ..
            } = **policy;
            let by = match policy.by.len() {
                0 => "in total".to_owned(),
                _ => format!("per {}", describe_key(&policy.by)),
            };
            let verb = if policy.log_only { "log above" } else { "limit to" };
            format!("{verb} {requests} requests per {per:?}, burst {burst}, {by}")
        }
        Policy::RateService(policy) => describe_rate_service(policy),
        Policy::Concurrency(policy) => {
            let by = match policy.by.len() {
                0 => String::new(),
                _ => format!(" per {}", describe_key(&policy.by)),
            };
            format!("limit to {} concurrent requests{by}", policy.requests)
        }
        Policy::Shed(policy) => format!("shed requests queued for longer than {:?}", policy.max_delay),
        Policy::Inject(policy) => describe_injection(policy),
        Policy::Processor(policy) => describe_processor(policy),
        // Options may be secrets.
        Policy::Filter(policy) => format!("filter `{}`", policy.name),
        Policy::SatisfyAny => "satisfy any of:".to_owned(),
    }
}

/// Describes the key of a limit.
fn describe_key(by: &[RateKey]) -> String {
    let keys = by.iter().map(|key| match key {
        RateKey::Source { v4: 32, v6 } => format!("address (IPv6: /{v6})"),
        RateKey::Source { v4, v6 } => format!("address (IPv4: /{v4}, IPv6: /{v6})"),
        RateKey::Header(name) => format!("header `{}`", name.as_str()),
        RateKey::Cookie(name) => format!("cookie `{name}`"),
        RateKey::Identity => "identity".to_owned(),
        RateKey::Claim(path) => format!("claim `{}`", path.0),
        RateKey::Host => "host".to_owned(),
        RateKey::Path => "path".to_owned(),
        RateKey::Method => "method".to_owned(),
    });
    keys.collect::<Vec<_>>().join(" and ")
}

fn describe_injection(policy: &FaultInjection) -> String {
    let share = |share: &Fraction| format!("{} of {}", share.part, share.of);
    let delay = policy.delay.as_ref();
    let delay = delay.map(|(time, part)| format!("delay {} by {time:?}", share(part)));
    let abort = policy.abort.as_ref();
    let abort = abort.map(|(status, part)| format!("respond to {} with {status}", share(part)));
    let parts = delay.into_iter().chain(abort).collect::<Vec<_>>().join(", ");
    match &policy.header {
        Some(name) => format!("{parts}, if the header `{}` is present", name.as_str()),
        None => parts,
    }
}

fn describe_forward(steps: &mut Vec<String>, forward: &Forward) {
    if let Some(limit) = forward.body.request {
        steps.push(format!("limit the request body to {}", Size(limit)));
    }
    for mirror in &forward.mirrors {
        let (part, of) = (mirror.share.part, mirror.share.of);
        steps.push(format!(
            "mirror {part} of {of} to {}",
            describe_target(&mirror.target)
        ));
    }
    describe_rewrite(steps, &forward.rewrite);
    describe_backends(steps, &forward.backends, |steps, backend| {
        describe_headers(steps, "its request", &backend.request_headers);
        describe_rewrite(steps, &backend.rewrite);
        describe_headers(steps, "its response", &backend.response_headers);
        describe_status_headers(steps, "its response", &backend.status_headers);
        steps.extend(backend.affinity.as_deref().map(describe_affinity));
    });
    if forward.grpc_web {
        steps.push("translate gRPC-Web to gRPC".to_owned());
    }
    steps.extend(forward.affinity.as_deref().map(describe_affinity));
    if let Some(retry) = &forward.retry {
        steps.push(format!("retry at most {} times", retry.attempts));
    }
    if let Some(after) = forward.hedge {
        steps.push(format!("hedge after {after:?}"));
    }
    let timeouts = &forward.timeouts;
    for (name, time) in [
        ("request", timeouts.request),
        ("attempt", timeouts.per_try),
        ("idle", timeouts.idle),
    ] {
        if let Some(time) = time {
            steps.push(format!("{name} timeout {time:?}"));
        }
    }
    if timeouts.minimum_rate > 0 {
        let rate = Size(timeouts.minimum_rate.into());
        steps.push(format!("minimum response rate {rate}/s"));
    }
}

/// Adds the protocol of each upstream, where it is not HTTP/1.1.
pub(super) fn describe_protocols(steps: &mut Vec<String>, forward: &Forward, upstreams: &[Arc<Upstream>]) {
    for upstream in upstreams {
        let is_target = |backend: &WeightedBackend| matches!(&backend.target, Target::Upstream(name) if *name == upstream.name);
        if !forward.backends.iter().any(is_target) {
            continue;
        }
        let protocol = match (upstream.protocol, upstream.tls.is_some()) {
            (UpstreamProtocol::Http1, _) => continue,
            (UpstreamProtocol::Http2, true) => "HTTP/2 over TLS",
            (UpstreamProtocol::Http2, false) => "HTTP/2 without TLS",
            (UpstreamProtocol::Auto, _) => "HTTP/2 or HTTP/1.1 (ALPN)",
        };
        let streams = upstream.pool.streams_per_connection;
        steps.push(format!(
            "{protocol} to upstream `{}`, {streams} streams per connection",
            upstream.name
        ));
    }
}

fn describe_authz(policy: &ExternalAuth) -> String {
    let open = if policy.fail_open { ", fail open" } else { "" };
    let body = match policy.body {
        0 => String::new(),
        body => format!(" with up to {} of the body", Size(body)),
    };
    let service = describe_target(&policy.upstream);
    let protocol = policy.grpc().map_or("", |_| " over gRPC");
    format!("authorize by {service}{protocol}{body}{open}")
}

fn describe_rate_service(policy: &RateService) -> String {
    let open = if policy.fail_open { ", fail open" } else { "" };
    let service = describe_target(&policy.upstream);
    let count = policy.descriptors.len();
    let plural = if count == 1 { "" } else { "s" };
    let domain = &policy.domain;
    format!("rate limit by {service} over gRPC: domain `{domain}`, {count} descriptor{plural}{open}")
}

fn describe_processor(policy: &ExternalProcessor) -> String {
    let ProcessingMode {
        request_headers,
        response_headers,
        request_body,
        response_body,
    } = policy.mode;
    let body = |whose: &str, mode| match mode {
        BodyMode::None => None,
        BodyMode::Buffered => Some(format!("the whole {whose} body")),
        BodyMode::Streamed => Some(format!("the {whose} body in pieces")),
    };
    let parts = [
        request_headers.then(|| "the request headers".to_owned()),
        body("request", request_body),
        response_headers.then(|| "the response headers".to_owned()),
        body("response", response_body),
    ];
    let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let open = if policy.fail_open { ", fail open" } else { "" };
    let service = describe_target(&policy.upstream);
    format!("process by {service} over gRPC: {parts}{open}")
}

fn describe_affinity(affinity: &Affinity) -> String {
    match &affinity.by {
        AffinityBy::Cookie(cookie) => format!("session affinity by the cookie `{}`", cookie.name),
        AffinityBy::Header(name) => format!("session affinity by the header `{}`", name.as_str()),
        AffinityBy::Source => "session affinity by the client address".to_owned(),
    }
}

/// Adds the backends with their shares, each followed by the steps that `more` adds.
pub(super) fn describe_backends(
    steps: &mut Vec<String>,
    backends: &[WeightedBackend],
    more: impl Fn(&mut Vec<String>, &WeightedBackend),
) {
    let all: u64 = backends.iter().map(|backend| u64::from(backend.weight)).sum();
    for backend in backends {
        let to = describe_target(&backend.target);
        steps.push(match backends.len() {
            1 => format!("forward to {to}"),
            _ => format!("forward {} of {all} to {to}", backend.weight),
        });
        more(steps, backend);
    }
}

fn describe_target(target: &Target) -> String {
    match target {
        Target::Upstream(name) => format!("upstream `{name}`"),
        Target::Broken { reason } => format!("no upstream: respond 500 ({reason})"),
    }
}

fn describe_rewrite(steps: &mut Vec<String>, rewrite: &Rewrite) {
    if let Some(host) = &rewrite.host {
        steps.push(format!("rewrite the host to `{host}`"));
    }
    match &rewrite.path {
        Some(PathRewrite::Full(path)) => steps.push(format!("rewrite the path to `{}`", path.as_str())),
        Some(PathRewrite::Prefix(path)) => steps.push(format!("replace the prefix by `{}`", path.as_str())),
        None => {}
    }
}

fn describe_redirect(redirect: &Redirect) -> String {
    let mut changed = Vec::new();
    if let Some(https) = redirect.https {
        changed.push(if https {
            "https".to_owned()
        } else {
            "http".to_owned()
        });
    }
    changed.extend(redirect.host.as_ref().map(|host| format!("host `{host}`")));
    changed.extend(redirect.port.map(|port| format!("port {port}")));
    match &redirect.path {
        Some(PathRewrite::Full(path)) => changed.push(format!("path `{}`", path.as_str())),
        Some(PathRewrite::Prefix(path)) => changed.push(format!("prefix replaced by `{}`", path.as_str())),
        None => {}
    }
    format!("redirect {} to {}", redirect.status, changed.join(", "))
}

fn describe_status_headers(steps: &mut Vec<String>, owner: &str, all: &[StatusHeaders]) {
    for StatusHeaders { statuses, changes } in all {
        let ranges = statuses.iter().map(|range| {
            if range.first == range.last {
                range.first.to_string()
            } else {
                format!("{} to {}", range.first, range.last)
            }
        });
        let range_text = ranges.collect::<Vec<_>>().join(", ");
        let first = steps.len();
        describe_headers(steps, owner, changes);
        for step in &mut steps[first..] {
            step.push_str(" if the status is ");
            step.push_str(&range_text);
        }
    }
}

fn describe_headers(steps: &mut Vec<String>, owner: &str, changes: &HeaderChanges) {
    // Values may be secrets.
    let removed = changes.remove.iter().map(|name| ("remove", name));
    let set = changes.set.iter().map(|(name, _)| ("set", name));
    let added = changes.add.iter().map(|(name, _)| ("add", name));
    for (verb, name) in removed.chain(set).chain(added) {
        steps.push(format!("{verb} {owner} header `{}`", name.as_str()));
    }
}

#[cfg(test)]
mod tests;
