//! Describes the steps of a rule in words, in the order in which they apply.

use std::sync::Arc;

use crate::model::{
    Action, Affinity, AffinityBy, ExternalAuth, Forward, HeaderChanges, Inject, PathRewrite, Policy, RateKey,
    RateLimit, Redirect, Rewrite, Rule, Share, StatusHeaders, Target, Upstream, UpstreamProtocol,
    WeightedBackend,
};
use crate::policy;

/// Returns the steps of a rule in words, in order. Header values are omitted: they may be secrets.
#[must_use]
pub fn steps(rule: &Rule) -> Vec<String> {
    let mut steps = Vec::new();
    policies(&mut steps, rule);
    match &rule.action {
        Action::Forward(forward) => {
            headers(&mut steps, "request", &rule.request_headers);
            self::forward(&mut steps, forward);
        }
        Action::Redirect(redirect) => steps.push(self::redirect(redirect)),
        Action::Answer(answer) => steps.push(format!(
            "answer {} with {} bytes",
            answer.status,
            answer.body.0.len()
        )),
        Action::Files(files) => steps.push(format!("answer a file of {}", files.root.display())),
        Action::Push(at) => steps.push(match &at.below {
            Some(path) => format!("push, below {}", path.as_str()),
            None => "push".to_owned(),
        }),
        Action::Broken { reason } => steps.push(format!("answer 500: {reason}")),
    }
    headers(&mut steps, "response", &rule.response_headers);
    status_headers(&mut steps, "response", &rule.status_headers);
    for page in &rule.error_pages {
        let (first, last) = (page.statuses.first, page.statuses.last);
        let which = if first == last {
            first.to_string()
        } else {
            format!("{first} to {last}")
        };
        steps.push(format!(
            "in place of {which} send {} bytes",
            page.answer.body.0.len()
        ));
    }
    steps
}

fn policies(steps: &mut Vec<String>, rule: &Rule) {
    let any = rule.policies.contains(&Policy::SatisfyAny);
    let mut allowed = None;
    for policy in policy::in_order(&rule.policies) {
        let phase = policy::Phase::of(policy);
        match policy {
            Policy::Addresses(addresses) if any => {
                allowed = Some(addresses.allow.len()).filter(|count| *count > 0);
                if !addresses.deny.is_empty() {
                    steps.push(format!("refuse addresses of {} networks", addresses.deny.len()));
                }
            }
            Policy::SatisfyAny => {
                steps.push(self::policy(policy));
                steps.extend(allowed.map(|count| format!("- let addresses of {count} networks in")));
            }
            Policy::ClientCertificate(_) if any => {
                steps.push("- want a client certificate and send it on".to_owned());
            }
            _ if any && phase == policy::Phase::Authentication => {
                steps.push(format!("- {}", self::policy(policy)));
            }
            _ => steps.push(self::policy(policy)),
        }
    }
}

