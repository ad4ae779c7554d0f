//! Checks of upstreams.

use super::{KnownNames, ProblemList};
use crate::limits;
use crate::model::{
    Balance, ClaimPath, EndpointLocation, HashKey, HealthCheck, RetryBudget, SubjectName, Trust, Upstream,
    UpstreamProtocol, UpstreamTls,
};
use crate::table::problem::{ConfigPart, Consequence};

/// Checks an upstream. Returns whether it can be used.
pub(super) fn check_upstream(
    upstream: &Upstream,
    known: &KnownNames<'_>,
    problems: &mut ProblemList,
) -> bool {
    let before = problems.0.len();
    let mut report = |part, expected: &str, found: String| {
        let place = ConfigPart::Upstream(upstream.name.clone());
        problems.report(place, part, expected, found, Consequence::Omitted);
    };
    check_endpoints(upstream, &mut report);
    if let Some(found) = &upstream.tls {
        check_tls(found, known, &mut report);
    }
    if upstream.pool.connections == 0 || upstream.pool.requests == 0 {
        report("pool", "at least one connection and one request", "0".to_owned());
    }
    if upstream.pool.requests_per_connection == Some(0) {
        let expected = "at least 1 request";
        report("pool.requests_per_connection", expected, "0".to_owned());
    }
    let streams = upstream.pool.streams_per_connection;
    if !(1..=limits::UPSTREAM_STREAMS_MOST).contains(&streams) {
        let expected = format!("from 1 to {}", limits::UPSTREAM_STREAMS_MOST);
        report("pool.streams_per_connection", &expected, streams.to_string());
    }
    let share = upstream.pool.client_share;
    if !(1..=100).contains(&share) {
        report(
            "pool.client_share",
            "a percentage from 1 to 100",
            share.to_string(),
        );
    }
    if upstream.protocol == UpstreamProtocol::Auto && upstream.tls.is_none() {
        let expected = "`tls` for protocol negotiation, or `http1` or `http2`";
        report("protocol", expected, "`auto` without it".to_owned());
    }
    if upstream.connect_timeout.is_zero() {
        report("connect_timeout", "a time above 0", "0".to_owned());
    }
    if let Some(start) = upstream
        .slow_start
        .filter(|start| !(1..=100).contains(&start.from_percent))
    {
        report(
            "slow_start.from_percent",
            "from 1 to 100",
            start.from_percent.to_string(),
        );
    }
    check_retry_budget(&upstream.retry_budget, &mut report);
    if upstream.slow_start.is_some_and(|start| start.window.is_zero()) {
        report("slow_start.window", "a time above 0", "0".to_owned());
    }
    if let Balance::PeakEwma { half_life } = &upstream.balance
        && half_life.is_zero()
    {
        report("balance.peak_ewma", "a time above 0", "0".to_owned());
    }
    check_balance(upstream, &mut report);
    check_health(upstream, &mut report);
    problems.0.len() == before
}

/// Checks addresses and weights.
fn check_endpoints(upstream: &Upstream, report: &mut impl FnMut(&'static str, &str, String)) {
    for endpoint in &upstream.endpoints {
        match &endpoint.address {
            EndpointLocation::Address(address) if address.port() == 0 => {
                report("endpoints", "a port", address.to_string())
            }
            EndpointLocation::Host { name, port } if name.wildcard_suffix().is_some() || *port == 0 => {
                report("endpoints", "a host and a port", format!("`{name}:{port}`"));
            }
            EndpointLocation::Unix(path) if !path.is_absolute() => {
                report("endpoints", "an absolute path", format!("`{}`", path.display()));
            }
            _ => {}
        }
        if endpoint.weight > limits::WEIGHT {
            let expected = format!("a weight of at most {}", limits::WEIGHT);
            report("endpoints.weight", &expected, endpoint.weight.to_string());
        }
    }
}

/// Checks the TLS settings towards an upstream.
fn check_tls(tls: &UpstreamTls, known: &KnownNames<'_>, report: &mut impl FnMut(&'static str, &str, String)) {
    if let Some(name) = tls
        .certificate
        .as_ref()
        .filter(|name| !known.certificates.contains(&***name))
    {
        report(
            "tls.certificate",
            "a certificate of the configuration",
            format!("`{name}`"),
        );
    }
    if let Trust::Authorities(names) = &tls.trust {
        known.check_authorities(names, |expected, found| report("tls.trust", expected, found));
    }
    let wildcard = tls
        .server_name
        .as_ref()
        .filter(|name| name.wildcard_suffix().is_some());
    if let Some(name) = wildcard {
        report("tls.server_name", "one host", format!("`{name}`"));
    }
    for name in &tls.subject_names {
        match name {
            SubjectName::Host(host) if host.wildcard_suffix().is_some() => {
                let expected = "hosts without `*` (wildcard certificates match anyway) and URIs";
                report("tls.subject_names", expected, format!("`{host}`"));
            }
            SubjectName::Uri(uri) if !is_uri(uri) => {
                let expected = "URIs with a scheme, such as `spiffe://shop.example/cart`";
                report("tls.subject_names", expected, format!("`{}`", uri.escape_debug()));
            }
            SubjectName::Host(_) | SubjectName::Uri(_) => {}
        }
    }
}

