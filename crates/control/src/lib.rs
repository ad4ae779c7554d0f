//! The control plane: [`mod@file`] reads a configuration, [`config`] translates it into the gateway's model, [`reload`] applies its
//! changes, [`nats`] publishes messages of NATS in channels of push, [`admin`] serves the administration, and [`edge`] combines
//! them for a program that embeds a gateway.
//!
//! Knows formats and sources of configuration; does not know requests.
#![forbid(unsafe_code)]

pub mod admin;
pub mod cluster;
pub mod config;
pub mod edge;
pub mod file;
pub mod limits;
pub mod merge;
pub mod nats;
mod process_log;
mod push_cluster;
mod push_log;
mod push_node;
pub mod reload;
pub mod verify;

pub use ringmain_gateway::filter;
pub use ringmain_web::Exit;

#[doc = include_str!("../../../docs/how-to/custom-filters.md")]
pub mod filters {}
