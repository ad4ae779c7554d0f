//! The gateway over real sockets, on every real back-end: clients on one side, origins on the other, both byte by byte.
#![allow(
    clippy::disallowed_methods,
    reason = "clients and origins in a test are real threads and sockets"
)]

#[macro_use]
#[path = "../../../web/tests/it/support.rs"]
#[allow(dead_code, reason = "the gateway needs a part")]
mod support;

mod affinity;
mod attacks;
mod authz;
mod authz_messages;
mod claim_limits;
mod client_certificates;
mod client_share;
mod connection_limits;
mod cors;
mod dns;
mod early_close;
mod ext_proc;
mod extended_connect;
mod failover;
mod failures;
mod fast_path;
mod files;
mod filters;
mod forwarding;
mod grpc;
mod grpc_authz;
mod grpc_service;
mod h2_clients;
mod h2_origin;
mod h2_unanswered;
mod h2_upstreams;
mod hedging;
#[path = "../../../web/tests/it/http2/client.rs"]
#[allow(dead_code, reason = "it is another test's too")]
mod http2;
mod identity_provider;
mod jwks;
mod jwt;
mod l4;
mod l4_rejected;
mod l4_rig;
mod l4_termination;
mod limits;
mod listeners;
mod mirroring;
mod observability;
mod origin;
mod paths;
mod policies;
mod proc_failures;
mod proc_messages;
mod proc_service;
mod proxy_protocol;
mod push;
mod push_balance;
mod push_recovery;
mod rate_messages;
mod rate_service;
mod redis_rate_limits;
mod reserved_headers;
mod responses;
mod retries;
mod reused_connections;
mod rules;
mod satisfy_any;
mod slow_framing;
mod slow_uploads;
mod stream_drain;
mod stream_fairness;
mod trailers;
mod tunnel_drain;
mod udp;
mod udp_simulated;
mod uploads;
mod upstream_tls;
mod virtual_gateway;
