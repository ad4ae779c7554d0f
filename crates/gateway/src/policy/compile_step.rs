//! The compiled form of one policy.

use super::api_keys::ApiKeyAuth;
use super::authz::ExternalAuthz;
use super::basic_auth::PasswordAuth;
use super::client_certificate::CertificateAuth;
use super::concurrency::ConcurrencyLimits;
use super::fault_injection::FaultInjector;
use super::ip_access::IpAccess;
use super::jwt::JwtAuth;
use super::load_shedding::LoadShedder;
use super::rate_limit::RateLimits;
use super::rate_service::RateService;
use super::{PolicyRegistry, PolicyStep, UsedHeaders};
use crate::model::{Name, Policy};
use crate::upstream::registry::UpstreamRegistry as Upstreams;

/// Compiles one policy; `None`: it is not evaluated before the rule's action.
pub(super) fn compile_step(
    policy: &Policy,
    missing: &[Name],
    registry: &mut PolicyRegistry,
    upstreams: &Upstreams,
    names: &mut UsedHeaders,
) -> Result<Option<PolicyStep>, String> {
    let counters = upstreams.counters();
    Ok(Some(match policy {
        Policy::Addresses(policy) => PolicyStep::Addresses(IpAccess::compile(policy)),
        // The proxy applies these around the rule's action.
        Policy::Cors(_) | Policy::Filter(_) | Policy::SatisfyAny => return Ok(None),
        Policy::Processor(policy) => {
            names.written.extend(policy.upstream_headers.iter().cloned());
            return Ok(None);
        }
        Policy::ClientCertificate(policy) => {
            PolicyStep::Certificate(CertificateAuth::compile(policy, false, names))
        }
        Policy::Basic(policy) => {
            PolicyStep::Basic(PasswordAuth::compile(policy, names, counters.password_checks()))
        }
        Policy::ApiKeys(policy) => PolicyStep::Keys(ApiKeyAuth::compile(policy, names)),
        Policy::Jwt(policy) => PolicyStep::Jwt(JwtAuth::compile(policy, names, registry, upstreams)?),
        Policy::ExternalAuth(policy) => PolicyStep::Authz(ExternalAuthz::compile(policy, names, upstreams)?),
        Policy::RateLimit(policy) => PolicyStep::Limits(RateLimits::compile(policy, missing, upstreams)?),
        Policy::RateService(policy) => {
            PolicyStep::RateService(RateService::compile(policy, names, upstreams)?)
        }
        Policy::Concurrency(policy) => PolicyStep::Concurrency(ConcurrencyLimits::compile(policy, counters)),
        Policy::Shed(policy) => PolicyStep::Shed(LoadShedder(policy.max_delay)),
        Policy::Inject(policy) => PolicyStep::Inject(FaultInjector::compile(policy, &mut names.hidden)),
    }))
}
