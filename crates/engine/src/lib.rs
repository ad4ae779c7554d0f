//! Thread-per-core network engine: one completion contract, io_uring and epoll under it.
//!
//! Owns workers, connections, buffers, timers and mail. Must not know HTTP or any other protocol.
//!
//! ```text
//! kernel ─▶ Backend::wait ─▶ Backend::next ─▶ Completion::Received ─▶ [Layer::receive] ─▶ Handler::data
//! kernel ◀─ Backend::send ◀─ flush, once per turn ◀─ [Layer::send] ◀─ out-queue of the connection ◀─┘
//! ```
//!
//! 1. A worker's turn begins with one `wait`, which submits the queued operations and returns when a completion is ready.
//! 2. `next` yields the completions one by one. Each names a slot of the worker's slab and its generation, so that a late completion of a
//!    closed connection is recognised.
//! 3. Received bytes are lent for one synchronous step and may be changed in place. The buffer returns to the kernel before the next
//!    completion; bytes that must outlive the step are copied into a capped buffer of the connection. No borrow of the worker is held
//!    while the handler runs, so it may write, close, connect or spawn.
//! 4. A write appends to the connection's out-queue. Each dirty connection is flushed once per turn, and whenever a turn has lasted a
//!    millisecond: one send in flight per socket, the rest is queued, and a full queue is a [`WriteError`].
//! 5. With a layer ([`Layer`], TLS) a record is decrypted in place in the lent bytes. Read limits count as without a layer.
//! 6. Handshake steps cost as much as some hundred ordinary calls: their number per turn is limited, and others are queued with their
//!    bytes.

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
    BoundListener, Engine, EngineError, Listeners, Reload, Report, Running, Summary, WorkerReport,
    block_signals,
};
pub use layer::{Layer, LayerEvent, LayerFault, LayerStep};
pub use ringmain_sys::addr::Addr;
pub use ringmain_sys::inherit;
pub use ringmain_sys::listen::ListenOptions;
pub use worker::core::{Via, WriteError};
pub use worker::cx::{Conn, ConnId, Cx, Draining, Sleep};
pub use worker::drain::{DrainHold, DrainTurn};
pub use worker::handler::{Handler, on_data};
pub use worker::record::Reason;
pub use worker::shared::Counters;
pub use worker::tasks::{TaskId, TooManyTasks};
pub use worker::{Post, Start, Worker};
