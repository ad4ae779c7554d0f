//! The completion contract (`docs/contract.md`) on every back-end that talks to the kernel.
//!
//! Owns the list of back-ends and how a pair of workers of each is made.

#![allow(
    clippy::disallowed_methods,
    reason = "jobs of real workers run on real threads"
)]

use std::sync::Arc;

use ringmain_engine::backend::RunJob;
use ringmain_engine::backend::epoll::{Epoll, EpollGroup};
use ringmain_engine::backend::uring::{Group, Uring, UringConfig};
use ringmain_engine::features::{Feature, Features};
use ringmain_sim::conformance::RealHarness;

/// A pool of its own for each job: what the pool does is not the contract's business.
fn run_job() -> RunJob {
    Arc::new(|job| {
        std::thread::spawn(job);
        Ok(())
    })
}

pub(crate) fn epoll() -> RealHarness<Epoll> {
    let group = EpollGroup::new(2).expect("eventfds");
    let worker = |index| group.worker(index, run_job()).expect("an epoll instance");
    RealHarness::new([worker(0), worker(1)])
}

fn uring(config: &UringConfig) -> RealHarness<Uring> {
    let group = Group::new(2).expect("eventfds");
    let worker = |index| Uring::new(config.clone(), Arc::clone(&group), index, run_job()).expect("a ring");
    RealHarness::new([worker(0), worker(1)])
}

ringmain_sim::conformance!(on_epoll, epoll());

ringmain_sim::conformance!(on_uring, uring(&UringConfig::default()));

/// Rings without some of what the probe would find here.
fn without(features: &[Feature]) -> UringConfig {
    UringConfig {
        features: features
            .iter()
            .fold(Features::all(), |set, feature| set.without(*feature)),
        ..UringConfig::default()
    }
}

ringmain_sim::conformance!(
    on_uring_plain_descriptors,
    uring(&without(&[Feature::DirectDescriptors]))
);

ringmain_sim::conformance!(on_uring_no_message_ring, uring(&without(&[Feature::MessageRing])));

ringmain_sim::conformance!(
    on_uring_single_shot,
    uring(&without(&[Feature::MultishotAccept, Feature::MultishotRecv]))
);

// Nothing beyond the floor.
ringmain_sim::conformance!(
    on_uring_floor,
    uring(&UringConfig {
        features: Features::none(),
        ..UringConfig::default()
    })
);

// Every second entry of the kernel takes one operation less than it was given.
ringmain_sim::conformance!(
    on_uring_short_submits,
    uring(&UringConfig {
        short_submit_every: 2,
        ..UringConfig::default()
    })
);

// Rings and buffers so small that submissions wait, completions overflow and receives end with `NoBuffers`.
ringmain_sim::conformance!(
    on_uring_cramped,
    uring(&UringConfig {
        submission_entries: 2,
        completion_entries: 4,
        receive_buffers: 2,
        receive_buffer_bytes: 512,
        ..UringConfig::default()
    })
);
