//! Sources with real brokers: in order, nothing lost, nothing twice.

#[cfg(feature = "jetstream")]
mod jetstream;
#[cfg(any(feature = "jetstream", feature = "kafka", feature = "redis"))]
mod log;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "jetstream", feature = "redis"))]
mod support;
