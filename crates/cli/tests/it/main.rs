//! The binary from outside: its command lines, its responses, and its shutdown.
//!
//! One program, so that the common code of the tests is compiled and linked once.

mod common;
#[path = "common/proxy.rs"]
mod proxy;
#[path = "../../../web/tests/it/support/tls.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod secure;

mod bench;
#[cfg(feature = "brokers")]
mod bench_brokers;
mod bench_guide;
mod bench_nodes;
mod bench_push;
mod bench_tls;
mod configuration;
mod drain;
mod feed;
mod gateway;
mod gateway_admin;
mod gateway_listeners;
mod gateway_tls;
mod guides;
mod handover;
mod http;
mod identity;
mod init;
mod process_log;
mod profile;
#[cfg(feature = "brokers")]
mod push_examples;
mod reference;
mod reference_pages;
mod service;
mod serving;
mod startup_errors;
mod tls;
mod tls_tools;
mod tune;
mod tune_seccomp;
