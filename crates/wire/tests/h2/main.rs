//! The HTTP/2 codec against its rules and laws.
#![forbid(unsafe_code)]

mod cuts;
mod ending;
mod floods;
mod flow;
mod heads;
mod messages;
mod rules;
#[path = "../shared/rng.rs"]
mod shared_rng;
mod support;
