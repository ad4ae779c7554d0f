//! Sources with real brokers: in order, nothing lost, nothing twice.

#[cfg(feature = "jetstream")]
mod jetstream;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "jetstream", feature = "redis"))]
mod support;
