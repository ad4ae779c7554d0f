//! A valid configuration, and the parts that it shares with the previous one.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::{Config, Route};

use super::Loaded;

#[cfg(test)]
mod tests;

impl Loaded {
    /// Takes the configuration; routes that equal those of `last` are shared with it. `None`: the file has errors, and
    /// must not be served.
    pub fn take_valid(&mut self, last: Option<&Config>) -> Option<Config> {
        if !self.errors.is_empty() || self.omitted > 0 {
            return None;
        }
        let mut config = self.config.take()?;
        if let Some(last) = last {
            share_routes(&mut config, last);
        }
        Some(config)
    }
}

/// Puts routes of the last configuration in place of those that are the same: compiling finds the others at once, and none is held
/// twice.
fn share_routes(config: &mut Config, last: &Config) {
    let known: BTreeMap<&str, &Arc<Route>> = last.routes.iter().map(|route| (&*route.name, route)).collect();
    for route in &mut config.routes {
        if let Some(unchanged) = known.get(&*route.name).filter(|last| ***last == *route) {
            *route = Arc::clone(unchanged);
        }
    }
}
