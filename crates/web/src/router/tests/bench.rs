//! Nanoseconds of a lookup, measured by hand.
//!
//! `cargo test --release -p ringmain-web --lib router::tests::bench -- --ignored --nocapture`
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

use std::hint::black_box;
use std::time::Instant;

use ringmain_wire::h1::Method;

use super::router;
use crate::http::path::normalise;
use crate::router::{Lookup, Params};

const ROUNDS: usize = 200;
const LOOKUPS: usize = 1000;

/// Fifty routes, as an application has them.
const ROUTES: &[&str] = &[
    "GET /",
    "GET /json",
    "GET /plaintext",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /favicon.ico",
    "GET /static/{*rest}",
    "POST /login",
    "POST /logout",
    "GET /api/users",
    "POST /api/users",
    "GET /api/users/{id}",
    "PUT /api/users/{id}",
    "DELETE /api/users/{id}",
    "GET /api/users/{id}/posts",
    "POST /api/users/{id}/posts",
    "GET /api/users/{id}/posts/{post}",
    "PUT /api/users/{id}/posts/{post}",
    "DELETE /api/users/{id}/posts/{post}",
    "GET /api/users/{id}/posts/{post}/comments",
    "POST /api/users/{id}/posts/{post}/comments",
    "GET /api/users/{id}/posts/{post}/comments/{comment}",
    "GET /api/users/me",
    "GET /api/users/me/settings",
    "PUT /api/users/me/settings",
    "GET /api/orders",
    "POST /api/orders",
    "GET /api/orders/{id}",
    "GET /api/orders/{id}/items",
    "GET /api/orders/{id}/items/{item}",
    "POST /api/orders/{id}/cancel",
    "GET /api/products",
    "POST /api/products",
    "GET /api/products/{id}",
    "GET /api/products/{id}/reviews",
    "POST /api/products/{id}/reviews",
    "GET /api/search",
    "GET /api/notifications",
    "GET /api/notifications/unread",
    "POST /api/notifications/{id}/read",
    "GET /api/reports/daily",
    "GET /api/reports/weekly",
    "GET /api/reports/monthly",
    "GET /api/reports/{name}.csv",
    "GET /api/reports/{name}.json",
    "GET /api/organisations/{org}/teams/{team}/members/{member}",
    "GET /admin",
    "GET /admin/users",
    "GET /admin/settings",
];

const PATHS: &[&str] = &[
    "/json",
    "/plaintext",
    "/api/users",
    "/api/users/1234567",
    "/api/users/me/settings",
    "/api/users/1234567/posts/89",
    "/api/users/1234567/posts/89/comments/3",
    "/api/organisations/ringmain/teams/core/members/7",
    "/api/reports/sales.json",
    "/static/js/app.3f9c.js",
    "/nothing/here",
];

#[test]
#[ignore = "a measurement: run it by hand, in release"]
fn a_lookup() {
    let router = router(ROUTES);
    println!("{} routes; ns: normalise, find", ROUTES.len());
    for path in PATHS {
        let mut scratch = String::new();
        let plain = fastest(|| normalise(black_box(path), &mut scratch).is_ok());
        let mut params = Params::new();
        let find =
            fastest(|| router.find(black_box(Method::Get), black_box(path), &mut params) == Lookup::Nothing);
        println!("{path:52} {plain:6.1} {find:6.1}");
    }
}

/// The fastest round counts: what else the machine does can only add.
fn fastest(mut run: impl FnMut() -> bool) -> f64 {
    let mut fastest = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..LOOKUPS {
            black_box(run());
        }
        let round = start.elapsed().as_nanos() as f64 / LOOKUPS as f64;
        fastest = fastest.min(round);
    }
    fastest
}
