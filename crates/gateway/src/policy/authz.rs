//! A service that is asked by HTTP whether a request may pass (Envoy's `ext_authz`, nginx's `auth_request`, `forwardAuth`).
//!
//! ```text
//! closed ── failures in a row ─▶ open: nobody asks ── its time is over ─▶ one asks ─┬─ answered ─▶ closed
//!                                  ▲                                               │
//!                                  └────────────── failed ─────────────────────────┘
//! ```

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringmain_engine::backend::Time;
use ringmain_web::{Request, path};
use ringmain_wire::h1::{FieldBlock, Method};

use super::call::{Answered, Call, call};
use super::{At, Cleared, Names, Outcome, Refusal, Said};
use crate::exchange::{client_address, client_scheme, is_folded};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Ask, ExternalAuth, HeaderName, Target};
use crate::resolve::within;
use crate::upstream::Shared;
use crate::upstream::registry::Registry;

/// See the module.
#[derive(Debug)]
pub(super) struct Authz {
    policy: Arc<ExternalAuth>,
    upstream: Arc<Shared>,
    /// Headers that policies before it write: what a client says there is not the service's to see.
    written: Box<[HeaderName]>,
    breaker: Breaker,
}

/// Headers of requests that every such service needs.
const SEEN: [&str; 2] = ["Authorization", "Cookie"];

/// Headers of refusals that every client needs.
const TOLD: [&str; 4] = ["Content-Type", "Location", "Set-Cookie", "WWW-Authenticate"];

impl Authz {
    pub(super) fn of(
        policy: &Arc<ExternalAuth>,
        names: &mut Names,
        upstreams: &Registry,
    ) -> Result<Authz, String> {
        let upstream = match &policy.upstream {
            Target::Upstream(name) => upstreams.get(name).cloned().ok_or_else(|| {
                format!("the upstream `{name}`, which says whether requests may pass, is not there")
            })?,
            Target::Broken { reason } => return Err(reason.to_string()),
        };
        names.written.extend(Authz::written(policy));
        Ok(Authz {
            policy: Arc::clone(policy),
            upstream,
            written: names.written.clone().into(),
            breaker: Breaker::default(),
        })
    }

    /// Headers that it writes for upstreams.
    pub(super) fn written(policy: &ExternalAuth) -> impl Iterator<Item = HeaderName> {
        policy.upstream_headers.iter().cloned()
    }

