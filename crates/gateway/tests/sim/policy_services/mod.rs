//! Policies that query services: keys of tokens, authorization, shared counters. The services are slow, unavailable, invalid and recover; the
//! results are verified twice: by the responses to clients, and by the requests at origins.
//!
//! The invariants: no request passes by a key that was never served in full, nor without a required authorization; a request that was
//! refused in time never passes; a request passes uncounted or unauthorized only if the rule allows it; no request waits for longer than
//! its timeout; keys are fetched one at a time, and no more often than the limit.

mod arrivals;
mod authz;
#[path = "../../it/authz_messages.rs"]
#[allow(dead_code, reason = "it is another test's too")]
mod authz_messages;
mod grpc_authz;
mod http;
mod jwks;
mod policies;
#[path = "../../it/proc_messages.rs"]
#[allow(dead_code, reason = "it is another test's too")]
mod proc_messages;
mod processing;
mod rate_limits;
#[path = "../../it/rate_messages.rs"]
#[allow(dead_code, reason = "it is another test's too")]
mod rate_messages;
mod redis;
mod service;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_gateway::Gateway;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::limits;
use ringmain_gateway::model::{
    Endpoint, EndpointLocation, ExternalAuth, ExternalProcessor, Jwt, Policy, RateLimit, RateService,
    Upstream, UpstreamProtocol,
};
use ringmain_sim::{Fault as Broken, World};
use ringmain_web::testing::TestReply;

use self::authz::Verdicts;
use self::grpc_authz::{GrpcVerdicts, Kind};
use self::jwks::{Badge, Keys};
pub(crate) use self::policies::rarely;
use self::policies::{limit, processor_policy, remote_limit, service, tokens};
use self::redis::Counting;
use self::service::{Mood, Service, Trade};

/// The queries of a run's policies, the services, and the results.
#[derive(Clone)]
pub(crate) struct Asked(Rc<Inner>);

struct Inner {
    world: World,
    seed: u64,
    calm: bool,
    /// More requests arrive than may wait.
    crowd: bool,
    keys: Option<RefCell<Service<Keys>>>,
    verdicts: Option<RefCell<Service<Verdicts>>>,
    /// The same service over gRPC, in its place.
    grpc_verdicts: Option<RefCell<GrpcVerdicts>>,
    counting: Option<RefCell<Service<Counting>>>,
    /// The rate limit service over gRPC.
    limiter: Option<RefCell<GrpcVerdicts>>,
    processor: Option<RefCell<GrpcVerdicts>>,
    jwt: Option<Arc<Jwt>>,
    authz: Option<Arc<ExternalAuth>>,
    shared: Option<Arc<RateLimit>>,
    remote: Option<Arc<RateService>>,
    processing: Option<Arc<ExternalProcessor>>,
    /// Credentials of some requests that replace the usual ones.
    badges: RefCell<BTreeMap<u64, Badge>>,
    /// Requests that must not get to an origin.
    outlaws: RefCell<BTreeSet<u64>>,
    /// Those that did.
    arrived: RefCell<BTreeSet<u64>>,
    /// Responses that reported an exceeded limit in excess of those by the counter.
    limited: Cell<u64>,
}

/// The addresses of the services.
const PORTS: [(&str, u16); 5] = [
    ("keys", 7001),
    ("verdicts", 7002),
    ("counting", 7003),
    ("limiter", 7004),
    ("processor", 7005),
];

fn at(number: usize) -> Addr {
    Addr::Inet(([127, 0, 0, 1], PORTS[number].1).into())
}