/// Returns whether a text is a URI: a scheme, a non-empty rest, and no characters that URIs exclude (RFC 3986 §3).
fn is_uri(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| {
        let name = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(name)
            && !rest.is_empty()
            && rest.bytes().all(|byte| byte.is_ascii_graphic())
    })
}

fn check_retry_budget(budget: &RetryBudget, report: &mut impl FnMut(&'static str, &str, String)) {
    if budget.percent > 100 {
        let found = budget.percent.to_string();
        report("retry_budget.percent", "at most 100 percent", found);
    }
    if budget.least_interval.is_zero() {
        report("retry_budget.least_interval", "a time above 0", "0".to_owned());
    }
    if budget.interval.is_some_and(|interval| interval.is_zero()) {
        report("retry_budget.interval", "a time above 0", "0".to_owned());
    }
}

/// Checks the keys of load balancing that depend on each other.
fn check_balance(upstream: &Upstream, report: &mut impl FnMut(&'static str, &str, String)) {
    let is_push = matches!(upstream.balance, Balance::Push(_));
    if is_push && upstream.zones.is_some() {
        let expected = "no `zones` with `balance: push`, which prefers the zone by itself";
        report("zones", expected, "both".to_owned());
    }
    let reports_loads = upstream
        .health
        .active
        .as_ref()
        .is_some_and(|active| matches!(active.check, HealthCheck::Http { .. }));
    if is_push && !reports_loads {
        let expected = "`health.active` with a `path`, whose responses report the load of push servers";
        report("balance", expected, "`push` without it".to_owned());
    }
    let key = match &upstream.balance {
        Balance::RingHash(key) | Balance::Maglev(key) => Some(key),
        Balance::Push(push) => push.key.as_ref(),
        _ => None,
    };
    if let Some(HashKey::Cookie(name) | HashKey::Query(name) | HashKey::Claim(ClaimPath(name))) = key
        && name.is_empty()
    {
        report("balance", "a key with a name", "an empty one".to_owned());
    }
    let Some(factor) = upstream.hash_balance_factor else {
        return;
    };
    if !limits::HASH_BALANCE_FACTORS.contains(&factor) {
        let (least, most) = (
            limits::HASH_BALANCE_FACTORS.start(),
            limits::HASH_BALANCE_FACTORS.end(),
        );
        let expected = format!("a percentage from {least} to {most}");
        report("hash_balance_factor", &expected, factor.to_string());
    }
    if key.is_none() {
        let expected = "`balance` with a key: `ring_hash`, `maglev`, or `push` with `key`";
        report("hash_balance_factor", expected, "none".to_owned());
    }
}

fn check_health(upstream: &Upstream, report: &mut impl FnMut(&'static str, &str, String)) {
    let mut percent = |part, value: u8| {
        if value > 100 {
            report(part, "at most 100 percent", value.to_string());
        }
    };
    percent("health.panic_percent", upstream.health.panic_percent);
    if let Some(outliers) = &upstream.health.outliers {
        percent(
            "health.outliers.max_ejected_percent",
            outliers.max_ejected_percent,
        );
        percent(
            "health.outliers.failure_percent",
            outliers.failure_percent.unwrap_or(0),
        );
        if outliers.interval.is_zero() || outliers.ejected.is_zero() {
            report("health.outliers", "times above 0", "0".to_owned());
        }
    }
    let Some(active) = &upstream.health.active else {
        return;
    };
    if active.every.is_zero() || active.timeout.is_zero() {
        report("health.active", "times above 0", "0".to_owned());
    }
    if active.port == Some(0) {
        report("health.active.port", "a port from 1 to 65535", "0".to_owned());
    }
    if active.healthy_after == 0 || active.unhealthy_after == 0 {
        report("health.active", "at least 1 response", "0".to_owned());
    }
    if let HealthCheck::Http { target, .. } = &active.check
        && !(target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        report(
            "health.active.target",
            "a path that begins with `/`",
            format!("`{target}`"),
        );
    }
}
