//! A route as the data plane holds it: the model's, with a plan for each rule.

use std::sync::Arc;

use crate::model::{Name, Route, Rule};

/// A route and the plans of its rules. Shared between tables as long as nothing of it changes; a request that holds it needs
/// no table.
#[derive(Debug)]
pub struct Compiled<P> {
    route: Arc<Route>,
    plans: Box<[Result<P, Arc<str>>]>,
    /// Names of upstreams that were not there when it was compiled.
    missing: Box<[Name]>,
}

impl<P> Compiled<P> {
    pub(super) fn new(
        route: Arc<Route>,
        plans: Box<[Result<P, Arc<str>>]>,
        missing: Box<[Name]>,
    ) -> Compiled<P> {
        debug_assert_eq!(route.rules.len(), plans.len(), "a plan for each rule");
        Compiled {
            route,
            plans,
            missing,
        }
    }

    /// The route.
    #[must_use]
    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// The plan of a rule, by its number.
    ///
    /// # Errors
    /// Why it has none: its requests are answered 500.
    ///
    /// # Panics
    /// There is no such rule.
    pub fn plan(&self, rule: usize) -> Result<&P, &str> {
        self.plans[rule].as_ref().map_err(|reason| &**reason)
    }

    /// Whether it is what compiling `route` would give. What went wrong is tried, and told, anew.
    pub(super) fn is_current(&self, route: &Arc<Route>, missing: &[Name]) -> bool {
        (Arc::ptr_eq(&self.route, route) || self.route == *route)
            && *self.missing == *missing
            && self.plans.iter().all(Result::is_ok)
    }
}

/// The rule that takes a request.
#[derive(Debug)]
pub struct Matched<'t, P> {
    pub(super) route: &'t Arc<Compiled<P>>,
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
    /// The route. A request that goes on holds it, so that a change of configuration does not change its rule.
    #[must_use]
    pub fn route(&self) -> &'t Arc<Compiled<P>> {
        self.route
    }

    /// The number of the rule, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.rule
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &'t Rule {
        &self.route.route().rules[self.rule]
    }

    /// The number of the match, from 0; also for a rule without matches.
    #[must_use]
    pub fn matching(&self) -> usize {
        self.matching
    }

    /// The data plane's plan of the rule.
    ///
    /// # Errors
    /// Why it has none: the request is answered 500.
    pub fn plan(&self) -> Result<&'t P, &'t str> {
        self.route.plan(self.rule)
    }

    /// How many bytes of the path a prefix matched, without a slash at its end; 0 for other matches. What is behind is
    /// empty or begins with `/`.
    #[must_use]
    pub fn prefix(&self) -> usize {
        self.prefix
    }
}