impl Asked {
    pub(crate) fn draw(world: &World, seed: u64, calm: bool) -> Asked {
        let crowd = !calm && world.below(40) == 0;
        let any = crowd || world.below(2) == 0;
        let draw = |of: usize| any && world.below(of) == 0 && !crowd;
        let (jwt, authz, shared) = (draw(2), draw(2), draw(3));
        let mood = match (calm, crowd) {
            (true, _) => Mood::Good,
            (_, true) => Mood::Late,
            _ => Mood::Bad,
        };
        let own = |number: u64| seed ^ number << 40 ^ 0xa5;
        let stale = Duration::from_secs([30, 86_400][world.below(2)]);
        let keys =
            (jwt || crowd).then(|| Service::new(world, at(0), own(1), mood, Keys::new(calm, stale)).into());
        let grpc = authz && seed % 3 == 1;
        let verdicts =
            (authz && !grpc).then(|| Service::new(world, at(1), own(2), mood, Verdicts::default()).into());
        let grpc_verdicts = grpc.then(|| GrpcVerdicts::new(Kind::Authz, world, at(1), own(2), mood).into());
        // Both count the same faults.
        let remote = any && !crowd && !shared && seed % 4 == 1;
        let processing = any && !crowd && seed % 4 == 2;
        let processor =
            processing.then(|| GrpcVerdicts::new(Kind::Processor, world, at(4), own(5), mood).into());
        let limiter = remote.then(|| GrpcVerdicts::new(Kind::Limiter, world, at(3), own(4), mood).into());
        let counting = shared.then(|| Service::new(world, at(2), own(3), mood, Counting::default()).into());
        Asked(Rc::new(Inner {
            world: world.clone(),
            seed,
            calm,
            crowd,
            keys,
            verdicts,
            grpc_verdicts,
            counting,
            limiter,
            processor,
            jwt: (jwt || crowd).then(|| tokens(world, stale).into()),
            authz: authz.then(|| service(world, seed, calm, grpc).into()),
            shared: shared.then(|| limit(world, calm).into()),
            remote: remote.then(|| remote_limit(seed, calm).into()),
            processing: processing.then(|| processor_policy(seed, calm).into()),
            badges: RefCell::default(),
            outlaws: RefCell::default(),
            arrived: RefCell::default(),
            limited: Cell::default(),
        }))
    }

    pub(crate) fn is_crowd(&self) -> bool {
        self.0.crowd
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.0.keys.is_some()
    }

    pub(crate) fn has_verdicts(&self) -> bool {
        self.0.authz.is_some()
    }

    /// Returns whether requests are counted by a service.
    pub(crate) fn counts(&self) -> bool {
        self.0.counting.is_some() || self.has_limiter()
    }

    pub(crate) fn is_any(&self) -> bool {
        self.has_keys() || self.has_verdicts() || self.counts() || self.has_processor()
    }

    fn has_processor(&self) -> bool {
        self.0.processing.is_some()
    }

    fn has_limiter(&self) -> bool {
        self.0.remote.is_some()
    }

    pub(crate) fn policies(&self) -> Vec<Policy> {
        let inner = &self.0;
        let jwt = inner.jwt.iter().cloned().map(Policy::Jwt);
        let authz = inner.authz.iter().cloned().map(Policy::ExternalAuth);
        let shared = inner.shared.iter().cloned().map(Policy::RateLimit);
        let remote = inner.remote.iter().cloned().map(Policy::RateService);
        let processing = inner.processing.iter().cloned().map(Policy::Processor);
        let all = jwt.chain(authz).chain(shared).chain(remote).chain(processing);
        all.collect()
    }

