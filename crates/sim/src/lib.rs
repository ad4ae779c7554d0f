//! The engine without a kernel, for tests: a simulated back-end, real workers on it, and the conformance suite of all back-ends.
//!
//! Owns the simulated machine and network ([`World`]), a process of workers in it ([`SimCluster`]) and the cases that hold every
//! back-end to the completion contract ([`mod@conformance`]). Knows the engine by the contract and by [`ringmain_engine::testing`]
//! alone; knows no protocol. No part of a product: other crates have this one as a development dependency, or behind a feature
//! for tests.
//!
//! Everything that the contract leaves open is drawn from the seed: how long things take, how bytes are cut, which of two
//! independent completions is first, and the faults of a [`Plan`]. The same seed and the same calls give the same run;
//! [`World::trace_hash`] shows it.
//!
//! A test drives a [`SimCluster`] by its `step`, and back-ends alone like this:
//!
//! ```text
//! loop {
//!     match world.step() {
//!         Step::Turn(worker) => one turn of that worker: wait(), then next() until None
//!         Step::Moved        => something happened; simulated clients may act
//!         Step::Quiet        => nothing will happen unless the test acts
//!     }
//! }
//! ```

mod cluster;
pub mod conformance;
pub mod seeds;
mod world;

pub use ringmain_engine::testing::ClusterConfig;

pub use self::cluster::SimCluster;
pub use self::world::{Fault, Peer, PeerDatagrams, PeerListener, Plan, Sim, Step, World};
