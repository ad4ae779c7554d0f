//! Routes that cannot be added, and the messages to their author.

use ringmain_wire::h1::Method;

use super::super::{Methods, RouteError, RouterBuilder, join};
use super::{find, insert};

#[track_caller]
fn check(routes: &[&str], expected: &str) {
    let mut table = RouterBuilder::new();
    let (last, first) = routes.split_last().expect("one that is refused");
    for route in first {
        insert(&mut table, route).expect(route);
    }
    let error = insert(&mut table, last).expect_err(last);
    assert_eq!(error.to_string(), expected);
}

#[track_caller]
fn check_pattern(pattern: &str, at: usize, beginning: &str) {
    let error = RouterBuilder::new().insert(Methods::Any, pattern, ());
    let Err(RouteError::Pattern { at: found, what, .. }) = error else {
        panic!("`{pattern}`: {error:?}");
    };
    assert!(
        what.starts_with(beginning) && found == at,
        "`{pattern}`: byte {found}: {what}"
    );
}

#[test]
fn invalid_patterns_are_rejected() {
    check_pattern("", 0, "a route must start with `/`");
    check_pattern("a", 0, "a route must start with `/`");
    check_pattern("{*rest}", 0, "a route must start with `/`");
    check_pattern("//", 1, "an empty segment");
    check_pattern("/a//b", 3, "an empty segment");
    check_pattern("/a/./b", 3, "a dot segment");
    check_pattern("/a/..", 3, "a dot segment");
    check_pattern("/a/{", 3, "`{` without `}`");
    check_pattern("/a/{b/c}", 3, "`{` without `}`");
    check_pattern("/a/b}", 4, "`}` without `{`");
    check_pattern("/a/{b}}", 6, "`}` without `{`");
    check_pattern("/{}", 2, "invalid parameter name");
    check_pattern("/{*}", 2, "invalid parameter name");
    check_pattern("/{1a}", 2, "invalid parameter name");
    check_pattern("/{a-b}", 2, "invalid parameter name");
    check_pattern("/{id:[0-9]+}", 2, "invalid parameter name");
    check_pattern("/{rest*}", 2, "invalid parameter name");
    check_pattern("/{a}/{a}", 6, "duplicate parameter name");
    check_pattern("/{a}/{*a}", 6, "duplicate parameter name");
    check_pattern("/{a}{b}", 4, "a second parameter");
    check_pattern("/{a}-{*b}", 5, "a second parameter");
    check_pattern("/x{*a}", 1, "a wildcard is a whole segment");
    check_pattern("/{*a}x", 1, "a wildcard is a whole segment");
    check_pattern("/{*a}/b", 5, "a wildcard takes the rest");
    check_pattern("/{*a}/", 5, "a wildcard takes the rest");
    check_pattern("/:id", 1, "`:name` is no parameter");
    check_pattern("/a/*", 3, "`*` is no wildcard");
    check_pattern("/a%20b", 2, "`%`");
    check_pattern("/ö?q={q}", 3, "`?`");
    check_pattern("/a#b", 2, "`#`");
    check_pattern("/a\0b", 2, "a control character");
    check_pattern("/a\nb", 2, "a control character");
    check_pattern(
        "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}/{j}/{k}/{l}/{m}/{n}/{o}/{p}/{*q}",
        66,
        "more than 16 parameters",
    );
}

#[test]
fn a_fault_has_its_offset_and_the_remedy() {
    check(
        &["GET /users/:id"],
        "route `/users/:id`, byte 7: `:name` is no parameter here; write `{name}`",
    );
    check(
        &[" /a"],
        "route `/a` has no method; name one, or make it a route of any method",
    );
    check(
        &["GET,B@D /a"],
        "route `/a`: `B@D` is not a method name; expected letters, digits or !#$%&'*+-.^_`|~",
    );
}

