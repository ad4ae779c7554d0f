//! TLS against its rules and laws: our sessions against each other and against rustls's own.

mod client_rules;
mod cuts;
mod handshake_rules;
mod late_rules;
mod pairs;
mod raw;
mod resumption_rules;
mod rules;
mod settings_rules;
mod support;