    pub(super) async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        if !self.breaker.lets_ask(at.worker.cx.now()) {
            return self.failed(at, "it has failed often");
        }
        let answered = within(&at.worker.cx, self.policy.timeout, self.ask(at, cleared)).await;
        let answered = answered.unwrap_or(Err(Fault::HeadTimeout));
        let outcome = match &answered {
            Ok(answered) if answered.status < 500 => Ok(()),
            Ok(answered) => Err(format!("its status is {}", answered.status)),
            Err(fault) => Err(fault.to_string()),
        };
        self.breaker.note(outcome.is_ok(), at.worker.cx.now());
        match (outcome, answered) {
            (Ok(()), Ok(answered)) if answered.status < 300 => self.clear(&answered, cleared),
            (Ok(()), Ok(answered)) => Err(self.refuse(answered)),
            (Err(why), _) => self.failed(at, &why),
            (Ok(()), Err(fault)) => self.failed(at, fault.text()),
        }
    }

    async fn ask(&self, at: &At<'_, '_>, cleared: &Cleared) -> Result<Answered, Fault> {
        let uri = uri(at.req);
        let (method, target) = match &self.policy.ask {
            Ask::Prefix(prefix) => (at.req.method(), format!("{prefix}{uri}")),
            Ask::Path(path) => (Method::Get, path.to_string()),
        };
        let fields = self.fields(at, cleared, &uri)?;
        let asked = Call {
            method,
            target: &target,
            host: self.policy.host.as_ref().map(|host| host.as_str()),
            fields: &fields,
            body: b"",
            again: true,
            most: limits::AUTHZ_BODY_BYTES,
            until: at.worker.cx.now().after(self.policy.timeout),
        };
        call(at.worker, &self.upstream, &asked).await
    }

    /// What the service sees of a request.
    fn fields(&self, at: &At<'_, '_>, cleared: &Cleared, uri: &str) -> Result<FieldBlock, Fault> {
        let mut fields = FieldBlock::new();
        let mut tell = |name: &str, value: &[u8]| {
            fields.push(name, value).map_err(|misuse| {
                log::debug!("the header `{name}` cannot be shown to who is asked: {misuse}");
                Fault::AuthzUnavailable
            })
        };
        tell("X-Forwarded-Method", at.req.method().as_str().as_bytes())?;
        tell(
            "X-Forwarded-Proto",
            client_scheme(at.found.listener, at.req).as_bytes(),
        )?;
        tell("X-Forwarded-Uri", uri.as_bytes())?;
        if let Some(host) = at.req.host() {
            tell("X-Forwarded-Host", host.as_bytes())?;
        }
        if let Some(client) = client_address(at.found.listener, at.req) {
            tell("X-Forwarded-For", client.to_string().as_bytes())?;
        }
        let wanted = self.policy.request_headers.iter().map(HeaderName::as_str);
        let mut seen: Vec<&str> = Vec::new();
        for name in SEEN.into_iter().chain(wanted) {
            let again = |other: &&str| other.eq_ignore_ascii_case(name);
            let ours = |written: &HeaderName| is_folded(name.as_bytes(), written.as_str());
            let forged = name
                .get(..12)
                .is_some_and(|start| is_folded(start.as_bytes(), "x-forwarded-"));
            if forged || seen.iter().any(again) || self.written.iter().any(ours) {
                continue;
            }
            seen.push(name);
            for value in at.req.head().fields.all(name) {
                tell(name, value)?;
            }
        }
        fields.append(cleared.upstream());
        Ok(fields)
    }

    /// The request passes, and what the service says of it goes along.
    fn clear(&self, answered: &Answered, cleared: &mut Cleared) -> Outcome {
        for (name, value) in answered.fields.iter() {
            if self.policy.upstream_headers.iter().any(|wanted| is(wanted, name)) {
                cleared.tell_upstream(name, value);
            }
            let who = self.policy.identity.as_ref().filter(|wanted| is(wanted, name));
            if let Some(Ok(who)) = who.map(|_| str::from_utf8(value)) {
                cleared.identify(&who.into());
            }
        }
        Ok(())
    }

    /// The client is answered as the service has it.
    fn refuse(&self, answered: Answered) -> Box<Refusal> {
        let mut refusal: Box<Refusal> = Fault::AuthzDenied.into();
        for (name, value) in answered.fields.iter() {
            let told = TOLD.iter().any(|told| told.eq_ignore_ascii_case(name))
                || self.policy.client_headers.iter().any(|wanted| is(wanted, name));
            if told && let Err(misuse) = refusal.fields.push(name, value) {
                log::debug!("the header `{name}` of who was asked cannot be sent: {misuse}");
            }
        }
        refusal.answer = Some(Said {
            status: answered.status,
            body: answered.body,
        });
        refusal
    }

    fn failed(&self, at: &At<'_, '_>, why: &str) -> Outcome {
        log::debug!(
            "`{}` does not say whether a request may pass: {why}",
            self.upstream.name
        );
        if self.policy.fail_open {
            at.worker.counting.fault(Fault::AuthzUnavailable);
            return Ok(());
        }
        Err(Fault::AuthzUnavailable.into())
    }
}

fn is(name: &HeaderName, other: &str) -> bool {
    name.as_str().eq_ignore_ascii_case(other)
}

/// Path and query of a request, in the form that it is sent on in.
fn uri(req: &Request<'_>) -> String {
    let target = req.head().target;
    let raw = target.path();
    let mut scratch = String::new();
    let mut uri = path::pass_on(raw, &mut scratch).unwrap_or(raw).to_owned();
    if let Some(query) = target.query() {
        uri.push('?');
        uri.push_str(query);
    }
    uri
}

/// Whether a service is asked at all; process-wide.
#[derive(Debug, Default)]
struct Breaker {
    /// In a row.
    failures: AtomicU32,
    /// Until then nobody asks. 0: everybody does.
    until: AtomicU64,
}

impl Breaker {
    /// Of all who come when its time is over one asks; the time begins anew for the others.
    fn lets_ask(&self, now: Time) -> bool {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return true;
        }
        let next = now.after(limits::AUTHZ_OPEN).0;
        now.0 >= until
            && self
                .until
                .compare_exchange(until, next, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    fn note(&self, good: bool, now: Time) {
        if good {
            self.failures.store(0, Ordering::Release);
            self.until.store(0, Ordering::Release);
        } else if self.failures.fetch_add(1, Ordering::AcqRel) + 1 >= limits::AUTHZ_FAILURES {
            self.until
                .store(now.after(limits::AUTHZ_OPEN).0.max(1), Ordering::Release);
        }
    }
}
