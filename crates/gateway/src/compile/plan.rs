//! The compiled form of a rule: upstreams as handles, header edits as encoded blocks.

use std::sync::{Arc, OnceLock};

use ringmain_wire::h1::FieldBlock;

use crate::filter::Use;
use crate::model::{
    Action, Forward, HeaderChanges, HeaderName, HeaderValue, Name, Rule, StatusHeaders, StatusRange, Target,
};
use crate::policy::{self, Policies, ReservedHeaders};
use crate::proxy::eq_folded;
use crate::upstream::UpstreamState;
use crate::upstream::registry::UpstreamRegistry;

/// The data plane's plan of a rule.
#[derive(Debug)]
pub struct Plan {
    /// The series of requests that are not forwarded, in metrics. Set when the table is put into service.
    pub(crate) number: OnceLock<u32>,
    /// Applied before the action.
    pub(crate) policies: Policies,
    /// Applied after the policies; `None`: the rule has no filters, so a request pays for one check.
    pub(crate) filters: Option<Box<[Use]>>,
    /// Edits of responses that the gateway produces itself.
    pub(crate) response: StatusHeaderEdits,
    pub(crate) backends: Box<[PlannedBackend]>,
    /// Sum of the weights of the backends.
    pub(crate) weight: u64,
    pub(crate) mirrors: Box<[MirrorTarget]>,
}

/// The target of mirrored requests.
#[derive(Debug)]
pub(crate) struct MirrorTarget {
    /// `None`: the target is broken.
    pub(crate) upstream: Option<Arc<UpstreamState>>,
    /// The edits of the rule, and the header that marks mirrored requests.
    pub(crate) request: HeaderEdits,
}

/// A backend of a rule.
#[derive(Debug)]
pub(crate) struct PlannedBackend {
    /// The end of its range of weights, from the start of the first backend's.
    pub(crate) range_end: u64,
    /// `None`: its share is answered 500.
    pub(crate) upstream: Option<Arc<UpstreamState>>,
    /// The series of requests to it, in metrics. Set when the table is put into service.
    pub(crate) series: OnceLock<u32>,
    /// The edits of the rule, then its own.
    pub(crate) request: HeaderEdits,
    pub(crate) response: StatusHeaderEdits,
}

/// Changes of a response's headers, by its status.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusHeaderEdits {
    /// For statuses without changes of their own.
    all: HeaderEdits,
    /// Ranges that do not overlap, with everything that applies to them. Usually none.
    by_status: Box<[(StatusRange, HeaderEdits)]>,
}

impl StatusHeaderEdits {
    /// Compiles changes in the order in which they apply: for each pair those for every status, then those for some.
    fn new(all: &[(&HeaderChanges, &[StatusHeaders])]) -> Result<StatusHeaderEdits, String> {
        let ranges = all.iter().flat_map(|(_, status_headers)| status_headers.iter());
        let ranges = ranges.flat_map(|status_headers| &status_headers.statuses);
        let mut bounds: Vec<u16> = ranges.flat_map(|range| [range.first, range.last + 1]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut status_headers = Vec::new();
        for pair in bounds.windows(2) {
            let segment = StatusRange {
                first: pair[0],
                last: pair[1] - 1,
            };
            let (mut changes, mut is_special) = (Vec::new(), false);
            for (every, by_status) in all {
                changes.push(*every);
                let applies = |it: &&StatusHeaders| it.statuses.iter().any(|range| range.contains(pair[0]));
                let applying = by_status.iter().filter(applies).map(|it| &it.changes);
                let before = changes.len();
                changes.extend(applying);
                is_special |= changes.len() > before;
            }
            if is_special {
                status_headers.push((segment, HeaderEdits::of(&changes)?));
            }
        }
        let every: Vec<&HeaderChanges> = all.iter().map(|(every, _)| *every).collect();
        Ok(StatusHeaderEdits {
            all: HeaderEdits::of(&every)?,
            by_status: status_headers.into(),
        })
    }

    /// Returns the changes of a response with this status.
    pub(crate) fn edits_for(&self, status: u16) -> &HeaderEdits {
        let entry = self.by_status.iter().find(|(range, _)| range.contains(status));
        entry.map_or(&self.all, |(_, changes)| changes)
    }

    /// Returns whether no response is changed, whatever its status.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_status.is_empty()
    }
}

