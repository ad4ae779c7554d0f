//! The parameters of one request: the ranges of their values in its path.
//!
//! Owns ranges, not text: small, without lifetimes and without allocation, so that a connection can store it beside the path. Knows
//! nothing of how routes are found.

use std::borrow::Cow;

use crate::http::path;
use crate::limits;

/// The ranges of a route's parameters in the matched path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    ranges: [(u16, u16); limits::PARAMS],
    count: u8,
    route: u32,
}

impl Params {
    /// Returns an empty set.
    pub(crate) const fn new() -> Params {
        Params {
            ranges: [(0, 0); limits::PARAMS],
            count: 0,
            route: 0,
        }
    }

    /// Returns the number of parameters.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the value of the parameter `name`; `None` if the route has none with this name. An escaped slash in it becomes `/`;
    /// only then is the value copied. `names` belongs to the router that filled this, `path` is the path it matched.
    pub(crate) fn get<'p>(&self, name: &str, names: &ParamNames, path: &'p str) -> Option<Cow<'p, str>> {
        let index = names.of(self.route).iter().position(|known| **known == *name)?;
        self.value(index, path)
    }

    /// Returns names and values in the order of the pattern, as from [`Params::get`].
    pub(crate) fn iter<'a, 'p>(
        &'a self,
        names: &'a ParamNames,
        path: &'p str,
    ) -> impl Iterator<Item = (&'a str, Cow<'p, str>)> + use<'a, 'p> {
        let names = names.of(self.route).iter().enumerate();
        names.filter_map(move |(index, name)| Some((&**name, self.value(index, path)?)))
    }

    fn value<'p>(&self, index: usize, path: &'p str) -> Option<Cow<'p, str>> {
        let &(start, end) = self.ranges[..self.count()].get(index)?;
        path.get(start as usize..end as usize).map(path::display_path)
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a parameter. There is room for the maximum of a route.
    #[inline]
    pub(super) fn push(&mut self, start: usize, end: usize) {
        self.ranges[usize::from(self.count)] = (start as u16, end as u16);
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        self.count -= 1;
    }

    #[inline]
    pub(super) fn set_route(&mut self, route: u32) {
        self.route = route;
    }
}

/// The parameters' names of every route of a router.
#[derive(Debug)]
pub(crate) struct ParamNames {
    by_route: Box<[Box<[Box<str>]>]>,
}

impl ParamNames {
    pub(super) fn new(by_route: Vec<Box<[Box<str>]>>) -> ParamNames {
        ParamNames {
            by_route: by_route.into(),
        }
    }

    fn of(&self, route: u32) -> &[Box<str>] {
        self.by_route.get(route as usize).map_or(&[], |names| names)
    }
}
