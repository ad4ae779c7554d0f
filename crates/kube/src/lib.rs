//! Kubernetes: objects of the API server translated into the gateway's model, and its problems into statuses.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod api;
pub mod limits;
