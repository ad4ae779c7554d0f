//! A route of the data plane: the model's route, with a plan for each rule.

use std::sync::Arc;

use crate::model::{Name, Route, Rule};

/// A route and the plans of its rules. Shared between tables while it is unchanged; a request that holds it needs no table.
#[derive(Debug)]
pub struct CompiledRoute<P> {
    route: Arc<Route>,
    plans: Box<[Result<P, Arc<str>>]>,
    /// Names of upstreams that did not exist when the route was compiled.
    missing: Box<[Name]>,
}

impl<P> CompiledRoute<P> {
    pub(super) fn new(
        route: Arc<Route>,
        plans: Box<[Result<P, Arc<str>>]>,
        missing: Box<[Name]>,
    ) -> CompiledRoute<P> {
        debug_assert_eq!(route.rules.len(), plans.len(), "a plan for each rule");
        CompiledRoute {
            route,
            plans,
            missing,
        }
    }

    /// Returns the model's route.
    #[must_use]
    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// Returns the plan of a rule, by its number.
    ///
    /// # Errors
    /// The reason that the rule has no plan: its requests are answered with 500.
    ///
    /// # Panics
    /// There is no such rule.
    pub fn plan(&self, rule: usize) -> Result<&P, &str> {
        self.plans[rule].as_ref().map_err(|reason| &**reason)
    }

    /// Returns whether every rule has a plan and every upstream exists.
    pub(super) fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.plans.iter().all(Result::is_ok)
    }

    /// Returns whether compiling `route` would give the same result. Errors are never current: they are retried and reported again.
    pub(super) fn is_current(&self, route: &Arc<Route>, missing: &[Name]) -> bool {
        (Arc::ptr_eq(&self.route, route) || self.route == *route)
            && *self.missing == *missing
            && self.plans.iter().all(Result::is_ok)
    }
}

/// The rule that takes a request.
#[derive(Debug)]
pub struct Matched<'t, P> {
    pub(super) route: &'t Arc<CompiledRoute<P>>,
    pub(super) rule: usize,
    pub(super) matching: usize,
    pub(super) prefix: usize,
}

impl<P> Clone for Matched<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Matched<'_, P> {}

impl<'t, P> Matched<'t, P> {
    /// Returns the route. A request holds it until its end, so that a change of configuration does not change its rule.
    #[must_use]
    pub fn route(&self) -> &'t Arc<CompiledRoute<P>> {
        self.route
    }

    /// Returns the number of the rule, from 0.
    #[must_use]
    pub fn rule_number(&self) -> usize {
        self.rule
    }

    /// Returns the rule.
    #[must_use]
    pub fn rule(&self) -> &'t Rule {
        &self.route.route().rules[self.rule]
    }

    /// Returns the number of the match, from 0; 0 for a rule without matches.
    #[must_use]
    pub fn match_number(&self) -> usize {
        self.matching
    }

    /// Returns the data plane's plan of the rule.
    ///
    /// # Errors
    /// The reason that the rule has no plan: the request is answered with 500.
    pub fn plan(&self) -> Result<&'t P, &'t str> {
        self.route.plan(self.rule)
    }

    /// Returns the length in bytes of the matched path prefix, without a final slash; 0 for other matches. The rest of the path is
    /// empty or begins with `/`.
    #[must_use]
    pub fn prefix(&self) -> usize {
        self.prefix
    }
}