/// Header edits: names to drop, and fields to append.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderEdits {
    removed: Box<[HeaderName]>,
    appended: FieldBlock,
    /// The `Host` of requests, which is written separately ([`Rewrite::host`](crate::model::Rewrite)).
    host: Option<Box<str>>,
}

impl Plan {
    /// Compiles a rule. `missing` are upstreams that do not exist.
    pub(crate) fn compile(
        rule: &Rule,
        missing: &[Name],
        registry: &UpstreamRegistry,
        known: &mut policy::PolicyRegistry,
    ) -> Result<Plan, String> {
        let response = StatusHeaderEdits::new(&[(&rule.response_headers, &rule.status_headers)])?;
        let policies = Policies::of(rule, missing, known, registry)?;
        check_conflicts(rule, &policies)?;
        let dropped = HeaderChanges {
            remove: policies.consumed_headers().to_vec(),
            ..HeaderChanges::default()
        };
        let (backends, weight) = match &rule.action {
            Action::Forward(forward) => compile_backends(
                rule,
                &dropped,
                forward,
                missing,
                registry,
                known.reserved_headers(),
            )?,
            _ => (Box::default(), 0),
        };
        let mirrors = match &rule.action {
            Action::Forward(forward) => compile_mirrors(
                rule,
                &dropped,
                forward,
                missing,
                registry,
                known.reserved_headers(),
            )?,
            _ => Box::default(),
        };
        Ok(Plan {
            number: OnceLock::new(),
            policies,
            filters: known.compile_filters(rule, registry)?,
            response,
            backends,
            weight,
            mirrors,
        })
    }

    /// Returns the backend whose range contains a number of `0..weight`.
    pub(crate) fn backend(&self, number: u64) -> Option<(usize, &PlannedBackend)> {
        let entry = self
            .backends
            .iter()
            .position(|backend| number < backend.range_end)?;
        Some((entry, &self.backends[entry]))
    }
}

/// Rejects header edits that conflict with headers written by policies.
fn check_conflicts(rule: &Rule, policies: &Policies) -> Result<(), String> {
    let own = match &rule.action {
        Action::Forward(forward) => &forward.backends[..],
        _ => &[],
    };
    let changes = own.iter().map(|backend| &backend.request_headers);
    let mut all = changes.chain([&rule.request_headers]);
    match all.find_map(|changes| policies.conflicting_header(changes)) {
        Some(name) => Err(format!(
            "changes of the header `{}`, which a policy of the rule writes",
            name.as_str()
        )),
        None => Ok(()),
    }
}

fn compile_backends(
    rule: &Rule,
    dropped: &HeaderChanges,
    forward: &Forward,
    missing: &[Name],
    registry: &UpstreamRegistry,
    guards: &ReservedHeaders,
) -> Result<(Box<[PlannedBackend]>, u64), String> {
    let mut weight = 0;
    let mut backends = Vec::with_capacity(forward.backends.len());
    for backend in &forward.backends {
        weight += u64::from(backend.weight);
        let upstream = target_upstream(&backend.target, missing, registry);
        backends.push(PlannedBackend {
            range_end: weight,
            upstream,
            series: OnceLock::new(),
            request: HeaderEdits::of(&[
                dropped,
                &reserved_edits(guards, &backend.target),
                &rule.request_headers,
                &backend.request_headers,
            ])?,
            response: StatusHeaderEdits::new(&[
                (&rule.response_headers, &rule.status_headers),
                (&backend.response_headers, &backend.status_headers),
            ])?,
        });
    }
    Ok((backends.into(), weight))
}

/// Returns edits that drop the headers that policies of any rule write for an upstream: no client may set these.
fn reserved_edits(guards: &ReservedHeaders, target: &Target) -> HeaderChanges {
    HeaderChanges {
        remove: guards.reserved_for(target).to_vec(),
        ..HeaderChanges::default()
    }
}

