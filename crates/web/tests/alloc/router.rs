//! No allocation per lookup: counted by the allocator.

use std::borrow::Cow;

use ringmain_web::fuzzing::{RouteTable, normalise};
use ringmain_wire::h1::Method;
use stats_alloc::Region;

use crate::ALLOCATOR;

const REQUESTS: usize = 1000;

const ROUTES: &[(&str, &str)] = &[
    ("GET", "/json"),
    ("GET", "/users/{id}"),
    ("PURGE", "/users/{id}/posts/{post}.json"),
    ("GET", "/static/{*rest}"),
    ("", "/static/app"),
];

/// Method, raw path, number of the route's parameters; `None` without a route.
const CASES: &[(Method<'_>, &str, Option<usize>)] = &[
    (Method::Get, "/json", Some(0)),
    (Method::Head, "/users/7", Some(1)),
    (Method::Other("PURGE"), "/users/7/posts/9.json", Some(2)),
    (Method::Get, "/static/a/b%20c/../d", Some(1)),
    (Method::Post, "//static/./app", Some(0)),
    (Method::Post, "/json", None),
    (Method::Options, "/json", None),
    (Method::Get, "/nothing/here", None),
];

pub(crate) fn main() {
    let (table, refused) = RouteTable::new(ROUTES.iter().copied());
    assert!(refused.is_empty(), "{refused:?}");
    let mut scratch = String::new();
    serve(&table, &mut scratch);
    let region = Region::new(ALLOCATOR);
    for _ in 0..REQUESTS {
        serve(&table, &mut scratch);
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(counts, (0, 0), "{REQUESTS} rounds allocated: {change:?}");
}

fn serve(table: &RouteTable, scratch: &mut String) {
    for &(method, raw, expected) in CASES {
        let path = normalise(raw, scratch).expect(raw);
        let mut count = 0;
        let found = table.find(method, path, |_, value| {
            assert!(matches!(value, Cow::Borrowed(_)), "nothing to translate");
            count += 1;
        });
        assert_eq!(found.is_ok().then_some(count), expected, "{raw}");
    }
}
