//! Table-driven tests of the router: routes, a request, the expected lookup.

mod bench;
mod reference;
mod rejected;

use std::borrow::Cow;

use ringmain_wire::h1::Method;

use super::{Lookup, Methods, Params, Router, RouterBuilder, join};
use crate::http::path::normalise;

/// A route as a table says it: `GET /a`, `GET,POST /a`, `ANY /a`.
pub(super) fn insert<'a>(
    table: &mut RouterBuilder<&'a str>,
    route: &'a str,
) -> Result<(), super::RouteError> {
    let (methods, pattern) = route.split_once(' ').expect("methods, a space, a pattern");
    let names: Vec<_> = methods
        .split(',')
        .filter(|name| !name.is_empty())
        .map(Method::new)
        .collect();
    let methods = match methods {
        "ANY" => Methods::Any,
        _ => Methods::Only(&names),
    };
    table.insert(methods, pattern, route)
}

pub(super) fn router<'a>(routes: &[&'a str]) -> Router<&'a str> {
    let mut table = RouterBuilder::new();
    for route in routes {
        insert(&mut table, route).expect(route);
    }
    table.build()
}

/// Returns a lookup as text: the route and its parameters, or the response without a route.
pub(super) fn find(router: &Router<&str>, method: &str, path: &str) -> String {
    let mut params = Params::new();
    let found = router.find(Method::new(method), path, &mut params);
    if !matches!(found, Lookup::Route(_)) {
        assert_eq!(params.count(), 0, "nothing found, no parameters");
    }
    match found {
        Lookup::Route(route) => {
            params
                .iter(router.names(), path)
                .fold((*route).to_owned(), |text, (name, value)| {
                    assert_eq!(params.get(name, router.names(), path).as_ref(), Some(&value));
                    format!("{text} {name}={value}")
                })
        }
        Lookup::MethodNotAllowed { allow } => format!("405 {allow}"),
        Lookup::Options { allow } => format!("options {allow}"),
        Lookup::Nothing => "404".to_owned(),
    }
}

/// Checks a lookup of the raw `path`; 400 if it has no normal form.
#[track_caller]
fn check(routes: &[&str], method: &str, path: &str, expected: &str) {
    let router = router(routes);
    let mut scratch = String::new();
    let found = match normalise(path, &mut scratch) {
        Ok(path) => find(&router, method, path),
        Err(_) => "400".to_owned(),
    };
    assert_eq!(found, expected, "{method} {path} in {routes:?}");
}

#[test]
fn literals() {
    let routes = &["GET /", "GET /a", "GET /a/", "GET /a/b", "GET /größe"];
    check(routes, "GET", "/", "GET /");
    check(routes, "GET", "/a", "GET /a");
    check(routes, "GET", "/a/", "GET /a/");
    check(routes, "GET", "/a/b", "GET /a/b");
    check(routes, "GET", "/a/b/", "404");
    check(routes, "GET", "/a/b/c", "404");
    check(routes, "GET", "/A", "404");
    check(routes, "GET", "/gr%C3%B6%c3%9fe", "GET /größe");
    check(&["GET /a"], "GET", "/a/", "404");
    check(&["GET /a/"], "GET", "/a", "404");
    check(&["GET /a/"], "GET", "/", "404");
    check(&[], "GET", "/", "404");
}

#[test]
fn literals_that_begin_alike() {
    let routes = &[
        "GET /abcdefgh",
        "GET /abcdefghi",
        "GET /abcdefghj",
        "GET /abcdefg",
        "GET /abcdefgh/abcdefghijklmnop",
        "GET /abcdefgh/abcdefghijklmnoq",
        "GET /abcdefgh/abcdefghijklmno",
    ];
    for route in routes {
        check(routes, "GET", &route[4..], route);
    }
    check(routes, "GET", "/abcdefghk", "404");
    check(routes, "GET", "/abcdef", "404");
    check(routes, "GET", "/abcdefg%2f", "404");
    check(routes, "GET", "/abcdefgh/abcdefghijklmnor", "404");
    check(routes, "GET", "/abcdefgh/abcdefghijklmnopq", "404");
}

