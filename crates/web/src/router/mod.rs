//! Routing: a table that is compiled once and is immutable.
//!
//! Owns patterns, their precedence and the response to a method without a route. Paths must be in the form of [`crate::path`].
//! Knows nothing of handlers, hooks and groups.
//!
//! # Patterns
//!
//! | written | matches |
//! |---|---|
//! | `/users/all` | this path only; `/users/all/` is another one |
//! | `/users/{id}` | one segment of one or more characters |
//! | `/files/{name}.json` | one segment with something before `.json`; one parameter a segment |
//! | `/static/{*rest}` | one or more characters, slashes too; the last segment only |
//! | `/a{{b}}` | `/a{b}` |
//!
//! # Precedence
//!
//! The path alone selects the pattern, then the method selects the route within it. The order in which routes were added does not
//! matter. Segment by segment from the left, a literal is preferred to a parameter with the longer prefix, then with the longer
//! suffix, then to a plain parameter, then to a wildcard. If the preferred one does not match the rest of the path, the next one is
//! tried. So the order of two different patterns is always defined, and two that match the same paths are one, whatever the names
//! of their parameters: each method may have one route there, with its own names.
//!
//! # Methods
//!
//! A route of a named method precedes one of any method. HEAD without a route is served by the GET route. OPTIONS without a route
//! is answered with `Allow`, any other method without one with 405 and `Allow`.

mod error;
mod methods;
mod params;
mod pattern;
mod static_paths;
pub(crate) mod swar;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;

use ringmain_wire::h1::Method;

pub(crate) use error::RouteError;
pub(crate) use methods::Methods;
pub(crate) use params::{ParamNames, Params};
pub(crate) use pattern::join;

use crate::limits;
use methods::{EndpointBuilder, MethodTable};
use pattern::{RoutePattern, Segment};
use static_paths::StaticPaths;
use tree::Tree;

/// The result of a lookup by method and path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'r, T> {
    /// The matching route.
    Route(&'r T),
    /// The path has routes, the method has none: 405.
    MethodNotAllowed {
        /// The value of `Allow`.
        allow: &'r str,
    },
    /// OPTIONS on a path without a route for it.
    Options {
        /// The value of `Allow`.
        allow: &'r str,
    },
    /// No pattern matches: 404.
    Nothing,
}

/// A table under construction.
#[derive(Debug)]
pub(crate) struct RouterBuilder<T> {
    routes: Vec<AddedRoute<T>>,
    /// Patterns in order of precedence, the most specific first.
    patterns: BTreeMap<Vec<Segment>, EndpointBuilder>,
}

#[derive(Debug)]
struct AddedRoute<T> {
    pattern: Box<str>,
    names: Box<[Box<str>]>,
    value: T,
}

impl<T> RouterBuilder<T> {
    /// Returns an empty table.
    pub(crate) fn new() -> RouterBuilder<T> {
        RouterBuilder {
            routes: Vec::new(),
            patterns: BTreeMap::new(),
        }
    }

    /// Adds a route. A repeated method counts once.
    ///
    /// # Errors
    /// The pattern or a method's name is invalid, a limit is reached, or another route has the same method for the same paths. The
    /// table is then unchanged.
    pub(crate) fn insert(&mut self, methods: Methods<'_>, pattern: &str, value: T) -> Result<(), RouteError> {
        let text = pattern;
        let pattern = RoutePattern::parse(text)?;
        if self.routes.len() == limits::ROUTES {
            return Err(RouteError::TooManyRoutes {
                pattern: text.to_owned(),
            });
        }
        let methods = method_names(methods, text)?;
        if let Some(draft) = self.patterns.get(&pattern.segments) {
            for &method in &methods {
                if let Some(route) = draft.route(method) {
                    return Err(self.conflict(method, text, route));
                }
            }
        }
        let route = u32::try_from(self.routes.len()).expect("within the limit of routes");
        let draft = self.patterns.entry(pattern.segments).or_default();
        for method in methods {
            draft.add(method, route);
        }
        self.routes.push(AddedRoute {
            pattern: text.into(),
            names: pattern.names,
            value,
        });
        Ok(())
    }

    fn conflict(&self, method: Option<&str>, pattern: &str, route: u32) -> RouteError {
        RouteError::Conflict {
            method: method.unwrap_or("any method").to_owned(),
            pattern: pattern.to_owned(),
            existing: self.routes[route as usize].pattern.to_string(),
        }
    }

    /// Compiles the table.
    pub(crate) fn build(self) -> Router<T> {
        let (patterns, drafts): (Vec<_>, Vec<_>) = self.patterns.into_iter().unzip();
        let (names, values): (Vec<_>, Vec<_>) = self
            .routes
            .into_iter()
            .map(|route| (route.names, route.value))
            .unzip();
        Router {
            fixed: StaticPaths::new(patterns.iter().map(Vec::as_slice).zip(0..)),
            tree: Tree::new(patterns.iter().map(Vec::as_slice).zip(0..)),
            endpoints: drafts.into_iter().map(MethodTable::new).collect(),
            values: values.into(),
            names: ParamNames::new(names),
        }
    }
}

/// Returns the names without repetition; `None` represents any method.
fn method_names<'a>(methods: Methods<'a>, pattern: &str) -> Result<Vec<Option<&'a str>>, RouteError> {
    let Methods::Only(methods) = methods else {
        return Ok(vec![None]);
    };
    let mut names: Vec<_> = methods.iter().map(|method| Some(method.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err(RouteError::NoMethod {
            pattern: pattern.to_owned(),
        });
    }
    match names.iter().flatten().find(|name| !methods::is_token(name)) {
        None => Ok(names),
        Some(&name) => Err(RouteError::Method {
            pattern: pattern.to_owned(),
            method: name.to_owned(),
        }),
    }
}

/// A compiled table.
#[derive(Debug)]
pub(crate) struct Router<T> {
    fixed: StaticPaths,
    tree: Tree,
    endpoints: Box<[MethodTable]>,
    values: Box<[T]>,
    names: ParamNames,
}

impl<T> Router<T> {
    /// Returns the route for `method` on `path`, which is in normal form. Fills `params` if there is one, empties them otherwise.
    /// Allocates nothing.
    #[inline]
    pub(crate) fn find<'r>(&'r self, method: Method<'_>, path: &str, params: &mut Params) -> Lookup<'r, T> {
        params.clear();
        let found = self.fixed.find(path);
        let Some(endpoint) = found.or_else(|| self.tree.find(path, params)) else {
            return Lookup::Nothing;
        };
        match self.endpoints[endpoint as usize].choose(method) {
            Ok(route) => {
                params.set_route(route);
                Lookup::Route(&self.values[route as usize])
            }
            Err(allow) => {
                params.clear();
                allow
            }
        }
    }

    /// Returns the names of the parameters, to read [`Params`] with.
    pub(crate) fn names(&self) -> &ParamNames {
        &self.names
    }
}
