//! A configuration that is right, and what it has in common with the one before.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::{Config, Route};

use super::Loaded;

#[cfg(test)]
mod tests;

impl Loaded {
    /// Takes the configuration; routes that are the same as in `last` are shared with it. `None`: something in the file is wrong, and
    /// nothing of it is to be served.
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
        if let Some(same) = known.get(&*route.name).filter(|last| ***last == *route) {
            *route = Arc::clone(same);
        }
    }
}