fn policy(policy: &Policy) -> String {
    match policy {
        Policy::Addresses(addresses) => {
            let (allow, deny) = (addresses.allow.len(), addresses.deny.len());
            let allowed = match allow {
                0 => "every address".to_owned(),
                _ => format!("addresses of {allow} networks"),
            };
            match deny {
                0 => format!("let {allowed} in"),
                _ => format!("let {allowed} in, but for {deny} networks"),
            }
        }
        Policy::ClientCertificate(policy) if policy.required => {
            "want a client certificate and send it on".to_owned()
        }
        Policy::ClientCertificate(_) => "send a client certificate on".to_owned(),
        Policy::Basic(policy) => format!(
            "want the password of one of {} users of `{}`",
            policy.users.len(),
            policy.realm
        ),
        Policy::ApiKeys(policy) => format!("want one of {} API keys", policy.keys.len()),
        Policy::Jwt(policy) => {
            let names: Vec<_> = policy.providers.iter().map(|provider| &*provider.name).collect();
            let mut step = format!("want a token of `{}`", names.join("` or `"));
            if !policy.scopes.is_empty() {
                step += &format!(" with the scopes `{}`", policy.scopes.join(" "));
            }
            for rule in &policy.claims {
                step += &format!(", `{}` as the rule says", rule.claim.0);
            }
            step
        }
        Policy::ExternalAuth(policy) => external_auth(policy),
        Policy::Cors(_) => "answer to other origins by CORS".to_owned(),
        Policy::RateLimit(policy) => {
            let RateLimit {
                requests, per, burst, ..
            } = **policy;
            let by = match policy.by.len() {
                0 => "of all together".to_owned(),
                _ => format!("of each {}", keys(&policy.by)),
            };
            let verb = if policy.log_only { "count" } else { "take" };
            format!("{verb} {requests} requests in {per:?}, {burst} at once, {by}")
        }
        Policy::Concurrency(policy) => {
            let by = match policy.by.len() {
                0 => String::new(),
                _ => format!(" of each {}", keys(&policy.by)),
            };
            format!("take {} requests at once{by}", policy.requests)
        }
        Policy::Shed(policy) => format!("take what has waited for no longer than {:?}", policy.late),
        Policy::Inject(policy) => inject(policy),
        // Options may be secrets.
        Policy::Filter(policy) => format!("pass the filter `{}`", policy.name),
        Policy::SatisfyAny => "let in by one of these, the first that does:".to_owned(),
    }
}

