//! From what people and systems say to what the gateway does: [`mod@file`] reads a configuration, [`config`] translates it into the
//! gateway's model, [`reload`] has a gateway follow its
//! changes, [`nats`] publishes what brokers have for those who are pushed to, [`admin`] shows what it does, [`edge`] is all of it together for a program that embeds a gateway.
//!
//! Knows formats and where things are kept; nothing of requests.
#![forbid(unsafe_code)]

pub mod admin;
pub mod cluster;
pub mod config;
pub mod edge;
pub mod file;
pub mod limits;
pub mod merge;
pub mod nats;
pub mod reload;
pub mod verify;

pub use ringmain_gateway::filter;
pub use ringmain_web::Exit;

#[doc = include_str!("../../../docs/filters.md")]
pub mod filters {}
