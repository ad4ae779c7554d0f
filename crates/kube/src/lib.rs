//! Kubernetes objects as a source of configuration: the Gateway API, translated into the gateway's model.
//!
//! Owns the trimmed objects ([`objects`]), the store that indexes them ([`store`]), the translation into parts of the model
//! ([`translate`]) and the status documents that follow from it ([`status`]). All of these are pure functions over plain
//! data: they know no API server, no clock, no socket and no runtime.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod api;
mod hash;
pub mod limits;
#[cfg(feature = "client")]
pub mod live;
pub mod objects;
pub mod status;
pub mod store;
pub mod translate;
