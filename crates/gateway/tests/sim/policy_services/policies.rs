//! The policies of a run, that query the services.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits;
use ringmain_gateway::model::{
    AuthzRequest, CredentialSource, ExternalAuth, ExternalProcessor, GrpcCheck, HeaderName, Jwt,
    JwtAlgorithm, JwtKeys, JwtProvider, Policy, RateDescriptor, RateEntry, RateEntryValue, RateKey,
    RateLimit, RateService, Redis, RemoteKeys, Target,
};
use ringmain_sim::World;

use super::PORTS;

/// Requests of the shared limit that pass in a run, of a rate that brings no more within it.
const NEVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Keys are fetched more rarely than connections are kept for.
pub(crate) fn rarely(policy: &mut Policy) {
    let Policy::Jwt(jwt) = policy else { return };
    for provider in &mut Arc::make_mut(jwt).providers {
        if let JwtKeys::Remote(remote) = &mut Arc::make_mut(provider).keys {
            remote.refresh = Duration::from_mins(10);
        }
    }
}

fn header(name: &str) -> HeaderName {
    HeaderName::parse(name).expect("a header's name")
}

fn target(number: usize) -> Target {
    Target::Upstream(PORTS[number].0.into())
}

pub(super) fn tokens(world: &World, stale: Duration) -> Jwt {
    let provider = JwtProvider {
        name: "sim".into(),
        issuer: "sim".into(),
        audiences: Vec::new(),
        algorithms: vec![JwtAlgorithm::Hs256],
        keys: JwtKeys::Remote(RemoteKeys {
            upstream: target(0),
            host: None,
            path: "/keys".into(),
            refresh: Duration::from_secs([15, 60, 600][world.below(3)]),
            stale,
        }),
        leeway: Duration::ZERO,
        from: vec![CredentialSource::Header(header("Authorization"))],
    };
    Jwt {
        providers: vec![provider.into()],
        scopes: Vec::new(),
        claims: Vec::new(),
        headers: Vec::new(),
        hide: world.below(2) == 0,
    }
}

pub(super) fn service(world: &World, seed: u64, calm: bool, grpc: bool) -> ExternalAuth {
    // A run with filters or an external processor has no bodies for it.
    let kinds = if seed % 5 == 2 || seed % 4 == 2 { 2 } else { 3 };
    let (ask, body) = match world.below(kinds) {
        0 => (AuthzRequest::Path("/verify".into()), 0),
        1 => (AuthzRequest::Prefix("/ask".into()), 0),
        _ => (AuthzRequest::Prefix("/ask".into()), limits::AUTHZ_REQUEST_BYTES),
    };
    let check = GrpcCheck {
        partial_body: seed.is_multiple_of(2),
        ..GrpcCheck::default()
    };
    let (ask, body) = match grpc {
        true if check.partial_body => (AuthzRequest::Grpc(check.into()), body.min(100)),
        true => (AuthzRequest::Grpc(check.into()), body),
        false => (ask, body),
    };
    ExternalAuth {
        body,
        request_headers: vec![header("X-User"), header("X-Id")],
        upstream_headers: vec![header("X-User")],
        timeout: if calm {
            Duration::from_mins(10)
        } else {
            Duration::from_secs(1)
        },
        fail_open: world.below(2) == 0,
        ..ExternalAuth::new(target(1), ask)
    }
}

pub(super) fn limit(world: &World, calm: bool) -> RateLimit {
    let mut limit = RateLimit::new("shared", 1 + world.below(60) as u32, NEVER);
    let mut redis = Redis::of(target(2));
    if calm {
        redis.timeout = Duration::from_mins(10);
    }
    redis.denies = world.below(2) == 0;
    limit.redis = Some(redis.into());
    limit
}

pub(super) fn remote_limit(seed: u64, calm: bool) -> RateService {
    let entry = |key: &str, value| RateEntry {
        key: key.into(),
        value,
        optional: false,
    };
    let part = |key: &str, part| entry(key, RateEntryValue::Request(part));
    let by_path = RateDescriptor {
        entries: vec![part("path", RateKey::Path)],
        hits: None,
    };
    let by_id = RateDescriptor {
        entries: vec![
            entry("site", RateEntryValue::Constant("one".into())),
            part("id", RateKey::Header(header("X-Id"))),
        ],
        hits: Some(3),
    };
    let absent = RateDescriptor {
        entries: vec![part("absent", RateKey::Cookie("absent".into()))],
        hits: None,
    };
    RateService {
        upstream_headers: vec![header("X-Plan")],
        timeout: if calm {
            Duration::from_mins(10)
        } else {
            Duration::from_secs(1)
        },
        fail_open: seed % 8 == 1,
        ..RateService::new(target(3), "sim", vec![by_path, absent, by_id])
    }
}

pub(super) fn processor_policy(seed: u64, calm: bool) -> ExternalProcessor {
    ExternalProcessor {
        upstream_headers: vec![header("X-Passed")],
        message_timeout: if calm {
            limits::PROCESSOR_TIMEOUT_MOST
        } else {
            Duration::from_secs(1)
        },
        fail_open: seed % 8 == 2,
        ..ExternalProcessor::new(target(4))
    }
}
