//! Paths and routes for fuzz targets in other crates. Not part of the interface.
//!
//! Owns nothing: forwards to `crate::path` and `crate::router` with public types.

use std::borrow::Cow;

use ringmain_wire::h1::Method;

use crate::http::path;
use crate::router::{Lookup, Methods, Params, Router, RouterBuilder};

/// Returns the normal form of a request path.
///
/// # Errors
/// The reason why it has none.
pub fn normalise<'a>(raw: &'a str, scratch: &'a mut String) -> Result<&'a str, String> {
    path::normalise(raw, scratch).map_err(|fault| fault.to_string())
}

/// Returns part of a normal path as handlers see it.
pub fn display_path(text: &str) -> Cow<'_, str> {
    path::display_path(text)
}

/// Routes whose value is their number.
#[derive(Debug)]
pub struct RouteTable(Router<usize>);

impl RouteTable {
    /// Adds routes (a method, an empty one for any, and a pattern). Skips invalid ones and those that conflict with an earlier one,
    /// and returns their errors.
    pub fn new<'a>(routes: impl Iterator<Item = (&'a str, &'a str)>) -> (RouteTable, Vec<String>) {
        let mut table = RouterBuilder::new();
        let mut refused = Vec::new();
        for (number, (method, pattern)) in routes.enumerate() {
            let method = [Method::new(method)];
            let methods = match method {
                [Method::Other("")] => Methods::Any,
                _ => Methods::Only(&method),
            };
            if let Err(error) = table.insert(methods, pattern, number) {
                refused.push(error.to_string());
            }
        }
        (RouteTable(table.build()), refused)
    }

    /// Returns the number of the route for a path in normal form, and passes its parameters to `each`.
    ///
    /// # Errors
    /// The value of `Allow` if the path has routes, but the method has none.
    pub fn find<'p>(
        &self,
        method: Method<'_>,
        path: &'p str,
        mut each: impl FnMut(&str, Cow<'p, str>),
    ) -> Result<usize, Option<&str>> {
        let mut params = Params::new();
        match self.0.find(method, path, &mut params) {
            Lookup::Route(&number) => {
                params
                    .iter(self.0.names(), path)
                    .for_each(|(name, value)| each(name, value));
                Ok(number)
            }
            Lookup::MethodNotAllowed { allow } | Lookup::Options { allow } => Err(Some(allow)),
            Lookup::Nothing => Err(None),
        }
    }
}
