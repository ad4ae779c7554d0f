//! The completion contract (`docs/contract.md`) on every back-end that talks to the kernel.
//!
//! Owns the list of back-ends and how a pair of workers of each is made.

use std::sync::Arc;

use ringmain_engine::backend::conformance::RealHarness;
use ringmain_engine::backend::RunJob;
use ringmain_engine::backend::epoll::{Epoll, EpollGroup};

/// A pool of its own for each job: what the pool does is not the contract's business.
fn run_job() -> RunJob {
    Arc::new(|job| {
        std::thread::spawn(job);
        Ok(())
    })
}

fn epoll() -> RealHarness<Epoll> {
    let group = EpollGroup::new(2).expect("eventfds");
    let worker = |index| group.worker(index, run_job()).expect("an epoll instance");
    RealHarness::new([worker(0), worker(1)])
}

ringmain_engine::conformance!(on_epoll, epoll());
