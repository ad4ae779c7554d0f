//! Requests that arrive at origins: by which decisions.

use ringmain_sim::Fault as Broken;

use super::jwks::Badge;
use super::{Asked, authz, processing, rate_limits};

impl Asked {
    /// Checks a request that has arrived at an origin. `field` returns the request's field of that name.
    pub(crate) fn arrive(&self, id: u64, field: impl Fn(&str) -> Option<String>) {
        let inner = &self.0;
        assert!(!inner.outlaws.borrow().contains(&id), "{id} was let in");
        if let Some(keys) = &inner.keys {
            let served = &keys.borrow().trade.served;
            match self.badge(id) {
                Badge::Key(key) => assert!(served.contains(&key), "{id}: its key {key} was not served"),
                badge => panic!("{id} was let in by {badge:?}"),
            }
        }
        let known = self.with_verdicts(|known| (known.allowed.contains(&id), known.denied.contains(&id)));
        if let (Some((allowed, denied)), Some(authz)) = (known, &inner.authz) {
            let user = field("X-User");
            assert!(
                user.is_none() || user == Some(authz::user(id)) && allowed,
                "{id} is said to be {user:?}"
            );
            if !authz.fail_open {
                assert!(
                    allowed && user.is_some(),
                    "{id} arrived without an allowance of the service"
                );
            }
            // The network may have lost the refusal.
            let lost = inner.world.count(Broken::Reset) > 0;
            assert!(lost || !denied, "{id} was refused");
        }
        self.arrive_within_limits(id, &field);
        self.arrive_processed(id, &field);
        inner.arrived.borrow_mut().insert(id);
    }

    fn arrive_processed(&self, id: u64, field: &impl Fn(&str) -> Option<String>) {
        let known = self.with_processor(|known| (known.allowed.contains(&id), known.denied.contains(&id)));
        let (Some((allowed, denied)), Some(policy)) = (known, &self.0.processing) else {
            return;
        };
        let passed = field("X-Passed");
        assert!(
            passed.is_none() || passed == Some(processing::passed(id)) && allowed,
            "{id} is said to have {passed:?}"
        );
        assert!(
            policy.fail_open || allowed && passed.is_some(),
            "the processor has not let {id} pass"
        );
        let lost = self.0.world.count(Broken::Reset) > 0;
        assert!(lost || !denied, "{id} was refused by the processor");
    }

    fn arrive_within_limits(&self, id: u64, field: &impl Fn(&str) -> Option<String>) {
        let known = self.with_limits(|known| (known.allowed.contains(&id), known.denied.contains(&id)));
        let (Some((allowed, denied)), Some(remote)) = (known, &self.0.remote) else {
            return;
        };
        let plan = field("X-Plan");
        assert!(
            plan.is_none() || plan == Some(rate_limits::plan(id)) && allowed,
            "{id} is said to have {plan:?}"
        );
        assert!(
            remote.fail_open || allowed && plan.is_some(),
            "the service has not admitted {id}"
        );
        let lost = self.0.world.count(Broken::Reset) > 0;
        assert!(lost || !denied, "{id} exceeds its limit");
    }
}
