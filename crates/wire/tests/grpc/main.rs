//! gRPC's and gRPC-Web's parts against their rules and laws.
#![forbid(unsafe_code)]

mod encodings;
mod fields;
mod messages;
#[path = "../shared/rng.rs"]
mod shared_rng;
mod text;
mod web;