    /// Returns the upstreams of the services.
    pub(crate) fn upstreams(&self, world: &World, patience: Duration) -> Vec<Arc<Upstream>> {
        let there = [
            self.has_keys(),
            self.has_verdicts(),
            self.0.counting.is_some(),
            self.has_limiter(),
            self.has_processor(),
        ];
        let asked = PORTS.iter().zip(there).filter(|(_, there)| *there);
        let upstream = |((name, port), _): (&(&str, u16), bool)| {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], *port));
            let mut upstream = Upstream::new(*name, vec![Endpoint::new(EndpointLocation::Address(address))]);
            upstream.pool.connections = 1 + world.below(6) as u32;
            upstream.connect_timeout = patience;
            let is_grpc = match *name {
                "limiter" | "processor" => true,
                name => name == "verdicts" && self.0.grpc_verdicts.is_some(),
            };
            if is_grpc {
                upstream.protocol = UpstreamProtocol::Http2;
            }
            upstream.into()
        };
        asked.map(upstream).collect()
    }

    /// Returns the credentials of a request.
    fn badge(&self, id: u64) -> Badge {
        if let Some(badge) = self.0.badges.borrow().get(&id) {
            return *badge;
        }
        let mix = (id ^ self.0.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        match mix % 20 {
            0 => Badge::Nothing,
            1 => Badge::Forged((mix / 20 % 2) as usize),
            2 => Badge::Stranger,
            3 => Badge::Key(2),
            4..8 => Badge::Key(1),
            _ => Badge::Key(0),
        }
    }

    /// Returns the fields that identify a request, and one that must not be forwarded.
    pub(crate) fn fields(&self, id: u64) -> String {
        let mut fields = String::new();
        if self.has_keys() {
            fields += &self.badge(id).field(id);
        }
        if self.has_verdicts() {
            fields += "X-User: root\r\n";
        }
        if self.has_limiter() {
            fields += "X-Plan: root\r\n";
        }
        if self.has_processor() {
            fields += "X-Passed: root\r\n";
        }
        fields
    }

    /// Gives a request all that it needs to be admitted.
    pub(crate) fn favour(&self, id: u64) {
        if let Some(keys) = &self.0.keys {
            let newest = keys.borrow().trade.newest();
            self.0.badges.borrow_mut().insert(id, Badge::Key(newest));
        }
        self.with_verdicts(|verdicts| verdicts.favoured.insert(id));
        self.with_limits(|limits| limits.favoured.insert(id));
        self.with_processor(|processor| processor.favoured.insert(id));
        if let Some(counting) = &self.0.counting {
            counting.borrow_mut().trade.forgive();
        }
    }

    /// Gives a request a token by an unknown key.
    pub(crate) fn estrange(&self, id: u64) {
        self.favour(id);
        self.0.badges.borrow_mut().insert(id, Badge::Stranger);
    }

    /// Its key is not served any more: it must not be let in.
    pub(crate) fn outlaw(&self, id: u64, key: usize) {
        self.favour(id);
        self.0.badges.borrow_mut().insert(id, Badge::Key(key));
        self.0.outlaws.borrow_mut().insert(id);
    }

    /// Its client begins to send it.
    pub(crate) fn send(&self, id: u64, now: Time) {
        self.with_verdicts(|verdicts| *verdicts.sent.entry(id).or_insert(now));
        self.with_limits(|limits| *limits.sent.entry(id).or_insert(now));
        self.with_processor(|processor| *processor.sent.entry(id).or_insert(now));
    }

    /// Passes the decisions of the external processor to `read`, if there is one.
    fn with_processor<T>(&self, read: impl FnOnce(&mut Verdicts) -> T) -> Option<T> {
        let processor = self.0.processor.as_ref()?;
        Some(read(&mut processor.borrow_mut().trade))
    }

    /// Passes the decisions of the rate limit service to `read`, if there is one.
    fn with_limits<T>(&self, read: impl FnOnce(&mut Verdicts) -> T) -> Option<T> {
        let limiter = self.0.limiter.as_ref()?;
        Some(read(&mut limiter.borrow_mut().trade))
    }

    /// Passes the decisions of the authorization service to `read`, if there is one.
    fn with_verdicts<T>(&self, read: impl FnOnce(&mut Verdicts) -> T) -> Option<T> {
        let inner = &self.0;
        match (&inner.verdicts, &inner.grpc_verdicts) {
            (Some(service), _) => Some(read(&mut service.borrow_mut().trade)),
            (None, Some(service)) => Some(read(&mut service.borrow_mut().trade)),
            (None, None) => None,
        }
    }

    pub(crate) fn has_arrived(&self, id: u64) -> bool {
        self.0.arrived.borrow().contains(&id)
    }

    /// Returns whether a response is from these policies: correct or not. `waited` is the time since the request was complete.
    pub(crate) fn judge(
        &self,
        id: u64,
        reply: &TestReply,
        waited: Option<Duration>,
        broken: bool,
    ) -> Option<Result<(), String>> {
        let judged = self
            .judge_401(id, reply)
            .or_else(|| self.judge_others(id, reply, broken))?;
        let late = waited.filter(|waited| *waited > self.patience());
        let what = |why: String| format!("{} for {:?}: {why}", reply.status(), self.badge(id));
        Some(match (judged, late) {
            (Err(why), _) => Err(what(why.to_owned())),
            (Ok(()), Some(late)) => Err(what(format!("after {late:?}"))),
            (Ok(()), None) => Ok(()),
        })
    }

    fn judge_401(&self, id: u64, reply: &TestReply) -> Option<Result<(), &'static str>> {
        if reply.status() != 401 || reply.header("WWW-Authenticate").is_none() {
            return None;
        }
        let Some(keys) = &self.0.keys else {
            return Some(Err("nobody wants tokens"));
        };
        let keys = &keys.borrow().trade;
        Some(match self.badge(id) {
            Badge::Nothing => Ok(()),
            Badge::Key(_) if self.0.outlaws.borrow().contains(&id) => Ok(()),
            Badge::Key(key) if self.0.calm && keys.served.contains(&key) => Err("its key is served"),
            _ => ensure(keys.first.is_some(), "no keys were served"),
        })
    }

    fn judge_others(&self, id: u64, reply: &TestReply, broken: bool) -> Option<Result<(), &'static str>> {
        let inner = &self.0;
        let is = |fault: Fault| reply.status() == fault.status() && said(reply) == fault.text();
        if reply.header("Location") == Some("/login") {
            let known = inner.authz.is_some() && authz::refusal(id) == Some(reply.status());
            let text = said(reply);
            return Some(ensure(
                known && (text.is_empty() || text == authz::told(id).trim()),
                "nobody said so",
            ));
        }
        if is(Fault::KeysUnavailable) {
            return Some(ensure(inner.keys.is_some() && broken, "keys are served"));
        }
        if is(Fault::AuthzUnavailable) {
            // With `fail_open` a full pool refuses all the same.
            return Some(ensure(inner.authz.is_some() && broken, "the service responds"));
        }
        if is(Fault::LimiterDown) {
            let redis = inner.shared.as_ref().and_then(|limit| limit.redis.as_ref());
            return Some(ensure(
                (redis.is_some_and(|redis| redis.denies) || self.has_limiter()) && broken,
                "it is to pass",
            ));
        }
        if is(Fault::ProcessorUnavailable) {
            return Some(ensure(self.has_processor() && broken, "the processor responds"));
        }
        if reply.header("X-Refused") == Some("yes") {
            let known = self.has_processor() && processing::refused(id) && reply.status() == 403;
            let text = said(reply);
            return Some(ensure(
                known && (text.is_empty() || text == authz::told(id).trim()),
                "an unknown refusal",
            ));
        }
        if reply.status() == 429 && self.has_limiter() {
            let known = rate_limits::limited(id) && reply.header("X-Limited") == Some("yes");
            let text = said(reply);
            return Some(ensure(
                known && (text.is_empty() || text == authz::told(id).trim()),
                "an unknown refusal",
            ));
        }
        if reply.status() == 429 {
            let counting = inner.counting.as_ref()?.borrow();
            inner.limited.set(inner.limited.get() + 1);
            let redis = inner.shared.as_ref().and_then(|limit| limit.redis.as_ref());
            let here = broken && redis.is_some_and(|redis| !redis.denies);
            let counted = here || inner.limited.get() <= counting.trade.refusals;
            return Some(ensure(
                counted && reply.header("Retry-After").is_some(),
                "more refusals than the limiters have counted",
            ));
        }
        None
    }

    /// Returns the longest time that a request may wait for all services.
    fn patience(&self) -> Duration {
        let inner = &self.0;
        let keys = inner.jwt.as_ref().map(|_| limits::KEYS_WAIT);
        let authz = inner.authz.as_ref().map(|authz| authz.timeout);
        let redis = inner.shared.as_ref().and_then(|limit| limit.redis.as_ref());
        let shared = redis.map(|redis| redis.timeout);
        let remote = inner.remote.as_ref().map(|remote| remote.timeout);
        let processing = inner.processing.as_ref().map(|policy| policy.message_timeout * 2);
        let waits = [keys, authz, shared, remote, processing].into_iter().flatten();
        waits.sum::<Duration>() + Duration::from_secs(2)
    }

    /// Returns whether a request may wait for keys only.
    pub(crate) fn needs_keys(&self, id: u64) -> bool {
        let keys = self.0.keys.as_ref();
        keys.is_some_and(|keys| keys.borrow().trade.first.is_none()) && self.badge(id) != Badge::Nothing
    }

    /// Checks the final state.
    pub(crate) fn held(&self, gateway: &Gateway) {
        let (Some(counting), Some(limit)) = (&self.0.counting, &self.0.shared) else {
            return;
        };
        let counting = &counting.borrow().trade;
        let faults = gateway.fault_counts();
        let count = |wanted| {
            let found = faults.iter().find(|(fault, _)| *fault == wanted);
            found.map_or(0, |(_, count)| *count)
        };
        let (limited, down) = (count(Fault::RateLimited), count(Fault::LimiterDown));
        let denies = limit.redis.as_ref().is_some_and(|redis| redis.denies);
        let arrived = self.0.arrived.borrow().len() as u64;
        let most = counting.passes + if denies { 0 } else { down };
        assert!(
            denies || arrived <= counting.passes + u64::from(limit.burst),
            "{arrived}: {counting:?}"
        );
        assert!(arrived <= most, "{arrived} of {most}: {counting:?}");
        // The gateway counts by itself while the Redis fails, unless it denies then.
        let here = if denies { 0 } else { down };
        assert!(limited <= counting.refusals + here, "{limited}: {counting:?}");
        assert!(
            !self.0.calm || limited == counting.refusals && down == 0,
            "{limited}: {counting:?}"
        );
    }

    /// From now on they are well.
    pub(crate) fn heal(&self) {
        self.each_mood(Mood::Good);
    }

    /// Other keys are served.
    pub(crate) fn change_keys(&self) {
        if let Some(keys) = &self.0.keys {
            keys.borrow_mut().trade.change();
        }
    }

    /// The configuration of who fetches keys changes: see [`rarely`].
    pub(crate) fn renew(&self) {
        if let Some(keys) = &self.0.keys {
            keys.borrow_mut().trade.renewed = true;
        }
    }

    fn each_mood(&self, mood: Mood) {
        let inner = &self.0;
        inner.keys.iter().for_each(|all| all.borrow_mut().become_(mood));
        inner
            .verdicts
            .iter()
            .for_each(|all| all.borrow_mut().become_(mood));
        let grpc = inner
            .grpc_verdicts
            .iter()
            .chain(&inner.limiter)
            .chain(&inner.processor);
        grpc.for_each(|all| all.borrow_mut().become_(mood));
        inner
            .counting
            .iter()
            .for_each(|all| all.borrow_mut().become_(mood));
    }

    pub(crate) fn act(&self) {
        let inner = &self.0;
        if let Some(keys) = inner
            .keys
            .as_ref()
            .filter(|_| inner.world.count(Broken::Reset) > 0)
        {
            // The network may have lost the answer.
            keys.borrow_mut().trade.cut();
        }
        inner.keys.iter().for_each(|all| all.borrow_mut().act());
        inner.verdicts.iter().for_each(|all| all.borrow_mut().act());
        let grpc = inner
            .grpc_verdicts
            .iter()
            .chain(&inner.limiter)
            .chain(&inner.processor);
        grpc.for_each(|all| all.borrow_mut().act());
        inner.counting.iter().for_each(|all| all.borrow_mut().act());
    }

    /// Returns the instant of the next action of a service.
    pub(crate) fn due(&self) -> Option<Time> {
        let inner = &self.0;
        let keys = inner.keys.as_ref().and_then(|all| all.borrow().due());
        let verdicts = inner.verdicts.as_ref().and_then(|all| all.borrow().due());
        let grpc = inner.grpc_verdicts.as_ref().and_then(|all| all.borrow().due());
        let limiter = inner.limiter.as_ref().and_then(|all| all.borrow().due());
        let processor = inner.processor.as_ref().and_then(|all| all.borrow().due());
        let counting = inner.counting.as_ref().and_then(|all| all.borrow().due());
        [keys, verdicts, grpc, counting, limiter, processor]
            .into_iter()
            .flatten()
            .min()
    }

    /// They are gone.
    pub(crate) fn close(&self) {
        let inner = &self.0;
        inner.keys.iter().for_each(|all| all.borrow_mut().close());
        inner.verdicts.iter().for_each(|all| all.borrow_mut().close());
        let grpc = inner
            .grpc_verdicts
            .iter()
            .chain(&inner.limiter)
            .chain(&inner.processor);
        grpc.for_each(|all| all.borrow_mut().close());
        inner.counting.iter().for_each(|all| all.borrow_mut().close());
    }
}

fn ensure(right: bool, why: &'static str) -> Result<(), &'static str> {
    right.then_some(()).ok_or(why)
}

/// Returns the text of a response's body, if it has one.
fn said(reply: &TestReply) -> &str {
    str::from_utf8(reply.body()).unwrap_or_default().trim_end()
}
