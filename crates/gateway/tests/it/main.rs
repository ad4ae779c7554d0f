//! The gateway over real sockets, on every real back-end: clients on one side, origins on the other, both byte by byte.
#![allow(
    clippy::disallowed_methods,
    reason = "clients and origins in a test are real threads and sockets"
)]

#[macro_use]
#[path = "../../../web/tests/it/support.rs"]
#[allow(dead_code, reason = "the gateway needs a part")]
mod support;

mod again;
mod any;
mod attacks;
mod authz;
mod bounds;
mod certificates;
mod claims;
mod copies;
mod cross;
mod ending;
mod extended;
mod failing;
mod failover;
mod features;
mod files;
mod filters;
mod forged;
mod forwarding;
mod framed;
mod gates;
mod grpc;
mod hedging;
mod holding;
#[path = "../../../web/tests/it/http2/client.rs"]
#[allow(dead_code, reason = "it is another test's too")]
mod http2;
mod kept;
mod keys;
mod lines;
mod listening;
mod names;
mod observed;
mod origin;
mod passing;
mod passing_ends;
mod passing_refused;
mod paths;
mod policies;
mod proxied;
mod push;
mod recovering;
mod responses;
mod room;
mod scene;
mod secure;
mod shared;
mod shared_rates;
mod signer;
mod slow_uploads;
mod sticky;
mod streams;
mod tokens;
mod trailing;
mod turns;
mod unanswered;
mod untasked;
mod uploads;