#[test]
fn many_literals_in_one_place() {
    let routes: Vec<_> = (0..200)
        .map(|number| format!("GET /resource-{number}/x"))
        .collect();
    let routes: Vec<_> = routes.iter().map(String::as_str).collect();
    let router = router(&routes);
    for route in &routes {
        assert_eq!(find(&router, "GET", &route[4..]), *route);
    }
    assert_eq!(find(&router, "GET", "/resource-200/x"), "404");
    assert_eq!(find(&router, "GET", "/resource-/x"), "404");
}

#[test]
fn parameters() {
    let routes = &[
        "GET /users/{id}",
        "GET /users/{id}/posts/{post}",
        "GET /{a}/{b}/{c}",
    ];
    check(routes, "GET", "/users/7", "GET /users/{id} id=7");
    check(routes, "GET", "/users/", "404");
    check(routes, "GET", "/users", "404");
    check(routes, "GET", "/users/7/", "404");
    check(
        routes,
        "GET",
        "/users/7/posts/x",
        "GET /users/{id}/posts/{post} id=7 post=x",
    );
    check(routes, "GET", "/users/7/x", "GET /{a}/{b}/{c} a=users b=7 c=x");
    check(routes, "GET", "/users/a%20b%2Fc%25", "GET /users/{id} id=a b/c%");
}

#[test]
fn parameters_with_text_around_them() {
    let routes = &[
        "GET /{name}.json",
        "GET /v{version}",
        "GET /v{version}.json",
        "GET /v1{rest}",
        "GET /{name}",
        "GET /{name}.tar.json",
    ];
    check(routes, "GET", "/a.json", "GET /{name}.json name=a");
    check(routes, "GET", "/a.tar.json", "GET /{name}.tar.json name=a");
    check(routes, "GET", "/v2", "GET /v{version} version=2");
    check(routes, "GET", "/v1", "GET /v{version} version=1");
    check(routes, "GET", "/v12", "GET /v1{rest} rest=2");
    check(routes, "GET", "/v2.json", "GET /v{version}.json version=2");
    check(routes, "GET", "/v1.json", "GET /v1{rest} rest=.json");
    check(routes, "GET", "/v.json", "GET /v{version} version=.json");
    check(routes, "GET", "/.json", "GET /{name} name=.json");
    check(routes, "GET", "/v", "GET /{name} name=v");
    check(&["GET /{a}aa"], "GET", "/aa", "404");
    check(&["GET /aa{a}aa"], "GET", "/aaa", "404");
    check(&["GET /aa{a}aa"], "GET", "/aaaaa", "GET /aa{a}aa a=a");
    check(&["GET /ö{a}ö"], "GET", "/öxö", "GET /ö{a}ö a=x");
}

#[test]
fn wildcards() {
    let routes = &["GET /static/{*rest}", "GET /{*all}", "GET /static/a"];
    check(routes, "GET", "/static/a", "GET /static/a");
    check(routes, "GET", "/static/b", "GET /static/{*rest} rest=b");
    check(routes, "GET", "/static/b/c/", "GET /static/{*rest} rest=b/c/");
    check(routes, "GET", "/static/a/c", "GET /static/{*rest} rest=a/c");
    check(routes, "GET", "/static/", "GET /{*all} all=static/");
    check(routes, "GET", "/static", "GET /{*all} all=static");
    check(routes, "GET", "/", "404");
    check(routes, "GET", "/static//b/../c", "GET /static/{*rest} rest=c");
    check(routes, "GET", "/static/b%2fc/d", "GET /static/{*rest} rest=b/c/d");
}

#[test]
fn braces_as_text() {
    check(&["GET /a{{b}}"], "GET", "/a{b}", "GET /a{{b}}");
    check(&["GET /{{{b}}}"], "GET", "/{x}", "GET /{{{b}}} b=x");
    check(&["GET /{{}}"], "GET", "/%7B%7d", "GET /{{}}");
}

