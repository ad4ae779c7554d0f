//! The decision of a rate limit service, read from its response. Pure.
//!
//! A response over the limit refuses the request, whatever else it has. A response that admits it is valid as a whole or a failure: no
//! request is forwarded with a part of the headers that the service demands.

use std::fmt::Write as _;

use ringmain_wire::h1::FieldBlock;

use super::super::header_change::HeaderChange;
use super::messages::{DescriptorStatus, HeaderOption, HeaderValue, OverallCode, RateLimitResponse, Unit};
use crate::limits;

/// A decision.
#[derive(Debug, PartialEq)]
pub(super) enum RateDecision {
    Admitted(RateChanges),
    OverLimit(OverLimit),
    /// The service has failed.
    Failed(String),
}

/// The changes to an admitted request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RateChanges {
    pub(super) headers: Vec<HeaderChange>,
    pub(super) response: Vec<HeaderChange>,
}

/// The response to a request over the limit.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OverLimit {
    pub(super) fields: FieldBlock,
    /// Empty: the service has none.
    pub(super) body: Vec<u8>,
}

/// Reads the decision of a response. `limit_headers`: with `X-RateLimit-*`.
pub(super) fn decide(response: RateLimitResponse, limit_headers: bool) -> RateDecision {
    let code = OverallCode::try_from(response.overall_code).unwrap_or(OverallCode::Unknown);
    let reported = if limit_headers {
        limit_fields(&response.statuses)
    } else {
        Vec::new()
    };
    match code {
        OverallCode::Unknown => RateDecision::Failed(format!(
            "expected the code OK or OVER_LIMIT, found {}",
            response.overall_code
        )),
        OverallCode::Ok => match changes(response, reported) {
            Ok(changes) => RateDecision::Admitted(changes),
            Err(reason) => RateDecision::Failed(reason),
        },
        OverallCode::OverLimit => RateDecision::OverLimit(over_limit(response, reported)),
    }
}

/// Reads the changes to an admitted request.
fn changes(response: RateLimitResponse, reported: Vec<HeaderValue>) -> Result<RateChanges, String> {
    let count = response.request_headers.len() + response.response_headers.len();
    if count > limits::RATE_CHANGES {
        return Err(format!(
            "expected at most {} headers, found {count}",
            limits::RATE_CHANGES
        ));
    }
    let headers = response.request_headers.into_iter();
    let answers = response.response_headers.into_iter().chain(reported);
    Ok(RateChanges {
        headers: headers
            .map(|header| HeaderChange::for_request(option(header)))
            .collect::<Result<_, _>>()?,
        response: answers
            .map(|header| HeaderChange::for_response(option(header)))
            .collect::<Result<_, _>>()?,
    })
}

/// Reads the response to a request over the limit, which is sent without the headers that are invalid.
fn over_limit(response: RateLimitResponse, reported: Vec<HeaderValue>) -> OverLimit {
    let wait = response.statuses.iter().filter_map(wait_seconds).max();
    let mut fields = FieldBlock::new();
    let answers = response.response_headers.into_iter().take(limits::RATE_CHANGES);
    for header in answers.chain(reported) {
        match HeaderChange::for_response(option(header)) {
            Ok(change) => change.apply(&mut fields),
            Err(reason) => log::debug!("a refusal is sent without {reason}"),
        }
    }
    let has =
        |fields: &FieldBlock, wanted: &str| fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let mut add = |name: &str, value: &str| {
        if !has(&fields, name) {
            // Names and values are visible characters.
            let _ = fields.push(name, value.as_bytes());
        }
    };
    if let Some(seconds) = wait {
        add("retry-after", &seconds.to_string());
    }
    if !response.raw_body.is_empty() {
        add("content-type", "text/plain");
    }
    OverLimit {
        fields,
        body: response.raw_body,
    }
}

/// Returns the time until a descriptor beyond its limit is reset, in seconds, rounded up.
fn wait_seconds(status: &DescriptorStatus) -> Option<i64> {
    let span = status
        .until_reset
        .filter(|_| status.code == OverallCode::OverLimit as i32)?;
    let seconds = span.seconds.saturating_add(i64::from(span.nanos > 0));
    Some(seconds.max(1))
}

/// Returns `X-RateLimit-*` by the statuses with a limit: the values of the one with the least remaining requests, and the policy of each.
fn limit_fields(statuses: &[DescriptorStatus]) -> Vec<HeaderValue> {
    let limited = || {
        let limited = statuses.iter();
        limited.filter_map(|status| Some((status, status.current_limit.as_ref()?)))
    };
    let Some((nearest, limit)) = limited().min_by_key(|(status, _)| status.remaining) else {
        return Vec::new();
    };
    let mut policies = limit.requests.to_string();
    for (_, limit) in limited() {
        let Some(window) = window_seconds(limit.unit) else {
            continue;
        };
        // Writing to a string does not fail.
        let _ = write!(policies, ", {};w={window}", limit.requests);
        if !limit.name.is_empty() {
            let _ = write!(policies, ";name=\"{}\"", limit.name);
        }
    }
    let until_reset = nearest.until_reset.map_or(0, |span| span.seconds.max(0));
    [
        ("x-ratelimit-limit", policies),
        ("x-ratelimit-remaining", nearest.remaining.to_string()),
        ("x-ratelimit-reset", until_reset.to_string()),
    ]
    .map(|(name, value)| HeaderValue {
        key: name.to_owned(),
        value,
        raw_value: Vec::new(),
    })
    .into()
}

/// Returns the length of a unit; `None`: an unknown one.
fn window_seconds(unit: i32) -> Option<u32> {
    const DAY: u32 = 24 * 60 * 60;
    Some(match Unit::try_from(unit).ok()? {
        Unit::Unknown => return None,
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 60 * 60,
        Unit::Day => DAY,
        Unit::Month => 30 * DAY,
        Unit::Year => 365 * DAY,
    })
}

/// Returns a header in the form of a change without an action.
fn option(header: HeaderValue) -> HeaderOption {
    HeaderOption {
        header: Some(header),
        append: None,
        append_action: 0,
    }
}

#[cfg(test)]
mod tests;
