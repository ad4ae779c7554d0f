//! Every limit of Kubernetes objects, with its unit and the outcome at the limit.

#[cfg(feature = "client")]
mod client;

#[cfg(feature = "client")]
pub use client::*;

/// Bytes of the JSON of one object. A larger one is rejected by [`Object::parse`](crate::objects::Object::parse) and does not
/// change the store. The API server stores at most 1.5 MiB.
pub const OBJECT_BYTES: usize = 3 << 20;

/// Objects of one kind, except for [`ENDPOINT_SLICES`]. A further one is rejected by
/// [`Store::apply`](crate::store::Store::apply); updates of stored ones are accepted.
pub const OBJECTS_PER_KIND: usize = 100_000;

/// EndpointSlices; the outcome is that of [`OBJECTS_PER_KIND`].
pub const ENDPOINT_SLICES: usize = 200_000;

/// Listeners of one Gateway together with its ListenerSets. Further ones are not accepted, reason `TooManyListeners`.
pub const LISTENERS_PER_GATEWAY: usize = 10_000;

/// Endpoints of one port of a Service. Further ones are left out.
pub const ENDPOINTS_PER_PORT: usize = 10_000;

/// Parents of one route or ancestors of one policy in a status, as the API allows. Further ones of ours are not written.
pub const STATUS_ENTRIES: usize = 32;

/// Ancestors of one policy in a status, as the API allows. Further ones of ours are not written.
pub const STATUS_ANCESTORS: usize = 16;

/// Characters of a condition's message. A longer one is cut; the API allows 32,768.
pub const MESSAGE_CHARS: usize = 1024;

/// The time for a connection to an endpoint, TLS included; then the endpoint has failed.
pub const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);