#[test]
fn where_the_preferred_leads_nowhere_the_next_is_tried() {
    let routes = &[
        "GET /a/b/c",
        "GET /a/{x}/d",
        "GET /{y}/b/e",
        "GET /a{z}/b/f",
        "GET /a/{*rest}",
        "GET /{p}/{q}/{r}/{s}",
    ];
    check(routes, "GET", "/a/b/c", "GET /a/b/c");
    check(routes, "GET", "/a/b/d", "GET /a/{x}/d x=b");
    check(routes, "GET", "/a/b/e", "GET /a/{*rest} rest=b/e");
    check(routes, "GET", "/aa/b/e", "GET /{y}/b/e y=aa");
    check(routes, "GET", "/aa/b/f", "GET /a{z}/b/f z=a");
    check(routes, "GET", "/a/b/c/d", "GET /a/{*rest} rest=b/c/d");
    check(routes, "GET", "/b/b/c/d", "GET /{p}/{q}/{r}/{s} p=b q=b r=c s=d");
    check(routes, "GET", "/b/b/c", "404");
}

#[test]
fn each_method_has_its_own_names() {
    let routes = &["GET /users/{id}", "DELETE /users/{user}", "ANY /users/{any}"];
    check(routes, "GET", "/users/7", "GET /users/{id} id=7");
    check(routes, "DELETE", "/users/7", "DELETE /users/{user} user=7");
    check(routes, "HEAD", "/users/7", "GET /users/{id} id=7");
    check(routes, "PURGE", "/users/7", "ANY /users/{any} any=7");
    check(routes, "OPTIONS", "/users/7", "ANY /users/{any} any=7");
}

#[test]
fn a_method_without_a_route_gets_the_allowed_methods() {
    let routes = &[
        "GET /a",
        "POST,GET /b",
        "PURGE,PATCH,DELETE /c",
        "HEAD /d",
        "OPTIONS /e",
    ];
    check(routes, "POST", "/a", "405 GET, HEAD, OPTIONS");
    check(routes, "PUT", "/b", "405 GET, HEAD, POST, OPTIONS");
    check(routes, "GET", "/c", "405 DELETE, OPTIONS, PATCH, PURGE");
    check(routes, "HEAD", "/c", "405 DELETE, OPTIONS, PATCH, PURGE");
    check(routes, "PURG", "/c", "405 DELETE, OPTIONS, PATCH, PURGE");
    check(routes, "PURGE", "/c", "PURGE,PATCH,DELETE /c");
    check(routes, "purge", "/c", "405 DELETE, OPTIONS, PATCH, PURGE");
    check(routes, "get", "/a", "405 GET, HEAD, OPTIONS");
    check(routes, "GET", "/d", "405 HEAD, OPTIONS");
    check(routes, "GET", "/e", "405 OPTIONS");
    check(routes, "GET", "/f", "404");
    check(routes, "OPTIONS", "/f", "404");
}

#[test]
fn head_and_options_for_free() {
    let routes = &[
        "GET /a",
        "POST /b",
        "GET /c",
        "HEAD /c",
        "ANY /d",
        "GET /d",
        "OPTIONS /e",
        "GET /e",
    ];
    check(routes, "HEAD", "/a", "GET /a");
    check(routes, "OPTIONS", "/a", "options GET, HEAD, OPTIONS");
    check(routes, "HEAD", "/b", "405 POST, OPTIONS");
    check(routes, "OPTIONS", "/b", "options POST, OPTIONS");
    check(routes, "HEAD", "/c", "HEAD /c");
    check(routes, "HEAD", "/d", "GET /d");
    check(routes, "OPTIONS", "/d", "ANY /d");
    check(routes, "OPTIONS", "/e", "OPTIONS /e");
}

#[test]
fn every_method_has_its_place() {
    let names = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "M-SEARCH",
    ];
    let routes: Vec<_> = names.iter().map(|name| format!("{name} /a")).collect();
    let routes: Vec<_> = routes.iter().map(String::as_str).collect();
    for (name, route) in names.iter().zip(&routes) {
        check(&routes, name, "/a", route);
        check(
            &[&format!("{name} /a"), "ANY /a"],
            name,
            "/a",
            &format!("{name} /a"),
        );
        check(&["ANY /a"], name, "/a", "ANY /a");
    }
}

