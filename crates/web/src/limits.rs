//! Every limit of the framework, with its unit and what happens beyond it.

/// Parameters of one route, a wildcard counted. More: the route is refused when it is added.
pub(crate) const PARAMS: usize = 16;

/// Bytes of a route's pattern, its groups' prefixes counted. More: the route is refused when it is added.
pub(crate) const PATTERN_BYTES: usize = 1024;

/// Routes of one table. More: the route is refused when it is added.
pub(crate) const ROUTES: usize = 65_536;

const _: () = assert!(PARAMS <= u8::MAX as usize, "their number is kept in a byte");
const _: () = assert!(ROUTES < u32::MAX as usize, "routes are numbered by `u32`");
