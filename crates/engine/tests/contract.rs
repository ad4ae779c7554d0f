//! The completion contract (`docs/contract.md`) on every back-end that talks to the kernel.
//!
//! Owns the list of back-ends and how a pair of workers of each is made.

use std::sync::Arc;

use ringmain_engine::backend::conformance::RealHarness;
use ringmain_engine::backend::epoll::{Blocking, Epoll, EpollGroup};
use ringmain_engine::backend::uring::{Group, Uring, UringConfig};
use ringmain_engine::features::{Feature, Features};

/// A pool of its own for each job: what the pool does is not the contract's business.
fn blocking() -> Blocking {
    Arc::new(|job| {
        std::thread::spawn(job);
        Ok(())
    })
}

fn epoll() -> RealHarness<Epoll> {
    let group = EpollGroup::new(2).expect("eventfds");
    let worker = |index| group.worker(index, blocking()).expect("an epoll instance");
    RealHarness::new([worker(0), worker(1)])
}

ringmain_engine::conformance!(on_epoll, epoll());

/// Both rings of a pair are made on the thread of the test, which is their only issuer.
fn uring(config: &UringConfig) -> RealHarness<Uring> {
    let group = Group::new(2).expect("eventfds");
    let worker = |index| {
        let group = Arc::clone(&group);
        Uring::new(config.clone(), group, index, blocking()).expect("a ring: io_uring is needed here")
    };
    RealHarness::new([worker(0), worker(1)])
}

/// Rings without some of what the probe would find here.
fn without(features: &[Feature]) -> UringConfig {
    // Busy polling concerns network devices only; the tests' connections have none.
    let all = Features::all().without(Feature::BusyPoll);
    UringConfig {
        features: features.iter().fold(all, |set, feature| set.without(*feature)),
        ..UringConfig::default()
    }
}

/// Rings of the floor, Linux 6.1, and nothing beyond.
fn bare() -> UringConfig {
    UringConfig {
        features: Features::none(),
        ..UringConfig::default()
    }
}

/// Every third entry of the kernel leaves one operation queued, as a short submit does.
fn short_submits() -> UringConfig {
    UringConfig {
        short_submit_every: 3,
        ..without(&[])
    }
}

/// More completions than the queue holds: the kernel keeps them in a list (CQ overflow).
fn tiny_queues() -> UringConfig {
    UringConfig {
        submission_entries: 4,
        completion_entries: 8,
        ..without(&[])
    }
}

/// Busy connections find no buffer (`ENOBUFS`).
fn two_buffers() -> UringConfig {
    UringConfig {
        receive_buffers: 2,
        ..without(&[])
    }
}

ringmain_engine::conformance!(on_uring, uring(&without(&[])));
ringmain_engine::conformance!(
    on_uring_plain_descriptors,
    uring(&without(&[Feature::DirectDescriptors]))
);
ringmain_engine::conformance!(on_uring_no_message_ring, uring(&without(&[Feature::MessageRing])));
ringmain_engine::conformance!(
    on_uring_single_shot,
    uring(&without(&[Feature::MultishotAccept, Feature::MultishotRecv]))
);
ringmain_engine::conformance!(on_uring_nothing_extra, uring(&bare()));
ringmain_engine::conformance!(on_uring_short_submits, uring(&short_submits()));
ringmain_engine::conformance!(on_uring_tiny_queues, uring(&tiny_queues()));
ringmain_engine::conformance!(on_uring_two_buffers, uring(&two_buffers()));
