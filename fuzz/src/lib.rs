//! Fuzz targets as plain functions: bytes in, a panic when a law is broken.
//!
//! Two drivers share them: libFuzzer (`src/bin/libfuzzer.rs`) and the smoke runner on stable Rust
//! (`src/bin/fuzz-smoke`). Neither what drives a target nor where inputs lie is known here.
#![forbid(unsafe_code)]

pub mod addr;
pub mod authz_response;
pub mod channel_pattern;
pub mod cluster_frames;
pub mod config;
mod conversation;
pub mod datagram_control;
pub mod delta;
pub mod differences;
pub mod form;
pub mod grpc;
pub mod guardian;
pub mod h1_encode;
pub mod h1_request;
pub mod h1_response;
pub mod h2_server;
pub mod hpack;
pub mod hub_messages;
mod hyper_client;
mod hyper_server;
pub mod kube;
pub mod log_entries;
mod memory;
pub mod nats;
pub mod profile;
pub mod push_state;
pub mod record;
pub mod redis_reply;
pub mod router;
pub mod timer_wheel;
pub mod tls_peek;
mod tls_peer;
pub mod tls_server;
pub mod tune;
pub mod ws_differences;
mod ws_fast;
pub mod ws_frames;
pub mod ws_tracker;

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its folder in `corpus/`.
    pub name: &'static str,
    /// Runs one input; panics when a law is broken.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "addr",
        run: addr::run,
    },
    Target {
        name: "authz_response",
        run: authz_response::run,
    },
    Target {
        name: "channel_pattern",
        run: channel_pattern::run,
    },
    Target {
        name: "cluster_frames",
        run: cluster_frames::run,
    },
    Target {
        name: "config",
        run: config::run,
    },
    Target {
        name: "datagram_control",
        run: datagram_control::run,
    },
    Target {
        name: "delta",
        run: delta::run,
    },
    Target {
        name: "form",
        run: form::run,
    },
    Target {
        name: "grpc",
        run: grpc::run,
    },
    Target {
        name: "h1_encode",
        run: h1_encode::run,
    },
    Target {
        name: "h1_request",
        run: h1_request::run,
    },
    Target {
        name: "h1_response",
        run: h1_response::run,
    },
    Target {
        name: "h2_server",
        run: h2_server::run,
    },
    Target {
        name: "hpack",
        run: hpack::run,
    },
    Target {
        name: "hub_messages",
        run: hub_messages::run,
    },
    Target {
        name: "kube",
        run: kube::run,
    },
    Target {
        name: "log_entries",
        run: log_entries::run,
    },
    Target {
        name: "nats",
        run: nats::run,
    },
    Target {
        name: "profile",
        run: profile::run,
    },
    Target {
        name: "push_state",
        run: push_state::run,
    },
    Target {
        name: "record",
        run: record::run,
    },
    Target {
        name: "redis_reply",
        run: redis_reply::run,
    },
    Target {
        name: "router",
        run: router::run,
    },
    Target {
        name: "timer_wheel",
        run: timer_wheel::run,
    },
    Target {
        name: "tls_peek",
        run: tls_peek::run,
    },
    Target {
        name: "tls_server",
        run: tls_server::run,
    },
    Target {
        name: "tune",
        run: tune::run,
    },
    Target {
        name: "ws_frames",
        run: ws_frames::run,
    },
    Target {
        name: "ws_tracker",
        run: ws_tracker::run,
    },
];
