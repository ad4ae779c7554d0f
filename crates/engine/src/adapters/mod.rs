//! The engine's streams, timers and tasks behind the traits of other ecosystems.
//!
//! Alike for all: a write is queued at once and pending above the write mark; a flush is done when all is handed
//! to the kernel; an error that comes after a write was queued surfaces at the next call. Everything
//! stays on the worker it was made on (`!Send`); no foreign runtime runs. Nothing else in the engine knows of these.

#[cfg(feature = "hyper-rt")]
pub mod hyper;
#[cfg(feature = "tokio-io")]
pub mod tokio;