#[test]
fn two_routes_for_the_same_requests() {
    check(
        &["GET /users/{id}", "POST,GET /users/{name}"],
        "route `/users/{name}` (GET) matches the same paths as route `/users/{id}`, which was added before; \
         remove one, change its path or give it another method",
    );
    check(
        &["ANY /{*a}", "GET /{*b}", "ANY /{*c}"],
        "route `/{*c}` (any method) matches the same paths as route `/{*a}`, which was added before; \
         remove one, change its path or give it another method",
    );
    check(
        &["PURGE /a{x}b", "GET /a{x}", "PURGE /a{y}b"],
        "route `/a{y}b` (PURGE) matches the same paths as route `/a{x}b`, which was added before; \
         remove one, change its path or give it another method",
    );
}

#[test]
fn a_method_by_its_token_is_the_same_method() {
    let mut table = RouterBuilder::new();
    table
        .insert(Methods::Only(&[Method::Get]), "/a", 1)
        .expect("a route");
    let again = table.insert(Methods::Only(&[Method::Other("GET")]), "/a", 2);
    assert!(matches!(again, Err(RouteError::Conflict { .. })), "{again:?}");
}

#[test]
fn a_refused_route_leaves_no_trace() {
    let mut table = RouterBuilder::new();
    insert(&mut table, "GET /a").expect("a route");
    for refused in ["POST,GET /a", "GET /b/:c", "POST,@ /a", " /c"] {
        insert(&mut table, refused).expect_err(refused);
    }
    let router = table.build();
    assert_eq!(find(&router, "POST", "/a"), "405 GET, HEAD, OPTIONS");
    assert_eq!(find(&router, "GET", "/c"), "404");
}

#[test]
fn a_method_named_twice_counts_once() {
    let mut table = RouterBuilder::new();
    insert(&mut table, "GET,GET /a").expect("a route");
    assert_eq!(find(&table.build(), "GET", "/a"), "GET,GET /a");
}

#[test]
fn limits_of_a_table() {
    let mut table = RouterBuilder::new();
    let longest = format!("/{}", "a".repeat(1023));
    table.insert(Methods::Any, &longest, ()).expect("1,024 bytes");
    let deepest = format!("/a{}", "/{{".repeat(340));
    table.insert(Methods::Any, &deepest, ()).expect("341 segments");
    let error = table.insert(Methods::Any, &format!("{longest}b"), ());
    assert_eq!(
        error.expect_err("1,025 bytes").to_string(),
        format!(
            "route `/{}…` is 1025 bytes long, at most 1024 are allowed; shorten it or take the rest of the path by \
             a wildcard",
            "a".repeat(39)
        )
    );
    for number in 2..65_536 {
        let pattern = format!("/{number}");
        table
            .insert(Methods::Any, &pattern, ())
            .expect("within the limit");
    }
    assert_eq!(
        table
            .insert(Methods::Any, "/more", ())
            .expect_err("one more")
            .to_string(),
        "route `/more` exceeds the limit of 65536 routes; use parameters for the parts that differ"
    );
}

#[test]
fn groups_that_do_not_join() {
    let check = |prefix: &str, pattern: &str, expected: &str| {
        let error = join(prefix, pattern).expect_err("no pattern").to_string();
        assert_eq!(error, expected);
    };
    check(
        "/api/",
        "/a",
        "route `/api/`, byte 4: a group's prefix ends in `/`; remove it, its routes start with one",
    );
    check(
        "/",
        "/a",
        "route `/`, byte 0: a group's prefix ends in `/`; remove it, its routes start with one",
    );
    check("api", "/a", "route `api`, byte 0: a route must start with `/`");
    check("/api", "a", "route `a`, byte 0: a route must start with `/`");
    check("", "", "route ``, byte 0: a route must start with `/`");
    check(
        "/{*all}",
        "/a",
        "route `/{*all}`, byte 0: a group's prefix has a wildcard; only the last segment of a route may be one",
    );
    check(
        "/{id}",
        "/{id}",
        "route `/{id}/{id}`, byte 7: duplicate parameter name",
    );
}