fn target_upstream(
    target: &Target,
    missing: &[Name],
    registry: &UpstreamRegistry,
) -> Option<Arc<UpstreamState>> {
    match target {
        Target::Upstream(name) if !missing.contains(name) => registry.find(name).cloned(),
        Target::Upstream(_) | Target::Broken { .. } => None,
    }
}

/// The header that marks mirrored requests.
const MIRROR_HEADER: (&str, &str) = ("X-Mirrored-By", "ringmain");

fn compile_mirrors(
    rule: &Rule,
    dropped: &HeaderChanges,
    forward: &Forward,
    missing: &[Name],
    registry: &UpstreamRegistry,
    guards: &ReservedHeaders,
) -> Result<Box<[MirrorTarget]>, String> {
    let detail = |fault: crate::model::TextError| fault.to_string();
    let name = HeaderName::parse(MIRROR_HEADER.0).map_err(detail)?;
    let mark = HeaderChanges {
        set: vec![(name, HeaderValue::parse(MIRROR_HEADER.1).map_err(detail)?)],
        ..HeaderChanges::default()
    };
    let mirrors = forward.mirrors.iter().map(|mirror| {
        Ok(MirrorTarget {
            upstream: target_upstream(&mirror.target, missing, registry),
            request: HeaderEdits::of(&[
                dropped,
                &reserved_edits(guards, &mirror.target),
                &rule.request_headers,
                &mark,
            ])?,
        })
    });
    mirrors.collect()
}

impl HeaderEdits {
    /// Combines edits, in their order.
    fn of(all: &[&HeaderChanges]) -> Result<HeaderEdits, String> {
        let mut drop: Vec<HeaderName> = Vec::new();
        let mut add: Vec<(&HeaderName, &str)> = Vec::new();
        for changes in all {
            for name in changes
                .remove
                .iter()
                .chain(changes.set.iter().map(|(name, _)| name))
            {
                add.retain(|(other, _)| *other != name);
                if !drop.contains(name) {
                    drop.push(name.clone());
                }
            }
            let added = changes.set.iter().chain(&changes.add);
            add.extend(added.map(|(name, value)| (name, value.as_str())));
        }
        let is_host = |name: &HeaderName| name.as_str().eq_ignore_ascii_case("host");
        let host = add.iter().rfind(|(name, _)| is_host(name));
        let host = host.map(|(_, value)| Box::from(*value));
        drop.retain(|name| !is_host(name));
        let mut block = FieldBlock::new();
        for (name, value) in add.into_iter().filter(|(name, _)| !is_host(name)) {
            block
                .push(name.as_str(), value.as_bytes())
                .map_err(|misuse| format!("header `{}`: {misuse}", name.as_str()))?;
        }
        Ok(HeaderEdits {
            removed: drop.into(),
            appended: block,
            host,
        })
    }

    /// Returns the `Host` that replaces the client's.
    pub(crate) fn host_override(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns whether a field is dropped. A name with `_` in place of `-` counts as the same: programs that treat both alike (CGI) would
    /// read the client's field next to the rule's.
    pub(crate) fn removes(&self, name: &[u8]) -> bool {
        let same = |dropped: &HeaderName| eq_folded(name, dropped.as_str());
        !self.removed.is_empty() && self.removed.iter().any(same)
    }

    /// Returns whether the edits change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.appended.is_empty()
    }

    /// Returns whether `Date` is removed, set or added.
    pub(crate) fn touches_date(&self) -> bool {
        let is_date = |name: &str| name.eq_ignore_ascii_case("date");
        !self.is_empty()
            && (self.removed.iter().any(|name| is_date(name.as_str()))
                || self.appended.iter().any(|(name, _)| is_date(name)))
    }

    /// Returns the names to drop.
    pub(crate) fn removed_names(&self) -> &[HeaderName] {
        &self.removed
    }

    /// Returns the fields to append.
    pub(crate) fn appended_fields(&self) -> &FieldBlock {
        &self.appended
    }
}
