//! Thread-per-core network engine: one completion contract, io_uring and epoll under it.
//!
//! Owns workers, connections, buffers, timers and mail. Knows nothing of HTTP or any other protocol.

#[cfg(any(feature = "tokio-io", feature = "hyper-rt"))]
pub mod adapters;
pub mod backend;
pub mod blocking;
pub mod config;
mod engine;
pub mod features;
pub mod file;
mod layer;
pub mod limits;
pub mod mail;
pub mod probe;
mod slab;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timer;
pub mod udp;
pub mod wake;
pub mod watchdog;
mod worker;

pub use config::{Choice, Config};
pub use engine::{
    BoundListener, Engine, EngineError, Listeners, Report, Running, Summary, WorkerReport, block_signals,
};
pub use layer::{Layer, LayerEvent, LayerFault, LayerStep};
pub use ringmain_sys::addr::Addr;
pub use ringmain_sys::inherit;
pub use ringmain_sys::listen::ListenOptions;
pub use worker::core::{Via, WriteError};
pub use worker::cx::{Conn, ConnId, Cx, Draining, Sleep};
pub use worker::handler::{Handler, on_data};
pub use worker::record::Reason;
pub use worker::shared::Counters;
pub use worker::tasks::{TaskId, TooManyTasks};
pub use worker::{Post, Start, Worker};
