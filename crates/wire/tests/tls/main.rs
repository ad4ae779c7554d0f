//! TLS against its rules and laws: our sessions against each other and against rustls's own.
#![forbid(unsafe_code)]

mod cuts;
mod handshake_rules;
mod late_rules;
mod pairs;
mod raw;
mod resumption_rules;
mod rules;
mod settings_rules;
#[path = "../shared/rng.rs"]
mod shared_rng;
#[path = "../shared/rules.rs"]
mod shared_rules;
mod support;