/// The path alone picks the pattern: a less specific one does not step in for a method.
#[test]
fn the_path_decides_before_the_method() {
    let routes = &["POST /users/all", "GET /users/{id}", "ANY /{*rest}"];
    check(routes, "GET", "/users/all", "405 POST, OPTIONS");
    check(routes, "POST", "/users/7", "405 GET, HEAD, OPTIONS");
    check(routes, "POST", "/users/7/x", "ANY /{*rest} rest=users/7/x");
}

#[test]
fn no_way_around_a_route() {
    let routes = &["GET /admin", "GET /public/{*rest}", "GET /public/{name}/x"];
    check(routes, "GET", "/public/../admin", "GET /admin");
    check(routes, "GET", "/public/%2e%2e/admin", "GET /admin");
    check(routes, "GET", "//admin", "GET /admin");
    check(routes, "GET", "/./admin", "GET /admin");
    check(routes, "GET", "/%61dmin", "GET /admin");
    check(routes, "GET", "/../../admin", "GET /admin");
    check(routes, "GET", "/public/..%2fadmin", "400");
    check(
        routes,
        "GET",
        "/public/%252e%252e/admin",
        "GET /public/{*rest} rest=%2e%2e/admin",
    );
    check(
        routes,
        "GET",
        "/public/..;/admin",
        "GET /public/{*rest} rest=..;/admin",
    );
    check(
        routes,
        "GET",
        "/public/..%5cadmin",
        "GET /public/{*rest} rest=..\\admin",
    );
    check(routes, "GET", "/%2fadmin", "404");
    check(routes, "GET", "/admin;x", "404");
    check(routes, "GET", "/admin%00", "400");
    check(routes, "GET", "/admin%20", "404");
    check(routes, "GET", "/public%2fa", "404");
    check(routes, "GET", "/public/a%2fb/x", "GET /public/{name}/x name=a/b");
}

#[test]
fn values_are_copied_only_for_an_escaped_slash() {
    let router = router(&["GET /{a}/{b}"]);
    let (path, mut params) = ("/x\0y/z", Params::new());
    router.find(Method::Get, path, &mut params);
    let get = |name| params.get(name, router.names(), path);
    assert!(matches!(get("a"), Some(Cow::Owned(value)) if value == "x/y"));
    assert!(matches!(get("b"), Some(Cow::Borrowed("z"))));
    assert_eq!(get("c"), None);
    assert_eq!(
        params.get("a", router.names(), "/"),
        None,
        "another path: nothing, no panic"
    );
}

#[test]
fn as_many_parameters_as_a_route_may_have() {
    let names: Vec<_> = (0..16).map(|number| format!("{{p{number}}}")).collect();
    let route = format!("GET /{}", names.join("/"));
    let path = "/v".repeat(16);
    let values: String = (0..16).map(|number| format!(" p{number}=v")).collect();
    check(&[&route], "GET", &path, &format!("{route}{values}"));
}

#[test]
fn alternatives_at_every_depth() {
    let routes: Vec<_> = (0..8)
        .map(|index| {
            let mut segments = ["a"; 8];
            segments[index] = "{x}";
            format!("GET /{}/z", segments.join("/"))
        })
        .collect();
    let routes: Vec<_> = routes.iter().map(String::as_str).collect();
    check(&routes, "GET", "/a/a/a/a/a/a/a/a/y", "404");
    check(
        &routes,
        "GET",
        "/a/a/a/a/a/a/a/b/z",
        &format!("{} x=b", routes[7]),
    );
    check(&routes, "GET", "/b/a/a/a/a/a/a/b/z", "404");
}

#[test]
fn groups_join_their_routes() {
    let check = |prefix: &str, pattern: &str, expected: &str| {
        assert_eq!(join(prefix, pattern).as_deref(), Ok(expected));
    };
    check("/api", "/users/{id}", "/api/users/{id}");
    check("/api", "", "/api");
    check("/api", "/", "/api/");
    check("", "/a", "/a");
    check("/{tenant}", "/{*rest}", "/{tenant}/{*rest}");
}

#[test]
fn a_table_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&router(&["GET /a"]));
}