/// Describes the key of a limit.
fn keys(by: &[RateKey]) -> String {
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

fn inject(policy: &Inject) -> String {
    let share = |share: &Share| format!("{} of {}", share.part, share.of);
    let delay = policy.delay.as_ref();
    let delay = delay.map(|(time, part)| format!("hold {} for {time:?}", share(part)));
    let abort = policy.abort.as_ref();
    let abort = abort.map(|(status, part)| format!("answer {} with {status}", share(part)));
    let told = delay.into_iter().chain(abort).collect::<Vec<_>>().join(", ");
    match &policy.header {
        Some(name) => format!("{told}, if there is a header `{}`", name.as_str()),
        None => told,
    }
}

fn forward(steps: &mut Vec<String>, forward: &Forward) {
    if let Some(limit) = forward.body.request {
        steps.push(format!("take a body of at most {limit} bytes"));
    }
    for mirror in &forward.mirrors {
        let (part, of) = (mirror.share.part, mirror.share.of);
        steps.push(format!("copy {part} of {of} to {}", target(&mirror.target)));
    }
    rewrite(steps, &forward.rewrite);
    shares(steps, &forward.backends, |steps, backend| {
        headers(steps, "its request", &backend.request_headers);
        rewrite(steps, &backend.rewrite);
        headers(steps, "its response", &backend.response_headers);
        status_headers(steps, "its response", &backend.status_headers);
        steps.extend(backend.affinity.as_deref().map(affinity));
    });
    if forward.grpc_web {
        steps.push("send gRPC-Web on as gRPC".to_owned());
    }
    steps.extend(forward.affinity.as_deref().map(affinity));
    if let Some(retry) = &forward.retry {
        steps.push(format!("try again at most {} times", retry.attempts));
    }
    if let Some(after) = forward.hedge {
        steps.push(format!("ask another endpoint as well after {after:?}"));
    }
    let timeouts = &forward.timeouts;
    for (what, time) in [
        ("the whole", timeouts.request),
        ("a try", timeouts.per_try),
        ("silence", timeouts.idle),
    ] {
        if let Some(time) = time {
            steps.push(format!("end after {time:?} of {what}"));
        }
    }
    if timeouts.minimum_rate > 0 {
        let rate = timeouts.minimum_rate;
        steps.push(format!("end what brings less than {rate} bytes a second"));
    }
}

/// Adds the protocol of each upstream, where it is not HTTP/1.1.
pub(super) fn protocols(steps: &mut Vec<String>, forward: &Forward, upstreams: &[Arc<Upstream>]) {
    for upstream in upstreams {
        let is_asked = |backend: &WeightedBackend| matches!(&backend.target, Target::Upstream(name) if *name == upstream.name);
        if !forward.backends.iter().any(is_asked) {
            continue;
        }
        let spoken = match (upstream.protocol, upstream.tls.is_some()) {
            (UpstreamProtocol::Http1, _) => continue,
            (UpstreamProtocol::Http2, true) => "HTTP/2 by TLS",
            (UpstreamProtocol::Http2, false) => "HTTP/2 in the clear",
            (UpstreamProtocol::Auto, _) => "HTTP/2 or HTTP/1.1, as it chooses,",
        };
        let streams = upstream.pool.streams_per_connection;
        steps.push(format!(
            "speak {spoken} with upstream `{}`, {streams} requests at once by a connection",
            upstream.name
        ));
    }
}

fn external_auth(policy: &ExternalAuth) -> String {
    let open = if policy.fail_open {
        "; if it fails requests pass"
    } else {
        ""
    };
    let body = match policy.body {
        0 => String::new(),
        body => format!(" with its body of up to {body} bytes"),
    };
    let service = target(&policy.upstream);
    format!("ask {service} whether it may pass{body}{open}")
}

fn affinity(affinity: &Affinity) -> String {
    match &affinity.by {
        AffinityBy::Cookie(cookie) => format!("stay with an endpoint by the cookie `{}`", cookie.name),
        AffinityBy::Header(name) => format!("stay with an endpoint by the header `{}`", name.as_str()),
        AffinityBy::Source => "stay with an endpoint by the client's address".to_owned(),
    }
}

/// Adds the backends with their shares, each followed by the steps that `more` adds.
pub(super) fn shares(
    steps: &mut Vec<String>,
    backends: &[WeightedBackend],
    more: impl Fn(&mut Vec<String>, &WeightedBackend),
) {
    let all: u64 = backends.iter().map(|backend| u64::from(backend.weight)).sum();
    for backend in backends {
        let to = target(&backend.target);
        steps.push(match backends.len() {
            1 => format!("send to {to}"),
            _ => format!("send {} of {all} to {to}", backend.weight),
        });
        more(steps, backend);
    }
}

fn target(target: &Target) -> String {
    match target {
        Target::Upstream(name) => format!("upstream `{name}`"),
        Target::Broken { reason } => format!("nobody, which is answered 500 ({reason})"),
    }
}

fn rewrite(steps: &mut Vec<String>, rewrite: &Rewrite) {
    if let Some(host) = &rewrite.host {
        steps.push(format!("put `{host}` in place of the host"));
    }
    match &rewrite.path {
        Some(PathRewrite::Full(path)) => steps.push(format!("put `{}` in place of the path", path.as_str())),
        Some(PathRewrite::Prefix(path)) => {
            steps.push(format!("put `{}` in place of the prefix", path.as_str()))
        }
        None => {}
    }
}

fn redirect(redirect: &Redirect) -> String {
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
        Some(PathRewrite::Prefix(path)) => {
            changed.push(format!("`{}` in place of the prefix", path.as_str()))
        }
        None => {}
    }
    format!("redirect by {} to {}", redirect.status, changed.join(", "))
}

fn status_headers(steps: &mut Vec<String>, whose: &str, all: &[StatusHeaders]) {
    for StatusHeaders { statuses, changes } in all {
        let ranges = statuses.iter().map(|range| match range.first == range.last {
            true => range.first.to_string(),
            false => format!("{} to {}", range.first, range.last),
        });
        let which = ranges.collect::<Vec<_>>().join(", ");
        let begun = steps.len();
        headers(steps, whose, changes);
        for step in &mut steps[begun..] {
            step.push_str(" if the status is ");
            step.push_str(&which);
        }
    }
}

fn headers(steps: &mut Vec<String>, whose: &str, changes: &HeaderChanges) {
    // Values may be secrets.
    let removed = changes.remove.iter().map(|name| ("remove", name));
    let set = changes.set.iter().map(|(name, _)| ("set", name));
    let added = changes.add.iter().map(|(name, _)| ("add", name));
    for (verb, name) in removed.chain(set).chain(added) {
        steps.push(format!("{verb} {whose} header `{}`", name.as_str()));
    }
}
